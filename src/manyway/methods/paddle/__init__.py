"""PADDLE (NeurIPS 2022) and its two ablations."""
