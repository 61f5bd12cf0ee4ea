"""The C++ room's probe program as a Python object."""

import json
import subprocess

import pytest


class Probe:
    """One text_probe process; ask() sends a request and returns its answer."""

    def __init__(self, program):
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def ask(self, **request):
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the probe died on {request!r:.500}"
        return json.loads(line)

    def value(self, key, **request):
        """The answer's `key`; fails if the answer is an error."""
        answer = self.ask(**request)
        assert "error" not in answer, answer["error"]
        return answer[key]

    def close(self):
        self._process.stdin.close()
        assert self._process.wait(30) == 0


@pytest.fixture(scope="module")
def probe(bin_dir):
    program = bin_dir / "text_probe"
    if not program.exists():
        pytest.fail(f"{program} is not built: run ./dev build")
    made = Probe(program)
    yield made
    made.close()
