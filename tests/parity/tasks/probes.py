"""Talks to the probe programs of this folder: JSON lines in, JSON lines out."""

import json
import subprocess
from pathlib import Path


def find_probe(build_dir, name: str) -> Path:
    for candidate in (Path(build_dir) / "bin" / name, *Path(build_dir).glob(f"**/{name}")):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{name} is not in {build_dir}: build it with ninja")


def ask(build_dir, name: str, requests: list[dict], timeout_s: float = 300) -> list:
    """One answer for each request, in order."""
    text = "".join(json.dumps(request) + "\n" for request in requests)
    process = subprocess.run([find_probe(build_dir, name)], input=text, capture_output=True, text=True,
                             timeout=timeout_s, check=False)  # fmt: skip
    assert process.returncode == 0, process.stderr[-2000:]
    answers = [json.loads(line) for line in process.stdout.split("\n")[:-1]]
    assert len(answers) == len(requests), (len(answers), len(requests), process.stderr[-2000:])
    return answers
