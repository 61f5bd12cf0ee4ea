"""Weights that are not the model's are refused by name; the engine stays usable."""

import json
import shutil

import engine_cases as cases
import pytest
import small_models
from safetensors.torch import load_file, save_file


@pytest.fixture(scope="module")
def good(tmp_path_factory, cache_dir):
    folder = tmp_path_factory.mktemp("weights") / "good"
    _, ids = small_models.write_model(folder, seed=1, cache_dir=cache_dir)
    return folder, ids


def broken_copy(good, name, change=None, config=None):
    """A copy whose tensors went through `change` and whose config.json through `config` (each changes its argument)."""
    folder = good[0].parent / name
    shutil.copytree(good[0], folder, dirs_exist_ok=True)
    if change:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if config:
        content = json.loads((folder / "config.json").read_text())
        config(content)
        (folder / "config.json").write_text(json.dumps(content))
    return folder


def refusals(good, bin_dir, folders):
    """Loads each of `folders` and after it the good one, in one engine: {name: (code, message)}."""
    request = {"tokens": [1, 2, 3], "max_new_tokens": 2}
    runs = []
    for folder in folders.values():
        runs += [{"folder": str(folder), "requests": [request]}, {"requests": [request]},
                 {"folder": str(good[0]), "requests": [request]}]  # fmt: skip
    done = cases.run_probe(bin_dir, good[0].parent, runs)["runs"]
    found = {}
    for i, name in enumerate(folders):
        bad, nothing, after = done[3 * i : 3 * i + 3]
        assert "error" in bad, (name, bad)
        assert nothing["error"]["message"] == "no weights are loaded"
        assert len(after["answers"][0]["tokens"]) == 2
        found[name] = bad["error"]["code"], bad["error"]["message"]
    return found


def set_value(name, value):
    def change(tensors):
        tensors[name].view(-1)[17] = value

    return change


