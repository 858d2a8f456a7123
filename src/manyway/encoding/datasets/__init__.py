"""Sources of pictures and texts, decoding, preprocessing and augmentation."""

from manyway.encoding.datasets.images import ImageSet

__all__ = ["ImageSet"]
