"""All that matplotlib draws: into axes of a user, into files, and as SVG for the report.

It is imported on use.
"""

import lazy_loader

# The names and where they live are in __init__.pyi. Each is imported on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
