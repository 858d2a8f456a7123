"""Speed and accuracy against named references, each a command."""
