"""How good a method is: accuracy and other metrics over many tasks, with intervals."""
