"""Text models: the engine's tokens are transformers' tokens, in float32 on the CPU, on random models of each family."""

import dataclasses
import json

import engine_cases as cases
import numpy as np
import pytest
import small_text_models
from small_text_models import LLAMA3_ROPE, SmallTextModel

WINDOW = {"use_sliding_window": True, "sliding_window": 10, "max_window_layers": 1}

# Every switch of each family, both generations of files; Llama 3's have wavelengths on the ramp. Seeds are chosen as in test_tokens.py.
MODELS = {
    "llama-3-tied": SmallTextModel("llama", seed=1, tied=True, rope=LLAMA3_ROPE, rope_theta=500000.0),
    "llama-3-hub-own-head-dim": SmallTextModel("llama", seed=42, generation="4", rope=LLAMA3_ROPE, head_dim=24, max_shard_size="100KB"),
    "llama-linear-biases": SmallTextModel(
        "llama", seed=23, generation="4", rope={"rope_type": "linear", "factor": 2.5}, kv_heads=4, hidden=48,
        extra={"attention_bias": True, "mlp_bias": True}),
    "llama-plain-bfloat16-file": SmallTextModel("llama", seed=44, dtype="bfloat16", kv_heads=1, rms_norm_eps=1e-5, layers=4),
    "mistral-window": SmallTextModel("mistral", seed=5, extra={"sliding_window": 12}),
    "mistral-no-window-own-head-dim": SmallTextModel("mistral", seed=6, head_dim=32, rope_theta=1e6, extra={"sliding_window": None}),
    "mistral-hub-window": SmallTextModel("mistral", seed=7, generation="4", tied=True, kv_heads=1, extra={"sliding_window": 2}),
    "mistral-hub-wide-window": SmallTextModel("mistral", seed=8, generation="4", heads=6, hidden=96, kv_heads=3, dtype="bfloat16"),
    "qwen2-tied": SmallTextModel("qwen2", seed=69, tied=True, rope_theta=1e6),
    "qwen2-hub": SmallTextModel("qwen2", seed=10, generation="4", kv_heads=1, heads=8, rms_norm_eps=1e-5),
    "qwen2-windows": SmallTextModel("qwen2", seed=11, extra=WINDOW),
    "qwen2-hub-windows": SmallTextModel("qwen2", seed=12, generation="4", kv_heads=4, layers=4, extra=WINDOW),
    "qwen3-tied": SmallTextModel("qwen3", seed=33, tied=True, head_dim=32, rope_theta=1e6),
    "qwen3-hub-biases": SmallTextModel("qwen3", seed=74, generation="4", head_dim=16, kv_heads=1, extra={"attention_bias": True}),
    "qwen3-layer-types": SmallTextModel(
        "qwen3", seed=15, head_dim=8, extra={"use_sliding_window": True, "sliding_window": 10,
                                             "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
    "qwen3-usual-head-dim": SmallTextModel("qwen3", seed=96, head_dim=128, hidden=32, kv_heads=4, dtype="bfloat16"),
}  # fmt: skip
QUICK = ("llama-3-tied", "mistral-window", "qwen2-hub-windows", "qwen3-tied")
LENGTHS = (3, 17, 41, 64, 1)  # of the prompts: within and beyond the windows, and beyond Llama 3's original positions

_settings = {}


def setting_of(name, tmp_path_factory):
    if name not in _settings:
        folder, spec = tmp_path_factory.mktemp(name), MODELS[name]
        model, _ = small_text_models.write_model(folder / "checkpoint", spec)
        generator = np.random.RandomState(spec.seed)
        prompts = [generator.randint(3, spec.vocab, length).tolist() for length in LENGTHS]
        _settings[name] = cases.Setting(model, {"<|endoftext|>": 0}, folder, cases.Pictures(folder), prompts, [[]] * len(prompts))
    return _settings[name]


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in MODELS])
def test_tokens_and_scores_equal_transformers(name, tmp_path_factory, bin_dir, figures):
    setting = setting_of(name, tmp_path_factory)
    report = cases.check_answers(setting, bin_dir, 1) + cases.check_answers(setting, bin_dir, 5, threads=2)
    figures(f"{name}: {cases.summary(report)}")


def test_a_mistral_with_layer_types_is_read_as_transformers_reads_it(tmp_path, bin_dir):
    """AutoModel makes a Ministral of it: the layers that are named have the window, the others see everything."""
    from transformers import AutoModelForCausalLM

    types = ["full_attention", "sliding_attention", "full_attention"]
    spec = SmallTextModel("mistral", seed=5, extra={"sliding_window": 12})
    everywhere, _ = small_text_models.write_model(tmp_path / "checkpoint", spec)
    path = tmp_path / "checkpoint" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "layer_types": types}))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint", dtype="float32").eval()
    assert type(model).__name__ == "MinistralForCausalLM"
    model.generation_config = everywhere.generation_config
    prompts = [np.random.RandomState(i).randint(3, spec.vocab, length).tolist() for i, length in enumerate(LENGTHS)]
    setting = cases.Setting(model, {"<|endoftext|>": 0}, tmp_path, cases.Pictures(tmp_path), prompts, [[]] * len(prompts))
    cases.check_answers(setting, bin_dir, 5)
    with pytest.raises(AssertionError):  # or the window made no difference
        cases.check_answers(dataclasses.replace(setting, model=everywhere), bin_dir, 5)
    model.save_pretrained(tmp_path / "trained" / "checkpoint")  # as a trainer saves it
    assert json.loads((tmp_path / "trained" / "checkpoint" / "config.json").read_text())["model_type"] == "ministral"
    cases.check_answers(dataclasses.replace(setting, folder=tmp_path / "trained"), bin_dir, 5)
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "ministral"}))  # a configuration that was saved alone
    cases.check_answers(setting, bin_dir, 5)


