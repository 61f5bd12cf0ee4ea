"""What is wrong around a checkpoint (device, data, the evaluator's program) costs no checkpoint: its lease stays until the fault is repaired."""

import os
import pathlib
import shutil

import checkpoints
import pytest
import sidecar as sidecar_module
import small_models
from fixtures import data_sets

FAKE = pathlib.Path(__file__).resolve().parent / "fake_evaluator.py"


def leases(run):
    folder = run / "_evalcar" / "leases"
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


REFUSAL = {"refuse": "evalcar-evaluator: device cuda:7: no such GPU"}
OTHER_BUILD = {"protocol": 99}
NO_DATA = {"error": {"kind": "data", "stage": "evaluating", "message": "data set lmms-lab/DocVQA is not in /data"}}
NO_DEVICE = {"error": {"kind": "no_device", "message": "no CUDA device"}}


@pytest.mark.parametrize("script, code, reason", [
    (REFUSAL, 2, "cuda:7: no such GPU"),
    (NO_DEVICE, 2, "no CUDA device"),
    (OTHER_BUILD, 1, "protocol 99"),
    (NO_DATA, 1, "DocVQA is not in /data"),
], ids=["refused", "no-device", "other-build", "no-data"])  # fmt: skip
def test_a_fault_of_the_surroundings_keeps_the_leases_and_the_next_start_goes_on(bench, script, code, reason):
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
    bench.tell(**script)
    sidecar = bench.sidecar("--set", "limits.attempts=2")

    assert sidecar.once() == code

    states = sidecar.states()
    assert {state for state, _ in states.values()} == {"leased"}
    assert reason in states[10, "regular"][1]
    assert leases(bench.run) == ["10-1-regular", "5-1-regular"]

    for step in (5, 10):  # retention
        shutil.rmtree(bench.run / f"checkpoint-{step}")
    bench.tell()  # repaired
    assert sidecar.once() == 0
    assert sidecar.published() == {(5, "regular"), (10, "regular")}
    assert leases(bench.run) == []


def test_a_running_agent_tries_again_for_as_long_as_it_takes(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(**NO_DATA)
    sidecar = bench.sidecar("--set", "limits.attempts=2").start()

    sidecar.wait_for(lambda s: len(s.query("SELECT 1 FROM attempts WHERE outcome = 'failed'")) >= 5, what="the fifth try")
    assert sidecar.states()[5, "regular"][0] in ("leased", "loading")
    assert sidecar.query("SELECT failures FROM evaluations") == [(0,)]
    bench.tell()

    sidecar.wait_for(lambda s: (5, "regular") in s.published(), what="the result")
    assert sidecar.stop() == 0


@pytest.mark.parametrize("break_it", [lambda p: p.chmod(0o644), lambda p: p.unlink(), lambda p: p.write_text("#!/no/such/interpreter\n")],
                         ids=["not-executable", "removed", "no-interpreter"])  # fmt: skip
def test_a_program_that_cannot_be_started_is_waited_for(bench, break_it):
    program = bench.home / "evalcar-evaluator"
    shutil.copy(FAKE, program)
    sidecar = bench.sidecar("--set", "limits.attempts=2")
    sidecar.environment["EVALCAR_EVALUATOR"] = str(program)
    sidecar.start()
    sidecar.wait_for(lambda s: "watching" in s.log(), what="the start")
    break_it(program)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM attempts WHERE outcome = 'failed'"), timeout=20, what="the first try")
    sidecar.wait_for(lambda s: s.states()[5, "regular"][0] == "leased", timeout=20, what="the lease")
    state, reason = sidecar.states()[5, "regular"]
    assert str(program) in reason or "exit code 127" in reason, reason
    shutil.rmtree(bench.run / "checkpoint-5")
    if program.exists():
        program.unlink()
    shutil.copy(FAKE, program)

    sidecar.wait_for(lambda s: (5, "regular") in s.published(), what="the result")
    assert sidecar.stop() == 0


def test_a_checkpoint_at_fault_is_still_quarantined_beside_one_that_is_not(bench):
    """A fault of the surroundings is told by its kind, not by where it shows."""
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(error={"kind": "unsupported", "message": "architecture FooForCausalLM is not known"})
    sidecar = bench.sidecar()

    assert sidecar.once() == 4

    assert sidecar.states()[5, "regular"][0] == "quarantined"
    assert leases(bench.run) == []


# ---- the real evaluator


@pytest.fixture(scope="module")
def good(tmp_path_factory, cache_dir, bin_dir):
    if not (bin_dir / "evalcar-evaluator").exists():
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")
    root = tmp_path_factory.mktemp("good")
    small_models.write_model(root / "model", small_models.SmallModel(seed=3), cache_dir=cache_dir)
    data_sets.write_docvqa(root / "data", count=2)
    data_sets.write_textvqa(root / "data", count=2)
    return root


@pytest.fixture
def place(bin_dir, good, tmp_path):
    run = tmp_path / "out"
    shutil.copytree(good / "model", run / "checkpoint-5")
    (tmp_path / "data").mkdir()

    def sidecar(*arguments, device="cpu", **options):
        return sidecar_module.Sidecar(bin_dir, tmp_path, run, arguments=[
            "--data", str(tmp_path / "data"), "--device", device, "--set", "evaluate.max_new_tokens=2", *arguments], **options)  # fmt: skip

    return tmp_path, run, sidecar


@pytest.mark.parametrize("fault, code, words", [("device", 2, ["cuda:63"]), ("data", 1, ["DocVQA", "hf download"])])
def test_without_the_device_or_the_data_nothing_is_given_up(place, good, fault, code, words):
    home, run, sidecar = place
    if fault == "device":
        shutil.copytree(good / "data", home / "data", dirs_exist_ok=True)
    broken = sidecar(device="cuda:63" if fault == "device" else "cpu")

    assert broken.once() == code, broken.log()

    state, reason = broken.states()[5, "regular"]
    assert state == "leased" and all(word in reason for word in words), reason
    assert leases(run) == ["5-1-regular"]
    shutil.rmtree(run / "checkpoint-5")
    shutil.copytree(good / "data", home / "data", dirs_exist_ok=True)
    repaired = sidecar()
    assert repaired.once() == 0, repaired.log()
    assert repaired.published() == {(5, "regular")}
    (kind,) = {row[0] for row in repaired.query("SELECT error_kind FROM attempts WHERE outcome = 'failed'")}
    assert kind == {"device": "no_device", "data": "data"}[fault]
    assert os.listdir(run) == ["_evalcar"]
