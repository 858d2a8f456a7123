"""What every method uses: tasks, solutions, checks, numerical building blocks, GPU kernels.

Other rooms import from here; ``__init__.pyi`` lists the names and where they live. Each is imported
on first use, so that checking a file does not wait for torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
