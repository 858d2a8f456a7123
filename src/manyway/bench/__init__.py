"""Experiments as data, and what is made from their stored results.

Suites are in TOML, results in JSON; tables, plots and a report are made from stored results only.
"""

import lazy_loader

# The names and where they live are in __init__.pyi. Each is imported on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
