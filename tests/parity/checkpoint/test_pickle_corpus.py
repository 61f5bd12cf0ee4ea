"""Pickles that are small and mean much (rows "p-…" of the corpus of malicious and broken files), where files have them: refused by file and
place, at once, and in little memory. What the pickle machine itself refuses is in tests/unit/checkpoint/pickle_test.cpp."""

import time

import pytest
from hand_made_pickles import torch_file
from test_memory import check

DEEP = 1_000_000  # the row's depth
SHALLOW = 10_000
RANK = "pytorch_model_fsdp_0/model_world_size_1_rank_0.pt"


def nested(opening, closing, depth):
    """`depth` lists or tuples, each in the one before."""
    return opening * depth + closing * (depth - 1)


def called(key, value):
    """A dict of one entry."""
    return b"}X" + len(key).to_bytes(4, "little") + key + value + b"s"


VALUES = {
    "p-deep-nesting, lists": nested(b"]", b"a", DEEP),
    "p-deep-nesting, tuples": b")" + b"\x85" * DEEP,
    "p-deep-nesting, dicts": (b"}" + b"X\x01\0\0\0k") * SHALLOW + b"N" + b"s" * SHALLOW,
    "p-shared-bomb": b"N" + b"q\x01h\x01\x86" * 60,
    "p-self-reference, list": b"]q\x01h\x01a",
    "p-self-reference, dict": b"}q\x01X\x01\0\0\0kh\x01s",
}


def files_with(value):
    """Where a pickle stands in checkpoints, and how it is found there."""
    dcp = {"__0_0.distcp": b""}
    return [
        ({"pytorch_model.bin": torch_file(value)}, "pytorch_model.bin"),
        ({"pytorch_model.bin": torch_file(called(b"w", value))}, "pytorch_model.bin"),
        ({RANK: torch_file(called(b"w", value))}, RANK),
        ({".metadata": b"\x80\x04" + value + b".", **dcp}, ".metadata"),
    ]


@pytest.mark.parametrize("name", VALUES)
def test_p_deep_nesting_and_shared_bomb_and_self_reference(bin_dir, tmp_path, name, record_property):
    """Depth, sharing and cycles are no tensors: refused by file within a second, and the stack is not theirs."""
    for number, (contents, file) in enumerate(files_with(VALUES[name])):
        folder = tmp_path / f"{number}" / "checkpoint-5"
        for path, content in {**contents, "config.json": b"{}"}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)

        started = time.monotonic()
        message = check(bin_dir, folder, file, 1, 10, record_property)

        assert file in message and "at byte " in message, (number, message)
        assert time.monotonic() - started < 10  # most of it is Python's start on a loaded machine
