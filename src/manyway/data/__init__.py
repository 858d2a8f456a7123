"""Feature sets, people's own files, and the generator of tasks."""
