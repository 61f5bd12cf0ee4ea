"""The seeds of the fuzz targets that read checkpoints: each is what its target takes for good, so that a fuzzer begins behind the first
checks and not before them. The files are laid out as the targets do it, and `evalcar inspect --hash` reads them."""

import io
import json
import pathlib
import re
import struct
import zipfile

import numpy as np
import pytest
import torch
from test_checkpoints import run, tool  # noqa: F401  (tool: a fixture)

FUZZ = pathlib.Path(__file__).parents[2] / "fuzz"
TARGETS = ["adapter", "dcp", "dtensor", "layout", "members", "pickle", "safetensors", "torch_file"]
# Seeds that are not read to the end, each for what it is there for: exit code and words.
NOT_READ = {"members/escape": (1, "no plain name"), "torch_file/no_entries.zip": (1, "belong to no record"),
            "dcp/torch_2_15": (3, "expected 14385")}  # metadata of four ranks' files
CUT = b"\n\n\n"
FOLDERS = [
    ["model.safetensors", "config.json", "trainer_state.json"],
    ["model.safetensors.index.json", "a.safetensors", "b.safetensors", "config.json"],
    ["pytorch_model_fsdp_0/model_world_size_1_rank_0.pt", "config.json"],
    ["pytorch_model_fsdp_0/model_world_size_2_rank_0.pt", "pytorch_model_fsdp_0/model_world_size_2_rank_1.pt", "config.json"],
    ["pytorch_model.bin", "config.json"],
    ["global_step5/mp_rank_00_model_states.pt", "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt", "config.json"],
    ["global_step5/zero_pp_rank_0_mp_rank_00_model_states.pt", "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt", "config.json"],
    ["shard-00001-model-00001-of-00002.safetensors", "shard-00001-model-00002-of-00002.safetensors", "config.json"],
]


def seeds(*targets):
    return [pytest.param(path, id=f"{target}/{path.name}") for target in targets for path in sorted((FUZZ / "corpus" / target).iterdir())]


