"""What is wrong around a checkpoint (device, data, the evaluator's program) costs no checkpoint: its lease stays until the fault is repaired."""

import json
import os
import pathlib
import shutil
import subprocess

import checkpoints
import pytest
import sidecar as sidecar_module
import small_models
from fixtures import data_sets
from harness import leases

FAKE = pathlib.Path(__file__).resolve().parent / "fake_evaluator.py"


def ask(sidecar, *command):
    return subprocess.run([sidecar.evalcar, *command, "--db", str(sidecar.database)], env=sidecar.environment,
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip


def retry(sidecar, step):
    return ask(sidecar, "retry", str(step))


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


def test_a_retry_ends_the_pause_after_a_fault_of_the_surroundings(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(**NO_DATA)
    sidecar = bench.sidecar("--set", "limits.retry_delay=1h").start()
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM attempts WHERE outcome = 'failed'"), what="the first try")
    bench.tell()  # repaired
    done = retry(sidecar, 5)
    assert done.returncode == 0 and done.stdout == "1 evaluation of step 5 is tried again now\n", done
    sidecar.wait_for(lambda s: (5, "regular") in s.published(), timeout=60, what="the result")
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


# ---- one task of several


def test_an_evaluation_without_one_of_its_tasks_says_so_and_is_completed_by_a_retry(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(failing_tasks={"textvqa_val": "data set lmms-lab/textvqa is not in /data"})
    sidecar = bench.sidecar(tasks="docvqa_val,textvqa_val")

    assert sidecar.once() == 4
    state, reason = sidecar.states()[5, "regular"]
    assert state == "published" and "textvqa_val: data set lmms-lab/textvqa is not in /data" in reason
    status = json.loads((bench.run / "_evalcar" / "status.json").read_text())
    assert status["evaluations"][0]["reason"] == reason
    assert sidecar.once() == 4  # for as long as it is so
    samples = sidecar.query("SELECT task, doc_id, line FROM samples ORDER BY task, doc_id")
    assert len(samples) == 6

    again = retry(sidecar, 5)  # still without the data: nothing new is said
    assert again.returncode == 0 and "1 evaluation of step 5" in again.stdout, again.stdout + again.stderr
    assert sidecar.once() == 4
    (first,) = sidecar.metrics_lines()
    assert "eval/textvqa_val" in first["missing"] and sidecar.states()[5, "regular"] == ("published", reason)

    bench.tell()
    assert retry(sidecar, 5).returncode == 0
    assert sidecar.once() == 0
    assert sidecar.states()[5, "regular"] == ("published", "")
    partly, whole = sidecar.metrics_lines()
    assert partly == first and whole["supersedes"] == first["seq"] and whole["seq"] > first["seq"]
    assert "missing" not in whole and {"eval/docvqa_val/anls", "eval/textvqa_val/anls"} <= whole["metrics"].keys()
    assert whole["metrics"]["eval/docvqa_val/anls"] == first["metrics"]["eval/docvqa_val/anls"]
    numbers = sidecar.query("SELECT task, count(*) FROM metrics GROUP BY task ORDER BY task")
    assert numbers == [("docvqa_val", 1), ("textvqa_val", 1)]
    assert len(sidecar.query("SELECT 1 FROM evaluations")) == 1
    assert sidecar.query("SELECT task, doc_id, line FROM samples WHERE task = 'docvqa_val' ORDER BY doc_id") == samples
    assert len(sidecar.query("SELECT 1 FROM samples")) == 12
    nothing = retry(sidecar, 5)
    assert nothing.returncode == 3 and len(sidecar.metrics_lines()) == 2


def test_results_as_a_table_name_the_tasks_that_have_none(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(failing_tasks={"textvqa_val": "data set lmms-lab/textvqa is not in /data"})
    sidecar = bench.sidecar(tasks="docvqa_val,textvqa_val")
    assert sidecar.once() == 4
    done = ask(sidecar, "results")
    assert done.returncode == 0 and "docvqa_val" in done.stdout
    assert done.stderr.startswith("step 5 regular: ") and "textvqa_val" in done.stderr


def test_a_retry_of_the_rest_is_refused_where_the_checkpoint_and_its_lease_are_gone(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    checkpoints.write_hugging_face(bench.run, 10)
    bench.tell(failing_tasks={"textvqa_val": "no data"})
    sidecar = bench.sidecar(tasks="docvqa_val,textvqa_val")
    assert sidecar.once() == 4
    shutil.rmtree(bench.run / "checkpoint-5")
    assert sidecar.once("--set", "limits.lease_budget=1B") == 4  # sees that it went

    refused = retry(sidecar, 5)

    assert refused.returncode == 3 and "its checkpoint and its lease are gone" in refused.stdout + refused.stderr
    assert sidecar.states()[5, "regular"][0] == "published"


def test_the_exit_code_tells_of_what_is_wanted_now(bench):
    """Under the old settings the checkpoint was quarantined; under the new ones it is measured."""
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(error={"kind": "unsupported", "message": "made up"})
    sidecar = bench.sidecar()
    assert sidecar.once() == 4
    bench.tell()

    assert sidecar.once("--set", "evaluate.max_pixels=500000") == 0
    assert sidecar.once("--set", "evaluate.max_pixels=500000") == 0
    assert sidecar.once() == 4  # asked again as before


# ---- the one link in a checkpoint


def test_the_link_in_a_checkpoint_leads_somewhere_from_its_first_moment(bench, shards):
    folder = checkpoints.write_fsdp2(bench.run, 5, shards, ema=False)
    bench.tell(hang=True)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: (folder / "eval").is_symlink(), timeout=20, what="the link")
    assert (folder / "eval").is_dir() and os.listdir(folder / "eval") == []
    os.makedirs(folder / "eval", exist_ok=True)  # what a trainer may do
    shutil.copytree(folder, bench.home / "copy")
    shutil.rmtree(bench.run / "checkpoint-5")
    sidecar.stop()
    assert (bench.run / "_evalcar" / "results" / "5").is_dir()


def test_there_is_no_link_where_the_results_cannot_be_written(bench, shards):
    (bench.run / "_evalcar").mkdir()
    (bench.run / "_evalcar" / "results").write_text("in the way")
    folder = checkpoints.write_fsdp2(bench.run, 5, shards, ema=False)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: s.states().get((5, "regular"), ("",))[0] not in ("", "found", "complete"), timeout=20, what="the lease")
    assert not os.path.lexists(folder / "eval")
    sidecar.stop()


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
            "--data", str(tmp_path / "data"), "--device", device, "--set", "evaluate.max_new_tokens=2",
            "--set", "watch.settle_time=1s", *arguments], **options)  # fmt: skip

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
    (story,) = set(repaired.query("SELECT error_kind, stage FROM attempts WHERE outcome = 'failed'"))
    assert story == {"device": ("no_device", "starting"), "data": ("data", "preparing")}[fault]
    assert os.listdir(run) == ["_evalcar"]


def test_a_run_watches_and_leases_until_its_data_folder_is_there(place, good, bin_dir):
    home, run, sidecar = place
    (home / "data").rmdir()
    assert sidecar().once() == 2  # nobody waits
    waiting = sidecar().start()
    waiting.wait_for(lambda s: s.states().get((5, "regular"), ("", ""))[0] == "leased" and "DocVQA" in s.states()[5, "regular"][1],
                     what="the reason")  # fmt: skip
    assert "no such folder; checkpoints are watched and leased" in waiting.log()
    waiting.wait_for(lambda s: "docvqa_val cannot be measured" in ask(s, "status").stdout, what="the warning")
    shutil.rmtree(run / "checkpoint-5")  # retention

    shutil.copytree(good / "data", home / "data")

    waiting.wait_for(lambda s: (5, "regular") in s.published(), what="the result")
    assert waiting.stop() == 0 and leases(run) == []
    assert "docvqa_val cannot be measured" not in ask(waiting, "status").stdout


def test_the_rest_of_a_part_gets_the_numbers_of_the_whole(place, good, bin_dir):
    home, run, sidecar = place
    shutil.copytree(good / "data" / "lmms-lab" / "DocVQA", home / "data" / "lmms-lab" / "DocVQA")
    shutil.copytree(run / "checkpoint-5", home / "copy")
    watching = sidecar("--set", "evaluate.bootstrap_iters=10", tasks="docvqa_val,textvqa_val").start()
    watching.wait_for(lambda s: (5, "regular") in s.published(), what="the part")
    assert "textvqa_val" in watching.states()[5, "regular"][1] and leases(run) == ["5-1-regular"]
    shutil.rmtree(run / "checkpoint-5")

    shutil.copytree(good / "data", home / "data", dirs_exist_ok=True)

    watching.wait_for(lambda s: s.states()[5, "regular"] == ("published", ""), what="the rest")
    assert watching.stop() == 0 and leases(run) == []
    done = subprocess.run([str(bin_dir / "evalcar"), "eval", str(home / "copy"), "--tasks", "docvqa_val,textvqa_val", "--data",
                           str(home / "data"), "--device", "cpu", "--set", "evaluate.max_new_tokens=2", "--set", "evaluate.bootstrap_iters=10",
                           "--output", str(home / "results"), "--json"], capture_output=True, text=True, timeout=120, check=True)  # fmt: skip
    alone = json.loads(done.stdout)
    part, whole = watching.metrics_lines()
    assert whole["supersedes"] == part["seq"] and whole["weights_sha256"] == alone["weights_sha256"]
    flat = {f"eval/{task}/{name}": value for task, metrics in alone["results"].items() for name, value in metrics.items()}
    assert whole["metrics"] == flat
    assert sum(alone["samples"].values()) == whole["samples"]
