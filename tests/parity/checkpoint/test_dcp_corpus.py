"""Bad and hostile DCP folders, made from a real save of four ranks: each is refused by file and place, and executes nothing.

The rows are those of the corpus of malicious and broken files ("d-…"); the ones that have to be read are here, too."""

import dataclasses
import os
import pathlib
import pickle
import shutil
import stat

import dcp_checkpoints
import pytest
import torch
from test_checkpoints import check_hashes, inspect, run, tool  # noqa: F401  (tool: a fixture)
from torch.distributed._shard.sharded_tensor.metadata import MEM_FORMAT_ENCODING
from torch.distributed._shard.sharded_tensor.metadata import TensorProperties as OldProperties
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

TENSOR = "model.m2.13x7"  # over a 2 x 2 mesh by [Shard(0), Shard(0)]: rows 0-3, 4-6, 7-10, 11-12


@pytest.fixture
def folder(saves, tmp_path):
    return shutil.copytree(saves / "mesh", tmp_path / "checkpoint-5")


def change(folder, alter):
    """Unpickles .metadata, lets `alter` change it (or give another), and pickles it again, newer than the data."""
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    metadata = alter(metadata) or metadata
    path.write_bytes(pickle.dumps(metadata, protocol=4))


def storage_of(metadata, which=0):
    """(index, info) of a chunk of TENSOR."""
    found = [(index, info) for index, info in metadata.storage_data.items() if index.fqn == TENSOR]
    return sorted(found, key=lambda pair: pair[0].offset)[which]


def chunks_of(metadata):
    tensor = metadata.state_dict_metadata[TENSOR]
    tensor.chunks.sort(key=lambda chunk: chunk.offsets)
    return tensor.chunks


def set_info(**fields):
    def alter(metadata):
        for name, value in fields.items():
            setattr(storage_of(metadata)[1], name, value)
    return alter


def move_chunk(which, offsets, sizes):
    """Another box for a chunk, under the same offset in storage_data where that stays the same."""
    def alter(metadata):
        chunk = chunks_of(metadata)[which]
        index, info = storage_of(metadata, which)
        del metadata.storage_data[index]
        metadata.storage_data[MetadataIndex(TENSOR, offsets)] = info
        chunk.offsets, chunk.sizes = torch.Size(offsets), torch.Size(sizes)
    return alter


def drop_chunk(metadata):
    index, info = storage_of(metadata, 1)
    del metadata.storage_data[index]
    chunks_of(metadata).pop(1)
    metadata.storage_data[MetadataIndex("model.step")] = info  # its bytes stay named
    metadata.state_dict_metadata["model.step"] = torch.distributed.checkpoint.metadata.BytesStorageMetadata()


def lie_about_size(metadata):
    tensor = metadata.state_dict_metadata[TENSOR]
    tensor.size = torch.Size([2**40, 7])
    tensor.chunks[:] = [ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([2**40, 7]))]
    info = storage_of(metadata)[1]
    for index in [index for index in metadata.storage_data if index.fqn == TENSOR]:
        other = metadata.storage_data.pop(index)
        metadata.storage_data[MetadataIndex(f"model.step.{index.offset}")] = other
        metadata.state_dict_metadata[f"model.step.{index.offset}"] = torch.distributed.checkpoint.metadata.BytesStorageMetadata()
    unused = metadata.storage_data.pop(next(index for index, other in metadata.storage_data.items() if other is info))
    metadata.storage_data[MetadataIndex(TENSOR, [0, 0])] = unused


def lie_about_one_chunk(metadata):
    """2^40 elements, of which a chunk has four."""
    tensor = metadata.state_dict_metadata["model.m2.3x2"]
    tensor.size = torch.Size([2**40, 2])


def range_past_the_end(metadata):
    """Of the last item of its file, so that it overlaps no other."""
    infos = [info for info in metadata.storage_data.values() if info.relative_path == "__1_0.distcp"]
    max(infos, key=lambda info: info.offset).length = 2**40


def rename_index(metadata):
    index, info = storage_of(metadata)
    del metadata.storage_data[index]
    metadata.storage_data[MetadataIndex(TENSOR, [1, 0])] = info


def forget_range(metadata):
    del metadata.storage_data[storage_of(metadata)[0]]


def swap_ranges(metadata):
    """Two chunks of other shapes trade places."""
    first, second = storage_of(metadata, 0)[0], next(i for i in metadata.storage_data if i.fqn == "model.m2.3x2")
    data = metadata.storage_data
    data[first], data[second] = data[second], data[first]


def other_dtype(metadata):
    metadata.state_dict_metadata[TENSOR].properties.dtype = torch.bfloat16


def sparse(metadata):
    metadata.state_dict_metadata[TENSOR].properties.layout = torch.sparse_coo


def path_of_planner(metadata):
    metadata.planner_data[TENSOR] = ("model", "another.name")


@dataclasses.dataclass
class Planner:
    """A class of the user's own."""

    order: int = 3


def class_in_planner_data(metadata):
    metadata.planner_data[TENSOR] = Planner()


