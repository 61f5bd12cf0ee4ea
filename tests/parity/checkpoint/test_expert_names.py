"""Mixtures that transformers 5 trained, saved as their modules hold them (all experts of a layer in two tensors): merge and hashes
have the tensors that 5.17's own save_pretrained() writes, which are the hub's. What loads them: test_loading."""

import pathlib
import re

import dcp_checkpoints
import lora_adapters
import pytest
import small_mixtures
import torch
from safetensors.torch import load_file
from test_bin import write_bin
from test_checkpoints import assert_same, check_hashes, inspect, load_folder, run, tool  # noqa: F401  (tool: a fixture)
from test_dcp_runs import save
from transformers import AutoModelForCausalLM, MixtralForCausalLM, Qwen3VLMoeForConditionalGeneration


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
    hub's experts, which have two dimensions exchanged: 4.57 could not load them; of InternVL the modules around its parts have their
older names."""
    tensors = {name: state.get(name, value) for name, value in load_folder(folder).items()}
    if family == "internvl":
        tensors = {re.sub("^", "model.", name).replace("model.language_model.model.", "model.language_model.").replace(
            "model.language_model.lm_head", "lm_head"): value for name, value in tensors.items()}
    tensors.update({name: value for name, value in state.items() if name == "lm_head.weight" and name not in tensors})
    return {name: value.transpose(1, 2) if family == "qwen3_vl_moe" and ".experts." in name else value for name, value in tensors.items()}


def test_every_family_of_the_table_is_compared():
    table = (pathlib.Path(__file__).parents[3] / "store" / "checkpoint" / "expert_families.cpp").read_text()
    known = re.findall(r'\{"(\w+)",\s+ExpertForm::', table)
    assert len(known) > 20
    assert sorted(known) == sorted({*small_mixtures.FAMILIES, *small_mixtures.OMNI})


@pytest.mark.parametrize("family", small_mixtures.ALL)
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


def test_an_adapter_over_experts_that_lie_together_is_merged_over_the_hubs(tool, mixture, tmp_path):  # noqa: F811
    """Of Qwen3-VL's mixture 5.17 itself writes them so; a base that is named by the adapter alone is the one that is named."""
    base, _ = mixture("qwen3_vl_moe")
    folder = lora_adapters.write(tmp_path / "checkpoint-5", base, Qwen3VLMoeForConditionalGeneration, r=4, lora_alpha=6, target_modules=["q_proj", "v_proj"])
    expected = of_hub("qwen3_vl_moe", base, lora_adapters.merged_by_peft(folder, base, Qwen3VLMoeForConditionalGeneration))

    report = check_hashes(tool, folder, expected, "lora_adapter")
    assert inspect(tool, folder, "--hash", "--model_name_or_class", base)["weights_sha256"] == report["weights_sha256"]
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out")
    assert_same(load_folder(tmp_path / "out"), expected)


def test_a_router_that_was_trained_beside_an_adapter_takes_the_place_of_the_hubs(tool, mixture, tmp_path):  # noqa: F811
    """5.x and the hub have two names for the module around Mixtral's experts."""
    base, state = mixture("mixtral")
    folder = lora_adapters.write(tmp_path / "checkpoint-5", base, MixtralForCausalLM, r=4, lora_alpha=6, target_modules=["q_proj"], modules_to_save=["gate"])
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out")

    merged, trained = load_folder(tmp_path / "out"), load_file(folder / "adapter_model.safetensors")
    assert sorted(merged) == sorted(load_folder(base))
    for layer in range(2):
        own = trained[f"base_model.model.model.layers.{layer}.mlp.gate.weight"]
        assert torch.equal(merged[f"model.layers.{layer}.block_sparse_moe.gate.weight"], own)
        assert not torch.equal(own, state[f"model.layers.{layer}.mlp.gate.weight"])


@pytest.mark.parametrize("family, saved, named", [("phimoe", "router", "mlp.router.weight"), ("granitemoe", "router", "block_sparse_moe.router.weight"),
                                                  ("granitemoe", "block_sparse_moe", "block_sparse_moe.experts.")])  # fmt: skip
def test_what_was_trained_under_a_name_that_the_bases_layer_has_not_is_refused(tool, mixture, tmp_path, family, saved, named):  # noqa: F811
    """Beside the base's own it would be a tensor too much, and the base's untrained one would be loaded."""
    base, _ = mixture(family)
    folder = lora_adapters.write(tmp_path / "checkpoint-5", base, AutoModelForCausalLM, r=4, lora_alpha=6, target_modules=["q_proj"], modules_to_save=[saved])

    done = run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out", code=1)
    assert named in done.stderr and "merge it with peft" in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["5", '"x"', "null"])
def test_a_base_whose_configuration_is_no_object_is_named(tool, mixture, tmp_path, text):  # noqa: F811
    _, state = mixture("mixtral")
    save(state, tmp_path / "checkpoint-5")
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text(text)

    done = run(tool, "inspect", tmp_path / "checkpoint-5", "--model_name_or_class", tmp_path / "base", code=1)
    assert "base/config.json" in done.stderr, done.stderr


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
    assert "model.layers.0.mlp.experts.gate_up_proj" in done.stderr and "of no model that it knows" in done.stderr
