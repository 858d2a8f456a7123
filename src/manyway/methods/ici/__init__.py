"""LR+ICI: logistic regression that adds credible queries to its support."""
