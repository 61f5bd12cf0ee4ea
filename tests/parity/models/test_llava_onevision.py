"""LLaVA-OneVision: the engine's tokens are transformers' tokens, in float32 on the CPU, on random models of the real architecture. The
prompts are what the checkpoint's own processor makes of its chat template and of pictures of awkward sizes."""

import dataclasses
import json

import engine_cases as cases
import pytest
import small_llava
import torch
from PIL import Image
from small_llava import SmallLlava

# Seeds are chosen as in test_tokens.py.
MODELS = {
    "5-saved": SmallLlava(seed=1),
    "4-hub-tied": SmallLlava(seed=4, generation="4", names="hub", tied=True, feature_layer=-2, use_head=True),
    "5-native-two-layers": SmallLlava(seed=1, names="native", feature_layer=(-3, 2), vision_heads=4, kv_heads=1, projector_bias=False, most=2),
    "4-native-wide": SmallLlava(seed=1, generation="4", names="native-4", hidden=96, heads=6, vision_hidden=48, grid=(2, 4), image_size=28),
    "5-bfloat16-file": SmallLlava(seed=9, dtype="bfloat16", tied=True, kv_heads=4, rope_theta=10000.0, feature_layer=1, patch=6, most=4),
}  # fmt: skip
QUICK = ("5-saved", "4-hub-tied")
# Width and height: one square, wide, tall, tiny, larger than nine squares, a line.
SIZES = [(30, 30), (150, 40), (33, 290), (3, 2), (301, 287), (400, 1)]
IMAGES = [[], [0], [1], [2], [3], [4], [5], [1, 0], [2, 4, 3]]  # of each prompt

_settings = {}


@dataclasses.dataclass
class Setting:
    """A model, its folder, and what its processor made of the prompts."""

    model: object
    ids: dict
    folder: object
    pictures: cases.Pictures
    inputs: list  # of each prompt: the processor's output
    options: dict

    @property
    def vocab(self):
        return self.model.config.get_text_config().vocab_size

    def requests(self, **settings):
        return [{"tokens": inputs["input_ids"][0].tolist(), "images": images, "max_new_tokens": cases.STEPS, **settings}
                for inputs, images in zip(self.inputs, IMAGES, strict=True)]  # fmt: skip


def questions(seed):
    return [f"{seed} What is number {i} about, and why {'so ' * i}?" for i in range(len(IMAGES))]


def setting_of(name, tmp_path_factory, cache_dir):
    if name not in _settings:
        from transformers import AutoProcessor

        folder, spec = tmp_path_factory.mktemp(name), MODELS[name]
        model, ids = small_llava.write_model(folder / "checkpoint", spec, cache_dir=cache_dir)
        pictures = cases.Pictures(folder)
        for i, (width, height) in enumerate(SIZES):
            pictures.add(cases.picture(100 * spec.seed + i, height, width))
        processor = AutoProcessor.from_pretrained(folder / "checkpoint")
        inputs = []
        for chosen, question in zip(IMAGES, questions(spec.seed), strict=True):
            message = {"role": "user", "content": [*[{"type": "image"}] * len(chosen), {"type": "text", "text": question}]}
            text = processor.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
            shown = {"images": [Image.fromarray(pictures.arrays[j]) for j in chosen]} if chosen else {}
            inputs.append(processor(text=text, return_tensors="pt", **shown))
        options = {"anyres_folder": str(folder / "checkpoint"), "patch_size": spec.patch}
        _settings[name] = Setting(model, ids, folder, pictures, inputs, options)
    return _settings[name]


@torch.inference_mode()
def reference(setting, inputs):
    out = setting.model.generate(**inputs, do_sample=False, max_new_tokens=cases.STEPS, eos_token_id=None, pad_token_id=setting.ids["<|endoftext|>"],
                                 output_logits=True, return_dict_in_generate=True)  # fmt: skip
    return out.sequences[0, inputs["input_ids"].shape[1] :].tolist(), torch.stack([step[0] for step in out.logits]).float()


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in MODELS])
def test_tokens_and_scores_equal_transformers(name, tmp_path_factory, cache_dir, bin_dir, figures):
    setting = setting_of(name, tmp_path_factory, cache_dir)
    expected = [reference(setting, inputs) for inputs in setting.inputs]
    files = [setting.folder / f"logits-{batch}.bin" for batch in (1, 5)]
    sessions = [({"batch_size": batch, "threads": threads, **setting.options},
                 [{"folder": str(setting.folder / "checkpoint"), "requests": setting.requests(), "logits": str(file)}])
                for batch, threads, file in zip((1, 5), (1, 2), files, strict=True)]  # fmt: skip
    report = []
    for document, file in zip(cases.run_sessions(bin_dir, setting.folder, sessions, setting.pictures), files, strict=True):
        (run,) = document["runs"]
        assert "error" not in run, run
        assert not any("error" in answer for answer in run["answers"]), run["answers"]
        got = [answer["tokens"] for answer in run["answers"]]
        logits = cases.read_logits(file, setting.vocab, [len(tokens) for tokens in got])
        for i, (tokens, ours, (theirs_tokens, theirs)) in enumerate(zip(got, logits, expected, strict=True)):
            same = next((s for s in range(cases.STEPS) if tokens[s] != theirs_tokens[s]), cases.STEPS)
            steps = min(same + 1, cases.STEPS)
            difference = (ours[:steps] - theirs[:steps]).abs().max().item()
            best = theirs.topk(2, dim=-1).values
            margin = (best[:, 0] - best[:, 1]).min().item()
            report.append((difference / theirs.abs().max().item(), margin, margin / max(difference, 1e-12)))
            assert difference <= cases.LOGIT_TOLERANCE * theirs.abs().max().item(), (i, same, difference)
            assert margin > 10 * difference, f"prompt {i}: margin {margin:.2e}, difference {difference:.2e}: choose another seed"
            assert tokens == theirs_tokens, (i, same)
            assert len(set(tokens)) >= cases.LEAST_DIFFERENT, f"prompt {i} gives only {len(set(tokens))} different tokens"
    figures(f"{name}: {cases.summary(report)}")


