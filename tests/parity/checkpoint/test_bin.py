"""Checkpoints of torch.save files (`.bin`): written by torch, transformers' model and huggingface_hub, merged and evaluated."""

import json
import pathlib
import shutil
import subprocess

import lessons
import pytest
import small_models
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import save_file
from test_checkpoints import assert_same, check_hashes, inspect, load_folder, run, tool  # noqa: F401  (tool: a fixture)


@pytest.fixture(scope="module")
def hub(tmp_path_factory, cache_dir):
    folder = tmp_path_factory.mktemp("bin") / "hub"
    model, _ = small_models.write_model(folder, cache_dir=cache_dir, layers=2)
    return folder, model.state_dict()


def write_bin(folder, hub, how, state):
    """A checkpoint as `how` says: one pytorch_model.bin, shards with an index, or accelerate's full state_dict."""
    folder.mkdir(parents=True)
    for path in hub.iterdir():
        if path.suffix in (".json", ".jinja", ".txt") and "index" not in path.name:
            shutil.copyfile(path, folder / path.name)
    (folder / "trainer_state.json").write_text('{"global_step": 5}')  # the Trainer's last file: nobody waits to see it settle
    if how == "shards":
        save_torch_state_dict(state, folder, safe_serialization=False, max_shard_size="200KB")
        assert (folder / "pytorch_model.bin.index.json").exists()
    else:
        torch.save(state, folder / how)
    return folder


def odd_state():
    """What a state_dict may hold beside contiguous float32: views, ties, other dtypes, empty and scalar tensors."""
    base = torch.randn(6, 5, generator=torch.Generator().manual_seed(3))
    state = torch.nn.Linear(3, 2).state_dict()  # an OrderedDict with _metadata
    state.update(transposed=base.t(), rows=base[2:4], columns=base[:, 1:3], steps=base[::2], tied=base[2:4], scalar=torch.tensor(7),
                 empty=torch.empty(0, 4), parameter=torch.nn.Parameter(base.clone()), half=base.half(), brain=base.bfloat16(),
                 double=base.double(), bytes=base.to(torch.uint8), flags=base > 0, counts=base.long(),
                 tiny=base.to(torch.float8_e4m3fn), complex=torch.complex(base, base))
    return state


def test_an_expanded_tensor_is_refused_by_name_as_safetensors_refuses_it(tool, tmp_path):  # noqa: F811
    """torch.load alone takes it: a few bytes of a file would become any number on the disk."""
    state = {"fine": torch.ones(2), "position": torch.arange(4).expand(3, -1)}
    (tmp_path / "checkpoint-5").mkdir()
    torch.save(state, tmp_path / "checkpoint-5" / "pytorch_model.bin")
    with pytest.raises(ValueError, match="non contiguous tensor: `position`"):
        save_file(state, tmp_path / "whole.safetensors")

    said = run(tool, "merge", "--input_dir", tmp_path / "checkpoint-5", "--output_dir", tmp_path / "out", code=1).stderr

    assert "pytorch_model.bin" in said and '"position" is a view that overlaps itself' in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("how", ["pytorch_model.bin", "pytorch_model_fsdp.bin"])
def test_any_state_dict_is_read_as_torch_reads_it(tool, tmp_path, hub, how):  # noqa: F811
    state = odd_state()
    folder = write_bin(tmp_path / "checkpoint-5", hub[0], how, state)

    check_hashes(tool, folder, state, "hugging_face")
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out")
    state.pop("complex")  # safetensors 0.8 of torch 2.11 loads it as it is written: compared by hash above
    merged = load_folder(tmp_path / "out")
    merged.pop("complex")
    assert_same(merged, state)
    ties = {t["name"]: t["tied_to"] for t in inspect(tool, folder)["tensors"] if "tied_to" in t}
    assert ties == {"tied": "rows"}


@pytest.mark.parametrize("how", ["pytorch_model.bin", "shards", "pytorch_model_fsdp.bin"])
def test_a_model_in_bin_files_merges_bit_equal_and_transformers_loads_it(tool, tmp_path, hub, how):  # noqa: F811
    from transformers import Qwen2_5_VLForConditionalGeneration

    folder = write_bin(tmp_path / "run" / "checkpoint-5", hub[0], how, hub[1])

    check_hashes(tool, folder, hub[1], "hugging_face")
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out")
    assert_same(load_folder(tmp_path / "out"), hub[1])
    _, info = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]


def test_a_damaged_storage_is_told_by_its_checksum(tool, tmp_path, hub):  # noqa: F811
    folder = write_bin(tmp_path / "checkpoint-5", hub[0], "pytorch_model.bin", hub[1])
    path = folder / "pytorch_model.bin"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # somewhere in a tensor
    path.write_bytes(content)

    said = run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out", code=1).stderr
    assert "pytorch_model.bin" in said and "CRC-32" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("how", ["shards", *(pytest.param(how, marks=pytest.mark.full) for how in ("pytorch_model.bin", "pytorch_model_fsdp.bin"))])
def test_a_bin_checkpoint_is_evaluated_as_the_same_weights_in_safetensors(bin_dir, tmp_path, hub, how):
    if not (bin_dir / "evalcar-evaluator").exists():
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")
    data = lessons.write_data(tmp_path / "data", docvqa=2, mmmu=1)
    write_bin(tmp_path / "run" / "checkpoint-5", hub[0], how, hub[1])
    write_bin(tmp_path / "safe" / "checkpoint-5", hub[0], "pytorch_model.bin", {})
    (tmp_path / "safe" / "checkpoint-5" / "pytorch_model.bin").unlink()
    save_torch_state_dict({k: v.clone() for k, v in hub[1].items()}, tmp_path / "safe" / "checkpoint-5")

    arguments = ["--tasks", "docvqa_val", "--data", data, "--device", "cpu", "--set", "evaluate.max_new_tokens=6", "--set", "watch.settle_time=1s",
                 "--set", "evaluate.min_pixels=3136"]  # fmt: skip
    for name in ("run", "safe"):
        command = [bin_dir / "evalcar", "run", tmp_path / name, "--once", *arguments, "--set", f"store.path={tmp_path / name}.db"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    lines = {name: json.loads((tmp_path / name / "_evalcar" / "metrics.jsonl").read_text()) for name in ("run", "safe")}
    answers = {}
    for name in lines:
        [file] = pathlib.Path(tmp_path / name / "_evalcar" / "results").rglob("*_samples_*.jsonl")
        answers[name] = [json.loads(line)["filtered_resps"] for line in file.read_text().splitlines()]
    assert lines["run"]["weights_sha256"] == lines["safe"]["weights_sha256"]
    assert lines["run"]["metrics"] == lines["safe"]["metrics"]
    assert answers["run"] == answers["safe"] and len(answers["run"]) == 2
