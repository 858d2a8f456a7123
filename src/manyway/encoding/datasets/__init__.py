"""Where images come from, and the value they arrive in."""

from manyway.encoding.datasets.images import ImageSet

__all__ = ["ImageSet"]
