"""LoRA adapters over models whose output head is not simply lm_head, against PEFT's own merge_and_unload()."""

import pytest
import torch
from fixtures import lora_adapters
from safetensors.torch import load_file, save_file
from test_checkpoints import assert_same, load_folder, run, tool  # noqa: F401  (tool: a fixture)

ENCODER = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=96, max_position_embeddings=40)
DECODER = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, vocab_size=96, pad_token_id=0)
WHISPER = dict(d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
               decoder_ffn_dim=32, vocab_size=96, num_mel_bins=8, max_source_positions=8, max_target_positions=8,
               pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)  # fmt: skip
VISION = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, image_size=28, patch_size=14)

# Class: its configuration, a module that LoRA targets, and the one that holds the embedding.
MODELS = {
    "AlbertForMaskedLM": (ENCODER | {"embedding_size": 32}, "query", "word_embeddings"),
    "ElectraForMaskedLM": (ENCODER | {"embedding_size": 32}, "query", "word_embeddings"),
    "BertForMaskedLM": (ENCODER, "query", "word_embeddings"),
    "BertForPreTraining": (ENCODER, "query", "word_embeddings"),
    "BertLMHeadModel": (ENCODER | {"is_decoder": True}, "query", "word_embeddings"),
    "RobertaForMaskedLM": (ENCODER, "query", "word_embeddings"),
    "RobertaForCausalLM": (ENCODER | {"is_decoder": True}, "query", "word_embeddings"),
    "XLMRobertaForMaskedLM": (ENCODER, "query", "word_embeddings"),
    "XLMRobertaForCausalLM": (ENCODER | {"is_decoder": True}, "query", "word_embeddings"),
    "CamembertForMaskedLM": (ENCODER, "query", "word_embeddings"),
    "CamembertForCausalLM": (ENCODER | {"is_decoder": True}, "query", "word_embeddings"),
    "DistilBertForMaskedLM": (dict(dim=32, n_layers=1, n_heads=2, hidden_dim=32, vocab_size=96), "q_lin", "word_embeddings"),
    "WhisperForConditionalGeneration": (WHISPER, "q_proj", "embed_tokens"),
    "OPTForCausalLM": (dict(hidden_size=32, word_embed_proj_dim=32, num_hidden_layers=1, num_attention_heads=2, ffn_dim=32, vocab_size=96),
                       "q_proj", "embed_tokens"),
    "GPT2LMHeadModel": (dict(n_embd=32, n_layer=1, n_head=2, vocab_size=96, n_positions=32), "c_attn", "wte"),
    "BloomForCausalLM": (dict(hidden_size=32, n_layer=1, n_head=2, vocab_size=96), "query_key_value", "word_embeddings"),
    "SmolVLMForConditionalGeneration": (dict(text_config=DECODER | {"model_type": "llama", "tie_word_embeddings": True}, vision_config=VISION,
                                             tie_word_embeddings=True, image_token_id=90), "q_proj", "embed_tokens"),
    # Without a head.
    "BertForSequenceClassification": (ENCODER, "query", "word_embeddings"),
    "BertModel": (ENCODER, "query", "word_embeddings"),
    "GPT2Model": (dict(n_embd=32, n_layer=1, n_head=2, vocab_size=96, n_positions=32), "c_attn", "wte"),
    "Qwen2ForSequenceClassification": (DECODER | {"tie_word_embeddings": True}, "q_proj", "embed_tokens"),
}  # fmt: skip


def write_base(folder, name, settings, dtype=torch.float32):
    import transformers

    family = name.split("For")[0]
    for end in ("Model", "LMHead", "With", "Encoder"):
        family = family.removesuffix(end)
    torch.manual_seed(1)
    model = getattr(transformers, name)(getattr(transformers, f"{family}Config")(**settings))
    return lora_adapters._save(model, folder, dtype, 1)


@pytest.fixture(scope="module", autouse=True)
def in_order():
    if not lora_adapters.torch_multiplies_in_order():
        pytest.skip("torch's matrix product on this CPU is no chain of fused multiply-adds: its bits are not the standard here")


