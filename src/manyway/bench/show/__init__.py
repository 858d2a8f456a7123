"""Stored results as tables, figures and reports. Reads files, runs no experiment."""
