"""Pictures and texts to features: data sets, encoders, training. Only the command line imports this room."""
