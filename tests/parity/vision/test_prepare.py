"""The model's input equals what lmms-eval's chat wrapper feeds the model: qwen_vl_utils' process_vision_info, then the
image processor that transformers loads from the checkpoint's folder."""

import json

import numpy as np
import pytest
from PIL import Image
from qwen_vl_utils import process_vision_info
from transformers import AutoImageProcessor

from fixtures import pictures

OPENAI = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
FLAT = {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2, **OPENAI}
NESTED = {"size": {"shortest_edge": 3136, "longest_edge": 12845056}, "do_resize": True, "do_rescale": True, "do_normalize": True,
          "rescale_factor": 0.00392156862745098, "resample": 3, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
          "image_processor_type": "Qwen2VLImageProcessor", "data_format": "channels_first", **OPENAI}  # fmt: skip
DEFAULTS = (200704, 1605632)


def write_folder(folder, generation, **changes):
    """A checkpoint's processor files. Generation: 4 with its class, "4 fast", "4 pil", 5, or 5 beside an older file."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl"}))
    name = {"4 fast": "Qwen2VLImageProcessorFast", "4 pil": "Qwen2VLImageProcessorPil"}.get(generation, "Qwen2VLImageProcessor")
    if generation in (5, "5 over 4"):
        (folder / "processor_config.json").write_text(
            json.dumps({"image_processor": {**NESTED, **changes}, "processor_class": "Qwen2_5_VLProcessor"})
        )
    else:
        flat = {**FLAT, **changes}
        if generation != "4 unnamed":
            flat["image_processor_type"] = name
        (folder / "preprocessor_config.json").write_text(json.dumps(flat))
    if generation == "5 over 4":
        (folder / "preprocessor_config.json").write_text(json.dumps({**FLAT, "patch_size": 7}))
    return folder


def load(folder, limits, **options):
    # As AutoProcessor.from_pretrained(pretrained, min_pixels=…, max_pixels=…) hands its arguments on.
    return AutoImageProcessor.from_pretrained(folder, min_pixels=limits[0], max_pixels=limits[1], **options)


def of_one_frame(patches, processor):
    """(patches, 3 · frames · side²) without the repetitions of a still picture, which the engine's towers fold."""
    frames = patches.reshape(len(patches), 3, processor.temporal_patch_size, -1)
    assert (frames == frames[:, :, :1]).all(), "the processor does not repeat the picture"
    return frames[:, :, 0].reshape(len(patches), -1)


def reference(image, processor):
    message = [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "?"}]}]
    images, _, _ = process_vision_info([message], return_video_kwargs=True, return_video_metadata=True)
    inputs = processor(images=images, return_tensors="pt")
    return of_one_frame(inputs["pixel_values"].numpy(), processor), inputs["image_grid_thw"][0].tolist()


def check(probe, size, folder, limits, processor, slow=False, code="fastest", reference=reference):
    array = pictures.pixels(*size, seed=size[0])
    expected, grid = reference(Image.fromarray(array), processor)
    source, target = probe.folder / "in", probe.folder / "out"
    array.tofile(source)
    ok, words = probe.ask("prepare", source, *size, folder, *limits, "slow" if slow else "fast", code, target)
    assert ok, words
    assert [1, *map(int, words.split())] == grid
    assert probe.ask("prepared_size", *size, folder, *limits) == (True, words)
    found = np.fromfile(target, np.float32).reshape(expected.shape)
    assert np.abs(found - expected).max() <= 1e-6
    assert (found == expected).all(), "within 1e-6, but not the same bits"


@pytest.fixture(scope="module", params=[4, "4 fast", 5])
def usual(request, tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("usual") / "m", request.param)
    return folder, load(folder, DEFAULTS)


SIZES = [
    (1, 1), (3, 2), (28, 28), (29, 27), (55, 57), (100, 100), (13, 97), (300, 200), (447, 449), (448, 448), (449, 447), (640, 480),
    (1000, 50), (50, 1000), (28, 5600), (5600, 28), (333, 777), (1275, 1650), (1700, 2200), (1267, 1267), (1268, 1266),
    (2000, 900), (3000, 60), (14, 2799), (42, 42), (14, 14), (70, 98), (126, 154),
]  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_the_input_equals_that_of_lmms_evals_path(probe, usual, size):
    folder, processor = usual
    check(probe, size, folder, DEFAULTS, processor)


