"""Sources of pictures and texts, decoding and preprocessing."""
