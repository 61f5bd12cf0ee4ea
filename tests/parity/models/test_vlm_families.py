"""Qwen2-VL and Qwen3-VL: the engine's tokens are transformers' tokens, in float32 on the CPU, on random models of the real
architecture (test_tokens.py has Qwen2.5-VL's)."""

import dataclasses
import json

import engine_cases as cases
import pytest
import small_vlms
from small_vlms import SmallVlm

# Seeds are chosen as in test_tokens.py.
MODELS = {
    "qwen2-vl-hub": SmallVlm("qwen2_vl", seed=1, generation="hub", names="hub"),
    "qwen2-vl-5-untied": SmallVlm("qwen2_vl", seed=2, tied=False, heads=6, hidden=96, vision_heads=4, vision_hidden=64),
    "qwen2-vl-bfloat16-file": SmallVlm("qwen2_vl", seed=3, kv_heads=4, mrope_section=(4, 2, 2), dtype="bfloat16", rope_theta=10000.0),
    "qwen2-vl-one-key-head": SmallVlm("qwen2_vl", seed=24, kv_heads=1, vision_depth=2, layers=4, names="hub"),
    "qwen3-vl-5": SmallVlm("qwen3_vl", seed=85),
    "qwen3-vl-4.57-untied": SmallVlm("qwen3_vl", seed=86, generation="4.57", tied=False, head_dim=32, mrope_section=(6, 5, 5)),
    "qwen3-vl-three-levels": SmallVlm("qwen3_vl", seed=107, deepstack=(0, 1, 3), mrope_section=(4, 2, 2), vision_heads=4, positions=16),
    "qwen3-vl-bfloat16-file": SmallVlm("qwen3_vl", seed=228, dtype="bfloat16", tied=False, kv_heads=4, deepstack=(3,), names="hub"),
}  # fmt: skip
QUICK = ("qwen2-vl-hub", "qwen3-vl-5")
SIZES = [(5, 3), (3, 11), (1, 7)]  # in merged tokens: taller, wider, one row
IMAGES = [[0], [1], [2], [1, 0], []]  # of each prompt

_settings = {}


def setting_of(name, tmp_path_factory, cache_dir):
    if name not in _settings:
        folder, spec = tmp_path_factory.mktemp(name), MODELS[name]
        model, ids = small_vlms.write_model(folder / "checkpoint", spec, cache_dir=cache_dir)
        grid, vocab = 2 * spec.patch, model.config.get_text_config().vocab_size
        sizes = [(grid * height, grid * width) for height, width in SIZES]
        pictures = cases.Pictures(folder)
        for i, size in enumerate(sizes):
            pictures.add(cases.picture(100 * spec.seed + i, *size))
        prompts = [cases.prompt(ids, vocab, 10 * spec.seed + i, [sizes[j] for j in chosen], before=3 + 5 * i, grid=grid)
                   for i, chosen in enumerate(IMAGES)]  # fmt: skip
        own = {} if spec.family == "qwen2_vl" else {"patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
        _settings[name] = cases.Setting(model, ids, folder, pictures, prompts, IMAGES, own)
    return _settings[name]


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in MODELS])
def test_tokens_and_scores_equal_transformers(name, tmp_path_factory, cache_dir, bin_dir, figures):
    setting = setting_of(name, tmp_path_factory, cache_dir)
    report = cases.check_answers(setting, bin_dir, 1) + cases.check_answers(setting, bin_dir, 5, threads=2)
    figures(f"{name}: {cases.summary(report)}")


def test_a_towers_heads_and_frequencies_under_their_other_names_are_read_as_transformers_reads_them(tmp_path, cache_dir, bin_dir):
    from transformers import AutoModelForImageTextToText

    spec = MODELS["qwen3-vl-5"]
    usual, ids = small_vlms.write_model(tmp_path / "checkpoint", spec, cache_dir=cache_dir)
    path = tmp_path / "checkpoint" / "config.json"
    config = json.loads(path.read_text())
    vision = config["vision_config"]
    vision.pop("rope_parameters", None)
    vision.update(num_attention_heads=vision.pop("num_heads"), rope_theta=20.0)
    path.write_text(json.dumps(config))
    model = AutoModelForImageTextToText.from_pretrained(tmp_path / "checkpoint", dtype="float32").eval()
    model.generation_config = usual.generation_config
    grid, vocab = 2 * spec.patch, model.config.get_text_config().vocab_size
    pictures = cases.Pictures(tmp_path)
    sizes = [(grid * height, grid * width) for height, width in SIZES]
    for i, size in enumerate(sizes):
        pictures.add(cases.picture(100 * spec.seed + i, *size))
    prompts = [cases.prompt(ids, vocab, 10 * spec.seed + i, [sizes[j] for j in chosen], before=3 + 5 * i, grid=grid)
               for i, chosen in enumerate(IMAGES)]  # fmt: skip
    own = {"patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    setting = cases.Setting(model, ids, tmp_path, pictures, prompts, IMAGES, own)
    cases.check_answers(setting, bin_dir, 5)
    with pytest.raises(AssertionError):  # or the frequencies made no difference
        cases.check_answers(dataclasses.replace(setting, model=usual), bin_dir, 5)


@pytest.mark.parametrize("name", ["qwen3-vl-5"])
def test_packed_shared_and_cut_prompts_give_the_same_tokens_and_the_same_run_the_same_bits(name, tmp_path_factory, cache_dir, bin_dir):
    setting = setting_of(name, tmp_path_factory, cache_dir)
    head = setting.requests()[1]  # four questions on one picture
    requests = [{**head, "tokens": head["tokens"] + [7 + i, 8, 9], "max_new_tokens": 16} for i in range(4)] + setting.requests()[3:]
    cases.check_packs(setting, bin_dir, requests, setting.processor)
