"""Evidence, the default method: calibrated likelihoods and as few classes as the queries give evidence for."""
