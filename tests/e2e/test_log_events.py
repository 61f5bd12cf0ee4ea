"""What happened, as fields behind the sentences of the log: enough to follow an evaluation by a program."""

import os
import subprocess

import checkpoints
from harness import hash_of
from log_events import events


def of_step(log, step):
    """The names of a step's events, in order."""
    return [event["event"] for event in events(log) if event.get("step") == str(step)]


def test_the_way_of_a_checkpoint_can_be_read_from_the_log(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar()
    assert sidecar.once() == 0
    assert of_step(sidecar.log(), 5) == ["complete", "leased", "evaluating", "loaded", "evaluated", "published"]
    told = {event["event"]: event for event in events(sidecar.log())}
    ((run, evaluation),) = sidecar.query("SELECT run, evaluation_id FROM evaluations")
    for event in told.values():
        if "step" in event:
            assert (event["run"], event["kind"], event["evaluation"]) == (run, "regular", str(evaluation)), event
    assert told["complete"]["layout"] == "hugging_face" and told["leased"]["method"] == "linked"
    assert told["loaded"]["weights_sha256"] == hash_of(bench.evalcar, folder, "regular")
    assert told["evaluated"]["seconds"] == "0.500" and told["published"]["best"] == "yes"
    assert told["evaluator_started"]["device"] == "cpu" and "evaluator_ended" in told


def test_what_is_not_whole_yet_is_found_once_and_complete_later(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-7])
    sidecar = bench.sidecar("--set", "watch.settle_time=1s", "--set", "watch.poll_interval=1s").start()
    sidecar.wait_for(lambda s: of_step(s.log(), 5), what="the event")
    (folder / "model.safetensors").write_bytes(whole)
    sidecar.wait_for(lambda s: s.published(), what="the result")
    sidecar.stop()
    assert of_step(sidecar.log(), 5)[:3] == ["found", "complete", "leased"]


def test_failures_and_lost_checkpoints_are_events_with_their_kind(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(error={"message": 'made up: "x" =\n  in two lines  event=published step=5', "retryable": True})
    sidecar = bench.sidecar("--set", "limits.attempts=2")
    assert sidecar.once() == 4
    assert of_step(sidecar.log(), 5) == ["complete", "leased", "evaluating", "failed", "evaluating", "quarantined"]
    failed = next(event for event in events(sidecar.log()) if event["event"] == "failed")
    assert (failed["attempt"], failed["error"], failed["stage"]) == ("1", "unsupported", "loading")

    bench.tell(die_at_sample=2)
    checkpoints.write_hugging_face(bench.run, 10)
    assert sidecar.once() == 4
    ended = [event for event in events(sidecar.log()) if event["event"] == "evaluator_ended"]
    assert any(event.get("signal") == "9" for event in ended)


def test_a_name_that_would_break_the_fields_is_quoted(bench):
    bench.run.rmdir()
    bench.run = bench.home / 'my  "run" = 1'
    bench.run.mkdir()
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar()
    assert sidecar.once() == 0
    ((run,),) = sidecar.query("SELECT DISTINCT run FROM evaluations")
    assert '"run"' in run and "  " in run
    assert {event["run"] for event in events(sidecar.log()) if "run" in event} == {run}


def test_the_journal_gets_the_same_fields(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar()
    with open(sidecar.log_path, "w") as log:
        info = os.fstat(log.fileno())
        environment = dict(sidecar.environment, JOURNAL_STREAM=f"{info.st_dev}:{info.st_ino}")
        subprocess.run([*sidecar.command, "--once"], stderr=log, stdout=log, env=environment, timeout=60, check=True)
    assert sidecar.log().startswith("<6>")
    assert of_step(sidecar.log(), 5)[-1] == "published"
