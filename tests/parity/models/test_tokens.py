"""The engine's tokens are transformers' tokens, in float32 on the CPU, on random models of the real architecture."""

import engine_cases as cases
import pytest
import small_models
from small_models import SmallModel

# Head counts, key heads, window layouts, tied and untied heads, generations of files, names. Seeds are chosen so that
# transformers' own best two scores never come closer than ten times the measured difference.
MODELS = {
    "tied-5": SmallModel(seed=32),
    "untied-4.49-wide-windows": SmallModel(
        seed=41, generation="4.49", tied=False, heads=6, kv_heads=2, hidden=96, mrope_section=(2, 3, 3),
        window=112, full_attention=(0, 2), vision_depth=4),
    "tied-4.57-native-names": SmallModel(
        seed=38, generation="4.57", names="native", heads=8, kv_heads=1, hidden=64, mrope_section=(2, 1, 1),
        vision_heads=4, vision_hidden=64),
    "untied-5-native-all-windows": SmallModel(
        seed=39, names="native", tied=False, heads=2, kv_heads=2, hidden=48, mrope_section=(4, 4, 4), full_attention=()),
    "tied-hub-all-full": SmallModel(
        seed=39, generation="hub", heads=12, kv_heads=4, hidden=96, mrope_section=(0, 2, 2), full_attention=(0, 1, 2),
        rms_norm_eps=1e-5, layers=4),
    "untied-4.57-new-sharded": SmallModel(
        seed=35, generation="4.57-new", tied=False, heads=4, kv_heads=4, hidden=64, mrope_section=(4, 2, 2), window=84,
        rope_theta=10000.0, max_shard_size="100KB", vision_depth=5, full_attention=(3,)),
    "untied-5-bfloat16-file": SmallModel(seed=38, tied=False, dtype="bfloat16", layers=5, intermediate=200),
}  # fmt: skip
QUICK = ("tied-5", "untied-4.49-wide-windows", "tied-4.57-native-names")

# Odd sizes in merged tokens: taller, wider, and smaller than a window; cut windows at both edges.
SIZES = [(5 * 28, 3 * 28), (3 * 28, 11 * 28), (28, 7 * 28), (9 * 28, 9 * 28)]


_settings = {}


@pytest.fixture
def setting(request, tmp_path_factory, cache_dir):
    name = request.param
    if name not in _settings:
        folder = tmp_path_factory.mktemp(name)
        spec = MODELS[name]
        model, ids = small_models.write_model(folder / "checkpoint", spec, cache_dir=cache_dir)
        pictures = cases.Pictures(folder)
        for i, (height, width) in enumerate(SIZES[:3]):
            pictures.add(cases.picture(100 * spec.seed + i, height, width))
        vocab = model.config.text_config.vocab_size
        # Three pictures of odd sizes, two pictures in one prompt, and none.
        images = [[0], [1], [2], [1, 0], []]
        prompts = [
            cases.prompt(ids, vocab, 10 * spec.seed + i, [SIZES[j] for j in chosen], before=3 + 5 * i)
            for i, chosen in enumerate(images)
        ]
        _settings[name] = cases.Setting(model, ids, folder, pictures, prompts, images)
    return _settings[name]


def all_models(function):
    names = [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in MODELS]
    return pytest.mark.parametrize("setting", names, indirect=True)(function)


def quick_models(function):
    return pytest.mark.parametrize("setting", QUICK[:1], indirect=True)(function)


@all_models
def test_tokens_and_scores_equal_transformers(setting, bin_dir, request, figures):
    report = cases.check_answers(setting, bin_dir, 1) + cases.check_answers(setting, bin_dir, 5, threads=2)
    figures(f"{request.node.callspec.params['setting']}: {cases.summary(report)}")
