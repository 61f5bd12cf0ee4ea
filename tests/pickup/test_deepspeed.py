"""Under DeepSpeed the Trainer loads its best checkpoint from more than the weights, and raises where that is not there."""

import json
import pathlib
import socket
import subprocess
import sys


def test_weights_alone_are_not_given_to_deepspeed_as_the_best_checkpoint(tmp_path):
    program = pathlib.Path(__file__).with_name("deepspeed_program.py")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    done = subprocess.run([sys.executable, program, tmp_path / "run", str(port)], capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"ended_at": 6, "place": str(tmp_path / "run" / "checkpoint-6"), "there": ["checkpoint-6"]}
    assert "of the best checkpoint, of step 2, only the weights are left" in done.stderr and "that of step 6 is loaded" in done.stderr
