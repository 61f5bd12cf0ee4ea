"""Hostile checkpoints between good ones, in the running agent: each ends with the file's name and the reason, nothing is run or read outside, and
the others are measured."""

import json
import pathlib
import struct

import checkpoints
from hand_made_pickles import torch_file
from harness import check_published_once, hash_of

RANK = "pytorch_model_fsdp_0/model_world_size_1_rank_0.pt"


def call(module, name, argument):
    """The pickle of a dict whose one value is a call."""
    text = argument.encode()
    return (b"}X\x01\0\0\0w" + f"c{module}\n{name}\n".encode()
            + b"X" + len(text).to_bytes(4, "little") + text + b"\x85Rs")  # fmt: skip


def hostile(canary, secret):
    """Files of each checkpoint, and what its reason says."""
    header = json.dumps({"model.w": {"dtype": "F32", "shape": [2**33, 2**33], "data_offsets": [0, 0]}}).encode()
    escape = {"weight_map": {"model.w": f"../{secret.name}"}}
    return [
        ({RANK: torch_file(call("os", "system", f"touch {canary}"))}, "os.system"),
        ({".metadata": b"\x80\x02" + call("posix", "system", f"touch {canary}") + b".", "__0_0.distcp": b""}, "posix.system"),
        ({"pytorch_model.bin": torch_file(call("builtins", "eval", f"open({str(canary)!r}, 'w')"))}, "eval"),
        ({"pytorch_model.bin": torch_file(b"]" * 1_000_000 + b"a" * 999_999)}, "pytorch_model.bin"),
        ({"model.safetensors": struct.pack("<Q", len(header)) + header}, "model.w"),
        ({"model.safetensors": struct.pack("<Q", 1 << 60)}, "model.safetensors"),
        ({"model.safetensors.index.json": json.dumps(escape).encode()}, secret.name),
    ]


def test_hostile_checkpoints_end_with_their_reason_and_keep_no_other_from_being_measured(bench, tmp_path):
    canary = tmp_path / "called"
    secret = bench.run / "secret.safetensors"
    checkpoints.write_safetensors(secret, "secret")
    expected, reasons = {}, {}
    for number, (files, reason) in enumerate(hostile(canary, secret)):
        good = checkpoints.write_hugging_face(bench.run, 20 * number + 10)
        expected[20 * number + 10, "regular"] = hash_of(bench.evalcar, good, "regular")
        bad = checkpoints.write_hugging_face(bench.run, 20 * number + 20)
        (bad / "model.safetensors").unlink()
        for name, content in files.items():
            path = pathlib.Path(bad, name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        reasons[20 * number + 20] = reason
    sidecar = bench.sidecar("--set", "watch.settle_time=1s")

    assert sidecar.once(timeout=120) == 4

    check_published_once(sidecar, expected)
    states = sidecar.states()
    for step, reason in reasons.items():
        state, why = states[step, "regular"]
        assert state == "quarantined" and reason in why, (step, state, why)
    assert not canary.exists()
