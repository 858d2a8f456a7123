"""manyway: label batches of items when there are many possible classes and few of them occur.

>>> from manyway import Evidence
>>> clf = Evidence().fit([[0.0, 0.0], [5.0, 5.0]], ["ant", "bee"])
>>> clf.predict([[0.2, 0.1], [4.9, 5.2], [0.1, 0.3]]).tolist()
['ant', 'bee', 'ant']
"""

import sys

__version__ = "0.1.0"


def _attach() -> None:
    """Find the public names, which `__init__.pyi` lists with where they live; each is imported on first use.

    They are found on first use too: it takes as long as all else that happens before the command can take an
    interruption without a traceback.
    """
    import lazy_loader

    found = lazy_loader.attach_stub(__name__, __file__)
    globals().update(zip(("__getattr__", "__dir__", "__all__"), found, strict=True))


def __getattr__(name: str) -> object:
    _attach()
    return getattr(sys.modules[__name__], name)


def __dir__() -> list[str]:
    _attach()
    return dir(sys.modules[__name__])