def put(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def zip_around(pickle, storages):
    """As torch.save lays one out."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, content in {"data.pkl": pickle, "byteorder": b"little", **{f"data/{k}": v for k, v in storages.items()},
                              "version": b"3\n"}.items():
            archive.writestr(f"archive/{name}", content)
    return stream.getvalue()


def layout_files(seed):
    choice, text = seed[0] % len(FOLDERS), seed[1:]
    names = FOLDERS[choice]
    if 2 <= choice <= 6:
        files = len(names) - 1
        size = len(text) // files
        parts = [text[i * size : (i + 1) * size] for i in range(files)] + [b"{}"]
    else:
        parts = text.split(CUT, len(names) - 1)
        parts += [b""] * (len(names) - len(parts))
    files = dict(zip(names, parts))
    if choice in (5, 6):
        files["latest"] = b"global_step5"
    return {name: content for name, content in files.items() if content or name != "trainer_state.json"}


def check(tool, path, folder, *arguments):  # noqa: F811
    """The folder is read, every byte of it, or the seed is one of those that are not."""
    name = f"{path.parent.name}/{path.name}"
    if name in NOT_READ:
        code, words = NOT_READ[name]
        assert words in run(tool, "inspect", folder, "--hash", *arguments, code=code).stderr
        return None
    document = json.loads(run(tool, "inspect", folder, "--hash", "--json", *arguments).stdout)
    assert document["complete"] and len(document["weights_sha256"]) == 64 and document["tensors"]
    return document


@pytest.mark.parametrize("path", seeds("layout"))
def test_a_seed_of_layouts_is_a_whole_checkpoint(tool, tmp_path, path):  # noqa: F811
    check(tool, path, put(tmp_path / "checkpoint-5", layout_files(path.read_bytes())))


@pytest.mark.parametrize("path", seeds("dcp"))
def test_a_seed_of_dcp_is_a_whole_checkpoint(tool, tmp_path, path):  # noqa: F811
    seed = path.read_bytes()
    length, rest = struct.unpack("<I", seed[1:5])[0], seed[5:]
    name = ".metadata" if seed[0] % 2 == 0 else "__0.metadata"
    folder = put(tmp_path / "checkpoint-5", {"__0_0.distcp": rest[length:], name: rest[:length], "config.json": b"{}"})
    check(tool, path, folder)


@pytest.mark.parametrize("path", seeds("adapter"))
def test_a_seed_of_adapters_is_an_adapter_over_its_base(tool, tmp_path, path):  # noqa: F811
    config, adapter, base, base_config = [*path.read_bytes().split(CUT, 3), b"{}"][:4]
    put(tmp_path / "base", {"model.safetensors": base, "config.json": base_config})
    weights = "adapter_model." + ("bin" if adapter.startswith(b"PK") else "safetensors")
    folder = put(tmp_path / "checkpoint-5", {"adapter_config.json": config, weights: adapter})
    check(tool, path, folder, "--model_name_or_class", tmp_path / "base")


@pytest.mark.parametrize("path", seeds("torch_file"))
def test_a_seed_of_torch_files_is_one(tool, tmp_path, path):  # noqa: F811
    file = path.read_bytes()
    if b"DTensor" not in file:
        check(tool, path, put(tmp_path / "checkpoint-5", {"pytorch_model.bin": file, "config.json": b"{}"}))
        return
    # Of one rank of two: that it is read is seen by what is missing, the other one.
    folder = put(tmp_path / "checkpoint-5", {"pytorch_model_fsdp_0/model_world_size_2_rank_0.pt": file, "config.json": b"{}"})
    assert "rank_1.pt: is missing" in run(tool, "inspect", folder, code=3).stderr


@pytest.mark.parametrize("path", seeds("dtensor"))
def test_a_seed_of_dtensors_is_one_ranks_shard(tool, tmp_path, path):  # noqa: F811
    """Of two ranks, with the storages that the target gives. The second one's would be placed elsewhere, so the first one alone is
    judged: its own tensors are understood, and only the other's parts are missed."""
    ranks = np.array([0, 1], np.int32).tobytes()
    file = zip_around(path.read_bytes(), {"0": b"x" * 24, "1": ranks, "2": b"y" * 64, "mesh": ranks})
    shards = {f"pytorch_model_fsdp_0/model_world_size_2_rank_{rank}.pt": file for rank in range(2)}
    done = run(tool, "inspect", put(tmp_path / "checkpoint-5", {**shards, "config.json": b"{}"}), code=1)
    assert "says that rank 1 is at" in done.stderr  # rank 0's was taken


@pytest.mark.parametrize("path", seeds("pickle"))
def test_a_seed_of_pickles_is_read_to_its_storages(tool, tmp_path, path):  # noqa: F811
    """Storages are not there: each is missed by its name, which a pickle that was refused would not come to."""
    file = zip_around(path.read_bytes(), {})
    if b"DTensor" in file:
        folder = put(tmp_path / "checkpoint-5", {"pytorch_model_fsdp_0/model_world_size_1_rank_0.pt": file, "config.json": b"{}"})
    else:
        folder = put(tmp_path / "checkpoint-5", {"pytorch_model.bin": file, "config.json": b"{}"})
    assert re.search(r'needs the record \\?"data/', run(tool, "inspect", folder, code=1).stderr)


@pytest.mark.parametrize("path", seeds("safetensors"))
def test_a_seed_of_safetensors_is_a_file_or_an_index(tool, tmp_path, path):  # noqa: F811
    seed = path.read_bytes()
    if seed.startswith(b"{"):
        names = set(json.loads(seed)["weight_map"].values())
        folder = put(tmp_path / "checkpoint-5", {"model.safetensors.index.json": seed, "config.json": b"{}"})
        assert f"{min(names)}: is missing" in run(tool, "inspect", folder, code=3).stderr
    else:
        check(tool, path, put(tmp_path / "checkpoint-5", {"model.safetensors": seed, "config.json": b"{}"}))


@pytest.mark.parametrize("path", seeds("members"))
def test_a_seed_of_members_is_a_list_of_checkpoints(tool, tmp_path, path):  # noqa: F811
    seed = path.read_bytes()
    folder = put(tmp_path / "lease", {"members.json": seed})
    for name in json.loads(seed)["members"]:
        if "/" not in name:
            (folder / "members" / name).mkdir(parents=True)
            torch.save({"w": torch.ones(3)}, folder / "members" / name / "pytorch_model.bin")
    (folder / "members").mkdir(exist_ok=True)
    check(tool, path, folder, "--weights", "average")


def test_every_target_that_reads_checkpoints_has_seeds_of_its_kinds():
    targets = set(re.findall(r"NAME (\w+) LIBRARIES evalcar::checkpoint", (FUZZ / "CMakeLists.txt").read_text()))
    assert targets == set(TARGETS)
    for target in TARGETS:
        assert len(list((FUZZ / "corpus" / target).iterdir())) >= 2, target
    chosen = {path.read_bytes()[0] % len(FOLDERS) for path in (FUZZ / "corpus" / "layout").iterdir()}
    assert chosen == set(range(len(FOLDERS)))
    assert {path.read_bytes()[0] % 2 for path in (FUZZ / "corpus" / "dcp").iterdir()} == {0, 1}
