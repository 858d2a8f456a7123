"""What every method stands on: tasks, solutions, checks of input, numerical building blocks, GPU kernels."""