def test_packed_shared_and_cut_prompts_give_the_same_tokens_and_the_same_run_the_same_bits(tmp_path_factory, cache_dir, bin_dir):
    setting = setting_of("5-saved", tmp_path_factory, cache_dir)
    head = setting.requests()[3]  # four questions on one picture
    requests = [{**head, "tokens": head["tokens"] + [7 + i, 8, 9], "max_new_tokens": 16} for i in range(4)] + setting.requests()[6:]
    cases.check_packs(setting, bin_dir, requests, setting.options)


def test_a_checkpoint_that_comes_back_after_another_answers_as_before(tmp_path_factory, cache_dir, bin_dir):
    setting = setting_of("5-saved", tmp_path_factory, cache_dir)
    other = dataclasses.replace(MODELS["5-saved"], seed=77, names="hub", generation="4")
    small_llava.write_model(setting.folder / "other", other, cache_dir=cache_dir)
    folders = [str(setting.folder / name) for name in ("checkpoint", "other", "checkpoint")]
    files = [setting.folder / f"turn-{i}.bin" for i in range(3)]
    runs = [{"folder": folder, "requests": setting.requests(), "logits": str(file)} for folder, file in zip(folders, files, strict=True)]
    (document,) = cases.run_sessions(bin_dir, setting.folder, [({"batch_size": 6, **setting.options}, runs)], setting.pictures)
    first, second, third = document["runs"]
    assert first["answers"] != second["answers"]
    assert first["answers"] == third["answers"]
    assert files[0].read_bytes() == files[2].read_bytes()


def changed_copy(setting, name, config=None, tensors=None):
    """The checkpoint with changes to its config.json, or with what `tensors` makes of its weights."""
    import shutil

    from safetensors.torch import load_file, save_file

    folder = setting.folder / name
    shutil.copytree(setting.folder / "checkpoint", folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **(config or {})}))
    if tensors is not None:
        weights = load_file(folder / "model.safetensors")
        tensors(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


def rename(weights, old, new):
    weights[new] = weights.pop(old)


TORN = [
    ("no-newline", lambda weights: weights.pop("image_newline"), "image_newline"),
    ("no-norm", lambda weights: weights.pop("vision_tower.post_layernorm.bias"), "vision_tower.post_layernorm.bias"),
    ("twice", lambda weights: weights.update({"model.image_newline": weights["image_newline"].clone()}), "image_newline"),
    ("strange", lambda weights: rename(weights, "vision_tower.post_layernorm.bias", "vision_tower.norm.bias"), "vision_tower.norm.bias"),
    ("misshapen", lambda weights: weights.update({"image_newline": torch.zeros(3)}), "image_newline"),
]


def test_weights_that_are_not_exactly_the_expected_ones_are_refused_by_name(tmp_path_factory, cache_dir, bin_dir):
    setting = setting_of("5-saved", tmp_path_factory, cache_dir)
    runs = [{"folder": changed_copy(setting, name, tensors=change), "requests": []} for name, change, _ in TORN]
    (document,) = cases.run_sessions(bin_dir, setting.folder, [(setting.options, runs)], setting.pictures)
    for run, (name, _, words) in zip(document["runs"], TORN, strict=True):
        assert run["error"]["code"] == "corruption" and words in run["error"]["message"], (name, run)


def test_a_picture_that_the_model_would_cut_otherwise_than_the_processor_has_no_answer_and_the_others_stand(tmp_path_factory, cache_dir, bin_dir):
    setting = setting_of("5-saved", tmp_path_factory, cache_dir)
    folder = changed_copy(setting, "other-grid", config={"image_grid_pinpoints": [[30, 30], [30, 60]]})
    (document,) = cases.run_sessions(bin_dir, setting.folder, [(setting.options, [{"folder": folder, "requests": setting.requests()}])], setting.pictures)
    answers = document["runs"][0]["answers"]
    assert "tokens" in answers[0] and "tokens" in answers[1]  # no picture; one of one square
    assert "do not belong together" in answers[2]["error"]["message"], answers[2]
