"""Training an encoder on base classes."""
