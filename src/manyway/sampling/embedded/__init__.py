"""The embedded features: letters drawn from fonts, encoded by a small network.

The network was trained on other alphabets.

``python -m benchmarks.glyphs``, in the repository, makes the files again.
"""

from importlib import resources
from pathlib import Path

from manyway.errors import named
from manyway.sampling.features import FeatureSet

FILES = {"test": "glyphs.safetensors", "val": "glyphs-val.safetensors"}
FOLDER = Path(str(resources.files("manyway.sampling.embedded")))


def load_glyphs(split: str = "test") -> FeatureSet:
    """Load the embedded features of letters.

    Parameters
    ----------
    split : {"test", "val"}
        ``test`` has 215 letters, ``val`` has 100 letters of other alphabets.
        Both have 40 samples per letter.

    Returns
    -------
    FeatureSet

    Examples
    --------
    >>> load_glyphs("val").n_classes
    100
    """
    return FeatureSet.load(FOLDER / named(FILES, split, "split of the embedded letters"))
