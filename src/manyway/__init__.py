"""manyway: label batches of items when there are many possible classes and few of them occur.

>>> from manyway import Evidence
>>> clf = Evidence().fit([[0.0, 0.0], [5.0, 5.0]], ["ant", "bee"])
>>> clf.predict([[0.2, 0.1], [4.9, 5.2], [0.1, 0.3]]).tolist()
['ant', 'bee', 'ant']
"""

import lazy_loader

__version__ = "0.1.0"

# The public names and where they live are in __init__.pyi. Each is imported on first use, so that `manyway --help` does
# not wait for torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
