"""A configuration that contradicts the weights is told by inspect and merge; one that fits, never."""

import json

import pytest
from safetensors.torch import load_file, save_file
from test_checkpoints import inspect, run, tool  # noqa: F401  (tool: a fixture)

TEXT = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=50)
VISION = dict(hidden_size=16, embed_dim=16, out_hidden_size=16, intermediate_size=16, depth=1, num_hidden_layers=1, num_heads=2, num_attention_heads=2,
              image_size=28, patch_size=14, vision_use_head=False)  # fmt: skip


def text(**more):
    return TEXT | more


MODELS = {
    "Qwen2": text(),
    "Qwen3": text(head_dim=4),
    "Llama": text(tie_word_embeddings=True),
    "LlamaBiased": text(attention_bias=True),
    "Mistral": text(),
    "Ministral": text(head_dim=4, layer_types=["full_attention", "sliding_attention"]),
    "Qwen3Moe": text(head_dim=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, mlp_only_layers=[0]),
    "Qwen2VL": dict(text_config=text(), vision_config=VISION),
    "Qwen2_5_VL": dict(text_config=text(), vision_config=VISION),
    "Qwen3VLMoe": dict(text_config=text(head_dim=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, mlp_only_layers=[0]), vision_config=VISION),
    "Qwen3VL": dict(text_config=text(head_dim=4), vision_config=VISION),
    "Idefics2": dict(text_config=text(model_type="mistral", pad_token_id=0), vision_config=VISION, perceiver_config=dict(
        hidden_size=16, resampler_n_latents=2, resampler_depth=1, resampler_n_heads=2, resampler_head_dim=8, num_key_value_heads=1), image_token_id=49),
    "Idefics3": dict(text_config=text(model_type="llama", pad_token_id=0), vision_config=VISION, image_token_id=49),
    "SmolVLM": dict(text_config=text(model_type="llama", pad_token_id=0), vision_config=VISION, image_token_id=49),
    "LlavaOnevision": dict(text_config=text(model_type="qwen2"), vision_config=VISION | {"model_type": "siglip_vision_model"}),
}


def write(folder, name):
    """A random model of the family, as transformers saves it; its tensors."""
    import transformers

    numbers, name = MODELS[name], name.removesuffix("Biased")
    suffix = "ForCausalLM" if hasattr(transformers, f"{name}ForCausalLM") else "ForConditionalGeneration"
    getattr(transformers, name + suffix)(getattr(transformers, f"{name}Config")(**numbers)).save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def warnings_of(tool, folder):  # noqa: F811
    """What inspect and merge say alike."""
    said = inspect(tool, folder)["warnings"]
    done = run(tool, "merge", "--input_dir", folder, "--output_dir", folder.parent / "out", "--dry-run")
    assert [f"evalcar merge: warning: {warning}" for warning in said] == [line for line in done.stderr.splitlines() if "warning" in line]
    return [warning.removeprefix(f"{folder}/config.json: ") for warning in said]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_transformers_wrote_gives_no_warning_and_one_without_its_norm_does(tool, tmp_path, name):  # noqa: F811
    tensors = write(tmp_path / "model", name)
    assert warnings_of(tool, tmp_path / "model") == []

    [norm] = [key for key in tensors if key.endswith("norm.weight") and "layers" not in key and "visual" not in key and "vision" not in key and "connector" not in key]
    save_file({key: tensor for key, tensor in tensors.items() if key != norm}, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    assert warnings_of(tool, tmp_path / "model") == ["the weights lack norm.weight, which a model of this configuration has"]


@pytest.mark.parametrize("key, value, said", [
    ("hidden_size", 32, ['hidden_size is 32, but "model.embed_tokens.weight" has the shape [50, 16]', 'hidden_size is 32, but "model.norm.weight" has the shape [16]']),
    ("vocab_size", 51, ['vocab_size is 51, but "model.embed_tokens.weight" has the shape [50, 16]']),
    ("num_hidden_layers", 1, ["num_hidden_layers is 1, but the weights have 2 layers"]),
    ("num_hidden_layers", 3, ["the weights lack layers.2.input_layernorm.weight, layers.2.post_attention_layernorm.weight, layers.2.self_attn.q_proj.weight "
                              "and 9 more, which a model of this configuration has"]),
    ("model_type", "of_somebody", []), ("quantization_config", {"quant_method": "awq"}, [])])  # fmt: skip
def test_what_the_configuration_says_and_the_weights_have_not_is_told(tool, tmp_path, key, value, said):  # noqa: F811
    write(tmp_path / "model", "Qwen2")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {key: value}))
    if not said:  # nothing is known of it
        tensors = load_file(tmp_path / "model" / "model.safetensors")
        save_file({"model.norm.weight": tensors["model.norm.weight"][:3]}, tmp_path / "model" / "model.safetensors")

    assert warnings_of(tool, tmp_path / "model") == said


