"""Networks that turn pictures and texts into features, and their weights on disk."""