QUICK = ("BertForMaskedLM", "AlbertForMaskedLM", "RobertaForMaskedLM", "DistilBertForMaskedLM", "WhisperForConditionalGeneration",
         "SmolVLMForConditionalGeneration", "BertForSequenceClassification", "GPT2Model")  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in MODELS])
def test_a_saved_embedding_leaves_the_head_what_it_was_under_the_name_that_the_class_reads(tool, tmp_path, name):  # noqa: F811
    settings, target, embedding = MODELS[name]
    base = tmp_path / "base"
    model_class = write_base(base, name, settings)
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, target_modules=[target], r=4, modules_to_save=[embedding])
    expected = lora_adapters.merged_by_peft(adapter, base, model_class)

    run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "out")

    loaded, info = model_class.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert_same(dict(loaded.state_dict()), dict(expected))
    assert_same(load_folder(tmp_path / "out"), dict(expected))


SEQ2SEQ = dict(d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
               decoder_ffn_dim=32, vocab_size=96)  # fmt: skip
T5 = dict(d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=2, vocab_size=96, decoder_start_token_id=0)


@pytest.mark.parametrize("name, settings, target", [("T5ForConditionalGeneration", T5, "q"), ("BartForConditionalGeneration", SEQ2SEQ, "q_proj"),
                                                    ("T5EncoderModel", T5, "q")])  # fmt: skip
def test_a_copy_of_an_embedding_that_encoder_and_decoder_share_is_refused_by_its_name(tool, tmp_path, name, settings, target):  # noqa: F811
    """merge_and_unload replaces the module `shared` alone; what PEFT itself saves of that and loads again is another model."""
    base = tmp_path / "base"
    model_class = write_base(base, name, settings)
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, target_modules=[target], r=4, modules_to_save=["shared"])

    done = run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "out", code=1)

    assert 'shared.weight", which encoder and decoder share' in done.stderr and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name, settings, target", [("T5ForConditionalGeneration", T5, "q"), ("BartForConditionalGeneration", SEQ2SEQ, "q_proj")])
def test_an_update_of_an_embedding_that_encoder_and_decoder_share_changes_all_of_them(tool, tmp_path, name, settings, target):  # noqa: F811
    base = tmp_path / "base"
    model_class = write_base(base, name, settings)
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, target_modules=[target, "shared"], r=4)
    expected = lora_adapters.merged_by_peft(adapter, base, model_class)

    run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "out")

    assert_same(dict(model_class.from_pretrained(tmp_path / "out").state_dict()), dict(expected))

    # The same base as older releases saved it, each name of the embedding by itself.
    tensors = load_file(base / "model.safetensors")
    [shared] = [key for key in tensors if key.endswith("shared.weight")]
    save_file(tensors | {shared.replace("shared", "encoder.embed_tokens"): tensors[shared].clone()}, base / "model.safetensors", metadata={"format": "pt"})
    done = run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "again", code=1)
    assert "cannot be told which other tensors of the base model are tied to it" in done.stderr


@pytest.mark.parametrize("name, settings, target, embedding", [
    ("MambaForCausalLM", dict(hidden_size=32, num_hidden_layers=1, vocab_size=96, state_size=4), "in_proj", "embeddings"),
    ("XLNetLMHeadModel", dict(d_model=32, n_layer=1, n_head=2, d_inner=32, vocab_size=96), "layer_1", "word_embedding"),
    ("CTRLLMHeadModel", dict(n_embd=32, dff=32, n_layer=1, n_head=2, vocab_size=96), "Wq", "w"),
    ("OpenAIGPTLMHeadModel", dict(n_embd=32, n_layer=1, n_head=2, vocab_size=96), "c_attn", "tokens_embed"),
    ("XLMWithLMHeadModel", dict(emb_dim=32, n_layers=1, n_heads=2, vocab_size=96), "q_lin", "embeddings")])  # fmt: skip
def test_a_copy_of_an_embedding_of_a_rare_name_is_refused(tool, tmp_path, name, settings, target, embedding):  # noqa: F811
    base = tmp_path / "base"
    model_class = write_base(base, name, settings)
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, target_modules=[target], r=4, modules_to_save=[embedding])

    done = run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "out", code=1)

    assert f'{embedding}.weight", and it cannot be told what the output head is called' in done.stderr


