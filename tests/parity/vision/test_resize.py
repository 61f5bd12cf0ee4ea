"""Both bicubic resizers equal their references byte for byte: Pillow's, and torchvision's on a uint8 tensor."""

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms.v2 import functional as tvF

from fixtures import pictures

# (width, height) -> (new width, new height)
SIZES = [
    ((1, 1), (28, 28)), ((2, 3), (5, 7)), ((5, 5), (1, 1)), ((17, 9), (9, 17)), ((28, 28), (56, 28)), ((28, 28), (28, 56)),
    ((31, 47), (30, 47)), ((31, 47), (31, 46)), ((100, 75), (101, 76)), ((100, 75), (99, 74)), ((64, 64), (32, 32)),
    ((64, 64), (128, 128)), ((640, 480), (644, 476)), ((640, 480), (448, 336)), ((333, 777), (336, 784)), ((1000, 3), (28, 28)),
    ((3, 1000), (28, 28)), ((3, 1000), (1000, 3)), ((400, 300), (16, 12)), ((16, 12), (400, 300)), ((257, 255), (255, 257)),
    # On both sides of the size where Pillow turns to the vertical pass first, and far beyond it.
    ((100, 200), (50, 100)), ((100, 201), (50, 100)), ((334, 69), (497, 43)), ((48, 115), (43, 104)), ((296, 622), (585, 18)),
    ((900, 1300), (896, 1288)), ((1275, 1650), (1260, 1652)), ((1700, 2200), (1092, 1428)), ((800, 600), (1456, 1092)),
]  # fmt: skip


def expected(array, width, height, kind):
    if kind == "pillow":
        return np.asarray(Image.fromarray(array).resize((width, height), Image.Resampling.BICUBIC))
    tensor = tvF.pil_to_tensor(Image.fromarray(array))[None]
    resized = tvF.resize(tensor, [height, width], interpolation=tvF.InterpolationMode.BICUBIC, antialias=True)
    return resized[0].permute(1, 2, 0).numpy()


def check(probe, array, new_size, kind, code):
    source, target = probe.folder / "in", probe.folder / "out"
    array.tofile(source)
    height, width, _ = array.shape
    ok, words = probe.ask("resize", source, width, height, *new_size, kind, code, target)
    assert ok, words
    found = np.fromfile(target, np.uint8).reshape(new_size[1], new_size[0], 3)
    different = (found != expected(array, *new_size, kind)).mean()
    assert different == 0, f"{different:.2%} of the bytes differ"


@pytest.mark.parametrize("kind", ["pillow", "torchvision"])
@pytest.mark.parametrize(("size", "new_size"), SIZES)
def test_resizing_gives_the_references_bytes(probe, size, new_size, kind):
    smooth = pictures.pixels(*size, seed=sum(new_size))
    check(probe, smooth, new_size, kind, "fastest")
    hard = (np.random.default_rng(size).integers(0, 2, smooth.shape) * 255).astype(np.uint8)  # over- and undershoots
    check(probe, hard, new_size, kind, "fastest")
    if size[0] * size[1] < 400_000:
        check(probe, smooth, new_size, kind, "portable")


@pytest.mark.full
@pytest.mark.parametrize("kind", ["pillow", "torchvision"])
def test_resizing_gives_the_references_bytes_for_a_thousand_random_sizes(probe, kind):
    rng = np.random.default_rng(3)
    for i in range(1000):
        sides = [int(s) for s in np.exp(rng.uniform(0, np.log(120 if i % 3 else 1500), 4))]
        width, height, new_width, new_height = sides
        array = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        check(probe, array, (new_width, new_height), kind, "fastest" if i % 2 else "portable")
