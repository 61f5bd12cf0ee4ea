"""How much memory a file can make us take: 64 MiB and what its own size justifies, ten times its size at most.

Of real metadata it is four times. The process is measured, by what the kernel saw of it, when it had the most."""

import json
import pathlib
import pickle
import struct
import subprocess
import sys
import zipfile

import pytest
import safetensors.torch
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta,
                                                   TensorProperties, TensorStorageMetadata)

MIB = 1 << 20
BASE = 64 * MIB


def cases(of, quick):
    """All of them under --all, those of `quick` always."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.full) for case in of]


# Forked from this process, a child would count this one's memory as its own: a small one starts it.
MEASURE = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
message = child.stderr.read()
_, status, usage = os.wait4(child.pid, 0)
sys.stderr.buffer.write(message)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024)
"""


def peak_bytes(bin_dir, folder, code, *command):
    """What `evalcar inspect` of the folder, or another command, took at most, and its message."""
    command = command or ("inspect", folder, "--json")
    done = subprocess.run([sys.executable, "-c", MEASURE, str(bin_dir / "evalcar"), *map(str, command)],
                          capture_output=True, text=True, timeout=300)
    ended, peak = map(int, done.stdout.split())
    assert ended == code, done.stderr
    return peak, done.stderr


def check(bin_dir, folder, file, code, factor, record_property):
    size = (folder / file).stat().st_size
    peak, message = peak_bytes(bin_dir, folder, code)
    print(f"{file}: {size / MIB:.1f} MiB, peak {peak / MIB:.1f} MiB, {max(0, peak - 12 * MIB) / size:.1f} times its size")
    record_property("peak_bytes_per_byte", round(peak / size, 1))
    assert peak <= BASE + factor * size
    return message


def sharded(name, ranks, offsets, index):
    """The metadata of one tensor that is cut along its first dimension, and its lines of storage_data."""
    chunks = []
    for rank in range(ranks):
        start, size = torch.Size([rank * 16, 0]), torch.Size([16, 8192])
        chunks.append(ChunkStorageMetadata(offsets=start, sizes=size))
        length = 16 * 8192 * 2 + 1500
        index[MetadataIndex(name, torch.Size(list(start)), rank)] = _StorageInfo(f"__{rank}_0.distcp", offsets[rank], length)
        offsets[rank] += length
    properties = TensorProperties(dtype=torch.bfloat16)
    return TensorStorageMetadata(properties=properties, size=torch.Size([16 * ranks, 8192]), chunks=chunks)


def real_metadata(folder, layers, ranks):
    """`.metadata` as a trainer with that many ranks leaves it."""
    entries, index, offsets = {}, {}, [0] * ranks
    for layer in range(layers):
        for part in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"):
            name = f"model.layers.{layer}.{part}.weight"
            entries[name] = sharded(name, ranks, offsets, index)
    for number in range(layers):
        name = f"optim.step.{number}"
        entries[name] = BytesStorageMetadata()
        index[MetadataIndex(name)] = _StorageInfo("__0_0.distcp", offsets[0], 700)
        offsets[0] += 700
    metadata = Metadata(state_dict_metadata=entries, planner_data={name: (name,) for name in entries}, storage_data=index,
                        storage_meta=StorageMeta(checkpoint_id=pathlib.PosixPath("/run/checkpoint-5")), version="1.0.0")
    folder.mkdir()
    (folder / ".metadata").write_bytes(pickle.dumps(metadata, protocol=4))


def test_metadata_of_many_ranks_takes_at_most_four_times_its_size(bin_dir, tmp_path, record_property):
    real_metadata(tmp_path / "checkpoint-5", layers=40, ranks=400)

    message = check(bin_dir, tmp_path / "checkpoint-5", ".metadata", 3, 4, record_property)

    assert "__0_0.distcp: is missing" in message  # nothing else was wrong with it


