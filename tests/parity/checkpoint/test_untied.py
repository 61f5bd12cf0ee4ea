"""Models whose configuration ties the output head to the embedding although training made them differ: transformers loads a merge
with both as they were."""

import json

import pytest
import torch
from fixtures import lora_adapters
from safetensors.torch import load_file, save_file
from test_checkpoints import assert_same, load_folder, run, tool  # noqa: F401  (tool: a fixture)


def tiny(family):
    import transformers as t

    if family == "bloom":
        config = t.BloomConfig(vocab_size=32, hidden_size=16, n_layer=1, n_head=2, tie_word_embeddings=True)
        return t.BloomForCausalLM(config), "transformer.word_embeddings.weight", "lm_head.weight"
    if family == "gpt_neox":
        config = t.GPTNeoXConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                                 tie_word_embeddings=True)
        return t.GPTNeoXForCausalLM(config), "gpt_neox.embed_in.weight", "embed_out.weight"
    if family == "bert":
        config = t.BertConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
        return t.BertForMaskedLM(config), "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
    if family == "whisper":
        config = t.WhisperConfig(vocab_size=32, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
                                 encoder_ffn_dim=32, decoder_ffn_dim=32, num_mel_bins=8, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                                 decoder_start_token_id=1, max_source_positions=8, max_target_positions=8)  # fmt: skip
        return t.WhisperForConditionalGeneration(config), "model.decoder.embed_tokens.weight", "proj_out.weight"
    config = t.LlamaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                           intermediate_size=32, tie_word_embeddings=True)
    return t.LlamaForCausalLM(config), "model.embed_tokens.weight", "lm_head.weight"


def trained(family, folder, change):
    """A checkpoint of the tiny model with its head changed; the tensors that are in it."""
    torch.manual_seed(1)
    model, embedding, head = tiny(family)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    # Releases before 5 named the head of GPT-NeoX embed_out, those since read it as lm_head.
    tensors.pop("lm_head.weight", None)
    tensors[head] = change(tensors[embedding].clone())
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    if model.can_generate():
        model.generation_config.save_pretrained(folder)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return tensors


@pytest.mark.parametrize("family", ["bloom", "gpt_neox", "llama", "bert", "whisper"])
def test_a_head_that_differs_from_its_embedding_is_loaded_as_it_is(tool, tmp_path, family):  # noqa: F811
    import transformers

    tensors = trained(family, tmp_path / "checkpoint-1", lambda embedding: embedding + 1)

    done = run(tool, "merge", "--input_dir", tmp_path / "checkpoint-1", "--output_dir", tmp_path / "out")

    assert "tie_word_embeddings = false" in done.stderr
    assert_same(load_folder(tmp_path / "out"), tensors)
    made, embedding, head = tiny(family)
    model = getattr(transformers, type(made).__name__).from_pretrained(tmp_path / "out")
    assert torch.equal(model.get_input_embeddings().weight, tensors[embedding])
    assert torch.equal(model.get_output_embeddings().weight, tensors[head])
    loaded = model.state_dict()
    for name in tensors.keys() - {head}:
        assert torch.equal(loaded[name], tensors[name]), name


def test_a_head_that_equals_its_embedding_stays_tied(tool, tmp_path):  # noqa: F811
    trained("bloom", tmp_path / "checkpoint-1", lambda embedding: embedding)

    done = run(tool, "merge", "--input_dir", tmp_path / "checkpoint-1", "--output_dir", tmp_path / "out")

    assert done.stderr == ""
    assert json.loads((tmp_path / "out" / "config.json").read_text())["tie_word_embeddings"] is True


def test_a_head_of_another_dtype_differs_unless_a_cast_makes_it_the_same(tool, tmp_path):  # noqa: F811
    trained("llama", tmp_path / "checkpoint-1", lambda embedding: embedding.bfloat16())
    ties = {}
    for dtype in ("keep", "bfloat16"):
        run(tool, "merge", "--input_dir", tmp_path / "checkpoint-1", "--output_dir", tmp_path / dtype, "--dtype", dtype)
        ties[dtype] = json.loads((tmp_path / dtype / "config.json").read_text())["tie_word_embeddings"]
    assert ties == {"keep": False, "bfloat16": True}