@pytest.mark.parametrize("limits", [(3136, 12845056), (784, 784), (50176, 50176), (3136, 200704), (1605632, 1605632), (1003520, 2007040)])
@pytest.mark.parametrize("size", [(20, 31), (333, 250), (1024, 400), (900, 1300)])
def test_the_users_pixel_limits_act_as_in_the_reference(probe, tmp_path, size, limits):
    folder = write_folder(tmp_path / "m", 4)
    check(probe, size, folder, limits, load(folder, limits))


@pytest.mark.parametrize("generation", [4, 5, "4 unnamed", "4 pil", "5 over 4"])
@pytest.mark.parametrize("changes", [{}, {"patch_size": 16, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.25, 0.125]}, {"merge_size": 1, "temporal_patch_size": 3},
                                     {"rescale_factor": 0.0078125}, {"image_mean": 0.5, "image_std": 0.25}, {"size": None, "do_convert_rgb": None}])  # fmt: skip
def test_every_generation_of_processor_files_is_read_as_transformers_reads_it(probe, tmp_path, generation, changes):
    folder = write_folder(tmp_path / "m", generation, **changes)
    check(probe, (333, 210), folder, DEFAULTS, load(folder, DEFAULTS))


@pytest.mark.parametrize("size", [(1, 1), (333, 210), (447, 449), (1700, 2200), (1000, 50)])
def test_the_slow_processor_is_equal_too(probe, tmp_path, size):
    folder = write_folder(tmp_path / "m", 4)
    check(probe, size, folder, DEFAULTS, load(folder, DEFAULTS, backend="pil"), slow=True)


def test_the_portable_code_is_equal_too(probe, tmp_path):
    folder = write_folder(tmp_path / "m", 5)
    check(probe, (333, 210), folder, DEFAULTS, load(folder, DEFAULTS), code="portable")


HALVES = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


def by_the_qwen3_wrapper(limits):
    """lmms-eval's qwen3_vl: the package alone resizes, for patches of 16. A user's limits go where its simple mode puts them."""
    low, high = limits
    own = {**({"min_pixels": low} if low != "-" else {}), **({"max_pixels": high} if high != "-" else {})}

    def reference(image, processor):
        message = [{"role": "user", "content": [{"type": "image", "image": image, **own}]}]
        images, _, _ = process_vision_info([message], return_video_kwargs=True, image_patch_size=16, return_video_metadata=True)
        inputs = processor(images=images, do_resize=False, return_tensors="pt")
        return of_one_frame(inputs["pixel_values"].numpy(), processor), inputs["image_grid_thw"][0].tolist()

    return reference


@pytest.mark.parametrize("limits", [("-", "-"), (4096, 200704), ("-", 65536), (1605632, "-")])
@pytest.mark.parametrize("size", [(1, 1), (31, 33), (333, 777), (1700, 2200), (1000, 50)])
def test_qwen3_vl_is_resized_by_the_package_alone_unless_the_user_sets_limits(probe, tmp_path, size, limits):
    folder = write_folder(tmp_path / "m", 4, patch_size=16, **HALVES)
    processor = AutoImageProcessor.from_pretrained(folder)
    check(probe, size, folder, (f"utils:{limits[0]}", limits[1]), processor, reference=by_the_qwen3_wrapper(limits))


def by_the_processor(image, processor):
    """lmms-eval's huggingface: the processor as the folder has it."""
    inputs = processor(images=[image], return_tensors="pt")
    return of_one_frame(inputs["pixel_values"].numpy(), processor), inputs["image_grid_thw"][0].tolist()


@pytest.mark.parametrize("generation", [4, 5])
@pytest.mark.parametrize("changes", [{}, {"min_pixels": 784, "max_pixels": 50176}, {"size": {"shortest_edge": 12544, "longest_edge": 200704}}])
@pytest.mark.parametrize("size", [(1, 1), (333, 777), (1700, 2200)])
def test_the_processor_alone_resizes_within_the_folders_limits(probe, tmp_path, size, generation, changes):
    folder = write_folder(tmp_path / "m", generation, **changes)
    check(probe, size, folder, ("processor:-", "-"), AutoImageProcessor.from_pretrained(folder), reference=by_the_processor)


