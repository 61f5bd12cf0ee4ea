"""Decoded pixels equal those of Pillow as Hugging Face datasets' Image feature and the tasks call it, byte for byte. lmms-eval tells
Pillow to load truncated pictures (lmms_eval/api/task.py), for the whole process: so it is told here."""

import warnings

import numpy as np
import pytest
from datasets import Image as ImageFeature
from fixtures import pictures
from PIL import ImageFile

GOOD = pictures.all_pictures()
INCOMPLETE = pictures.incomplete_pictures()
BROKEN = pictures.broken_pictures()


@pytest.fixture(autouse=True)
def pillow_as_lmms_eval_has_it(pillow_as_it_comes, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)


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
    assert not isinstance(found, str), found
    assert found.shape == expected.shape
    assert (found == expected).all()


@pytest.mark.parametrize("name", sorted(INCOMPLETE))
def test_what_is_left_of_a_picture_decodes_to_pillows_bytes(probe, monkeypatch, name):
    expected, found = reference(INCOMPLETE[name]), ours(probe, INCOMPLETE[name])
    assert not isinstance(expected, str), expected
    assert not isinstance(found, str), found
    assert found.shape == expected.shape
    assert (found == expected).all()
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", False)
    assert isinstance(reference(INCOMPLETE[name]), str), "Pillow reads this file anyway"


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
    if label.startswith("jpeg_progressive[") and isinstance(found, str) and "before the last scan of progressive 4:2:0" in found:
        return  # libjpeg-turbo 2.1 smooths this otherwise than 3.x (evaluator/vision/DESIGN.md): no pixels are better than others
    assert isinstance(expected, str) == isinstance(found, str), f"{label}: Pillow {expected!r:.90}, we {found!r:.90}"
    if not isinstance(expected, str):
        assert expected.shape == found.shape and (expected == found).all(), label


TRUNCATED = [
    "jpeg_420_17x16", "jpeg_422_33x47", "jpeg_444_100x75", "jpeg_grey_33x47", "jpeg_progressive_444", "jpeg_progressive", "jpeg_progressive_grey",
    "jpeg_exif_6", "jpeg_cmyk", "jpeg_cmyk_420", "jpeg_ycck", "jpeg_restart", "jpeg_optimized", "png_RGB_17x16", "png_P_17x16", "png_1_33x47", "png_LA_17x16",
    "png_RGBA_33x47", "png_split_idat", "png_exif_after_data", "png_text", "png_animated", "png_animated_small_first_frame", "png_raw_1bit_type0_35x29_interlaced",
    "png_raw_4bit_type3_35x29_interlaced", "png_raw_16bit_type0_35x29_interlaced", "png_raw_16bit_type6_35x29", "png_raw_8bit_type4_35x29_interlaced",
    "webp_alpha_17x16", "webp_lossless_17x16", "webp_exif_6",
]  # fmt: skip


@pytest.mark.parametrize("name", TRUNCATED)
def test_a_truncated_file_gives_what_pillow_makes_of_it(probe, name):
    data = GOOD[name]
    step = max(1, len(data) // 60)
    for end in [*range(0, len(data), step), *range(max(0, len(data) - 20), len(data))]:
        compare_damaged(probe, data[:end], f"{name}[:{end}]")


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(n for n in GOOD if len(GOOD[n]) < 6000))
def test_every_truncation_of_every_small_file_gives_what_pillow_makes_of_it(probe, name):
    data = GOOD[name]
    for end in range(len(data)):
        compare_damaged(probe, data[:end], f"{name}[:{end}]")


# libjpeg-turbo 2.1 and 3.x, and the two libwebp, conceal damaged entropy data in their own ways; the containers and all
# of PNG are ours, so a flipped byte must give Pillow's verdict and bytes there.
@pytest.mark.parametrize("name", ["png_RGB_17x16", "png_raw_4bit_type3_13x9_interlaced", "png_text", "png_exif_text", "png_animated", "png_palette_alpha", "png_split_idat"])
def test_a_flipped_byte_in_a_png_gives_pillows_verdict(probe, name):
    rng = np.random.default_rng(11)
    for _ in range(60):
        data = bytearray(GOOD[name])
        data[int(rng.integers(8, len(data)))] ^= 1 << int(rng.integers(8))
        compare_damaged(probe, bytes(data), f"{name}")
