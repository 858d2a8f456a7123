"""Encoded pictures (JPEG, PNG, TIFF, WebP, ...) to 8-bit pixels, as viewers show them.

Orientation flags are honoured and transparent parts are put on white. Samples of more than
8 bits are reduced to 8 bits where the file says which value is white. Where it does not,
the picture is refused.
"""

from __future__ import annotations

import importlib
import io
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from manyway.errors import InputError, install, is_installed, optional

if TYPE_CHECKING:
    from PIL import Image

HEADER = 16  # bytes that tell the format
MAX_PIXELS = 100_000_000  # a larger picture is a decompression bomb or a mistake
_HEIC = frozenset(
    b"ftyp" + brand for brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1")
)
FIRST_FRAME = "only its first frame is used"
_PLAIN_MODES = frozenset(
    {"1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "LA", "La", "PA", "RGBA", "RGBa"}
)
# TIFF tags
_BITS_PER_SAMPLE = 258
_PHOTOMETRIC = 262
_WHITE_IS_ZERO = 0


def read_picture(
    data: bytes, channels: int, at_least: int | None = None
) -> tuple[Image.Image, str]:
    """Decode a picture.

    Parameters
    ----------
    data : bytes
        The content of a file in any format that Pillow reads.
    channels : {1, 3}
        Grey or RGB.
    at_least : int, optional
        The picture is going to be reduced to this many pixels. A JPEG file whose sides are at least
        four times as long is then decoded at a half, a quarter or an eighth of its size, which is
        several times as fast; both sides keep at least twice this length.

    Returns
    -------
    picture : PIL.Image.Image
        In mode ``L`` or ``RGB``.
    note : str
        What the user should know about the decoding; usually empty.

    Raises
    ------
    InputError
        The reason why the picture cannot be used, without its name: the caller knows the name.
    """
    require_pillow()
    from PIL import Image, ImageOps

    if not data:
        raise InputError("it is empty (0 bytes)")
    try:
        with Image.open(io.BytesIO(data)) as file:
            if file.width * file.height > MAX_PIXELS:
                raise InputError(
                    f"it has {file.width}×{file.height} pixels, more than {MAX_PIXELS:,}"
                )
            if file.format == "EPS":
                raise InputError("it is an EPS program, which is not run; save it as PNG")
            if at_least is not None:
                file.draft(None, (2 * at_least, 2 * at_least))  # None: keep the mode
            turned = ImageOps.exif_transpose(file)
            # A photograph of a phone (MPO) may hold other views of the scene, which are not frames.
            animated = bool(getattr(file, "is_animated", False)) and file.format != "MPO"
            picture = _eight_bits(turned, file) if turned.mode[0] in "IF" else _on_white(turned)
            wanted = "L" if channels == 1 else "RGB"
            if picture.mode != wanted:
                picture = picture.convert(wanted)
            note = FIRST_FRAME if animated else ""
            return picture, note
    except InputError:
        raise
    except Exception as error:  # Pillow's decoders raise exceptions of any type on damaged files
        if data[4:12] in _HEIC:
            raise InputError(
                f"it is a HEIC picture, which needs pillow-heif: {install('pictures')}"
            ) from error
        raise InputError(_reason(error)) from error


@cache
def require_pillow() -> None:
    """An InputError that says what to install if pictures cannot be read at all.

    HEIC is read where it can be.
    """
    optional("PIL.Image", "images", "Reading pictures")
    if is_installed("pillow_heif"):
        importlib.import_module("pillow_heif").register_heif_opener()
    importlib.import_module("PIL.Image").init()  # all formats


def looks_like_picture(start: bytes) -> bool:
    """Whether the first bytes of a file are those of a format that Pillow reads."""
    from PIL import Image

    formats = Image.OPEN.values() if len(start) == HEADER else ()
    return any(accept is not None and accept(start) is True for _, accept in formats)


def _on_white(picture: Image.Image) -> Image.Image:
    """A grey or RGB picture; what is transparent becomes white, as on a page."""
    from PIL import Image

    if picture.mode not in _PLAIN_MODES:
        raise InputError(
            f"its pixels are of the kind {picture.mode}, which is not supported; "
            "save it as 8-bit RGB"
        )
    if not picture.has_transparency_data:
        if picture.mode in ("1", "L", "RGB"):
            return picture
        return picture.convert("RGB")
    if picture.mode in ("La", "RGBa"):
        picture = picture.convert(picture.mode.upper())
    page = Image.new("RGBA", picture.size, "white")
    return Image.alpha_composite(page, picture.convert("RGBA")).convert("RGB")


def _eight_bits(picture: Image.Image, file: Image.Image) -> Image.Image:
    """A grey 8-bit picture from one of integers of more than 8 bits or of floats."""
    from PIL import Image

    tags: Any = getattr(file, "tag_v2", {})
    values = np.asarray(picture)
    lowest = values.min()
    highest = values.max()
    if picture.mode.startswith("I;16") or (file.format in ("PNG", "PPM") and picture.mode == "I"):
        bits = int(tags.get(_BITS_PER_SAMPLE, (16,))[0])
        pixels = (values >> (bits - 8)).astype(np.uint8)
    elif picture.mode == "F" and lowest >= 0 and highest <= 1:
        pixels = np.rint(values * np.float32(255)).astype(np.uint8)
    elif (
        lowest >= 0
        and highest <= 255
        and (picture.mode == "I" or bool((values == np.rint(values)).all()))
    ):
        pixels = values.astype(np.uint8)
    else:
        kind = (
            f"{'floats' if picture.mode == 'F' else '32-bit integers'} from {lowest:g} to "
            f"{highest:g}"
        )
        raise InputError(
            f"its pixels are {kind}, not saying which value is white; save it with 8 or 16 bits"
        )
    if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:
        pixels = 255 - pixels
    transparent = picture.info.get("transparency")
    if isinstance(transparent, int):
        pixels[values == transparent] = 255
    return Image.fromarray(pixels)


def _reason(error: Exception) -> str:
    name = type(error).__name__
    message = " ".join(str(error).split()).rstrip(".")
    if name == "UnidentifiedImageError":  # its message holds the address of a Python object
        return "it is not a picture, or of a kind that Pillow cannot read"
    if name == "DecompressionBombError":
        return message
    return f"it is damaged ({message or name})"
