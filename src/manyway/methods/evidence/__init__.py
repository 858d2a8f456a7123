"""Evidence, the default method.

Calibrated likelihoods and as few classes as the queries give evidence for.
"""