def test_a_tensor_of_a_layer_that_is_not_there_is_named(tool, tmp_path):  # noqa: F811
    tensors = write(tmp_path / "model", "Qwen2")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model" / "model.safetensors")

    assert warnings_of(tool, tmp_path / "model") == ["the weights lack layers.1.mlp.up_proj.weight, which a model of this configuration has"]


@pytest.mark.parametrize("name, lost, said", [
    ("Qwen2", "lm_head.", "the weights lack lm_head.weight, which"),
    ("Qwen2", "layers.1.self_attn.k_proj.bias", "the weights lack layers.1.self_attn.k_proj.bias, which"),
    ("Qwen3", "layers.0.self_attn.q_norm", "the weights lack layers.0.self_attn.q_norm.weight, which"),
    ("LlamaBiased", "layers.0.self_attn.o_proj.bias", "the weights lack layers.0.self_attn.o_proj.bias, which"),
    ("Qwen3Moe", "layers.1.mlp.experts.3.", "the weights lack layers.1.mlp.experts.3.gate_proj.weight, layers.1.mlp.experts.3.up_proj.weight, "
                                           "layers.1.mlp.experts.3.down_proj.weight, which"),
    ("Qwen3Moe", "layers.1.mlp.gate.", "the weights lack layers.1.mlp.gate.weight, which"),
    ("Qwen3Moe", "layers.0.mlp.up", "the weights lack layers.0.mlp.up_proj.weight, which"),
    ("Qwen3VLMoe", "layers.1.mlp.experts.down", "the weights lack layers.1.mlp.experts.down_proj, which"),
    ("Qwen2_5_VL", "visual.", "the weights lack visual.patch_embed.proj.weight, visual.blocks.0.attn.qkv.weight, which"),
    ("Qwen3VL", "lm_head.", "the weights lack lm_head.weight, which"),
])  # fmt: skip
def test_a_part_that_is_not_there_is_told(tool, tmp_path, name, lost, said):  # noqa: F811
    tensors = write(tmp_path / "model", name)
    kept = {key: tensor for key, tensor in tensors.items() if lost not in key}
    assert kept.keys() != tensors.keys()
    save_file(kept, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})

    [told] = warnings_of(tool, tmp_path / "model")
    assert told.startswith(said)


def test_a_model_without_a_head_of_its_own_needs_none(tool, tmp_path):  # noqa: F811
    """The bare model, whatever class its configuration names; and one whose head an embedding ties, which is not stored."""
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Model

    Qwen2Model(Qwen2Config(**text())).save_pretrained(tmp_path / "model")
    assert warnings_of(tool, tmp_path / "model") == []
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"architectures": ["Qwen2ForCausalLM"]}))
    assert warnings_of(tool, tmp_path / "model") == []
    Qwen2ForCausalLM(Qwen2Config(**text(tie_word_embeddings=True))).save_pretrained(tmp_path / "tied")
    assert "lm_head.weight" not in load_file(tmp_path / "tied" / "model.safetensors")
    assert warnings_of(tool, tmp_path / "tied") == []


@pytest.mark.parametrize("numbers", [dict(num_experts=2**40), dict(num_hidden_layers=2**40), dict(num_hidden_layers=2**40, num_experts=2**40)])
def test_numbers_that_no_model_has_take_no_long_list(tool, tmp_path, numbers):  # noqa: F811
    write(tmp_path / "model", "Qwen3Moe")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config.pop("num_local_experts", None)
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | numbers))

    assert any("the weights lack" in told for told in warnings_of(tool, tmp_path / "model"))


def test_a_text_model_in_a_module_of_somebody_gives_no_warning_and_one_that_is_not_there_does(tool, tmp_path):  # noqa: F811
    tensors = write(tmp_path / "model", "Qwen2VL")
    moved = {key.replace("model.layers.", "model.of_somebody.layers.").replace("model.embed", "model.of_somebody.embed")
             .replace("model.norm.", "model.of_somebody.norm.").replace("language_model.", "of_somebody."): tensor for key, tensor in tensors.items()}
    assert moved.keys() != tensors.keys()
    save_file(moved, tmp_path / "model" / "model.safetensors")

    assert warnings_of(tool, tmp_path / "model") == []

    save_file({key: tensor for key, tensor in moved.items() if "of_somebody" not in key}, tmp_path / "model" / "model.safetensors")
    [said] = warnings_of(tool, tmp_path / "model")
    assert said.startswith("the weights lack embed_tokens.weight, norm.weight, layers.0.input_layernorm.weight and ")
