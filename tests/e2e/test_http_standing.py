"""No job stands still: whatever happens to its checkpoint, its agent or its place, it goes on or ends with a reason."""

import os
import shutil
import signal

import checkpoints
import pytest
from http_server import serving

from test_http_jobs import value_of

QUICK = ("--set", "watch.settle_time=1s", "--set", "watch.poll_interval=500ms")


def as_server(bench, *arguments):
    """(sidecar, Api): `evalcar serve` over all of the bench's home."""
    sidecar, api = serving(bench, start=False)
    sidecar.command = [bench.evalcar, "serve", "--port", str(api.port), "--root", str(bench.home), "--set", "limits.retry_delay=100ms", *arguments]
    sidecar.start()
    api.wait_until_up(sidecar)
    return sidecar, api


@pytest.mark.parametrize("event", ["SIGHUP", "database removed"])
def test_open_jobs_go_on_when_the_agent_begins_anew(bench, event):
    """Nobody sends another request: clients only poll."""
    folder = checkpoints.write_hugging_face(bench.run, 5)
    config = bench.home / "evalcar.toml"
    config.write_text('[evaluate]\neval_strategy = "no"\nbatch_size = 2\n')
    sidecar, api = serving(bench, "--config", str(config))
    bench.tell(at_sample={"doc": 1, "do": "wait", "until": str(bench.home / "go")})
    jobs = {limit: api.submit(folder, limit=limit) for limit in (2, 3, 4)}
    sidecar.wait_for(lambda _: any(api.job(job)["status"] == "running" for job in jobs.values()), what="a job that runs")
    if event == "SIGHUP":
        config.write_text('[evaluate]\neval_strategy = "no"\nbatch_size = 3\n')
        sidecar.process.send_signal(signal.SIGHUP)
        sidecar.wait_for(lambda s: "configuration" in s.log(), what="the new configuration")
    else:
        for path in bench.home.glob("state.db*"):
            if ".jobs" not in path.name:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        sidecar.wait_for(lambda s: "removed or replaced" in s.log(), what="the notice")
    (bench.home / "go").touch()

    for limit, job in jobs.items():
        done = api.wait_for(job, "completed", timeout=40)
        assert done["metrics"]["docvqa_val"]["anls"] == pytest.approx(value_of(bench, folder, samples=limit))
    assert sidecar.stop() == 0


def test_a_server_outlives_jobs_for_what_another_agent_watches(bench):
    ours = checkpoints.write_hugging_face(bench.home / "ours", 7)
    theirs = checkpoints.write_hugging_face(bench.run, 5)
    agent = bench.sidecar().start()
    agent.wait_for(lambda s: s.published() == {(5, "regular")}, what="the agent's result")
    server, api = as_server(bench)
    bench.tell(at_sample={"doc": 1, "do": "wait", "until": str(bench.home / "go")})
    running = api.submit(ours)
    server.wait_for(lambda _: api.job(running)["status"] == "running", what="a job that runs")

    failed = api.wait_for(api.submit(theirs, limit=2), "failed")

    assert "another evalcar" in failed["error"]
    (bench.home / "go").touch()
    assert api.wait_for(running, "completed")["metrics"]["docvqa_val"]["anls"] == pytest.approx(value_of(bench, ours))
    server.kill()
    server.start()
    api.wait_until_up(server)
    assert [api.job(job)["status"] for job in (running, failed["job_id"])] == ["completed", "failed"]
    assert agent.stop() == 0
    bench.tell()
    done = api.wait_for(api.submit(theirs, limit=2), "completed")  # it is free now
    assert done["metrics"]["docvqa_val"]["anls"] == pytest.approx(value_of(bench, theirs, samples=2))
    assert server.stop() == 0


@pytest.mark.full
def test_a_server_lets_go_of_what_no_job_needs(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    server, api = as_server(bench)
    job = api.wait_for(api.submit(folder), "completed")
    busy = bench.sidecar()
    assert busy.once() == 1 and "another evalcar" in busy.log()
    server.wait_for(lambda s: "no job needs it any more" in s.log(), what="the end of its need", timeout=120)

    checkpoints.write_hugging_face(bench.run, 10)
    assert busy.once() == 0, busy.log()

    assert api.job(job["job_id"])["metrics"] == job["metrics"]
    assert api.wait_for(api.submit(folder), "completed")["metrics"] == job["metrics"]
    assert server.stop() == 0


def garbage(folder):
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)


def cut(folder):
    os.truncate(folder / "model.safetensors", 40)


def empty(folder):
    shutil.rmtree(folder)
    folder.mkdir()


@pytest.mark.parametrize("breaks", [garbage, *(pytest.param(each, marks=pytest.mark.full) for each in (cut, empty))])
@pytest.mark.parametrize("command", ["run", "serve"])
def test_a_job_for_a_broken_checkpoint_ends_and_one_for_its_repaired_weights_is_done(bench, command, breaks):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    breaks(folder)
    sidecar, api = serving(bench, *QUICK) if command == "run" else as_server(bench, *QUICK)
    jobs = [api.submit(folder), api.submit(folder, limit=2)]
    if command == "run":
        checkpoints.write_hugging_face(bench.run, 10)  # overtakes it
    for job in jobs:
        assert api.wait_for(job, "failed", timeout=30)["error"]
    assert api.wait_for(api.submit(folder, limit=3), "failed", timeout=30)["error"]

    shutil.rmtree(folder)
    checkpoints.write_hugging_face(bench.run, 5)
    done = api.wait_for(api.submit(folder, limit=2), "completed", timeout=30)
    assert done["metrics"]["docvqa_val"]["anls"] == pytest.approx(value_of(bench, folder, samples=2))
    assert sidecar.stop() == 0


def test_no_result_lies_where_a_trainer_or_evalcar_counts_or_removes_folders(bench):
    """The folder made for the results has the run's name in front: lmms-engine takes "checkpoints__checkpoint-5" for a checkpoint."""
    run = bench.home / "checkpoints"
    folder = checkpoints.write_hugging_face(run, 5)
    sidecar, api = as_server(bench)

    def status(place):
        body = {"model": "m", "tasks": ["docvqa_val"], "model_args": {"model": str(folder)}, "limit": 2, "output_dir": str(place)}
        return api.ask("POST", "/evaluate", body)[0]

    ours = run / "_evalcar"
    for place in (run, ours, ours / "leases", ours / "results" / "10" / "regular", ours / "pinned"):
        assert status(place) == 403, place
        merge = {"checkpoint_path": str(folder), "output_path": str(place / "x")}
        assert place == run or api.ask("POST", "/merge", merge)[0] == 403, place
    done = api.wait_for(api.submit(folder, limit=2, output_dir=str(run / "scores"), batch_size="4"), "completed")
    assert done["result"]["checkpoints__checkpoint-5"]["results"].startswith(str(run / "scores" / "checkpoints__checkpoint-5"))
    assert sorted(path.name for path in run.iterdir() if path.name.startswith("checkpoint")) == ["checkpoint-5"]
    for batch in ("0", "-1", "many", "4.0", "1e3", "", "99999999999999999999"):
        body = {"model": "m", "tasks": ["docvqa_val"], "model_args": {"model": str(folder)}, "batch_size": batch}
        assert api.ask("POST", "/evaluate", body)[0] == 422, batch
    assert sidecar.stop() == 0
