"""Writes small_pictures.h beside this file: a few tiny pictures, for tests that try every prefix and every byte."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]
from fixtures import pictures as p  # noqa: E402

PICTURES = {
    "kGreyJpeg": ("9x7, grey, baseline", p.save(p.picture("L", (9, 7), 1), "JPEG", quality=20, optimize=True)),
    "kProgressiveJpeg": (
        "9x7, 4:2:0, progressive, EXIF orientation 6",
        p.save(p.picture("RGB", (9, 7), 1), "JPEG", quality=20, progressive=True, optimize=True, exif=p.exif_block(6)),
    ),
    "kPng": (
        "3x2, RGB, a text, EXIF orientation 6 after the data",
        p.raw_png(p.pixels(3, 2), 8, 2, before=[(b"tEXt", b"k\0v")], after=[(b"eXIf", p.exif_block(6)[6:])]),
    ),
    "kInterlacedPng": (
        "5x4, 2-bit palette, interlaced, several IDAT chunks",
        p.raw_png(p.pixels(5, 4, 1) >> 6, 2, 3, True, [(b"PLTE", bytes(range(12)))], split=20),
    ),
    "kLossyWebp": ("5x4, lossy", p.save(p.picture("RGB", (5, 4), 1), "WEBP", quality=10)),
    "kLosslessWebp": (
        "3x2, lossless with alpha, EXIF orientation 6",
        p.save(p.picture("RGBA", (3, 2), 1), "WEBP", lossless=True, exif=p.exif_block(6)),
    ),
}

lines = [
    "// Tiny pictures as hexadecimal text, written by make_small_pictures.py (Pillow 13.0).",
    "#pragma once",
    "",
    "#include <string_view>",
    "",
    "namespace evalcar::vision::testing {",
    "",
]
for name, (what, data) in PICTURES.items():
    text = data.hex()
    lines += [f"// {what}", f"inline constexpr std::string_view {name} ="]
    pieces = [text[i : i + 88] for i in range(0, len(text), 88)]
    lines += [f'    "{piece}"' for piece in pieces[:-1]] + [f'    "{pieces[-1]}";', ""]
lines += ["}  // namespace evalcar::vision::testing", ""]
(HERE / "small_pictures.h").write_text("\n".join(lines))
