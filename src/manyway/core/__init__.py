"""What every method uses: tasks, solutions, checks of input, numerical building blocks, GPU kernels."""
