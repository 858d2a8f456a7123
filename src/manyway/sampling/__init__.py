"""Feature sets and the generator of tasks."""
