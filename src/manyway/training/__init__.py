"""Training an encoder on base classes, and the data sets of the paper."""
