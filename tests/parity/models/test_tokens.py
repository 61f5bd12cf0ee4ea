"""The engine's tokens are transformers' tokens, in float32 on the CPU, on random models of the real architecture."""

import dataclasses

import engine_cases as cases
import pytest
import small_models
from small_models import SmallModel

STEPS = 32
LOGIT_TOLERANCE = 1e-4  # of the largest |logit|: float32 sums in another order
LEAST_DIFFERENT = 15

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


@dataclasses.dataclass
class Setting:
    spec: SmallModel
    model: object
    ids: dict
    folder: object
    pictures: cases.Pictures
    prompts: list
    images: list  # per prompt: picture indices

    @property
    def vocab(self):
        return self.model.config.text_config.vocab_size

    def requests(self, chosen, **settings):
        return [
            {"tokens": self.prompts[i], "images": self.images[i], "max_new_tokens": STEPS, **settings} for i in chosen
        ]

    def reference(self, chosen, **settings):
        arrays = [[self.pictures.arrays[j] for j in self.images[i]] for i in chosen]
        return cases.reference(self.model, self.ids, [self.prompts[i] for i in chosen], arrays, STEPS, **settings)


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
        _settings[name] = Setting(spec, model, ids, folder, pictures, prompts, images)
    return _settings[name]


def all_models(function):
    names = [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in MODELS]
    return pytest.mark.parametrize("setting", names, indirect=True)(function)


def quick_models(function):
    return pytest.mark.parametrize("setting", QUICK[:1], indirect=True)(function)


def check_answers(setting, bin_dir, batch, chosen, report, **options):
    """Runs `chosen` in batches of `batch` on both sides and compares tokens and scores."""
    logits_file = setting.folder / "logits.bin"
    document = cases.run_probe(
        bin_dir, setting.folder,
        [{"folder": str(setting.folder / "checkpoint"), "requests": setting.requests(chosen), "logits": str(logits_file)}],
        setting.pictures, batch_size=batch, **options)  # fmt: skip
    (run,) = document["runs"]
    assert "error" not in run, run
    expected_tokens, expected_logits = [], []
    for first in range(0, len(chosen), batch):
        tokens, logits = setting.reference(chosen[first : first + batch])
        expected_tokens += tokens
        expected_logits += logits
    got = [answer["tokens"] for answer in run["answers"]]
    logits = cases.read_logits(logits_file, setting.vocab, [len(tokens) for tokens in got])
    for i, (tokens, ours, theirs) in enumerate(zip(got, logits, expected_logits, strict=True)):
        same = next((s for s in range(STEPS) if tokens[s] != expected_tokens[i][s]), STEPS)
        steps = min(same + 1, STEPS)
        difference = (ours[:steps] - theirs[:steps]).abs().max().item()
        best = theirs.topk(2, dim=-1).values
        margin = (best[:, 0] - best[:, 1]).min().item()
        report.append((difference / theirs.abs().max().item(), margin, margin / max(difference, 1e-12)))
        assert difference <= LOGIT_TOLERANCE * theirs.abs().max().item(), (i, same, difference)
        assert margin > 10 * difference, f"prompt {i}: margin {margin:.2e}, difference {difference:.2e}: choose another seed"
        assert tokens == expected_tokens[i], (i, same)
        assert len(set(tokens)) >= LEAST_DIFFERENT, f"prompt {i} gives only {len(set(tokens))} different tokens"


@all_models
def test_tokens_and_scores_equal_transformers(setting, bin_dir, request, figures):
    report = []
    check_answers(setting, bin_dir, 1, [0, 1, 2, 3, 4], report)
    check_answers(setting, bin_dir, 5, [0, 1, 2, 3, 4], report, threads=2)
    figures(f"{request.node.callspec.params['setting']}: largest difference {max(r[0] for r in report):.1e} of the largest |logit|; smallest margin "
            f"{min(r[1] for r in report):.2e}, {min(r[2] for r in report):.0f} times the difference there")  # fmt: skip
