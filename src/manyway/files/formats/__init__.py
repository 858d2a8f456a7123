"""The formats of files: one class each. See `base` for what a format is, and `registry` for all of them."""