@pytest.mark.parametrize("element", ["{}", "[]", '""', "0"])
def test_a_configuration_of_small_values_takes_no_more_than_its_size_justifies(bin_dir, tmp_path, element, record_property):
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    safetensors.torch.save_file({"model.norm.weight": torch.ones(4)}, folder / "model.safetensors", metadata={"format": "pt"})
    body = (element + ",") * ((15 * MIB) // (len(element) + 1)) + element
    (folder / "config.json").write_text('{"model_type":"qwen2","architectures":["X"],"a":[' + body + "]}")
    (folder / "trainer_state.json").write_text('{"global_step":5}')

    check(bin_dir, folder, "config.json", 0, 10, record_property)

    merge = ("merge", "--input_dir", folder, "--output_dir", tmp_path / "merged", "--model_name_or_class", "Qwen2ForCausalLM")
    peak, _ = peak_bytes(bin_dir, folder, 0, *merge)
    assert peak <= BASE + 10 * (folder / "config.json").stat().st_size


# Opcodes of pickle protocol 4, by hand.
def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def put(number):
    return b"r" + struct.pack("<I", number)


def get(number):
    return b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number)


def glob(module, name):
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


META = "torch.distributed.checkpoint.metadata"
FILES = "torch.distributed.checkpoint.filesystem"


def made(name, state, module=META):
    """An object of a dataclass, with the fields in `state` (name: bytes)."""
    fields = b"".join(text(key) + value for key, value in state.items())
    return glob(module, name) + b")\x81}(" + fields + b"ub"


def size_of(numbers):
    return glob("torch", "Size") + b"(" + b"".join(b"J" + struct.pack("<i", n) for n in numbers) + b"t\x85R"


def tensor_of(shape, chunks=b"]"):
    layout = glob("torch.serialization", "_get_layout") + text("torch.strided") + b"\x85R"
    form = glob(META, "_MEM_FORMAT_ENCODING") + b"K\x00\x85R"
    properties = glob(META, "TensorProperties") + b")\x81(" + glob("torch", "float32") + layout + b"\x89" + form + b"\x89tb"
    return made("TensorStorageMetadata", {"properties": properties, "size": size_of(shape), "chunks": chunks})


def batches(container, lines, close):
    """Fills a container a thousand lines at a time, as pickle does."""
    out = [container]
    for begin in range(0, len(lines), 1000):
        out += [b"(", *lines[begin:begin + 1000], close]
    return b"".join(out)


def whole(entries, storage=b"}", planner=b"}"):
    return b"\x80\x04" + made("Metadata", {"state_dict_metadata": entries, "planner_data": planner, "storage_data": storage}) + b"."


def many_lists(count):
    return b"\x80\x04" + batches(b"]", [b"]"] * count, b"e") + b"."


def grown_lists(count):
    """Each is appended to twice, so that it has to move."""
    return b"\x80\x04" + batches(b"]", [b"]K\x01aK\x02a"] * count, b"e") + b"."


def many_memos(count):
    return b"\x80\x04]" + b"".join(b"N\x94" + b"\x85" for _ in range(count)) + b"."


def one_tensor_under_many_names(count):
    """Each entry is a name and a reference to the same tensor of 64 dimensions."""
    tensor = tensor_of([1] * 63 + [0])
    names = [text(f"n{i:06}") + get(7) for i in range(count)]
    return whole(batches(b"}" + text("first") + tensor + put(7) + b"s", names, b"u"))