OPTIONS = [
    {"batch_size": 1, "share_prefixes": False},
    {"batch_size": 6},
    {"batch_size": 6, "share_prefixes": False},
    {"batch_size": 6, "prefill_tokens": 5},  # prompts are cut inside a window and on its edge
    {"batch_size": 2, "prefill_tokens": 1},
    {"batch_size": 6, "attn_implementation": "eager"},
]


@pytest.mark.parametrize("name", ["mistral-window", "qwen3-tied"])
def test_packed_shared_and_cut_prompts_give_the_same_tokens_and_the_same_run_the_same_bits(name, tmp_path_factory, bin_dir):
    setting = setting_of(name, tmp_path_factory)
    shared = setting.prompts[3]  # four questions behind one text
    requests = [{"tokens": shared + prompt, "max_new_tokens": 24} for prompt in setting.prompts[:4]] + setting.requests()[:2]
    folder = str(setting.folder / "checkpoint")
    files = [setting.folder / f"bits-{i}.bin" for i in range(2)]
    sessions = [(options, [{"folder": folder, "requests": requests}]) for options in OPTIONS]
    sessions.append(({"batch_size": 6}, [{"folder": folder, "requests": requests, "logits": str(file)} for file in files]))
    runs = [run for document in cases.run_sessions(bin_dir, setting.folder, sessions) for run in document["runs"]]
    for run, options in zip(runs, [*OPTIONS, "first", "second"], strict=True):
        assert run["answers"] == runs[0]["answers"], options
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_picture_is_refused_by_name_and_the_other_prompts_are_answered(tmp_path_factory, bin_dir):
    setting = setting_of("qwen3-tied", tmp_path_factory)
    pictures = cases.Pictures(setting.folder)
    pictures.add(cases.picture(0, 56, 56))
    requests = [{"tokens": [5, 6], "images": [0]}, {"tokens": [5, 6], "max_new_tokens": 3}]
    run = {"folder": str(setting.folder / "checkpoint"), "requests": requests}
    (result,) = cases.run_probe(bin_dir, setting.folder, [run], pictures)["runs"]
    assert "a qwen3 model reads text alone" in result["answers"][0]["error"]["message"]
    assert len(result["answers"][1]["tokens"]) == 3
    assert result["loaded"]["image_token_id"] == -1


def refusal(bin_dir, folder, spec, **changes):
    """Why a model of `spec` with `changes` in its config.json is not loaded."""
    small_text_models.write_model(folder / "checkpoint", dataclasses.replace(spec, layers=2, hidden=16, intermediate=16, vocab=50))
    path = folder / "checkpoint" / "config.json"
    config = json.loads(path.read_text())
    config.update({key: value for key, value in changes.items() if value is not None})
    path.write_text(json.dumps(config))
    (result,) = cases.run_probe(bin_dir, folder, [{"folder": str(path.parent), "requests": []}])["runs"]
    return result["error"]["code"], result["error"]["message"]


@pytest.mark.parametrize("family, changes, code, words", [
    ("qwen2", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "unsupported", "rope type \"yarn\""),
    ("qwen2", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "unsupported", "rope type \"dynamic\""),
    ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "corruption", "low_freq_factor is missing"),
    ("llama", {"partial_rotary_factor": 0.5}, "unsupported", "partial_rotary_factor"),
    ("llama", {"hidden_act": "gelu"}, "unsupported", "hidden_act \"gelu\""),
    ("llama", {"attention_bias": True}, "corruption", "model.layers.0.self_attn.k_proj.bias"),
    ("qwen3", {"layer_types": ["sliding_attention", "full_attention"]}, "corruption", "sliding_window is"),
    ("qwen3", {"layer_types": ["chunked_attention", "full_attention"]}, "unsupported", "\"chunked_attention\""),
    ("qwen3", {"layer_types": ["full_attention"]}, "corruption", "layer_types is a list of 1"),
    ("mistral", {"sliding_window": 0}, "corruption", "sliding_window is 0"),
    ("mistral", {"head_dim": 7}, "corruption", "head dimension must be even"),
    ("mistral", {"layer_types": ["sliding_attention", "full_attention"]}, "corruption", "sliding_window is null"),
    ("mistral", {"attention_chunk_size": 64}, "unsupported", "attention_chunk_size"),
    ("llama", {"sliding_window": 1024}, "unsupported", "sliding_window or layer_types"),
    ("llama", {"layer_types": ["full_attention", "sliding_attention"]}, "unsupported", "sliding_window or layer_types"),
    ("llama", {"model_type": "mistral"}, "unsupported", "LlamaForCausalLM, whose model_type is \"llama\", and model_type is \"mistral\""),
    ("llama", {"is_causal": False}, "unsupported", "is_causal is false"),
    ("qwen2", {"quantization_config": {"quant_method": "fp8"}}, "unsupported", "quantized models are not evaluated"),
])  # fmt: skip
def test_what_is_not_computed_is_refused_by_name(tmp_path, bin_dir, family, changes, code, words):
    extra = {"sliding_window": None} if family == "mistral" else {}
    got, message = refusal(bin_dir, tmp_path, SmallTextModel(family, head_dim=4, extra=extra), **changes)
    assert got == code, message
    assert words in message and ("config.json" in message or "missing (" in message), message
