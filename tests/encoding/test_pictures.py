"""Every kind of picture is decoded as the 8-bit original it was made from, or refused with the reason."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib

import numpy as np
import PIL
import pytest
from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from manyway.encoding.datasets.archives import open_originals
from manyway.encoding.datasets.decode import FIRST_FRAME, read_picture
from manyway.errors import InputError

GREY = np.add.outer(np.arange(12) * 13, np.arange(16) * 7).astype(np.uint8)  # 0 ... 248
GREY[0, 0], GREY[-1, -1] = 0, 255
COLOUR = np.stack([GREY, GREY[::-1], 255 - GREY], axis=2)


def encoded(picture, suffix, **options) -> bytes:
    buffer = io.BytesIO()
    picture = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    picture.save(buffer, suffix, **options)
    return buffer.getvalue()


def grey(data):
    return np.asarray(read_picture(data, channels=1)[0]).astype(int)


def colour(data):
    return np.asarray(read_picture(data, channels=3)[0]).astype(int)


def tiff_tags(**tags):
    directory = ImageFileDirectory_v2()
    for tag, value in tags.items():
        directory[int(tag.removeprefix("tag"))] = value
    return directory


def big_endian(values: np.ndarray) -> bytes:
    """A 16-bit grey TIFF in big-endian order, which Pillow itself does not write."""
    height, width = values.shape
    entries = [(256, width), (257, height), (258, 16), (259, 1), (262, 1), (273, 8), (277, 1), (278, height)]
    entries.append((279, 2 * values.size))
    pixels = values.astype(">u2").tobytes()
    directory = struct.pack(">H", len(entries)) + b"".join(struct.pack(">HHII", tag, 4, 1, v) for tag, v in entries)
    return b"MM\0*" + struct.pack(">I", 8 + len(pixels)) + pixels + directory + bytes(4)


def twelve_bits(values: np.ndarray) -> bytes:
    """A grey TIFF of 12 bits per sample: two samples in three bytes."""
    height, width = values.shape
    pairs = values.astype(np.uint16).reshape(-1, 2)
    packed = np.stack([pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], axis=1)
    pixels = packed.astype(np.uint8).tobytes()
    entries = [(256, width), (257, height), (258, 12), (259, 1), (262, 1), (273, 8), (277, 1), (278, height)]
    entries.append((279, len(pixels)))
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", tag, 4, 1, v) for tag, v in entries)
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + directory + bytes(4)


def png16(samples: np.ndarray, colour_type: int) -> bytes:
    """A PNG of 16 bits per sample; Pillow writes only grey ones."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = samples.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    header = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


