"""Merged models whose head is tied, or was and has become its own, for each class that ties in its own way: transformers loads of the
merge what it loads of the checkpoint, to the bit, and computes the same."""

import json
import os
import pathlib
import re

import pytest
import torch
import transformers
from fixtures import make_known_ties, make_saved_by_4x, tied_models
from safetensors.torch import load_file, save_file
from test_checkpoints import run, tool  # noqa: F401  (tool: a fixture)

QUICK = ("BertForMaskedLM", "AlbertForMaskedLM", "EsmForMaskedLM", "LukeForMaskedLM", "XLNetLMHeadModel", "BartForConditionalGeneration",
         "ProphetNetForConditionalGeneration", "SeamlessM4TModel", "T5ForConditionalGeneration", "T5ForConditionalGeneration 1.1", "InstructBlip over OPT",
         "InstructBlip over T5", "InstructBlip over Flan-T5", "IdeficsForVisionText2Text", "Qwen2_5_VLForConditionalGeneration", "BERT and GPT-2")  # fmt: skip
# With transformers 4 the head of these is lost from the checkpoint itself, and no configuration can keep it and the computation.
SCALED = [name for name in tied_models.MODELS if "T5" in name and "Gemma" not in name] + [
    "Pop2PianoForConditionalGeneration", "SwitchTransformersForConditionalGeneration"]  # fmt: skip
KEPT = [*SCALED, "ZambaForCausalLM", "Zamba2ForCausalLM"]  # layers of these are tied by the flag, too
# Whose module's names, or what is tied, 4.57 has otherwise.
ONLY_5 = {"LlavaForConditionalGeneration", "PaliGemmaForConditionalGeneration", "ViT and TrOCR"}


def save(model, folder):
    """As transformers 4 wrote the configuration of T5: 5 writes what the flag means there under a name of its own."""
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    for part in (config, config.get("text_config", {})):
        if "scale_decoder_outputs" in part:
            part["tie_word_embeddings"] = part.pop("scale_decoder_outputs")
    (folder / "config.json").write_text(json.dumps(config))


def loaded(model_class, folder):
    """The model, its tensors, and what transformers missed."""
    torch.manual_seed(7)  # of what the files do not have
    model, info = model_class.from_pretrained(folder, output_loading_info=True)
    tensors = model.state_dict() | {f"buffer {name}": tensor for name, tensor in model.named_buffers()}
    return model.eval(), tensors, {kind: sorted(map(str, found)) for kind, found in info.items() if found}


def logits(model):
    """None where the model wants pictures or sound."""
    ids = torch.arange(5, 13)[None]
    text = model.language_model if hasattr(model, "qformer") else model
    more = {"decoder_input_ids": ids} if text.config.is_encoder_decoder else {}
    try:
        with torch.no_grad():
            out = text(input_ids=ids, **more)
    except (TypeError, ValueError, AttributeError):
        return None
    return next(out[key] for key in ("logits", "prediction_logits") if key in out)


def with_own_head(model):
    head = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(head.weight.detach() * 1.5 + 0.01)
    return model


def check(tool, model, folder):  # noqa: F811
    """Merges the model out of a checkpoint; what merge said."""
    save(model, folder / "checkpoint-1")
    said = run(tool, "merge", "--input_dir", folder / "checkpoint-1", "--output_dir", folder / "out", "--type", "hf").stderr
    source, expected, missed = loaded(type(model), folder / "checkpoint-1")
    merged, found, missed_of_merge = loaded(type(model), folder / "out")
    assert missed_of_merge == missed
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []
    ours, theirs = logits(merged), logits(source)
    assert (ours is None and theirs is None) or torch.equal(ours, theirs)
    torch.save({name: tensor for name, tensor in expected.items() if not name.startswith("buffer ")}, folder / "expected.pt")
    return said


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in tied_models.MODELS])
def test_a_merge_is_loaded_as_the_checkpoint_is(tool, tmp_path, name):  # noqa: F811
    check(tool, tied_models.build(name), tmp_path / "tied")
    said = check(tool, with_own_head(tied_models.build(name)), tmp_path / "apart")

    own = tied_models.build(name).get_output_embeddings().weight.detach() * 1.5 + 0.01
    model = type(tied_models.build(name)).from_pretrained(tmp_path / "apart" / "out")
    assert torch.equal(model.get_output_embeddings().weight, own)
    stays = "still ties them: in a model of this kind that does more" in said
    config = json.loads((tmp_path / "apart" / "checkpoint-1" / "config.json").read_text())
    assert stays == (name in KEPT and config.get("text_config", config)["tie_word_embeddings"])
    assert ("(tie_word_embeddings = false)" in said) == (name not in KEPT)


