"""UNEM: unrolled expectation–maximisation with learned parameters."""
