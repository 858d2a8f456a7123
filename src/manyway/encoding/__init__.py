"""Pictures and texts to features: data sets, encoders, training.

Only the command line imports this room.
"""

import lazy_loader

# The names and where they live are in __init__.pyi. Each is imported on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