class Caller:
    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return (os.mkdir, (str(self.canary),))


def call_in(place):
    def alter(metadata):
        setattr(metadata, place, Caller(canary))
    canary = pathlib.Path(f"evalcar-{os.getpid()}-called")
    return alter


REFUSED = {
    "d-relpath-dotdot": (set_info(relative_path="../../secret"), ".metadata", '"../../secret" at byte'),
    "d-relpath-abs": (set_info(relative_path="/etc/passwd"), ".metadata", '"/etc/passwd" at byte'),
    "relpath-folder": (set_info(relative_path="sub/__0_0.distcp"), ".metadata", "plain name"),
    "relpath-nul": (set_info(relative_path="__0_0\0.distcp"), ".metadata", "plain name"),
    "range-over-others": (set_info(length=2**40), ".metadata", "do not follow each other"),
    "d-range-overflow": (set_info(offset=2**62, length=2**62), ".metadata", "overflows"),
    "range-beyond-64-bits": (set_info(length=2**64), ".metadata", "64 bits"),
    "range-negative": (set_info(offset=-1), ".metadata", "malformed"),
    "range-text": (set_info(offset="0"), ".metadata", "malformed"),
    "d-chunk-overlap": (move_chunk(1, [3, 0], [3, 7]), ".metadata", "overlap"),
    "d-chunk-gap": (drop_chunk, ".metadata", "elements, expected 91"),
    "d-chunk-oob": (move_chunk(3, [12, 0], [2, 7]), ".metadata", "lies outside"),
    "chunk-of-other-dimensions": (move_chunk(3, [11], [2]), ".metadata", "lies outside"),
    "d-size-lie": (lie_about_size, "distcp", "expected float32 [1099511627776, 7]"),
    "size-lie-of-one-chunk": (lie_about_one_chunk, ".metadata", "elements, expected 2199023255552"),
    "ranges-of-another-file": (set_info(relative_path="__9_0.distcp"), ".metadata", "do not follow"),
    "d-index-mismatch": (rename_index, ".metadata", "no range in storage_data"),
    "chunk-without-range": (forget_range, ".metadata", "no range in storage_data"),
    "ranges-swapped": (swap_ranges, "distcp", "from the metadata"),
    "dtype-lie": (other_dtype, "distcp", "expected bfloat16"),
    "sparse-layout": (sparse, ".metadata", "torch.sparse_coo"),
    "path-is-not-the-key": (path_of_planner, ".metadata", "planner_data"),
    "d-planner-data-class": (class_in_planner_data, ".metadata", "Planner"),
    "call-in-planner-data": (call_in("planner_data"), ".metadata", "posix.mkdir"),
    "call-in-storage-meta": (call_in("storage_meta"), ".metadata", "posix.mkdir"),
    "no-storage-data": (lambda metadata: setattr(metadata, "storage_data", None), ".metadata", "storage_data"),
    "no-entries": (lambda metadata: setattr(metadata, "state_dict_metadata", {}), ".metadata", "not in state_dict_metadata"),
    "another-object": (lambda metadata: metadata.storage_meta, ".metadata", "not the metadata"),
    "protocol-of-json": (lambda metadata: {"model": [1, 2]}, ".metadata", "not the metadata"),
}


@pytest.mark.parametrize("row", REFUSED)
def test_what_contradicts_itself_is_refused_by_file_and_place(tool, folder, tmp_path, row):  # noqa: F811
    alter, file, words = REFUSED[row]
    change(folder, alter)

    done = run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out", code=1)

    assert file in done.stderr and words in done.stderr, done.stderr
    assert not (tmp_path / "out").exists() and not list(pathlib.Path().glob("evalcar-*-called"))


def test_a_range_past_the_end_is_never_read(tool, folder):  # noqa: F811
    """d-range-past-eof: the file may still be growing, so that it is not complete, and nothing of it is merged."""
    change(folder, range_past_the_end)

    done = run(tool, "merge", "--input_dir", folder, "--output_dir", folder.parent / "out", code=3)

    assert "__1_0.distcp" in done.stderr and "ends after" in done.stderr and not (folder.parent / "out").exists()


def test_two_entries_of_one_name_are_refused(tool, folder):  # noqa: F811
    """d-dup-fqn"""
    path = folder / ".metadata"
    path.write_bytes(path.read_bytes().replace(b"model.m3.13x7", b"model.m2.13x7"))

    assert '"model.m2.13x7" at byte' in run(tool, "inspect", folder, code=1).stderr


def replace_by_link(path, target):
    path.unlink()
    path.symlink_to(target)


def replace_by_device(path):
    path.unlink()
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero


def replace_by_fifo(path):
    path.unlink()
    os.mkfifo(path)