class WithHeads(transformers.Qwen2ForCausalLM):
    """Somebody's own class, with heads beside the one that is tied and therefore in no file."""

    def __init__(self, config):
        super().__init__(config)
        self.mtp = torch.nn.Module()
        self.mtp.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.output = torch.nn.Linear(config.hidden_size, 3, bias=False)
        self.post_init()


class BertWithHead(transformers.BertForMaskedLM):
    def __init__(self, config):
        super().__init__(config)
        self.aux = torch.nn.Module()
        self.aux.lm_head = torch.nn.Linear(config.hidden_size, 7, bias=False)
        self.decoder = torch.nn.Linear(config.hidden_size, 7, bias=False)
        self.post_init()


class BartWithHead(transformers.BartForConditionalGeneration):
    def __init__(self, config):
        super().__init__(config)
        self.aux = torch.nn.Module()
        self.aux.lm_head = torch.nn.Linear(config.d_model, 7, bias=False)
        self.post_init()


@pytest.mark.parametrize("own, name", [(WithHeads, "Qwen2ForCausalLM"), (BertWithHead, "BertForMaskedLM"), (BartWithHead, "BartForConditionalGeneration")])
def test_a_head_of_somebodys_own_unties_nothing(tool, tmp_path, own, name):  # noqa: F811
    model = own(tied_models.build(name).config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.05)

    said = check(tool, model, tmp_path)

    assert "tie" not in said
    before, after = (json.loads((tmp_path / folder / "config.json").read_text()) for folder in ("checkpoint-1", "out"))
    assert after == before


LEFT_OVER = [("BioGptForCausalLM", "lm_head"), ("T5GemmaForConditionalGeneration", "lm_head"), ("Blip2 over OPT", "lm_head"), ("BERT and GPT-2", "lm_head"),
             ("MambaForCausalLM", "language_model.lm_head"), ("XLNetLMHeadModel", "lm_head"), ("BertForMaskedLM", "lm_head"),
             ("BartForConditionalGeneration", "mtp.lm_head"), ("Qwen2_5_VLForConditionalGeneration", "language_model.lm_head")]  # fmt: skip


@pytest.mark.parametrize("name, module", LEFT_OVER)
def test_a_tensor_that_was_left_over_unties_nothing(tool, tmp_path, name, module):  # noqa: F811
    """Of another model's head, in files of one that is tied."""
    model = tied_models.build(name)
    save(model, tmp_path / "checkpoint-1")
    path = tmp_path / "checkpoint-1" / "model.safetensors"
    save_file(load_file(path) | {f"{module}.weight": torch.randn(96, 32)}, path, metadata={"format": "pt"})

    run(tool, "merge", "--input_dir", tmp_path / "checkpoint-1", "--output_dir", tmp_path / "out")

    before, after = (json.loads((tmp_path / folder / "config.json").read_text()) for folder in ("checkpoint-1", "out"))
    assert after == before
    _, expected, missed = loaded(type(model), tmp_path / "checkpoint-1")
    _, found, missed_of_merge = loaded(type(model), tmp_path / "out")
    assert missed_of_merge == missed and [key for key in expected if not torch.equal(found[key], expected[key])] == []


