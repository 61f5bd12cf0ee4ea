"""torch.distributed.checkpoint: what the real library wrote, read as it reads it itself."""

import json
import shutil

import dcp_checkpoints
import pytest
import torch
from test_checkpoints import assert_same, check_hashes, inspect, load_folder, run, tool  # noqa: F401  (tool: a fixture)
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import _hf_utils
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

NESTED = ["tree", "async", "items", "threads", "mesh", "tensor_parallel"]
TOP = ["plain", "titan", "application"]
SAFETENSORS = ["safetensors", "safetensors_files", "consolidated"]


def loaded_by_dcp(folder, save, scratch):
    """The weights as torch's own converter gives them."""
    dcp_to_torch_save(folder / save, scratch / "converted.pt")
    state = torch.load(scratch / "converted.pt", weights_only=False)
    if save == "application":
        return {name.removeprefix("_orig_mod."): value for name, value in state["app"]["model"].items()}
    if save in NESTED:
        return state["model"]
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("save", [*NESTED, *TOP])
def test_a_save_is_read_as_dcp_itself_reads_it(tool, saves, save, tmp_path):  # noqa: F811
    expected = dcp_checkpoints.expected_of(saves, save)

    report = check_hashes(tool, saves / save, expected, "dcp")
    run(tool, "merge", "--type", "dcp", "--input_dir", saves / save, "--output_dir", tmp_path / "out")

    assert report["world_size"] == 4
    assert not (saves / dcp_checkpoints.CANARY).exists()  # no item that is no tensor was unpickled
    merged = load_folder(tmp_path / "out")
    for name in [n for n in merged if "complex" in n]:  # safetensors 0.8 of torch 2.11 does not load it: compared by hash above
        merged.pop(name), expected.pop(name)
    assert_same(merged, expected)
    reference = loaded_by_dcp(saves, save, tmp_path)
    shutil.rmtree(saves / dcp_checkpoints.CANARY, ignore_errors=True)
    assert_same({name: value for name, value in reference.items() if "complex" not in name}, expected)


def test_what_lies_beside_the_model_is_known_by_its_content_and_nothing_vanishes_unsaid(tool, tmp_path):  # noqa: F811
    """Trees as people's programs nest them: the optimizer under any name, a second model, the model several levels down."""
    weights = {"l.weight": torch.arange(12.0).reshape(3, 4), "l.bias": torch.ones(3)}
    head = {"weight": torch.full((1, 4), 5.0)}
    optimizer = {"state": {"l.weight": {"exp_avg": torch.ones(3, 4), "step": torch.tensor(3.0)}},
                 "param_groups": [{"lr": 0.1, "params": ["l.weight"]}]}  # fmt: skip
    named = {f"network.{name}": tensor for name, tensor in weights.items()}
    cases = {
        "renamed optimizer": ({"network": weights, "adam": optimizer, "epoch": 3}, named, []),
        "two models": ({"model": weights, "ema": weights, "value_head": head, "optimizer": optimizer}, weights, ["ema", "value_head"]),
        "deep": ({"app": {"state": {"model": weights, "optimizer": optimizer}}}, weights, []),
        "like a trainer's": ({"rng_proj": head, "optimal": head}, {"rng_proj.weight": head["weight"], "optimal.weight": head["weight"]}, []),
    }
    for name, (state, expected, left_out) in cases.items():
        dcp.save(state, checkpoint_id=tmp_path / name, no_dist=True)
        done = run(tool, "merge", "--input_dir", tmp_path / name, "--output_dir", tmp_path / f"{name}-out")

        assert_same(load_folder(tmp_path / f"{name}-out"), expected)
        told = "left out, since only the tensors of the model are read: " + ", ".join(f'"{tree}"' for tree in left_out)
        assert (told in done.stderr) == bool(left_out) and (left_out or "left out" not in done.stderr), done.stderr


def test_ranks_that_saved_alone_are_put_together(tool, saves, tmp_path):  # noqa: F811
    """use_collectives=False: a metadata file for each rank, of its own chunks, and replicated tensors in all of them."""
    folder = shutil.copytree(saves / "alone", tmp_path / "alone")
    assert not (folder / ".metadata").exists()

    check_hashes(tool, folder, dcp_checkpoints.expected_of(saves, "alone"), "dcp")

    (folder / "__2.metadata").unlink()
    assert "__2.metadata" in inspect_incomplete(tool, folder)["reason"]


def inspect_incomplete(tool, folder, code=3):  # noqa: F811
    report = json.loads(run(tool, "inspect", folder, "--json", code=code).stdout)
    assert not report["complete"]
    return report


