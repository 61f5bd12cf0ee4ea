"""Files that torch 2.1, 2.4, 2.6 and 2.15 themselves wrote (saved_by_old_torch/), read to the bytes that they had in memory, and as torch
2.11 loads them."""

import hashlib
import json
import os
import shutil

import make_saved_by_old_torch
import pytest
import torch
from test_checkpoints import inspect, load_folder, run, tensor_bytes, tool  # noqa: F401  (tool: a fixture)
from torch.distributed.checkpoint import format_utils

SAVED = make_saved_by_old_torch.OUTPUT
VERSIONS = list(make_saved_by_old_torch.REQUIREMENTS)
LAYOUTS = {"plain": "hugging_face", "fsdp2": "lmms_engine_fsdp2", "dcp": "dcp"}


def described(tensors):
    return {name: [str(t.dtype).removeprefix("torch."), list(t.shape), hashlib.sha256(tensor_bytes(t)).hexdigest()]
            for name, t in tensors.items()}


def copy_of(version, form, tmp_path):
    """A checkpoint as it was saved: git keeps no times, and DCP writes .metadata after all else."""
    folder = shutil.copytree(SAVED / version / form, tmp_path / "checkpoint-5")
    for path in folder.rglob("*"):
        os.utime(path, (2e9, 2e9) if path.name == ".metadata" else (1e9, 1e9))
    return folder


def of_torch_2_11(version, form, folder, tmp_path):
    """What this torch loads of it; None of DTensors, which it can only load in the ranks that saved them, and of what is too new."""
    if form == "plain":
        return torch.load(folder / "pytorch_model.bin", weights_only=True)
    if form == "dcp" and version != "2.15":
        format_utils.dcp_to_torch_save(folder, tmp_path / "whole.pt")
        return torch.load(tmp_path / "whole.pt", weights_only=True)["model"]
    return None


@pytest.mark.parametrize("version, form", [(version, form) for version in VERSIONS for form in LAYOUTS if (version, form) != ("2.1", "fsdp2")])
def test_ok_old_versions(tool, tmp_path, version, form):  # noqa: F811
    """A checkpoint of an old torch is inspected and merged to the bytes that torch had."""
    expected = json.loads((SAVED / version / "expected.json").read_text())
    assert expected["torch"].startswith(version + ".")
    folder = copy_of(version, form, tmp_path)
    loaded = of_torch_2_11(version, form, folder, tmp_path)
    assert loaded is None or described(loaded) == expected[form]

    report = inspect(tool, folder, "--hash")
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out")

    assert report["complete"] and report["layout"] == LAYOUTS[form], report
    assert {t["name"]: [t["dtype"], t["shape"], t["sha256"]] for t in report["tensors"]} == expected[form]
    assert described(load_folder(tmp_path / "out")) == expected[form]


@pytest.mark.parametrize("version", VERSIONS)
def test_p_legacy_torch(tool, tmp_path, version):  # noqa: F811
    """The form before zip files, which every torch can still write, is refused by its name."""
    folder = copy_of(version, "legacy", tmp_path)

    for command in (["inspect", folder], ["merge", "--input_dir", folder, "--output_dir", tmp_path / "out"]):
        said = run(tool, *command, code=1).stderr
        assert "pytorch_model.bin" in said and "legacy format" in said
    assert not (tmp_path / "out").exists()
