"""LLaVA-OneVision's pictures: the model's input, and the number of a picture's placeholders, are those of the processor that transformers loads
from the checkpoint's folder. lmms-eval's llava_hf hands it all pictures of a prompt in one flat list, so that each is cut into squares."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoProcessor

from fixtures import pictures, qwen_tokenizer, small_llava
from fixtures.small_llava import SmallLlava

REAL = SmallLlava(image_size=384, patch=14)  # the sizes of the published checkpoints
RAGGED = SmallLlava(image_size=31, patch=7, grid=(3, 5), most=4)  # three pixels of each square are not read


def write_folder(folder, spec, **changes):
    """What transformers needs of a folder to load its image processor."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llava_onevision"}))
    small_llava.write_processor(folder, spec, **changes)
    return folder


def patches_of(squares, patch):
    """(squares, 3, side, side) as the tower's convolution sees it: (squares, rows, columns, 3, patch, patch)."""
    side = squares.shape[-1] // patch
    cut = squares[:, :, : side * patch, : side * patch].reshape(-1, 3, side, patch, side, patch)
    return cut.transpose(0, 2, 4, 1, 3, 5)


def check(probe, size, folder, spec, processor, slow=False, code="fastest"):
    array = pictures.pixels(*size, seed=size[0])
    made = processor(images=[Image.fromarray(array)], return_tensors="pt")
    expected = patches_of(made["pixel_values"][0].numpy(), spec.patch)
    source, target = probe.folder / "in", probe.folder / "out"
    array.tofile(source)
    rule = (f"anyres:{spec.patch}:-", "-")
    ok, words = probe.ask("prepare", source, *size, folder, *rule, "slow" if slow else "fast", code, target)
    assert ok, words
    found = np.fromfile(target, np.float32).reshape(expected.shape)
    assert (found == expected).all(), f"the largest difference is {np.abs(found - expected).max()}"
    ok, words = probe.ask("cut", *size, folder, *rule)
    assert ok and words.split()[0] == str(len(expected)), words


SIZES = [(384, 384), (1, 1), (3, 2), (640, 480), (480, 640), (1700, 2200), (2400, 130), (70, 1900), (2304, 2304), (2500, 3000), (385, 383), (769, 768)]


@pytest.fixture(scope="module", params=["4", "5"])
def usual(request, tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("usual") / "m", SmallLlava(image_size=384, patch=14, generation=request.param))
    return folder, AutoImageProcessor.from_pretrained(folder)


@pytest.mark.parametrize("size", [size if i < 6 else pytest.param(size, marks=pytest.mark.full) for i, size in enumerate(SIZES)])
def test_the_input_equals_that_of_the_processor(probe, usual, size):
    check(probe, size, usual[0], REAL, usual[1])


@pytest.mark.parametrize("size", [(1, 1), (31, 31), (200, 33), (17, 160), (90, 61), (500, 1), (3, 400), (151, 94)])
@pytest.mark.parametrize("generation", ["4", "5"])
def test_squares_that_are_not_whole_patches_lose_their_rest(probe, tmp_path, size, generation):
    spec = SmallLlava(image_size=31, patch=7, grid=(3, 5), most=4, generation=generation)
    folder = write_folder(tmp_path / "m", spec)
    check(probe, size, folder, spec, AutoImageProcessor.from_pretrained(folder))


@pytest.mark.parametrize(
    "changes",
    [
        {"image_processor_type": "LlavaOnevisionImageProcessorFast"},
        {"image_processor_type": "LlavaOnevisionImageProcessorPil"},
        {"image_mean": [0.5, 0.25, 0.125], "image_std": 0.25},
        {"rescale_factor": 0.0078125},
        {"crop_size": None, "do_center_crop": None},
    ],
)
def test_every_form_of_the_settings_is_read_as_transformers_reads_it(probe, tmp_path, changes):
    folder = write_folder(tmp_path / "m", RAGGED, **changes)
    check(probe, (90, 61), folder, RAGGED, AutoImageProcessor.from_pretrained(folder))


@pytest.mark.parametrize("size", [(1, 1), (90, 61), (200, 33)])
def test_the_slow_processor_is_equal_too(probe, tmp_path, size):
    folder = write_folder(tmp_path / "m", RAGGED)
    check(probe, size, folder, RAGGED, AutoImageProcessor.from_pretrained(folder, backend="pil"), slow=True)


def test_the_portable_code_is_equal_too(probe, tmp_path):
    folder = write_folder(tmp_path / "m", RAGGED)
    check(probe, (151, 94), folder, RAGGED, AutoImageProcessor.from_pretrained(folder), code="portable")


def random_sizes(rng, most, count):
    return [tuple(int(side) for side in np.exp(rng.uniform(0, np.log(most), 2))) for _ in range(count)]