def test_a_compressed_save_is_refused_by_its_name(tool, saves, tmp_path):  # noqa: F811
    done = run(tool, "merge", "--input_dir", saves / "compressed", "--output_dir", tmp_path / "out", code=1)

    assert "stream.zstd/1" in done.stderr and not (tmp_path / "out").exists()


def test_an_accelerate_checkpoint_holds_both_kinds_of_weights(tool, saves, tmp_path):  # noqa: F811
    """As the Hugging Face Trainer writes it under FSDP: DCP folders, and neither configuration nor tokenizer."""
    checkpoint = tmp_path / "run" / "checkpoint-500"
    shutil.copytree(saves / "tree", checkpoint / "pytorch_model_fsdp_0")
    shutil.copytree(saves / "mesh", checkpoint / "pytorch_ema_model_fsdp_0")
    (checkpoint / "trainer_state.json").write_text('{"global_step": 500}')
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text('{"model_type": "none"}')

    for kind, save in (("regular", "tree"), ("ema", "mesh")):
        for flag in ("dcp", "hf"):
            run(tool, "merge", "--type", flag, "--weights", kind, "--input_dir", tmp_path / "run", "--step", 500,
                "--model_name_or_class", base, "--output_dir", tmp_path / f"{kind}-{flag}")
            merged = load_folder(tmp_path / f"{kind}-{flag}")
            expected = dcp_checkpoints.expected_of(saves, save)
            merged.pop("plain_complex64", None), expected.pop("plain_complex64", None)
            assert_same(merged, expected)
            assert (tmp_path / f"{kind}-{flag}" / "config.json").read_text() == '{"model_type": "none"}'
    done = run(tool, "merge", "--input_dir", checkpoint, "--output_dir", tmp_path / "bare")  # the weights alone, and says so
    assert "--model_name_or_class" in done.stderr and [path.name for path in (tmp_path / "bare").iterdir()] == ["model.safetensors"]


def test_a_save_that_replaces_another_is_waited_for(tool, saves, tmp_path):  # noqa: F811
    """DCP rewrites the data files first and .metadata last; in between, both are there."""
    import os
    import time

    folder = tmp_path / "step-7"
    shutil.copytree(saves / "tree", folder)  # with its times
    assert inspect(tool, folder)["step"] == 7
    written = os.stat(folder / ".metadata").st_mtime

    os.utime(folder / "__1_0.distcp", (written + 5, written + 5))
    assert "__1_0.distcp" in inspect_incomplete(tool, folder)["reason"]
    for rank in range(4):
        os.utime(folder / f"__{rank}_0.distcp", (written + 5, written + 5))
    assert inspect(tool, folder)["complete"]  # all of one save, as the same items say
    (folder / "__4_0.distcp").write_bytes(b"of more ranks")
    assert "__4_0.distcp" in inspect_incomplete(tool, folder)["reason"]
    os.utime(folder / ".metadata", (time.time() + 9, time.time() + 9))
    assert inspect(tool, folder)["complete"]  # that one is a leftover


def test_checkpoints_of_torchtitan_are_found_in_their_run_folder(tool, saves, tmp_path):  # noqa: F811
    """`step-N` where there is no `checkpoint-N`; the newest complete one, the one of --step, or the names of --pattern."""
    run_folder = tmp_path / "checkpoint"
    for step, save in ((5, "titan"), (10, "plain")):
        shutil.copytree(saves / save, run_folder / f"step-{step}")
    shutil.copytree(saves / "titan", run_folder / "step-15")
    (run_folder / "step-15" / ".metadata").unlink()  # still being written
    expected = {save: dcp_checkpoints.expected_of(saves, save) for save in ("titan", "plain")}

    def merged(*arguments):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        run(tool, "merge", "--input_dir", run_folder, "--output_dir", tmp_path / "out", *arguments)
        return {name: tensor for name, tensor in load_folder(tmp_path / "out").items() if "complex" not in name}

    def floats(save):
        return {name: tensor for name, tensor in expected[save].items() if "complex" not in name}

    assert_same(merged(), floats("plain"))
    assert_same(merged("--step", 5), floats("titan"))
    done = run(tool, "merge", "--input_dir", run_folder, "--step", 7, "--output_dir", tmp_path / "none", code=2)
    assert "step-7: is not there; the newest is step-15" in done.stderr
    run(tool, "merge", "--input_dir", run_folder, "--step", 15, "--output_dir", tmp_path / "none", code=3)
    run(tool, "merge", "--input_dir", run_folder, "--step", 5)
    assert (run_folder / "_evalcar" / "merged" / "5" / "regular" / "model.safetensors").exists()

    (run_folder / "step-5").rename(run_folder / "global_step_5")
    assert_same(merged("--pattern", "global_step_{step}"), floats("titan"))
    run(tool, "merge", "--input_dir", run_folder, "--pattern", "global_step", "--output_dir", tmp_path / "none", code=2)
    done = run(tool, "merge", "--input_dir", run_folder, "--pattern", "other-{step}", "--output_dir", tmp_path / "none", code=3)
    assert "other-{step}" in done.stderr and not (tmp_path / "none").exists()