def table():
    """Of the written file: {class: (model_type, {(kind, name, name), …}, whether layers are tied)}."""
    text = (pathlib.Path(__file__).parents[3] / "store/checkpoint/known_ties.cpp").read_text()
    ties = {number: set(re.findall(r'\{k(Head|More), "(.+?)", "(.+?)"\}', rows)) for number, rows in re.findall(r"(kTies\d+) = \{\{(.+?)\}\};", text, re.DOTALL)}
    return {name: (kind, ties[number], layers == "true") for kind, name, number, layers in re.findall(r'\{"(.+?)", "(\w+)", (kTies\d+), (\w+)\}', text)}


@pytest.mark.parametrize("only", [[name for name in QUICK if hasattr(transformers, name)], pytest.param(None, marks=pytest.mark.full)])
def test_the_table_of_ties_is_what_the_classes_say(only):
    groups = make_known_ties.known_ties(only)

    found = {name: (kind, {(tie.capitalize(), one, other) for tie, one, other in pairs}, layers)
             for (pairs, layers), those in groups.items() for kind, name in those}  # fmt: skip
    assert {name: row for name, row in table().items() if only is None or name in only} == found


@pytest.mark.parametrize("config", [{}, {"model_type": "my_translator", "architectures": ["MyTranslator"]}])
def test_a_model_that_nobody_knows_keeps_its_names_and_its_configuration(tool, tmp_path, config):  # noqa: F811
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    tensors = {f"{name}.weight": torch.randn(4, 4) for name in ("shared", "encoder.block", "decoder.block", "lm_head")}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))

    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out")

    merged = load_file(tmp_path / "out" / "model.safetensors")
    assert sorted(merged) == sorted(tensors) and all(torch.equal(merged[name], tensors[name]) for name in tensors)
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == config


def test_a_long_configuration_is_edited_in_its_length(tool, tmp_path):  # noqa: F811
    """A look at 400,000 keys for each of 40,000 heads would take half an hour, more than run() waits; in its length it is seconds."""
    count = 400_000
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    heads = {f"part{number}.lm_head.weight": torch.ones(1) for number in range(count // 10)}
    save_file({"lm_head.weight": torch.ones(2), "model.embed_tokens.weight": torch.zeros(2), **heads}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({f"key{number}": number for number in range(count)} | {"dtype": "float32", "model_type": "llama"}))

    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out", "--dtype", "bfloat16")

    after = json.loads((tmp_path / "out" / "config.json").read_text())
    assert after["dtype"] == "bfloat16" and after["tie_word_embeddings"] is False and len(after) == count + 3


def test_only_the_flag_that_ties_the_head_is_changed(tool, tmp_path):  # noqa: F811
    model = with_own_head(tied_models.build("BERT and GPT-2"))
    check(tool, model, tmp_path)

    before, after = (json.loads((tmp_path / folder / "config.json").read_text()) for folder in ("checkpoint-1", "out"))
    assert before["encoder"]["tie_word_embeddings"] and before["decoder"]["tie_word_embeddings"]
    before["decoder"]["tie_word_embeddings"] = False
    assert after == before


@pytest.fixture(scope="module")
def packages_of_4_57(cache_dir):
    packages = cache_dir / make_saved_by_4x.REQUIREMENTS["4.57"][0].replace("==", "-")
    if not packages.exists():
        scratch = cache_dir / f"{packages.name}.{os.getpid()}"
        make_saved_by_4x.install("4.57", scratch)
        scratch.rename(packages)
    return packages


@pytest.mark.full
def test_transformers_4_57_loads_heads_of_their_own_too(tool, tmp_path, packages_of_4_57):  # noqa: F811
    names = [name for name in tied_models.MODELS if name not in KEPT and name not in ONLY_5]
    jobs = []
    for name in names:
        check(tool, with_own_head(tied_models.build(name)), tmp_path / name)
        jobs.append((tmp_path / name / "out", tmp_path / name / "expected.pt"))

    found = tied_models.differing_with(packages_of_4_57, jobs, tmp_path)

    assert {name: wrong for name, wrong in zip(names, found, strict=True) if wrong} == {}
