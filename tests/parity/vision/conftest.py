"""The probe program of the vision room, one process a session."""

import subprocess

import pytest


class Probe:
    """Sends commands to vision_probe; an answer is (True, words) or (False, "code message")."""

    def __init__(self, program, folder):
        self.folder = folder
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        self.process.stdin.write("\t".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().rstrip("\n")
        kind, _, rest = answer.partition(" ")
        assert kind in ("ok", "error"), f"vision_probe ended: {answer!r}"
        return kind == "ok", rest


@pytest.fixture(scope="session")
def probe(bin_dir, tmp_path_factory):
    started = Probe(bin_dir / "vision_probe", tmp_path_factory.mktemp("vision"))
    yield started
    started.process.stdin.close()
    started.process.wait(timeout=10)
