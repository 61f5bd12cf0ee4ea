"""Checkpoints that torchtitan writes of its own models, against its own converter and its own model's logits."""

import json
import shutil

import pytest
import small_text_models
import titan_checkpoints
import torch
from small_text_models import LLAMA3_ROPE, SmallTextModel
from test_checkpoints import assert_same, digest_of, inspect, load_folder, run, tool  # noqa: F401  (tool: a fixture)

SPECS = {
    "llama": SmallTextModel("llama", seed=22, generation="4", rope=LLAMA3_ROPE),
    "qwen3": SmallTextModel("qwen3", seed=21, tied=True, head_dim=32),
}
# Numbers of ranks: heads of 16 rows, cut at rows that are no head's first.
WORLDS = {"llama": 3, "qwen3": 2}


@pytest.fixture(scope="module", params=SPECS)
def titan(request, tmp_path_factory, cache_dir):
    """Family, folder of the base model, run folder, folder of what is expected."""
    work = tmp_path_factory.mktemp("titan")
    small_text_models.write_model(work / "base", SPECS[request.param], tokenizer_merges=300, cache_dir=cache_dir)
    run_folder = titan_checkpoints.write_run(work / "run", work / "base", steps=[3, 6], world_size=WORLDS[request.param])
    return request.param, work / "base", run_folder, work / "run"


def expected_state(family, folder, step):
    """With the head that torchtitan's converter leaves out of a tied model, and that lies in the checkpoint."""
    state = dict(titan_checkpoints.expected_of(folder, step)["state"])
    if SPECS[family].tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


def test_a_merged_checkpoint_is_what_torchtitans_converter_makes_of_it(tool, titan, tmp_path):  # noqa: F811
    from transformers import AutoModelForCausalLM

    family, base, run_folder, folder = titan

    run(tool, "merge", "--input_dir", run_folder, "--model_name_or_class", base, "--output_dir", tmp_path / "out")

    assert_same(load_folder(tmp_path / "out"), expected_state(family, folder, 6))
    model, info = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    theirs = titan_checkpoints.expected_of(folder, 6)
    with torch.inference_mode():
        logits = model.eval()(theirs["tokens"]).logits
    torch.testing.assert_close(logits, theirs["logits"], rtol=0, atol=1e-4)


def test_hashes_are_of_the_tensors_as_transformers_has_them(tool, titan):  # noqa: F811
    family, base, run_folder, folder = titan

    report = inspect(tool, run_folder / "step-3", "--hash", "--model_name_or_class", base)

    assert report["complete"] and report["layout"] == "dcp" and report["step"] == 3
    assert not [text for text in report["warnings"] if "torchtitan" in text]
    assert report["weights_sha256"] == digest_of(expected_state(family, folder, 3))


def test_the_mean_of_two_steps_is_the_mean_of_converted_tensors(tool, titan, tmp_path):  # noqa: F811
    family, base, run_folder, folder = titan

    run(tool, "merge", "--input_dir", run_folder, "--merge", "--model_name_or_class", base, "--output_dir", tmp_path / "out")

    first, second = expected_state(family, folder, 3), expected_state(family, folder, 6)
    assert_same(load_folder(tmp_path / "out"), {name: ((first[name].double() + second[name].double()) / 2).float() for name in first})


def test_without_the_model_that_was_trained_names_are_kept_and_a_warning_says_what_to_give(tool, titan, tmp_path):  # noqa: F811
    _, base, run_folder, _ = titan

    done = run(tool, "merge", "--input_dir", run_folder, "--output_dir", tmp_path / "out")

    assert "layers.0.attention.wq.weight" in load_folder(tmp_path / "out")
    assert "torchtitan" in done.stderr and "--model_name_or_class" in done.stderr
    other = tmp_path / "other"
    shutil.copytree(base, other)
    config = json.loads((base / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "model_type": "mistral"}))
    done = run(tool, "merge", "--input_dir", run_folder, "--model_name_or_class", other, "--output_dir", tmp_path / "mistral")
    assert "layers.0.attention.wq.weight" in load_folder(tmp_path / "mistral") and "torchtitan" in done.stderr


@pytest.mark.parametrize("titan", ["llama"], indirect=True)  # a Qwen3's rows stay as they are, whatever its heads
def test_a_llama_of_other_heads_is_refused_by_its_configuration(tool, titan, tmp_path):  # noqa: F811
    _, base, run_folder, _ = titan
    other = tmp_path / "other"
    shutil.copytree(base, other)
    config = json.loads((base / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "num_attention_heads": 5}))

    done = run(tool, "merge", "--input_dir", run_folder, "--model_name_or_class", other, "--output_dir", tmp_path / "out", code=1)

    assert "5 heads" in done.stderr and str(other / "config.json") in done.stderr
    assert not (tmp_path / "out").exists()