WIDE = GREY.astype(np.uint16) * 257
OPAQUE = np.full((*GREY.shape, 1), 65535)
GREYS = {
    "png 8": encoded(GREY, "PNG"),
    "png 16": encoded(WIDE, "PNG"),
    "png 16, high byte only": encoded(GREY.astype(np.uint16) << 8, "PNG"),
    "png 16 grey and alpha": png16(np.concatenate([WIDE[..., None], OPAQUE], 2), 4),
    "tiff 16": encoded(WIDE, "TIFF"),
    "tiff 16 compressed": encoded(WIDE, "TIFF", compression="tiff_lzw"),
    "tiff 16 big-endian": big_endian(WIDE),
    "tiff 12": twelve_bits(GREY.astype(int) * 4095 // 255),
    "tiff 16 white is zero": encoded(65535 - WIDE, "TIFF", tiffinfo=tiff_tags(tag262=0)),
    "tiff 8 white is zero": encoded(GREY, "TIFF", tiffinfo=tiff_tags(tag262=0)),  # Pillow inverts it when writing
    "tiff int32 of bytes": encoded(GREY.astype(np.int32), "TIFF"),
    "tiff float of bytes": encoded(GREY.astype(np.float32), "TIFF"),
    "tiff float from 0 to 1": encoded(GREY.astype(np.float32) / 255, "TIFF"),
    "pgm": encoded(GREY, "PPM"),
    "pgm 16": b"P5 16 12 65535\n" + WIDE.astype(">u2").tobytes(),
    "pgm 10": b"P5 16 12 1023\n" + (GREY.astype(int) * 1023 / 255).round().astype(">u2").tobytes(),
    "palette": encoded(Image.fromarray(GREY).convert("P"), "PNG"),
    "gif": encoded(GREY, "GIF"),
    "grey and alpha": encoded(Image.fromarray(GREY).convert("LA"), "PNG"),
    "jpeg 2000 16": encoded(WIDE, "JPEG2000"),
    "webp": encoded(Image.fromarray(GREY).convert("RGB"), "WEBP", lossless=True),
}


@pytest.mark.parametrize("kind", list(GREYS))
def test_grey_pictures_are_the_original(kind):
    assert np.abs(grey(GREYS[kind]) - GREY).max() <= (1 if kind == "pgm 10" else 0)
    assert (colour(GREYS[kind])[..., 1] == grey(GREYS[kind])).all()


COLOURS = {
    "png": (encoded(COLOUR, "PNG"), 0),
    "png 16": (png16(COLOUR.astype(int) * 257, 2), 0),
    "png 16 with alpha": (png16(np.concatenate([COLOUR.astype(int) * 257, OPAQUE], 2), 6), 0),
    "bmp": (encoded(COLOUR, "BMP"), 0),
    "tiff": (encoded(COLOUR, "TIFF"), 0),
    "rgba": (encoded(Image.fromarray(COLOUR).convert("RGBA"), "PNG"), 0),
    "cmyk tiff": (encoded(Image.fromarray(COLOUR).convert("CMYK"), "TIFF"), 0),
    "cmyk jpeg": (encoded(Image.fromarray(COLOUR).convert("CMYK"), "JPEG", quality=100), 6),
    "jpeg": (encoded(COLOUR, "JPEG", quality=100, subsampling=0), 6),
    "palette of 256": (encoded(Image.fromarray(COLOUR).quantize(256), "PNG"), 0),
    "ppm 16": (b"P6 16 12 65535\n" + (COLOUR.astype(">u2") * 257).astype(">u2").tobytes(), 0),
    "avif": (encoded(COLOUR, "AVIF", quality=100, subsampling="4:4:4"), 6),
}
if int(PIL.__version__.split(".")[0]) >= 13:  # earlier versions cannot read the file that they write
    COLOURS["ycbcr tiff"] = (encoded(Image.fromarray(COLOUR).convert("YCbCr"), "TIFF"), 3)


@pytest.mark.parametrize("kind", list(COLOURS))
def test_coloured_pictures_are_the_original(kind):
    data, tolerance = COLOURS[kind]
    assert np.abs(colour(data) - COLOUR).max() <= tolerance


def test_one_bit_pictures_are_black_and_white():
    for suffix in ("PNG", "TIFF", "GIF", "BMP"):
        assert (grey(encoded(Image.fromarray(GREY > 99), suffix)) == 255 * (GREY > 99)).all()


def shown_on_white(alpha):
    return np.rint(COLOUR * (alpha / 255)[..., None] + 255 * (1 - alpha / 255)[..., None])


@pytest.mark.parametrize("alpha", [np.full_like(GREY, 255), np.zeros_like(GREY), GREY], ids=["opaque", "clear", "ramp"])
@pytest.mark.parametrize("suffix", ["PNG", "TIFF", "WEBP"])
def test_what_is_transparent_becomes_white(alpha, suffix):
    rgba = np.concatenate([COLOUR, alpha[..., None]], axis=2)
    options = {"lossless": True, "exact": True} if suffix == "WEBP" else {}
    assert np.abs(colour(encoded(rgba, suffix, **options)) - shown_on_white(alpha)).max() <= 1


@pytest.mark.parametrize("suffix", ["PNG", "GIF"])
def test_a_transparent_palette_entry_becomes_white(suffix):
    picture = Image.new("P", (4, 2), 1)
    picture.putpalette([0, 0, 0, 200, 30, 40])
    picture.putpixel((0, 0), 0)
    pixels = colour(encoded(picture, suffix, transparency=0))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[1, 3].tolist() == [200, 30, 40]
    assert colour(encoded(picture, suffix))[0, 0].tolist() == [0, 0, 0]


def test_a_transparent_grey_value_becomes_white():
    for values, transparent in ((GREY, 0), (WIDE, 0)):
        expected = np.where(GREY == 0, 255, GREY)
        assert (grey(encoded(values, "PNG", transparency=transparent)) == expected).all()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["PNG", "TIFF", "WEBP", "JPEG"])
def test_turned_pictures_are_turned_back(orientation, suffix):
    """Orientation n is written; the pixels are those that a viewer must change back to the original."""
    undo = {1: None, 2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_90",
            7: "TRANSVERSE", 8: "ROTATE_270"}[orientation]  # fmt: skip
    original = Image.fromarray(COLOUR)
    stored = original if undo is None else original.transpose(Image.Transpose[undo])
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True}}.get(suffix, {})
    pixels = colour(encoded(stored, suffix, exif=exif, **options))
    assert pixels.shape == COLOUR.shape
    assert np.abs(pixels - COLOUR).max() <= (6 if suffix == "JPEG" else 0)


def test_turned_16_bit_pictures_are_turned_back():
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = Image.fromarray(np.rot90(WIDE).copy())
    assert (grey(encoded(stored, "PNG", exif=exif)) == GREY).all()