FILES = {
    "d-symlink-out": (lambda path: (shutil.move(path, path.parents[1] / "out.distcp"), path.symlink_to("../out.distcp")), 1, "link out"),
    "d-symlink-loop": (lambda path: replace_by_link(path, path.name), 1, "leads nowhere"),
    "d-hardlink-dev": (replace_by_device, 1, "not a regular file"),
    "fifo": (replace_by_fifo, 1, "not a regular file"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), 1, "not a regular file"),
    "d-missing-file": (lambda path: path.unlink(), 3, "is missing"),
    "cut": (lambda path: os.truncate(path, path.stat().st_size - 1), 3, "ends after"),
    "empty": (lambda path: os.truncate(path, 0), 3, "ends after 0 bytes"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"more"), 3, "no item names"),  # newer, too: saved over
    "not-a-zip": (lambda path: path.write_bytes(b"v" * path.stat().st_size), 1, "not a torch.save file"),
}


@pytest.mark.parametrize("row", FILES)
def test_a_data_file_that_is_not_what_the_metadata_says_is_refused_by_name(tool, folder, row):  # noqa: F811
    damage, code, words = FILES[row]
    path = folder / "__1_0.distcp"
    try:
        damage(path)
    except PermissionError:
        pytest.skip("no device files on this machine")
    if row == "not-a-zip":
        os.utime(folder / ".metadata")

    done = run(tool, "inspect", folder, "--hash", code=code)

    assert "__1_0.distcp" in done.stderr and words in done.stderr, done.stderr


@pytest.mark.parametrize("absolute", [False, True])
def test_nothing_outside_is_opened(tool, folder, tmp_path, absolute):  # noqa: F811
    """d-relpath-dotdot, d-relpath-abs: as the kernel sees it."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    change(folder, set_info(relative_path=str(secret) if absolute else "../secret"))

    calls = tmp_path / "calls"
    done = run("strace", "-f", "-e", "trace=open,openat,openat2", "-o", calls, tool, "inspect", folder, code=1)

    assert "secret" in done.stderr, done.stderr
    opened = calls.read_text()
    assert ".metadata" in opened and "secret" not in opened


@pytest.mark.parametrize("names", [[], [".metadata.tmp"]])
def test_a_save_without_its_metadata_is_not_finished(tool, folder, names):  # noqa: F811
    """dcp-tmp-only, dcp-gap"""
    for name in names:
        shutil.copy(folder / ".metadata", folder / name)
    (folder / ".metadata").unlink()

    assert ".metadata: is missing" in run(tool, "inspect", folder, code=3).stderr


def test_every_beginning_of_the_metadata_is_refused(tool, folder):  # noqa: F811
    whole = (folder / ".metadata").read_bytes()

    for size in (0, 1, 2, 11, 100, len(whole) // 2, len(whole) - 1):
        (folder / ".metadata").write_bytes(whole[:size])
        done = run(tool, "inspect", folder, code=3 if size == 0 else 1)
        assert ".metadata" in done.stderr


# ---- what has to be read


def as_of_torch_2_1(metadata):
    """Its class for the properties, and none of the fields that came later."""
    for tensor in metadata.state_dict_metadata.values():
        if hasattr(tensor, "properties"):
            tensor.properties = OldProperties(dtype=tensor.properties.dtype)
    for info in metadata.storage_data.values():
        info.__dict__.pop("transform_descriptors", None)
    del metadata.__dict__["storage_meta"], metadata.__dict__["version"]
    assert MEM_FORMAT_ENCODING.__module__ in pickle.dumps(metadata, protocol=4).decode("latin1")


class OddPath:
    def __reduce__(self):
        return (pathlib.PosixPath, ("/", "..", "", "a\nb", "../../etc"))


def odd_checkpoint_id(metadata):
    metadata.storage_meta.checkpoint_id = OddPath()


def without_planner_data(metadata):
    metadata.planner_data = None


def without_hints(metadata):
    metadata.storage_data = {MetadataIndex(index.fqn, index.offset): info for index, info in metadata.storage_data.items()}


def in_another_order(metadata):
    metadata.storage_data = dict(reversed(metadata.storage_data.items()))
    for tensor in metadata.state_dict_metadata.values():
        tensor.chunks.reverse()


READ = {"torch-2.1": as_of_torch_2_1, "d-posixpath-odd": odd_checkpoint_id, "without-planner-data": without_planner_data,
        "without-hints": without_hints, "in-another-order": in_another_order}


@pytest.mark.parametrize("row", READ)
def test_every_spelling_of_a_good_save_is_read(tool, folder, saves, row):  # noqa: F811
    expected = dcp_checkpoints.expected_of(saves, "mesh")
    change(folder, READ[row])

    if row == "without-planner-data":  # nothing tells where the tree ends: names as stored
        expected = {f"model.{name}": value for name, value in expected.items()}
    check_hashes(tool, folder, expected, "dcp")


def test_items_that_are_no_tensors_are_never_unpickled(tool, saves):  # noqa: F811
    """d-bytes-entry: the save holds an object whose unpickling makes a folder."""
    assert any(dcp_checkpoints.CANARY.encode() in path.read_bytes() for path in (saves / "tree").glob("*.distcp"))

    assert inspect(tool, saves / "tree", "--hash")["complete"]

    assert not (saves / dcp_checkpoints.CANARY).exists()
