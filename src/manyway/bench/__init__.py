"""Experiments as data: suites in TOML, results in JSON, tables, plots and a report made from stored results only."""
