"""What a distance or a score means, learned from labelled examples."""