def with_two_embeddings(name):
    """A model whose head is tied to one of two embeddings; the names of that one, and of its head."""
    import transformers as t

    small = dict(d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32)
    if name == "marian":
        config = t.MarianConfig(**small, vocab_size=96, decoder_vocab_size=80, share_encoder_decoder_embeddings=False, pad_token_id=0, eos_token_id=1,
                                forced_eos_token_id=1, decoder_start_token_id=2)  # fmt: skip
        return t.MarianMTModel(config), "model.decoder.embed_tokens.weight", "lm_head.weight"
    layers = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    config = t.InstructBlipConfig(text_config=layers | dict(model_type="opt", word_embed_proj_dim=32, ffn_dim=32, vocab_size=96, tie_word_embeddings=True),
                                  vision_config=layers | dict(intermediate_size=64, image_size=28, patch_size=14),
                                  qformer_config=layers | dict(intermediate_size=32, vocab_size=50, encoder_hidden_size=32))  # fmt: skip
    return t.InstructBlipForConditionalGeneration(config), "language_model.model.decoder.embed_tokens.weight", "language_model.lm_head.weight"


@pytest.mark.parametrize("name", ["marian", "instructblip"])
def test_a_further_embedding_unties_nothing(tool, tmp_path, name):  # noqa: F811
    model, embedding, head = with_two_embeddings(name)
    tensors = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    assert torch.equal(tensors[embedding], tensors[head])
    folder = tmp_path / "checkpoint-1"
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    for case, changed in (("tied", tensors), ("apart", tensors | {head: tensors[head] + 1})):
        save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
        done = run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / case)

        assert ("tie_word_embeddings = false" in done.stderr) == (case == "apart")
        assert (json.loads((tmp_path / case / "config.json").read_text()) == config) == (case == "tied")
        loaded = type(model).from_pretrained(tmp_path / case)
        weights = dict(loaded.named_parameters(remove_duplicate=False))
        assert (weights[embedding] is weights[head]) == (case == "tied")
        assert torch.equal(weights[embedding], changed[embedding]) and torch.equal(weights[head], changed[head])


def test_an_adapter_of_a_language_model_over_a_base_that_was_published_without_its_head_is_refused(tool, tmp_path):  # noqa: F811
    """Its head is tied in PEFT's model, and the files of the base cannot say how it is called."""
    import transformers

    base = tmp_path / "base"
    settings = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, vocab_size=96, tie_word_embeddings=True)
    transformers.LlamaModel(transformers.LlamaConfig(**settings)).save_pretrained(base)
    causal = {"target_modules": ["q_proj"], "r": 4, "modules_to_save": ["embed_tokens"], "task_type": "CAUSAL_LM"}
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, transformers.LlamaForCausalLM, **causal)

    done = run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "out", code=1)

    assert 'what the output head is called that the base model (of class "LlamaModel") ties to it' in done.stderr
    features = lora_adapters.write(tmp_path / "checkpoint-10", base, transformers.LlamaModel, **causal | {"task_type": "FEATURE_EXTRACTION"})
    run(tool, "merge", "--input_dir", features, "--output_dir", tmp_path / "out")
    expected = lora_adapters.merged_by_peft(features, base, transformers.LlamaModel)
    loaded = transformers.LlamaModel.from_pretrained(tmp_path / "out").state_dict()
    assert torch.equal(loaded["embed_tokens.weight"], expected["embed_tokens.weight"])


@pytest.mark.parametrize("module", ["embed_tokens", "lm_head"])
def test_an_update_of_what_a_configuration_ties_and_the_files_do_not_is_refused(tool, tmp_path, module):  # noqa: F811
    """transformers 5.17 loads such files as two parameters: an update of one must not change the other."""
    base = tmp_path / "base"
    model_class = lora_adapters.llama(base, tied=True)
    tensors = load_file(base / "model.safetensors")
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}, base / "model.safetensors", metadata={"format": "pt"})
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, target_modules=["q_proj", module], r=4)

    done = run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "out", code=1)

    assert '"lm_head.weight", which the base model\'s configuration ties, but which differ' in done.stderr
    saved = lora_adapters.write(tmp_path / "checkpoint-10", base, model_class, target_modules=["q_proj"], r=4, modules_to_save=["embed_tokens"])
    run(tool, "merge", "--input_dir", saved, "--output_dir", tmp_path / "out")
    merged, expected = load_folder(tmp_path / "out"), lora_adapters.merged_by_peft(saved, base, model_class)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        assert torch.equal(merged[name], expected[name]), name
