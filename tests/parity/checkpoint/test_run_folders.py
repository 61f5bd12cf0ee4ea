"""The folder of a training that holds the final model besides its checkpoints: it is no checkpoint, whatever lies in it."""

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_checkpoints import inspect, run, tool  # noqa: F401  (tool: a fixture)
from transformers import LlamaConfig, LlamaForCausalLM


def tiny(value):
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=16, **shape))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


def value(folder):
    return {tensor.flatten()[0].item() for tensor in load_file(folder / "model.safetensors").values()}


def by_epochs(folder):
    """As accelerate's examples save: save_state("epoch_<n>"), and the model at the end."""
    from accelerate import Accelerator

    for epoch in (0, 1):
        trainer = Accelerator(cpu=True)
        trainer.prepare(tiny(float(epoch)))
        trainer.save_state(str(folder / f"epoch_{epoch}"))
    tiny(7.0).save_pretrained(folder)
    return folder / "epoch_1", "epoch_1"


def by_steps(folder):
    """As the Hugging Face Trainer does, with save_model() at the end."""
    for step in (5, 10):
        tiny(float(step)).save_pretrained(folder / f"checkpoint-{step}")
        (folder / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    tiny(7.0).save_pretrained(folder)
    return folder / "checkpoint-10", "10"


@pytest.mark.parametrize("train", [by_epochs, by_steps])
def test_a_checkpoint_of_a_run_with_the_final_model_is_merged_into_that_run(tool, tmp_path, train):  # noqa: F811
    folder, place = train(tmp_path / "run")
    weights = value(folder)
    names = sorted(os.listdir(folder))

    run(tool, "merge", "--input_dir", folder)
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "run" / "merged")
    refused = run(tool, "merge", "--input_dir", folder, "--output_dir", folder / "merged", code=2)

    assert value(tmp_path / "run" / "_evalcar" / "merged" / place / "regular") == weights
    assert value(tmp_path / "run" / "merged") == weights
    assert f"lies inside the checkpoint {folder}" in refused.stderr
    assert os.listdir(tmp_path) == ["run"] and sorted(os.listdir(folder)) == names


def test_the_final_model_itself_is_merged_into_its_run(tool, tmp_path):  # noqa: F811
    """Its folder is the run's, by the checkpoints that are in it."""
    by_epochs(tmp_path / "run")

    done = run(tool, "merge", "--input_dir", tmp_path / "run", "--dtype", "bfloat16")

    assert value(tmp_path / "run" / "_evalcar" / "merged" / "run" / "regular") == {7.0}
    assert '--pattern "epoch_{step}"' in done.stderr
    assert os.listdir(tmp_path) == ["run"]


def test_the_checkpoints_of_such_a_run_are_chosen_by_a_pattern(tool, tmp_path):  # noqa: F811
    by_epochs(tmp_path / "run")

    done = run(tool, "merge", "--input_dir", tmp_path / "run", "--pattern", "epoch_{step}", "--model_name_or_class", tmp_path / "run")

    assert value(tmp_path / "run" / "_evalcar" / "merged" / "1" / "regular") == {1.0}
    assert "left out: the weights in" in done.stderr


@pytest.mark.parametrize("train", [by_epochs, by_steps])
def test_inspect_says_which_weights_of_a_run_it_looked_at(tool, tmp_path, train):  # noqa: F811
    folder, _ = train(tmp_path / "run")
    report = inspect(tool, tmp_path / "run")
    told = run(tool, "inspect", tmp_path / "run").stderr
    alone = run(tool, "inspect", folder).stderr

    if train is by_steps:  # the newest checkpoint
        assert report["checkpoint"] == str(folder) and report["steps"] == [5, 10] and report["step"] == 10
        assert "checkpoint-10 is looked at, not the weights in the run folder itself" in told
    else:
        assert report["checkpoint"] == str(tmp_path / "run") and report["complete"] and report["has_config"]
        assert "itself are looked at, not those of checkpoints in it such as epoch_" in told
    assert "itself" not in alone


def test_a_run_stays_one_when_its_checkpoints_are_gone(tool, tmp_path):  # noqa: F811
    """By our own folder in it."""
    (tmp_path / "run" / "_evalcar").mkdir(parents=True)
    save_file({"w": torch.ones(4)}, tmp_path / "run" / "model.safetensors")
    (tmp_path / "run" / "config.json").write_text("{}")

    run(tool, "merge", "--input_dir", tmp_path / "run")

    assert (tmp_path / "run" / "_evalcar" / "merged" / "run" / "regular" / "model.safetensors").exists()
    assert os.listdir(tmp_path) == ["run"]