@pytest.mark.parametrize("command", ["inspect", "merge", "eval"])
def test_what_is_never_read_is_a_failure_not_something_to_wait_for(tool, saves, tmp_path, command):  # noqa: F811
    arguments = {"inspect": [saves / "compressed"], "merge": ["--input_dir", saves / "compressed", "--output_dir", tmp_path / "out"],
                 "eval": [saves / "compressed", "--tasks", "docvqa_val", "--data", tmp_path, "--output", tmp_path / "results"]}
    done = run(tool, command, *arguments[command], code=1)
    assert "stream.zstd/1" in done.stderr


@pytest.mark.parametrize("save", SAFETENSORS)
def test_safetensors_shards_of_dcp_are_put_together(tool, saves, save, tmp_path):  # noqa: F811
    """HuggingFaceStorageWriter: shards without an index; consolidated beside them, the layout of transformers."""
    layout = "hugging_face" if save == "consolidated" else "dcp_safetensors"
    folder = shutil.copytree(saves / save, tmp_path / "step-3")
    expected = dcp_checkpoints.expected_of(saves, save)

    report = check_hashes(tool, folder, expected, layout)
    run(tool, "merge", "--type", "hf", "--input_dir", folder, "--output_dir", tmp_path / "out")

    assert report["step"] == 3
    assert_same(load_folder(tmp_path / "out"), expected)
    # torch 2.11's reader takes the dtypes that it does not know for float32
    known = {name: value for name, value in expected.items() if value.dtype in _hf_utils.DTYPE_MAP.values()}
    reference = {name: torch.zeros_like(value) for name, value in known.items()}
    reader = HuggingFaceStorageReader(str(folder / "sharded" if save == "consolidated" else folder))
    dcp.load(reference, storage_reader=reader, no_dist=True)
    assert len(known) >= 15
    assert_same(reference, known)
    if layout == "hugging_face":  # while it is consolidated, or where that failed, the shards are what there is
        (folder / "model.safetensors.index.json").unlink()
        assert inspect(tool, folder)["layout"] == "dcp_safetensors"
        check_hashes(tool, folder, expected, "dcp_safetensors")
    else:
        next(folder.glob("shard-00002-*")).unlink()
        assert "elements, expected" in inspect_incomplete(tool, folder)["reason"]


def test_every_file_that_the_names_of_safetensors_shards_speak_of_has_to_have_a_shard(tool, saves, tmp_path):  # noqa: F811
    folder = shutil.copytree(saves / "safetensors_files", tmp_path / "step-3")
    for path in folder.glob("shard-*-model-00002-of-00002.safetensors"):
        path.rename(tmp_path / path.name)
    assert "no shard of file 2 of 2 is there" in inspect_incomplete(tool, folder)["reason"]

    for path in tmp_path.glob("shard-*"):
        path.rename(folder / path.name)
    check_hashes(tool, folder, dcp_checkpoints.expected_of(saves, "safetensors_files"), "dcp_safetensors")

    (folder / "shard-00001-model-00001-of-00003.safetensors").write_bytes(b"")
    assert "two saves" in inspect_incomplete(tool, folder)["reason"]
    (folder / "shard-00001-model-00001-of-00003.safetensors").rename(folder / "shard-1-model-1-of-2.safetensors")
    assert "expected a name like" in inspect_incomplete(tool, folder, code=1)["reason"]


def test_the_last_shard_of_safetensors_is_only_missed_where_others_reach_further(tool, saves, tmp_path):  # noqa: F811
    """Nothing in the files says how many ranks saved: DESIGN.md tells what is seen and what is not."""
    folder = shutil.copytree(saves / "safetensors", tmp_path / "step-3")
    expected = dcp_checkpoints.expected_of(saves, "safetensors")
    next(folder.glob("shard-00004-*")).unlink()
    report = inspect(tool, folder)
    shapes = {tensor["name"]: tensor["shape"] for tensor in report["tensors"]}
    assert shapes["layers.0.self_attn.q_proj.weight"] == [27, 5]  # of 33 rows; a model's configuration tells
    assert set(shapes) <= set(expected)
