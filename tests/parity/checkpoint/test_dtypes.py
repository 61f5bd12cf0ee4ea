"""Every element type that torch 2.11 saves: read to its bytes, or refused by its name and the tensor's."""

import hashlib

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_checkpoints import inspect, run, tensor_bytes, tool  # noqa: F401  (tool: a fixture)
from torch.distributed import checkpoint as dcp

NOT_IN_SAFETENSORS = ["complex32", "complex128"]
DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool",
          "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2",
          *NOT_IN_SAFETENSORS]  # fmt: skip


def of_dtype(name):
    """A 3 × 2 tensor of bytes that count."""
    dtype = getattr(torch, name)
    elements = torch.arange(6 * torch.empty(0, dtype=dtype).element_size(), dtype=torch.uint8)
    if name == "bool":
        elements %= 2
    return elements.view(dtype).reshape(3, 2)


def bytes_of(tensor):
    # torch cannot make every type contiguous or flat by itself; these are.
    return bytes(tensor.view(torch.uint8).flatten().tolist())


def check(tool, folder, names):  # noqa: F811
    found = {t["name"]: t for t in inspect(tool, folder, "--hash")["tensors"]}
    assert sorted(found) == sorted(names)
    for name in names:
        assert (found[name]["dtype"], found[name]["shape"]) == (name, [3, 2])
        assert found[name]["sha256"] == hashlib.sha256(bytes_of(of_dtype(name))).hexdigest(), name


def test_every_dtype_of_a_torch_file_is_read_to_its_bytes(tool, tmp_path):  # noqa: F811
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    torch.save({name: of_dtype(name) for name in DTYPES}, folder / "pytorch_model.bin")
    check(tool, folder, DTYPES)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_of_a_dcp_is_read_to_its_bytes(tool, tmp_path, name):  # noqa: F811
    folder = tmp_path / "checkpoint-5"
    try:
        dcp.save({"model": {name: of_dtype(name)}}, checkpoint_id=folder, no_dist=True)
    except Exception as error:
        pytest.skip(f"DCP cannot save {name}: {error}")
    check(tool, folder, [name])


def test_every_dtype_that_safetensors_knows_is_merged_and_read_back(tool, tmp_path):  # noqa: F811
    names = [name for name in DTYPES if name not in NOT_IN_SAFETENSORS]
    (tmp_path / "checkpoint-5").mkdir()
    torch.save({name: of_dtype(name) for name in names}, tmp_path / "checkpoint-5" / "pytorch_model.bin")

    run(tool, "merge", "--input_dir", tmp_path / "checkpoint-5", "--output_dir", tmp_path / "out")
    check(tool, tmp_path / "out", names)

    # Each as safetensors itself writes and reads it.
    (tmp_path / "theirs").mkdir()
    save_file({name: of_dtype(name) for name in names}, tmp_path / "theirs" / "model.safetensors")
    check(tool, tmp_path / "theirs", names)
    loaded = load_file(tmp_path / "out" / "model.safetensors")
    for name in names:
        assert loaded[name].dtype == getattr(torch, name) and list(loaded[name].shape) == [3, 2], name
        assert bytes_of(loaded[name]) == bytes_of(of_dtype(name)), name


@pytest.mark.parametrize("name", NOT_IN_SAFETENSORS)
def test_what_safetensors_cannot_hold_is_refused_by_name(tool, tmp_path, name):  # noqa: F811
    (tmp_path / "checkpoint-5").mkdir()
    torch.save({"model.w": of_dtype(name)}, tmp_path / "checkpoint-5" / "pytorch_model.bin")
    said = run(tool, "merge", "--input_dir", tmp_path / "checkpoint-5", "--output_dir", tmp_path / "out", code=1).stderr
    assert f'tensor "model.w": safetensors has no dtype for {name}' in said


@pytest.mark.parametrize("name", ["bits8", "bits16", "bits4x2", "qint8", "quint8"])
def test_a_dtype_that_is_not_read_is_refused_by_its_name_and_the_tensors(tool, tmp_path, name):  # noqa: F811
    dtype = getattr(torch, name)
    tensor = (torch.quantize_per_tensor(torch.randn(4), 0.1, 0, dtype) if name.startswith("q") else torch.empty(4, dtype=dtype))
    (tmp_path / "checkpoint-5").mkdir()
    torch.save({"first": torch.ones(2), "model.w": tensor}, tmp_path / "checkpoint-5" / "pytorch_model.bin")

    said = run(tool, "inspect", tmp_path / "checkpoint-5", code=1).stderr

    assert "pytorch_model.bin" in said and 'in the entry "model.w"' in said and "at byte " in said
    assert ("_rebuild_qtensor" if name.startswith("q") else name) in said