@pytest.mark.parametrize(("side", "read"), [(40, (240, 320)), (50, (120, 160)), (30, (60, 80))])
def test_a_large_photograph_is_decoded_at_a_size_that_suffices(side, read):
    picture = Image.fromarray(COLOUR).resize((320, 240), Image.Resampling.BICUBIC)
    orientation = Image.Exif()
    orientation[0x0112] = 6  # turned by a quarter
    data = encoded(picture, "JPEG", quality=95, exif=orientation)
    if side == 40:
        data = encoded(picture.rotate(-90, expand=True), "PNG")  # the other formats have no smaller version inside
    small = read_picture(data, 3, side)[0]
    assert small.size == read
    sizes = ((side, side), Image.Resampling.BICUBIC)
    difference = np.asarray(small.resize(*sizes)).astype(int) - np.asarray(read_picture(data, 3)[0].resize(*sizes))
    assert np.abs(difference).max() <= 4


@pytest.mark.parametrize("suffix", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_animations_the_first_frame_is_used_and_a_note_says_so(suffix):
    first, second = Image.fromarray(COLOUR).quantize(256).convert("RGB"), Image.fromarray(255 - COLOUR)
    options = {"lossless": True} if suffix == "WEBP" else {}
    data = encoded(first, suffix, save_all=True, append_images=[second], **options)
    picture, note = read_picture(data, channels=3)
    assert note == FIRST_FRAME
    assert np.abs(np.asarray(picture).astype(int) - np.asarray(first)).max() <= (40 if suffix == "GIF" else 0)
    assert read_picture(encoded(first, suffix), channels=3)[1] == ""


def test_a_photograph_with_a_second_view_is_an_ordinary_picture():
    data = encoded(COLOUR, "MPO", save_all=True, append_images=[Image.fromarray(255 - COLOUR)], quality=100)
    picture, note = read_picture(data, channels=3)
    assert note == ""
    assert np.asarray(picture).shape == COLOUR.shape


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (encoded(GREY.astype(np.int32) * 257, "TIFF"), "32-bit integers from 0 to 65535.* which value is white"),
        (encoded(GREY.astype(np.int32) - 5, "TIFF"), "32-bit integers from -5 to 250"),
        (encoded(GREY.astype(np.float32) * 16, "TIFF"), "floats from 0 to 4080"),
        (encoded(GREY.astype(np.float32) / 100, "TIFF"), r"floats from 0 to 2\.55"),
        (encoded(GREY.astype(np.float32) / 255 - 0.1, "TIFF"), r"floats from -0\.1 to 0\.9"),
        (encoded(np.full((2, 2), np.nan, np.float32), "TIFF"), "floats from nan to nan"),
        (encoded(Image.new("LAB", (2, 2)), "TIFF"), "of the kind LAB, which is not supported"),
        (encoded(COLOUR, "EPS"), "EPS"),
        (b"%PDF-1.4 nothing", "not a picture"),
        (b"", "it is empty"),
        (b"GIF89a", "not a picture"),
    ],
    ids=["int32 wide", "int32 negative", "float wide", "float hdr", "float negative", "nan", "lab", "eps", "pdf",
         "empty", "stub"],
)  # fmt: skip
def test_pictures_of_unknown_range_or_kind_are_refused_with_the_reason(data, reason):
    with pytest.raises(InputError, match=reason):
        read_picture(data, channels=3)


@pytest.mark.parametrize("suffix", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_a_truncated_picture_is_refused_at_any_length(suffix):
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3)).astype(np.uint8)
    data = encoded(noise, suffix)
    for part in (0.1, 0.4, 0.7, 0.95):
        with pytest.raises(InputError, match=r"damaged|not a picture"):
            read_picture(data[: int(part * len(data))], channels=3)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_changed_bytes_give_a_picture_or_a_reason():
    generator = np.random.default_rng(0)
    for data in [*GREYS.values(), *(data for data, _ in COLOURS.values())]:
        for _ in range(20):
            changed = bytearray(data)
            for place in generator.integers(0, len(data), 3):
                changed[place] = generator.integers(0, 256)
            with contextlib.suppress(InputError):  # any other exception is a defect
                assert read_picture(bytes(changed), channels=3)[0].mode == "RGB"


def test_names_that_a_classifier_wrote_are_found_below_the_folder(tmp_path):
    (tmp_path / "photos" / "north").mkdir(parents=True)
    for name in ("north/a.jpg", "b.jpg"):
        (tmp_path / "photos" / name).write_bytes(name.encode())
    originals = open_originals(tmp_path / "photos")
    for name in ("north/a.jpg", "photos/north/a.jpg", "/mnt/disk/photos/north/a.jpg", "C:\\photos\\north\\a.jpg"):
        assert originals.read(name) == b"north/a.jpg"
        assert originals.path(name) == tmp_path / "photos" / "north" / "a.jpg"
    for name in ("/b.jpg", "../photos/../b.jpg", "/etc/passwd", "photos/../../b.jpg"):
        with pytest.raises(InputError, match="leads out of it"):
            originals.read(name)