def many_dimensions(count):
    """Chunks of 64 dimensions whose sizes are one object."""
    sizes, chunks, lines = size_of([1] * 64) + put(3), [], []
    for number in range(count):
        start = size_of([0] * 62 + [number // 1000, number % 1000]) + put(10 + number)
        chunks.append(made("ChunkStorageMetadata", {"offsets": start, "sizes": get(3) if number else sizes}))
        key = made("MetadataIndex", {"fqn": get(4), "offset": get(10 + number)})
        lines.append(key + made("_StorageInfo", {"relative_path": get(4), "offset": b"M" + struct.pack("<H", number), "length": b"K\x01"}, FILES))
    entries = b"}" + text("w") + put(4) + tensor_of([1] * 62 + [1000, 1000], batches(b"]", chunks, b"e")) + b"s"
    return whole(entries, batches(b"}", lines, b"u"))


def many_items(count):
    """The same line of storage_data over and over: each asks for a range of its own."""
    key = made("MetadataIndex", {"fqn": text("b"), "offset": b"N"}) + put(1)
    info = made("_StorageInfo", {"relative_path": text("__0_0.distcp"), "offset": b"K\x00", "length": b"K\x00"},
                FILES) + put(2)
    storage = batches(b"}" + key + info + b"s", [get(1) + get(2)] * count, b"u")
    return whole(b"}" + text("b") + made("BytesStorageMetadata", {}) + b"s", storage)


def many_files(count):
    lines = []
    for number in range(count):
        key = made("MetadataIndex", {"fqn": get(9)})
        info = made("_StorageInfo", {"relative_path": text(f"{number:x}"), "offset": b"K\x00", "length": b"K\x00"},
                    FILES)
        lines.append(key + info)
    entries = b"}" + text("b") + put(9) + made("BytesStorageMetadata", {}) + b"s"
    return whole(entries, batches(b"}", lines, b"u"))


def deep_paths(count):
    """Names of dots, whose paths are nothing over and over."""
    parts = 2000
    names = ["." * (parts - 1) + f"{i}" for i in range(count)]
    entries = batches(b"}" + text("") + put(5) + made("BytesStorageMetadata", {}) + b"s",
                      [text(name) + tensor_of([0]) for name in names], b"u")
    paths = batches(b"}", [text(name) + b"(" + get(5) * (parts - 1) + text(f"{i}") + b"t" for i, name in enumerate(names)], b"u")
    return whole(entries, planner=paths)


HOSTILE_METADATA = {
    "lists": (many_lists, 6_000_000, 1, "too many objects"),
    "lists-that-grow": (grown_lists, 1_000_000, 1, "too many objects"),
    "memos": (many_memos, 2_000_000, 1, "too many objects"),
    "one-tensor-under-many-names": (one_tensor_under_many_names, 500_000, 1, "more entries"),
    "dimensions": (many_dimensions, 12_000, 1, "12000 elements, expected 1000000"),
    "items": (many_items, 2_000_000, 1, "more items"),
    "files": (many_files, 40_000, 1, "holds no tensor of a model"),
    "deep-paths": (deep_paths, 1_000, 0, ""),
}


@pytest.mark.parametrize("case", cases(HOSTILE_METADATA, ["lists-that-grow", "dimensions", "items"]))
def test_hostile_metadata_takes_at_most_ten_times_its_size(bin_dir, tmp_path, case, record_property):
    make, count, code, message = HOSTILE_METADATA[case]
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    (folder / ".metadata").write_bytes(make(count))

    assert message in check(bin_dir, folder, ".metadata", code, 10, record_property)


def write_safetensors(path, header, data_bytes=0):
    header = header.encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * data_bytes)


def many_tensors(count, name, shape=(1, 1)):
    """A header of tensors of one element, or none."""
    size = 2 if 0 not in shape else 0
    entry = '"{}":{{"dtype":"BF16","shape":{},"data_offsets":[{},{}]}}'
    form = json.dumps(shape, separators=(",", ":"))
    return "{" + ",".join(entry.format(name.format(i), form, i * size, (i + 1) * size) for i in range(count)) + "}"


HEADERS = {  # header, bytes of data, exit code
    "real-names": (many_tensors(60_000, "model.language_model.layers.{}.self_attn.q_proj.weight"), 120_000, 0),
    "short-names": (many_tensors(100_000, "{:x}", [1]), 200_000, 0),
    "dimensions": (many_tensors(40_000, "{}", [0] * 64), 0, 1),
    "metadata": ('{"__metadata__":{' + ",".join(f'"{i:x}":""' for i in range(500_000)) + "}}", 0, 1),
    "one-long-metadata": ('{"__metadata__":{"a":"' + "x" * 20_000_000 + '"},' + many_tensors(1, "a")[1:], 2, 0),
    "one-long-name": (many_tensors(1, "x" * 20_000_000), 2, 0),
}


@pytest.mark.parametrize("case", cases(HEADERS, ["real-names", "metadata"]))
def test_a_large_safetensors_header_takes_at_most_ten_times_its_size(bin_dir, tmp_path, case, record_property):
    header, data_bytes, code = HEADERS[case]
    write_safetensors(tmp_path / "model.safetensors", header, data_bytes)

    check(bin_dir, tmp_path, "model.safetensors", code, 10, record_property)


def write_experts(folder, module, experts):
    """A layer of experts of a byte each."""
    header, end = {}, 0
    for name, shape in {"gate_up_proj": [experts, 2, 1], "down_proj": [experts, 1, 1]}.items():
        begin, end = end, end + shape[0] * shape[1]
        header[f"{module}.experts.{name}"] = {"dtype": "U8", "shape": shape, "data_offsets": [begin, end]}
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", json.dumps(header), end)
    (folder / "config.json").write_text('{"model_type": "qwen3_moe"}')


def test_an_average_has_no_more_for_all_of_its_members_than_a_checkpoint_has(bin_dir, tmp_path):
    for member in range(12):
        write_experts(tmp_path / "members" / str(member), "m.mlp", 8_000)
    (tmp_path / "members.json").write_text(json.dumps({"members": [str(member) for member in range(12)]}))
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_moe"}')

    peak, message = peak_bytes(bin_dir, tmp_path, 1, "inspect", tmp_path, "--weights", "average")

    assert peak <= BASE + 10 * sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert "members/" in message and "one too many" in message


@pytest.mark.parametrize("module, experts, code", [("m.mlp", 66_000, 1), ("m" * 4000, 66_000, 1), ("m.mlp", 8_000, 0)])
def test_experts_of_a_byte_each_take_at_most_ten_times_their_file(bin_dir, tmp_path, module, experts, code, record_property):
    """Each of them would be three tensors of a name of its own; as many as the plan of any file may have are made."""
    write_experts(tmp_path, module, experts)

    message = check(bin_dir, tmp_path, "model.safetensors", code, 10, record_property)

    assert code == 0 or "one too many" in message


def test_a_compressed_record_is_never_unpacked(bin_dir, tmp_path, record_property):
    """z-deflate-bomb: 256 KiB that would be 256 MiB."""
    torch.save({"w": torch.zeros(64 * MIB)}, tmp_path / "large.bin")
    with zipfile.ZipFile(tmp_path / "large.bin") as large, \
            zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w", compression=zipfile.ZIP_DEFLATED) as bomb:
        for name in large.namelist():
            bomb.writestr(name, large.read(name), zipfile.ZIP_DEFLATED if name.endswith("/data/0") else zipfile.ZIP_STORED)
    (tmp_path / "large.bin").unlink()

    message = check(bin_dir, tmp_path, "pytorch_model.bin", 1, 10, record_property)

    assert "data/0" in message and "is compressed" in message


INDEXES = {
    "real-names": json.dumps({"weight_map": {f"model.layers.{i}.self_attn.q_proj.weight": "model-00001-of-00002.safetensors"
                                             for i in range(100_000)}}),
    "short-names": '{"weight_map":{' + ",".join(f'"{i:x}":"a"' for i in range(1_000_000)) + "}}",
    "keys": '{"metadata":{' + ",".join(f'"{i:x}":1' for i in range(1_000_000)) + '},"weight_map":{"a":"a"}}',
}


@pytest.mark.parametrize("case", cases(INDEXES, ["short-names"]))
def test_a_large_index_takes_at_most_ten_times_its_size(bin_dir, tmp_path, case, record_property):
    (tmp_path / "model.safetensors.index.json").write_text(INDEXES[case])

    check(bin_dir, tmp_path, "model.safetensors.index.json", 1 if case == "short-names" else 3, 10, record_property)


def test_large_pickles_in_torch_files_take_at_most_ten_times_their_size(bin_dir, tmp_path, record_property):
    """A state_dict of very many small tensors of one storage, and lists of lists in place of one."""
    storage = torch.zeros(64)
    torch.save({f"{i:x}": storage[i % 64] for i in range(60_000)}, tmp_path / "pytorch_model.bin")
    check(bin_dir, tmp_path, "pytorch_model.bin", 0, 10, record_property)

    torch.save([[] for _ in range(3_000_000)], tmp_path / "pytorch_model.bin")
    check(bin_dir, tmp_path, "pytorch_model.bin", 1, 10, record_property)


def torch_tensor(key, numel, shape):
    """A tensor over a storage of floats, as torch.save writes it."""
    storage = b"(" + text("storage") + glob("torch", "FloatStorage") + text(key) + text("cpu") + b"J" + struct.pack("<i", numel) + b"tQ"
    sizes, strides = (b"(" + b"".join(b"J" + struct.pack("<i", n) for n in numbers) + b"t" for numbers in (shape, [1] * len(shape)))
    return glob("torch._utils", "_rebuild_tensor_v2") + b"(" + storage + b"K\x00" + sizes + strides + b"\x89" + glob("collections", "OrderedDict") + b")RtR"


def write_torch(path, data, numel=1, storage="0"):
    """A torch.save file with this pickle and one storage."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in (("data.pkl", data), ("byteorder", b"little"), ("data/" + storage, b"\0" * 4 * numel), ("version", b"3\n")):
            archive.writestr("archive/" + name, content)


def one_stored_tensor_under_many_names(count):
    """64 dimensions of size 1, and each name costs ten bytes."""
    names = [text(f"n{i:06}") + get(7) for i in range(count)]
    return b"\x80\x02" + batches(b"}" + text("first") + torch_tensor("0", 1, [1] * 64) + put(7) + b"s", names, b"u") + b"."


@pytest.mark.parametrize("layout", ["bin", pytest.param("fsdp2", marks=pytest.mark.full)])
def test_one_stored_tensor_under_many_names_takes_at_most_ten_times_its_file(bin_dir, tmp_path, layout, record_property):
    folder = tmp_path / "checkpoint-5"
    file = "pytorch_model.bin" if layout == "bin" else "pytorch_model_fsdp_0/model_world_size_1_rank_0.pt"
    (folder / file).parent.mkdir(parents=True)
    write_torch(folder / file, one_stored_tensor_under_many_names(500_000))

    assert "is one too many" in check(bin_dir, folder, file, 1, 10, record_property)


def dict_of(pairs):
    return b"}(" + b"".join(text(key) + value for key, value in pairs) + b"u"


def list_of(items):
    return b"](" + b"".join(items) + b"e"


def write_zero(folder, stage, *, ranks, shapes, groups, numel=1, storage="0", paddings=b"N"):
    """ZeRO's files; `shapes`, `groups` and `paddings` are pickled."""
    state = folder / "global_step5"
    state.mkdir(parents=True)
    (folder / "latest").write_text("global_step5")
    (folder / "config.json").write_text("{}")
    model = b"\x80\x02" + dict_of([("module", b"}"), ("buffer_names", b"]"), ("param_shapes", shapes)]) + b"."
    for rank in range(ranks):
        optimizer = dict_of([("zero_stage", b"K" + bytes([stage])), ("partition_count", b"K" + bytes([ranks])),
                             ("fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups", groups), ("param_alignment_paddings", paddings)])
        prefix = state / f"zero_pp_rank_{rank}_mp_rank_00_"
        write_torch(f"{prefix}optim_states.pt", b"\x80\x02" + dict_of([("optimizer_state_dict", optimizer)]) + b".", numel, storage)
        if stage == 3:
            write_torch(f"{prefix}model_states.pt", model if rank == 0 else b"\x80\x02" + dict_of([("buffer_names", b"]"), ("param_shapes", b"]")]) + b".")
    if stage != 3:
        write_torch(state / "mp_rank_00_model_states.pt", model)


def many_parameters(count):
    """Of eight dimensions, all of one shape, which is one object."""
    shape = size_of([1] * 8)
    return list_of([batches(b"}" + text("first") + shape + put(9) + b"s", [text(f"{i:x}") + get(9) for i in range(count)], b"u")])


def many_groups(count, storage="0"):
    return batches(b"]" + torch_tensor(storage, 300, [300]) + put(8) + b"a", [get(8)] * (count - 1), b"e")


def same(item, count):
    return batches(b"]" + item + put(9) + b"a", [get(9)] * (count - 1), b"e")


ONE = list_of([b"}" + text("w") + size_of([2] * 8) + b"s"])
ZERO = {  # what makes many of little
    "parameters": dict(stage=2, ranks=1, shapes=many_parameters(150_000), groups=list_of([torch_tensor("0", 150_001, [150_001])]), numel=150_001),
    "parameters-of-many-ranks": dict(stage=3, ranks=60, shapes=many_parameters(9_000), groups=list_of([torch_tensor("0", 9_001, [9_001])]), numel=9_001),
    "groups-of-many-ranks": dict(stage=3, ranks=60, shapes=ONE, groups=many_groups(9_000), numel=300),
    "one-tensor-of-many-groups": dict(stage=3, ranks=30, shapes=list_of([b"}" + text("w") + size_of([3, 2, 2, 2, 2, 2, 2, 421_875]) + b"s"]),
                                      groups=many_groups(9_000), numel=300),
    "groups-in-a-record-of-a-long-name": dict(stage=3, ranks=1, shapes=ONE, groups=many_groups(5_000, "x" * 60_000), numel=300, storage="x" * 60_000),
    "paddings-of-many-ranks": dict(stage=2, ranks=200, shapes=same(b"}", 48), groups=many_groups(48), numel=300,
                                   paddings=same(same(b"K\x00", 4_096), 48)),
}  # fmt: skip


@pytest.mark.parametrize("case", cases(ZERO, ["groups-of-many-ranks"]))
def test_little_that_zero_names_often_takes_at_most_ten_times_its_files(bin_dir, tmp_path, case):
    folder = tmp_path / "checkpoint-5"
    write_zero(folder, **ZERO[case])
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

    peak, message = peak_bytes(bin_dir, folder, 0 if case == "parameters-of-many-ranks" else 1)

    print(f"{case}: {size / MIB:.1f} MiB, peak {peak / MIB:.1f} MiB: {message.strip()[-150:]}")
    assert peak <= BASE + 10 * size


@pytest.mark.full
def test_an_adapter_configuration_of_a_megabyte_takes_little(bin_dir, tmp_path, record_property):
    patterns = {f"{i:x}": 1 for i in range(70_000)}
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"], "base_model_name_or_path": "/none",
              "rank_pattern": patterns}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config, separators=(",", ":")))
    write_safetensors(tmp_path / "adapter_model.safetensors", many_tensors(1, "a"), 2)

    check(bin_dir, tmp_path, "adapter_config.json", 1, 10, record_property)


def test_a_merge_of_many_heads_and_embeddings_takes_at_most_ten_times_their_file(bin_dir, tmp_path):
    """Any head may be tied to any embedding of its shape."""
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    header = {name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
              for i in range(8000) for name in (f"a{i}.lm_head.weight", f"b{i}.embed_tokens.weight")}
    write_safetensors(folder / "model.safetensors", json.dumps(header, separators=(",", ":")))

    peak, _ = peak_bytes(bin_dir, folder, 0, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out")

    assert peak <= BASE + 10 * (folder / "model.safetensors").stat().st_size
