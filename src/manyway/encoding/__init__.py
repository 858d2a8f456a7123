"""Pictures and texts to features: data sets, encoders, training. Nothing outside `bench` and `cli` imports it."""