COUNTED = [REAL, RAGGED, SmallLlava(image_size=28, patch=7, grid=(6, 6), most=1), SmallLlava(image_size=384, patch=16, grid=(4, 4), most=2)]


@pytest.mark.parametrize("spec", COUNTED)
def test_the_number_of_placeholders_is_the_processors_for_random_sizes(probe, tmp_path, cache_dir, spec, pytestconfig):
    folder = write_folder(tmp_path / "m", spec)
    qwen_tokenizer.write_tokenizer(folder, 20, cache_dir=cache_dir, added_tokens=small_llava.ADDED_TOKENS, template=small_llava.CHAT_TEMPLATE)
    processor = AutoProcessor.from_pretrained(folder)
    rng = np.random.default_rng(spec.patch)
    sizes = random_sizes(rng, 8000, 4000 if pytestconfig.getoption("--all") else 400)
    sizes += [(423, 47), (423, 94), (820, 369)]  # 47 * (54 / 423) is 6, but for its last bits
    sizes += [(w, h) for w in (1, 2, spec.image_size, spec.image_size + 1) for h in (1, 4999, spec.image_size * 3)]
    for width, height in sizes:
        expected = processor._get_number_of_features(height, width, spec.image_size, spec.image_size)
        ok, words = probe.ask("cut", width, height, folder, f"anyres:{spec.patch}:-", "-")
        assert ok and int(words.split()[1]) == expected, (width, height, words, expected)


def test_the_number_of_placeholders_is_that_of_the_models_features(probe, tmp_path, cache_dir):
    """The processor's count against what the model packs: transformers computes them apart."""
    spec = SmallLlava(vision_depth=1, layers=1, grid=(6, 6), most=3)
    model, _ = small_llava.write_model(tmp_path / "m", spec, cache_dir=cache_dir)
    for width, height in random_sizes(np.random.default_rng(5), 700, 40):
        _, words = probe.ask("cut", width, height, tmp_path / "m", f"anyres:{spec.patch}:-", "-")
        squares, tokens = map(int, words.split())
        with torch.inference_mode():
            packed = model.model.get_image_features(torch.zeros(1, squares, 3, 30, 30), torch.tensor([[height, width]]))
        assert packed.pooler_output[0].shape[0] == tokens, (width, height)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"image_processor_type": "Qwen2VLImageProcessor"}, "unsupported", "expected LlavaOnevisionImageProcessor"),
        ({"image_grid_pinpoints": []}, "corruption", "image_grid_pinpoints"),
        ({"image_grid_pinpoints": [[31, 31], [31, 60]]}, "corruption", "wrong entry 1"),
        ({"image_grid_pinpoints": [[31 * 65, 31]]}, "corruption", "wrong entry 0"),
        ({"size": {"shortest_edge": 31}}, "corruption", "size is"),
        ({"size": {"height": 31, "width": 62}}, "corruption", "size is"),
        ({"size": {"height": 62, "width": 62}, "image_grid_pinpoints": [[62, 62]]}, "corruption", "num_image_tokens is 16"),
        ({"do_center_crop": True}, "unsupported", "do_center_crop is true"),
        ({"do_pad": False}, "unsupported", "do_pad is false"),
        ({"do_normalize": False}, "unsupported", "do_normalize"),
        ({"resample": 2}, "unsupported", "resample"),
        ({"image_std": [1, 0, 1]}, "corruption", "image_std"),
    ],
)
def test_settings_that_we_cannot_follow_are_errors_that_name_the_key(probe, tmp_path, changes, code, words):
    folder = write_folder(tmp_path / "m", RAGGED, **changes)
    ok, answer = probe.ask("cut", 90, 61, folder, "anyres:7:-", "-")
    assert not ok and answer.startswith(code + " ") and words in answer and "processor_config.json" in answer, answer


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("num_image_tokens", None, "num_image_tokens"), ("num_image_tokens", 9, "num_image_tokens is 9"), ("vision_aspect_ratio", "anyres", "vision_aspect_ratio"),
     ("vision_feature_select_strategy", "default", "vision_feature_select_strategy")],
)  # fmt: skip
def test_what_the_processor_counts_by_is_checked_too(probe, tmp_path, key, value, words):
    folder = write_folder(tmp_path / "m", RAGGED)
    path = folder / "processor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    ok, answer = probe.ask("cut", 90, 61, folder, "anyres:7:-", "-")
    assert not ok and words in answer and str(path) in answer, answer


def test_limits_of_pixels_are_refused_because_they_would_do_nothing(probe, tmp_path):
    folder = write_folder(tmp_path / "m", RAGGED)
    ok, answer = probe.ask("cut", 90, 61, folder, "anyres:7:-", 200704)
    assert not ok and answer.startswith("invalid_argument ") and "max_pixels" in answer, answer
