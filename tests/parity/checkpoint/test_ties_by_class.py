"""Merged models whose head is tied, or was and has become its own, for each class that ties in its own way: transformers loads of the
merge what it loads of the checkpoint, to the bit, and computes the same."""

import json
import os

import pytest
import torch
from fixtures import make_saved_by_4x, tied_models
from test_checkpoints import run, tool  # noqa: F401  (tool: a fixture)

QUICK = ("BertForMaskedLM", "AlbertForMaskedLM", "EsmForMaskedLM", "LukeForMaskedLM", "XLNetLMHeadModel", "BartForConditionalGeneration",
         "ProphetNetForConditionalGeneration", "SeamlessM4TModel", "T5ForConditionalGeneration", "T5ForConditionalGeneration 1.1", "InstructBlip over OPT",
         "InstructBlip over T5", "InstructBlip over Flan-T5", "IdeficsForVisionText2Text", "Qwen2_5_VLForConditionalGeneration", "BERT and GPT-2")  # fmt: skip
# With transformers 4 the head of these is lost from the checkpoint itself, and no configuration can keep it and the computation.
SCALED = [name for name in tied_models.MODELS if "T5" in name and "Gemma" not in name] + [
    "Pop2PianoForConditionalGeneration", "SwitchTransformersForConditionalGeneration"]  # fmt: skip
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
    stays = "still ties them: in a model of this kind tie_word_embeddings changes more than that" in said
    config = json.loads((tmp_path / "apart" / "checkpoint-1" / "config.json").read_text())
    assert stays == (name in SCALED and config.get("text_config", config)["tie_word_embeddings"])
    assert ("(tie_word_embeddings = false)" in said) == (name not in SCALED)


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
    names = [name for name in tied_models.MODELS if name not in SCALED and name not in ONLY_5]
    jobs = []
    for name in names:
        check(tool, with_own_head(tied_models.build(name)), tmp_path / name)
        jobs.append((tmp_path / name / "out", tmp_path / name / "expected.pt"))

    found = tied_models.differing_with(packages_of_4_57, jobs, tmp_path)

    assert {name: wrong for name, wrong in zip(names, found, strict=True) if wrong} == {}
