"""Mixtures that transformers 5 trained, saved as their modules hold them (all experts of a layer in two tensors): merge and hashes
have the tensors that 5.17's own save_pretrained() writes, which are the hub's. What loads them: test_loading."""

import dcp_checkpoints
import pytest
import small_mixtures
import torch
from test_bin import write_bin
from test_checkpoints import assert_same, check_hashes, load_folder, run, tool  # noqa: F401  (tool: a fixture)
from test_dcp_runs import save


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """A family's name → the folder that save_pretrained() wrote, and the state_dict of the modules."""
    written = {}

    def write(family):
        if family not in written:
            folder = tmp_path_factory.mktemp(family)
            written[family] = folder, small_mixtures.write_model(folder, family).state_dict()
        return written[family]

    return write


def of_hub(family, folder, state):
    """What save_pretrained() wrote, and the head that it leaves out where an embedding ties it. Of Qwen3-VL it does not write the
    hub's experts, which have two dimensions exchanged: 4.57 could not load them."""
    tensors = load_folder(folder)
    tensors.update({name: value for name, value in state.items() if name == "lm_head.weight" and name not in tensors})
    return {name: value.transpose(1, 2) if family == "qwen3_vl_moe" and ".experts." in name else value for name, value in tensors.items()}


@pytest.mark.parametrize("family", small_mixtures.FAMILIES)
def test_a_state_dict_of_modules_is_merged_to_what_save_pretrained_writes(tool, mixture, tmp_path, family):  # noqa: F811
    base, state = mixture(family)
    assert any(name.endswith(".experts.gate_up_proj") for name in state)
    checkpoint = write_bin(tmp_path / "checkpoint-5", base, "pytorch_model_fsdp.bin", state)

    expected = of_hub(family, base, state)

    check_hashes(tool, checkpoint, expected, "hugging_face")
    done = run(tool, "merge", "--input_dir", checkpoint, "--output_dir", tmp_path / "out")

    assert_same(load_folder(tmp_path / "out"), expected)
    assert "all experts" not in done.stderr


def test_shards_of_experts_rows_and_columns_are_cut_to_the_same(tool, mixture, tmp_path):  # noqa: F811
    """A DCP by two ranks, whose tensors are sharded, with the configuration of the model that training started from."""
    base, state = mixture("qwen3_moe")
    torch.save(state, tmp_path / "state.pt")
    folder = dcp_checkpoints.write_saves(tmp_path, ["tree"], world_size=2, state=tmp_path / "state.pt") / "tree"
    (folder / "config.json").unlink()

    run(tool, "merge", "--input_dir", folder, "--model_name_or_class", base, "--output_dir", tmp_path / "out", "--max-shard-size", "20KB")

    assert_same(load_folder(tmp_path / "out"), load_folder(base))


def test_experts_of_an_average_are_the_means_of_the_hubs(tool, mixture, tmp_path):  # noqa: F811
    base, state = mixture("mixtral")
    other = {name: value + 1 for name, value in state.items()}
    folders = [write_bin(tmp_path / f"checkpoint-{step}", base, "pytorch_model.bin", weights) for step, weights in ((5, state), (10, other))]

    run(tool, "merge", "--input_dir", f"{folders[0]},{folders[1]}", "--merge", "--output_dir", tmp_path / "out")

    assert_same(load_folder(tmp_path / "out"), {name: ((value.double() + (value + 1).double()) / 2).float() for name, value in load_folder(base).items()})


def test_without_a_configuration_experts_stay_as_they_are_and_a_line_says_so(tool, mixture, tmp_path):  # noqa: F811
    _, state = mixture("mixtral")
    save(state, tmp_path / "checkpoint-5")

    done = run(tool, "merge", "--input_dir", tmp_path / "checkpoint-5", "--output_dir", tmp_path / "out")

    assert_same(load_folder(tmp_path / "out"), state)
    assert "model.layers.0.mlp.experts.gate_up_proj" in done.stderr and "transformers 4.57" in done.stderr
