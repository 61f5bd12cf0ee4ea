"""Decoded pixels equal those of Pillow as Hugging Face datasets' Image feature and the tasks call it, byte for byte."""

import warnings

import numpy as np
import pytest
from datasets import Image as ImageFeature
from fixtures import pictures

GOOD = pictures.all_pictures()
BROKEN = pictures.broken_pictures()


def reference(data):
    """(height, width, 3), or the error as a string: the way of a sample in lmms-eval."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = ImageFeature().decode_example({"path": None, "bytes": data})
            return np.asarray(image.convert("RGB"))
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def ours(probe, data):
    source, target = probe.folder / "in", probe.folder / "out"
    source.write_bytes(data)
    ok, words = probe.ask("decode", source, target)
    if not ok:
        return words
    size = probe.ask("size", source)
    assert size == (True, words), "read_image_size disagrees with decode_image"
    width, height = map(int, words.split())
    return np.fromfile(target, np.uint8).reshape(height, width, 3)


def test_there_are_enough_pictures_of_every_kind():
    assert len(GOOD) >= 60
    assert b"Adobe\0\x64\0\0\0\0\x02" in GOOD["jpeg_ycck"]
    # The fixtures that are about orientation do turn the picture in the reference.
    for name in ("jpeg_exif_6", "jpeg_xmp_6", "png_exif_6", "png_exif_after_data", "png_exif_text", "webp_exif_6"):
        height, width, _ = reference(GOOD[name]).shape
        assert height > width, name


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_picture_decodes_to_pillows_bytes(probe, name):
    expected, found = reference(GOOD[name]), ours(probe, GOOD[name])
    if isinstance(expected, str):  # what this Pillow refuses must be refused
        assert isinstance(found, str) and name in ("jpeg_without_end",)
        return
    assert not isinstance(found, str), found
    assert found.shape == expected.shape
    assert (found == expected).all()


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_file_is_an_error_here_as_it_is_in_pillow(probe, name):
    expected, found = reference(BROKEN[name]), ours(probe, BROKEN[name])
    assert isinstance(expected, str), "Pillow reads this file"
    assert isinstance(found, str)
    assert found.startswith(("corruption ", "unsupported "))
    assert str(probe.folder / "in") in found


def compare_damaged(probe, data, label):
    """Both fail, or both give the same bytes."""
    expected, found = reference(data), ours(probe, data)
    assert isinstance(expected, str) == isinstance(found, str), f"{label}: Pillow {expected!r:.90}, we {found!r:.90}"
    if not isinstance(expected, str):
        assert expected.shape == found.shape and (expected == found).all(), label


TRUNCATED = ["jpeg_420_17x16", "jpeg_progressive_444", "jpeg_exif_6", "png_RGB_17x16", "png_P_17x16", "png_exif_after_data", "png_text", "webp_alpha_17x16", "webp_lossless_17x16", "webp_exif_6"]


@pytest.mark.parametrize("name", TRUNCATED)
def test_a_truncated_file_fails_where_pillow_fails(probe, name):
    data = GOOD[name]
    step = max(1, len(data) // 60)
    for end in [*range(0, len(data), step), *range(max(0, len(data) - 20), len(data))]:
        compare_damaged(probe, data[:end], f"{name}[:{end}]")


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(n for n in GOOD if len(GOOD[n]) < 6000))
def test_every_truncation_of_every_small_file_fails_where_pillow_fails(probe, name):
    data = GOOD[name]
    for end in range(len(data)):
        compare_damaged(probe, data[:end], f"{name}[:{end}]")


# libjpeg-turbo 2.1 and 3.x, and the two libwebp, conceal damaged entropy data in their own ways; the containers and all
# of PNG are ours, so a flipped byte must give Pillow's verdict and bytes there.
@pytest.mark.parametrize("name", ["png_RGB_17x16", "png_raw_4bit_type3_13x9_interlaced", "png_text", "png_exif_text", "png_animated"])
def test_a_flipped_byte_in_a_png_gives_pillows_verdict(probe, name):
    rng = np.random.default_rng(11)
    for _ in range(60):
        data = bytearray(GOOD[name])
        data[int(rng.integers(8, len(data)))] ^= 1 << int(rng.integers(8))
        compare_damaged(probe, bytes(data), f"{name}")
