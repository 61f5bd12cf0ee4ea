"""Models that something was wrapped around while they were trained (torch.compile, DistributedDataParallel, FSDP 1, activation
checkpointing): what is merged has the names of their own modules, which transformers loads. And what modules keep beside weights."""

import lessons
import pytest
import small_models
import torch
from safetensors.torch import save_file
from test_bin import write_bin
from test_checkpoints import assert_same, inspect, load_folder, run, tool  # noqa: F401  (tool: a fixture)
from test_dcp_runs import run_once


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight


def in_parallel(model):
    """DistributedDataParallel, of one process."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return torch.nn.parallel.DistributedDataParallel(model).state_dict()
    finally:
        dist.destroy_process_group()


def within(model):
    """As FSDP 1 and activation checkpointing name the parameters of the modules that they take."""
    return {name.replace("block.", "block._checkpoint_wrapped_module.").replace("head.", "head._fsdp_wrapped_module."): value
            for name, value in model.state_dict().items()}


WRAPPED = {
    "compiled": lambda model: torch.compile(model).state_dict(),
    "compiled within": lambda model: (setattr(model, "block", torch.compile(model.block)), model.state_dict())[1],
    "parallel": in_parallel,
    "compiled in parallel": lambda model: in_parallel(torch.compile(model)),
    "parallel compiled": lambda model: {f"_orig_mod.{name}": value for name, value in in_parallel(model).items()},
    "within": within,
}


@pytest.mark.parametrize("how", WRAPPED)
@pytest.mark.parametrize("file", ["pytorch_model.bin", "pytorch_model_fsdp.bin", "model.safetensors",
                                  "pytorch_model_fsdp_0/model_world_size_1_rank_0.pt"])
def test_names_of_what_was_wrapped_around_a_model_are_not_in_what_is_merged(tool, tmp_path, file, how):  # noqa: F811
    model = Net()
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    state = WRAPPED[how](model)
    assert sorted(state) != sorted(expected)
    place = tmp_path / "checkpoint-5" / file
    place.parent.mkdir(parents=True)
    if file.endswith(".safetensors"):
        save_file({name: value.clone() for name, value in state.items()}, place)
    else:
        torch.save(state, place)

    run(tool, "merge", "--input_dir", tmp_path / "checkpoint-5", "--output_dir", tmp_path / "out")

    assert_same(load_folder(tmp_path / "out"), expected)
    Net().load_state_dict(load_folder(tmp_path / "out"))
    if not file.endswith(".safetensors"):
        tied = {t["name"]: t["tied_to"] for t in inspect(tool, tmp_path / "checkpoint-5")["tensors"] if "tied_to" in t}
        assert tied == {"head.weight": "embed.weight"}


def test_transformers_finds_every_weight_of_a_compiled_model(tool, tmp_path):  # noqa: F811
    """With the wrapper's names it would draw them anew, with no more than a warning."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2))
    folder = tmp_path / "checkpoint-5"
    model.config.save_pretrained(folder)
    (folder / "pytorch_model_fsdp_0").mkdir()
    torch.save(torch.compile(model).state_dict(), folder / "pytorch_model_fsdp_0" / "model_world_size_1_rank_0.pt")

    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out")

    loaded, found = LlamaForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not found["missing_keys"] and not found["unexpected_keys"]
    assert_same(dict(loaded.state_dict()), dict(model.state_dict()))


def test_a_compiled_models_checkpoint_is_evaluated_as_the_same_weights_without_its_names(bin_dir, cache_dir, tmp_path):
    """Extra states beside them change nothing."""
    if not (bin_dir / "evalcar-evaluator").exists():
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")
    model, _ = small_models.write_model(tmp_path / "hub", cache_dir=cache_dir, layers=2)
    data = lessons.write_data(tmp_path / "data", docvqa=2, mmmu=1)
    states = {"plain": dict(model.state_dict()), "compiled": dict(torch.compile(model).state_dict())}
    states["compiled"]["_orig_mod.model._extra_state"] = torch.zeros(3, dtype=torch.uint8)
    lines = {}
    for name, state in states.items():
        write_bin(tmp_path / name / "checkpoint-5", tmp_path / "hub", "pytorch_model.bin", state)
        lines[name] = run_once(bin_dir, tmp_path, tmp_path / name, data)

    assert sorted(states["plain"]) != sorted(states["compiled"])
    assert lines["compiled"]["weights_sha256"] == lines["plain"]["weights_sha256"]
    assert lines["compiled"]["metrics"] == lines["plain"]["metrics"]


def test_extra_states_are_left_out_and_told(tool, tmp_path):  # noqa: F811
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    torch.save({"w": torch.ones(2), "attention._extra_state": torch.zeros(4, dtype=torch.uint8), "mlp._extra_state": None},
               folder / "pytorch_model.bin")

    for command in (["inspect", folder], ["merge", "--input_dir", folder, "--output_dir", tmp_path / "out"]):
        said = run(tool, *command).stderr
        assert 'left out: 2 entries' in said and '"attention._extra_state"' in said
    assert sorted(load_folder(tmp_path / "out")) == ["w"]
    [warning] = inspect(tool, folder)["warnings"]
    assert "TransformerEngine" in warning