@pytest.mark.parametrize("name, settings, target, embedding", [
    ("GPTNeoXForCausalLM", dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=96, tie_word_embeddings=True),
     "query_key_value", "embed_in")])  # fmt: skip
def test_a_saved_embedding_over_a_class_whose_head_is_not_known_is_refused_by_its_name(tool, tmp_path, name, settings, target, embedding):  # noqa: F811
    base = tmp_path / "base"
    model_class = write_base(base, name, settings)
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, target_modules=[target], r=4, modules_to_save=[embedding])

    done = run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "out", code=1)

    assert f'cannot be told what the output head is called that the base model (of class "{name}") ties to it' in done.stderr
    assert not (tmp_path / "out").exists()


HEADS = {
    "lm_head": ("RobertaForMaskedLM", dict(modules_to_save=["lm_head"])),
    "head": ("RobertaForMaskedLM", dict(modules_to_save=["head"])),  # PEFT takes every module that ends so
    "cls": ("BertForMaskedLM", dict(modules_to_save=["cls"])),
    "decoder": ("BertForMaskedLM", dict(modules_to_save=["decoder"])),
    "biases": ("BertForMaskedLM", dict(bias="all")),
    "biases-of-roberta": ("RobertaForMaskedLM", dict(bias="all")),
    "biases-and-embedding": ("BertForMaskedLM", dict(bias="all", modules_to_save=["word_embeddings"])),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_head_whose_bias_two_modules_share_is_replaced_whole(tool, tmp_path, dtype):  # noqa: F811
    """Files hold the one bias under one name, adapters under both."""
    for case, (name, more) in HEADS.items():
        base = tmp_path / case / "base"
        model_class = write_base(base, name, ENCODER, dtype)
        adapter = lora_adapters.write(tmp_path / case / "checkpoint-5", base, model_class, target_modules=["query"], r=4, **more)
        expected = lora_adapters.merged_by_peft(adapter, base, model_class)

        run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / case / "out")

        loaded, info = model_class.from_pretrained(tmp_path / case / "out", dtype="auto", output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"], case
        assert_same(dict(loaded.state_dict()), {key: tensor.to(dtype) for key, tensor in expected.items()})


def test_a_bias_that_an_adapter_has_under_one_of_its_names_becomes_both(tool, tmp_path):  # noqa: F811
    base = tmp_path / "base"
    model_class = write_base(base, "BertForMaskedLM", ENCODER)
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, target_modules=["query"], r=4, bias="all")
    tensors = load_file(adapter / "adapter_model.safetensors")
    one = tensors.pop("base_model.model.cls.predictions.bias")
    save_file(tensors, adapter / "adapter_model.safetensors")

    run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "out")

    merged = load_folder(tmp_path / "out")
    assert torch.equal(merged["cls.predictions.bias"], one) and torch.equal(merged["cls.predictions.decoder.bias"], one)


def test_a_classifier_of_several_layers_is_added_to_a_base_without_one(tool, tmp_path):  # noqa: F811
    import transformers

    base = tmp_path / "base"
    write_base(base, "RobertaForMaskedLM", ENCODER)
    classifier = transformers.RobertaForSequenceClassification
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, classifier, target_modules=["query"], r=4, task_type="SEQ_CLS")
    expected = lora_adapters.merged_by_peft(adapter, base, classifier)

    run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "out")

    assert_same(dict(classifier.from_pretrained(tmp_path / "out").state_dict()), dict(expected))


def test_a_bias_of_another_model_is_refused(tool, tmp_path):  # noqa: F811
    base = tmp_path / "base"
    model_class = write_base(base, "BertForMaskedLM", ENCODER)
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, target_modules=["query"], r=4, bias="all")
    tensors = load_file(base / "model.safetensors")
    save_file({key: tensor for key, tensor in tensors.items() if key != "cls.predictions.bias"}, base / "model.safetensors", metadata={"format": "pt"})

    done = run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "out", code=2)

    assert 'replaces tensor "cls.predictions.bias", which the base model does not have' in done.stderr