WEIGHTS = {
    "nan": (set_value("model.layers.1.mlp.up_proj.weight", float("nan")), ["model.layers.1.mlp.up_proj.weight", "17", "NaN"]),
    "infinite": (set_value("visual.blocks.0.norm1.weight", float("-inf")), ["visual.blocks.0.norm1.weight", "17"]),
    "missing": (lambda t: t.pop("model.layers.2.self_attn.k_proj.bias"),
                ["1 missing (model.layers.2.self_attn.k_proj.bias)"]),
    "extra": (lambda t: t.update({"model.layers.3.input_layernorm.weight": t["model.norm.weight"].clone()}),
              ["1 not known to the model (model.layers.3.input_layernorm.weight)"]),
    "misshapen": (lambda t: t.update({"model.norm.weight": t["model.norm.weight"][:-1].clone()}),
                  ["model.norm.weight is [63], expected [64]"]),
    "twice": (lambda t: t.update({"model.language_model.norm.weight": t["model.norm.weight"].clone()}),
              ["there twice (model.language_model.norm.weight and model.norm.weight)"]),
    "untied": (lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"] + 1}),
               ["lm_head.weight differs from model.embed_tokens.weight"]),
    "integers": (lambda t: t.update({"model.norm.weight": t["model.norm.weight"].int()}),
                 ["model.norm.weight is stored as int32"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def refused_weights(good, bin_dir):
    return refusals(good, bin_dir, {name: broken_copy(good, name, change) for name, (change, _) in WEIGHTS.items()})


@pytest.mark.parametrize("name", WEIGHTS)
def test_wrong_weights_are_refused_by_name(refused_weights, name):
    code, message = refused_weights[name]
    assert code == ("unsupported" if name == "integers" else "corruption"), message
    for word in WEIGHTS[name][1]:
        assert word in message


def test_a_tied_head_that_is_saved_too_is_accepted(good, bin_dir):
    folder = broken_copy(good, "tied", lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))
    request = {"tokens": [1, 2, 3], "max_new_tokens": 2}
    runs = [{"folder": str(f), "requests": [request]} for f in (good[0], folder)]
    plain, both = cases.run_probe(bin_dir, good[0].parent, runs)["runs"]
    assert both["answers"] == plain["answers"]
    assert both["loaded"]["tensors"] == plain["loaded"]["tensors"] + 1


def test_a_tied_pair_that_is_stored_as_the_head_alone_is_accepted(good, bin_dir):
    """As safetensors' save_model leaves a tied model: of two names of one tensor it keeps the first."""
    import torch
    from transformers import Qwen2_5_VLForConditionalGeneration

    folder = broken_copy(good, "head-alone", lambda t: t.update({"lm_head.weight": t.pop("model.embed_tokens.weight")}))
    model, info = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and torch.equal(model.lm_head.weight, model.get_input_embeddings().weight)
    prompt = torch.tensor([[1, 2, 3, 50, 7]])
    (expected,) = cases.answers_only(model, good[1], prompt.tolist(), [[]], 8)

    request = {"tokens": prompt[0].tolist(), "max_new_tokens": 8}
    plain, alone = cases.run_probe(bin_dir, good[0].parent, [{"folder": str(f), "requests": [request]} for f in (good[0], folder)])["runs"]

    assert alone["answers"] == plain["answers"] and alone["answers"][0]["tokens"] == expected
    assert alone["loaded"]["tensors"] == plain["loaded"]["tensors"]
    assert alone["loaded"]["weights_sha256"] != plain["loaded"]["weights_sha256"]  # of the tensors as stored


def architecture(name):
    def change(config):
        config["architectures"], config["model_type"] = [name], "gpt_neo"

    return change


def in_text(key, value):
    return lambda config: config["text_config"].update({key: value})


CONFIGS = {
    "architecture": (architecture("GPTNeoForCausalLM"), "unsupported", ["GPTNeoForCausalLM", "known are: qwen2_5_vl", "qwen3 (Qwen3ForCausalLM)"]),
    "layers": (in_text("num_hidden_layers", 10**9), "corruption", ["num_hidden_layers is 1000000000", "from 1 to 1024"]),
    "more-layers": (lambda c: c["text_config"].update(num_hidden_layers=4, layer_types=["full_attention"] * 4), "corruption",
                    ["missing (model.layers.3."]),
    "layer-types": (in_text("num_hidden_layers", 4), "corruption", ["layer_types is a list of 3"]),
    "negative": (in_text("vocab_size", -5), "corruption", ["vocab_size is -5"]),
    "text": (in_text("hidden_size", "64"), "corruption", ["hidden_size is \"64\"", "expected an integer"]),
    "huge": (in_text("intermediate_size", 2**63), "corruption", ["intermediate_size is 9223372036854775808"]),
    "heads": (in_text("num_key_value_heads", 3), "corruption", ["num_attention_heads must be divisible"]),
    "sections": (lambda c: c["text_config"]["rope_parameters"].update(mrope_section=[1, 1, 1]), "corruption",
                 ["mrope_section"]),
    "rope": (lambda c: c["text_config"]["rope_parameters"].update(rope_type="yarn"), "unsupported", ["rope type \"yarn\""]),
    "window": (in_text("layer_types", ["sliding_attention"] * 3), "corruption", ["sliding_window is", "use_sliding_window"]),
    "activation": (in_text("hidden_act", "gelu"), "unsupported", ["hidden_act \"gelu\""]),
    "no-vision": (lambda c: c.pop("vision_config"), "corruption", ["vision_config is missing"]),
    "width": (lambda c: c["vision_config"].update(out_hidden_size=128), "corruption", ["out_hidden_size 128"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def refused_configs(good, bin_dir):
    folders = {name: broken_copy(good, "config-" + name, config=change) for name, (change, _, _) in CONFIGS.items()}
    return refusals(good, bin_dir, folders)


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations_that_lie_are_refused_by_name(refused_configs, name):
    _, code, words = CONFIGS[name]
    got, message = refused_configs[name]
    assert got == code, message
    assert "config.json" in message or name == "more-layers"
    for word in words:
        assert word in message


def test_requests_that_do_not_fit_the_model_are_refused(good, bin_dir):
    folder, ids = good
    pictures = cases.Pictures(folder.parent)
    pictures.add(cases.picture(0, 56, 56))
    pad = ids["<|image_pad|>"]
    expected = [
        ({"tokens": []}, "has no tokens"),
        ({"tokens": [1, 5000]}, "token 1 is 5000"),
        ({"tokens": [1, pad, pad]}, "only 0 pictures are given"),
        ({"tokens": [1, pad, pad, 2], "images": [0]}, "needs 4 placeholder tokens from token 1"),
        ({"tokens": [1, 2], "images": [0]}, "only 0 have placeholder tokens"),
        ({"tokens": [1, 2], "images": [3]}, "picture 3 does not exist"),
        ({"tokens": [1], "max_new_tokens": 0}, "max_new_tokens is 0"),
    ]
    good_one = {"tokens": [1, 2, 3], "max_new_tokens": 2}
    runs = [{"folder": str(folder), "requests": [good_one, *(request for request, _ in expected), good_one]},
            {"folder": str(folder), "requests": [good_one]}]  # fmt: skip
    mixed, alone = cases.run_probe(bin_dir, folder.parent, runs, pictures)["runs"]
    first, *refused, last = mixed["answers"]
    for answer, (_, words) in zip(refused, expected, strict=True):
        assert answer["error"]["code"] == "invalid_argument" and words in answer["error"]["message"], answer
    assert first == last == alone["answers"][0]


def test_a_picture_that_cannot_be_read_fails_the_requests_that_show_it_and_no_other(good, bin_dir):
    folder, ids = good
    pictures = cases.Pictures(folder.parent)
    whole, torn = (pictures.add(cases.picture(seed, 56, 56)) for seed in (0, 1))
    path = pictures.folder / f"picture-{torn}.rgb"
    path.write_bytes(path.read_bytes()[:-1])
    shown = [ids["<|image_pad|>"]] * 4
    ask = lambda image, word: {"tokens": [ids["<|vision_start|>"], *shown, word], "images": [image], "max_new_tokens": 3}  # noqa: E731
    good_ones = [ask(whole, 5), ask(whole, 6)]

    runs = [{"folder": str(folder), "requests": [ask(torn, 5), good_ones[0], ask(torn, 6), good_ones[1]]},
            {"folder": str(folder), "requests": good_ones}]  # fmt: skip
    mixed, alone = cases.run_probe(bin_dir, folder.parent, runs, pictures)["runs"]

    assert [mixed["answers"][1], mixed["answers"][3]] == alone["answers"]
    for index in (0, 2):
        assert "picture 1 is not of the promised size" in mixed["answers"][index]["error"]["message"]


def test_weights_whose_scores_overflow_give_an_error_and_no_answer(good, bin_dir):
    """All weights are finite, and what comes out is not: a diverged training."""
    folder = broken_copy(good, "overflow", lambda t: t["model.norm.weight"].fill_(3e38))
    request = {"tokens": [1, 2, 3], "max_new_tokens": 2}
    runs = [{"folder": str(folder), "requests": [request] * 2}, {"folder": str(good[0]), "requests": [request]}]
    broken, after = cases.run_probe(bin_dir, good[0].parent, runs)["runs"]
    for answer in broken["answers"]:
        assert answer["error"]["message"].startswith("not finite: the model's scores for token 1 of the answer are NaN or infinite")
    assert len(after["answers"][0]["tokens"]) == 2


POISON, DIMENSION = 7, 5


def overflow_at_one_token(tensors):
    """The embedding of POISON alone has something in DIMENSION, of which the first layer's MLP makes infinity."""
    tensors["model.embed_tokens.weight"][:, DIMENSION] = 0
    tensors["model.embed_tokens.weight"][POISON, DIMENSION] = 1
    tensors["model.layers.0.self_attn.o_proj.weight"][DIMENSION] = 0
    tensors["model.layers.0.post_attention_layernorm.weight"][DIMENSION] = 1
    for name in ("gate_proj", "up_proj"):
        tensors[f"model.layers.0.mlp.{name}.weight"][:, DIMENSION] = 1e25


@pytest.mark.parametrize("options", [{"attn_implementation": "eager"}, {"dtype": "bfloat16"}], ids=["eager", "bfloat16"])
def test_a_request_whose_scores_are_no_numbers_takes_no_other_with_it(good, bin_dir, options):
    """It leaves its slot at once, and the last one's sequence moves there: shorter than it was, and masked up to the longest."""
    folder = broken_copy(good, "one-token", overflow_at_one_token)
    words = lambda seed, length: [100 + (seed + 31 * k) % 200 for k in range(length)]  # noqa: E731
    asked = [{"tokens": tokens, "max_new_tokens": 6} for tokens in ([POISON, *words(1, 29)], words(2, 60), words(3, 5))]
    (together,), (alone,) = (document["runs"] for document in cases.run_sessions(bin_dir, folder.parent, [
        ({**options, "batch_size": size}, [{"folder": str(folder), "requests": asked}]) for size in (3, 1)]))  # fmt: skip
    assert together["packs"] == [3]
    assert "not finite" in together["answers"][0]["error"]["message"]
    assert together["answers"] == alone["answers"]
    assert [len(answer["tokens"]) for answer in together["answers"][1:]] == [6, 6]


def test_devices_and_options_that_do_not_exist_are_refused(good, bin_dir):
    expected = [
        ({"device": "cuda:9"}, "cuda:9"),
        ({"device": "tpu"}, "expected auto, cpu, cuda or cuda:N"),
        ({"dtype": "int8"}, "expected auto, float32 or bfloat16"),
        ({"attn_implementation": "magic"}, "attn_implementation must be one of [None, 'flash_attention_2', 'sdpa', 'eager'], got magic"),
    ]
    documents = cases.run_sessions(bin_dir, good[0].parent, [(options, []) for options, _ in expected])
    for document, (_, words) in zip(documents, expected, strict=True):
        assert document["error"]["code"] == "invalid_argument" and words in document["error"]["message"], document


def test_a_request_larger_than_memory_is_refused_before_it_runs(good, bin_dir):
    runs = [{"folder": str(good[0]), "requests": [{"tokens": [1] * 1000, "max_new_tokens": 1 << 20}] * 3}]
    (run,) = cases.run_probe(bin_dir, good[0].parent, runs, cache_bytes=1 << 20)["runs"]
    for answer in run["answers"]:
        assert answer["error"]["code"] == "unavailable"
        assert "out of memory: 1049576 cache positions are needed" in answer["error"]["message"]
