"""The letters, the font faces that have them, and the scripts for training, validation and test."""

import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

# The text faces among the fonts of matplotlib. Its TeX faces (cm*) have symbols at the code points of letters, and its
# display, size and "last resort" faces have no alphabets.
FACES = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
    *(
        "DejaVuSansMono",
        "DejaVuSansMono-Bold",
        "DejaVuSansMono-Oblique",
        "DejaVuSansMono-BoldOblique",
    ),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
)

# A script belongs to one split, so that no alphabet of the test is trained on. The number is that of the faces that a
# letter needs: test classes must be drawn in many faces, and base letters in few have only less variety.
SCRIPTS: Mapping[str, Mapping[str, int]] = {
    "base": {"LATIN": 8, "HEBREW": 4, "ARABIC": 4, "LAO": 4, "CANADIAN": 4, "LISU": 4, "OLD": 4},
    "val": {"GREEK": 8, "COPTIC": 4},
    "test": {"CYRILLIC": 8, "ARMENIAN": 8, "GEORGIAN": 8},
}


class Letter(NamedTuple):
    """A candidate class: a code point and the faces that have a glyph for it."""

    code: int
    split: str
    faces: tuple[str, ...]

    @property
    def name(self) -> str:
        """The character and its Unicode name, e.g. ``Ж CYRILLIC CAPITAL LETTER ZHE``."""
        return f"{chr(self.code)} {unicodedata.name(chr(self.code))}"


def font_folder() -> Path:
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def script_of(code: int) -> str:
    """The first word of a letter's Unicode name: LATIN, GREEK, CYRILLIC...

    >>> script_of(ord("Ж"))
    'CYRILLIC'
    """
    return unicodedata.name(chr(code), "?").split()[0]


def candidate_letters() -> tuple[Letter, ...]:
    """The letters of the scripts above that enough faces have, by code point.

    Read from the tables of the fonts.
    """
    from matplotlib.ft2font import FT2Font

    faces_of: dict[int, list[str]] = {}
    for face in FACES:
        for code in FT2Font(str(font_folder() / f"{face}.ttf")).get_charmap():
            # no marks, modifiers or digits
            if unicodedata.category(chr(code)) in ("Lu", "Ll", "Lt", "Lo"):
                faces_of.setdefault(code, []).append(face)
    needed = {
        script: (split, n) for split, scripts in SCRIPTS.items() for script, n in scripts.items()
    }
    letters = []
    for code, faces in sorted(faces_of.items()):
        split, n_faces = needed.get(script_of(code), ("", 0))
        if split and len(faces) >= n_faces:
            letters.append(Letter(code, split, tuple(faces)))
    return tuple(letters)