@pytest.mark.parametrize("limits", [(3136, 65536), (200704, 1605632)])
def test_the_users_limits_go_over_the_folders(probe, tmp_path, limits):
    folder = write_folder(tmp_path / "m", 4)
    check(probe, (640, 480), folder, (f"processor:{limits[0]}", limits[1]), load(folder, limits), reference=by_the_processor)


def test_a_processor_that_does_not_cut_what_the_package_leaves_is_refused(probe, tmp_path):
    folder = write_folder(tmp_path / "m", 4, patch_size=14)
    ok, words = probe.ask("prepared_size", 333, 210, folder, "utils:-", "-")
    assert not ok and "multiples of 32" in words


@pytest.mark.parametrize("size", [(1, 201), (6001, 30), (30, 6000), (5, 1001)])
def test_extreme_ratios_are_errors_where_they_are_in_the_reference(probe, tmp_path, size):
    folder = write_folder(tmp_path / "m", 4)
    processor = load(folder, DEFAULTS)
    with pytest.raises(ValueError, match="absolute aspect ratio"):
        reference(Image.new("RGB", size), processor)
    ok, words = probe.ask("prepared_size", *size, folder, *DEFAULTS)
    assert not ok and words.startswith("invalid_argument ") and "200 times" in words


@pytest.mark.full
def test_the_grid_equals_the_references_for_random_sizes(probe, tmp_path):
    from qwen_vl_utils.vision_process import smart_resize as utils_resize
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

    rng = np.random.default_rng(1)
    folder = write_folder(tmp_path / "m", 4)
    for _ in range(5000):
        width, height = (int(s) for s in np.exp(rng.uniform(0, np.log(8000), 2)))
        low = int(np.exp(rng.uniform(np.log(784), np.log(2_000_000))))
        high = int(low * np.exp(rng.uniform(0, 3)))
        ok, words = probe.ask("prepared_size", width, height, folder, low, high)
        try:
            first = utils_resize(height, width, 28)
            second = smart_resize(*first, 28, low, high)
        except ValueError:
            assert not ok
            continue
        assert ok and words == f"{second[0] // 14} {second[1] // 14}"


@pytest.mark.parametrize(
    ("generation", "changes", "code", "words"),
    [
        (4, {"image_processor_type": "CLIPImageProcessor"}, "unsupported", "CLIPImageProcessor"),
        (5, {"image_processor_type": "Qwen3VLImageProcessor"}, "unsupported", "Qwen3VLImageProcessor"),
        (4, {"patch_size": 0}, "corruption", "patch_size is 0"),
        (4, {"patch_size": "14"}, "corruption", "patch_size"),
        (5, {"merge_size": 1 << 40}, "corruption", "merge_size"),
        (5, {"image_std": [1, 0, 1]}, "corruption", "image_std"),
        (5, {"image_mean": [1, 2]}, "corruption", "image_mean"),
        (4, {"do_normalize": False}, "unsupported", "do_normalize"),
        (5, {"do_resize": None}, "unsupported", "do_resize is null"),
        (5, {"image_mean": None}, "corruption", "image_mean is null"),
        (5, {"size": 5}, "corruption", "size is 5"),
        (4, {"resample": 2}, "unsupported", "resample"),
        (4, {"rescale_factor": 0}, "corruption", "rescale_factor"),
    ],
)
def test_settings_that_we_cannot_follow_are_errors_that_name_the_key(probe, tmp_path, generation, changes, code, words):
    folder = write_folder(tmp_path / "m", generation)
    path = folder / ("processor_config.json" if generation == 5 else "preprocessor_config.json")
    json_text = json.loads(path.read_text())
    (json_text["image_processor"] if generation == 5 else json_text).update(changes)
    path.write_text(json.dumps(json_text))
    ok, answer = probe.ask("settings", folder, *DEFAULTS)
    assert not ok and answer.startswith(code + " ") and words in answer and str(path) in answer


def test_a_folder_without_settings_names_both_files(probe, tmp_path):
    ok, answer = probe.ask("settings", tmp_path, *DEFAULTS)
    assert not ok and answer.startswith("not_found ")
    assert "preprocessor_config.json" in answer and "processor_config.json" in answer

