"""Jobs over HTTP: what they ask for is measured once, told truly, and never becomes the configured series."""

import json
import pathlib
import re

import checkpoints
import fake_evaluator
import pytest
from harness import check_published_once, hash_of
from http_server import Api, free_port, serving

from test_two_saves import put_shard


def value_of(bench, folder, task="docvqa_val", samples=6, kind="regular"):
    return fake_evaluator.expected_value(hash_of(bench.evalcar, folder, kind), task, samples)


def best_of(bench):
    return json.loads((bench.run / "_evalcar" / "best.json").read_text())


def test_a_job_for_what_the_watcher_measures_is_answered_from_the_database(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sidecar, api = serving(bench)
    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the watcher's result")

    job = api.wait_for(api.submit(folder, output_dir=str(folder / "eval")), "completed")

    assert len(bench.heard("load")) == 1
    assert job["metrics"]["docvqa_val"]["anls"] == pytest.approx(value_of(bench, folder))
    (model, files), = job["result"].items()
    assert model == "out__checkpoint-5"
    assert files["results"].startswith(str(bench.run / "_evalcar" / "results" / "5"))
    assert json.loads(pathlib.Path(files["results"]).read_text())["results"]["docvqa_val"]["anls,none"]
    assert len(files["samples"]) == 1
    assert not (folder / "eval").exists()
    check_published_once(sidecar, {(5, "regular"): hash_of(bench.evalcar, folder, "regular")})
    assert sidecar.stop() == 0


def test_a_job_with_other_settings_leaves_the_configured_series_alone(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sidecar, api = serving(bench)
    sidecar.wait_for(lambda s: s.published() == {(5, "regular")} and (bench.run / "_evalcar" / "best.json").exists(),
                     what="the watcher's result")
    before = (sidecar.metrics_lines(), best_of(bench), sidecar.query("SELECT * FROM metrics"))

    limited = api.wait_for(api.submit(folder, limit=2), "completed")
    other_task = api.wait_for(api.submit(folder, tasks=["docvqa_val", "textvqa_val"]), "completed")

    assert limited["metrics"]["docvqa_val"]["anls"] == pytest.approx(value_of(bench, folder, samples=2))
    assert limited["samples"] == {"docvqa_val": 2}
    assert other_task["metrics"]["textvqa_val"]["anls"] == pytest.approx(value_of(bench, folder, "textvqa_val"))
    paths = {next(iter(job["result"].values()))["results"] for job in (limited, other_task)}
    assert len(paths) == 2 and all("/job-" in path for path in paths)
    assert (sidecar.metrics_lines(), best_of(bench), sidecar.query("SELECT * FROM metrics")) == before
    # Nor after a restart, which looks at everything again.
    sidecar.stop()
    sidecar.start()
    api.wait_until_up(sidecar)
    sidecar.wait_for(lambda s: "watching" in s.log(), what="the start")
    assert api.job(limited["job_id"])["status"] == "completed"
    sidecar.stop()
    assert sidecar.once() == 0
    assert (sidecar.metrics_lines(), best_of(bench), sidecar.query("SELECT * FROM metrics")) == before


def test_a_job_with_other_settings_that_comes_first_takes_nothing_from_the_watcher(bench):
    bench.tell(delay=0.05)
    sidecar, api = serving(bench, "--set", "evaluate.every_nth=1")
    folder = checkpoints.write_hugging_face(bench.run, 5)
    job_id = api.submit(folder, limit=2)

    job = api.wait_for(job_id, "completed")
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 1, what="the watcher's line")

    sidecar.wait_for(lambda s: (bench.run / "_evalcar" / "best.json").exists(), what="best.json")
    (line,) = sidecar.metrics_lines()
    assert line["samples"] == 6
    assert line["metrics"]["eval/docvqa_val/anls"] == pytest.approx(value_of(bench, folder))
    assert job["metrics"]["docvqa_val"]["anls"] == pytest.approx(value_of(bench, folder, samples=2))
    assert best_of(bench)["best"]["regular"]["value"] == pytest.approx(value_of(bench, folder))


def test_the_same_request_twice_is_measured_once(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    _, api = serving(bench, "--set", "evaluate.eval_strategy=no")

    first = api.wait_for(api.submit(folder, limit=3), "completed")
    second = api.wait_for(api.submit(folder, limit=3), "completed")

    assert first["metrics"] == second["metrics"] and first["job_id"] != second["job_id"]
    assert len(bench.heard("load")) == 1


def test_part_of_what_is_configured_is_answered_with_that_part(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sidecar, api = serving(bench, tasks="docvqa_val,textvqa_val")
    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the watcher's result")

    job = api.wait_for(api.submit(folder, tasks=["textvqa_val"]), "completed")

    assert set(job["metrics"]) == {"textvqa_val"}
    files = next(iter(job["result"].values()))
    assert set(json.loads(pathlib.Path(files["results"]).read_text())["results"]) == {"textvqa_val"}
    assert len(bench.heard("load")) == 1


def test_ema_weights_are_measured_where_the_job_asks_for_them(bench, shards):
    folder = checkpoints.write_fsdp2(bench.run, 5, shards)
    _, api = serving(bench, "--set", "evaluate.eval_strategy=no")
    kwargs = {"model_path": str(folder), "checkpoint_type": "ema", "output_path": None}

    job = api.wait_for(api.submit(folder, lmms_engine_kwargs=kwargs), "completed")

    assert job["checkpoint_type"] == "ema"
    assert job["weights_sha256"] == hash_of(bench.evalcar, folder, "ema")
    assert job["metrics"]["docvqa_val"]["anls"] == pytest.approx(value_of(bench, folder, kind="ema"))


def test_results_go_where_the_request_wants_them(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    _, api = serving(bench, "--set", f"server.allowed_roots=[{json.dumps(str(bench.home))}]")
    wanted = bench.home / "elsewhere"

    job = api.wait_for(api.submit(folder, output_dir=str(wanted), log_samples=False), "completed")

    files = job["result"]["out__checkpoint-5"]
    assert pathlib.Path(files["results"]).parent == wanted / "out__checkpoint-5"
    assert files["samples"] == [] and list(wanted.rglob("*.jsonl")) == []


def test_jobs_outlive_a_kill_and_go_on(bench):
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
    bench.tell(at_sample={"doc": 3, "do": "wait", "until": str(bench.home / "go"), "once": str(bench.home / "once")})
    sidecar, api = serving(bench, "--set", "evaluate.eval_strategy=no")
    jobs = [api.submit(bench.run / f"checkpoint-{step}", limit=5) for step in (5, 10)]
    sidecar.wait_for(lambda s: "running" in {api.job(job)["status"] for job in jobs}, what="a running job")
    sidecar.kill()

    (bench.home / "go").touch()
    sidecar.start()
    api.wait_until_up(sidecar)

    for job, step in zip(jobs, (5, 10)):
        done = api.wait_for(job, "completed")
        assert done["global_step"] == step
        assert done["metrics"]["docvqa_val"]["anls"] == pytest.approx(
            value_of(bench, bench.run / f"checkpoint-{step}", samples=5))
    assert api.get("/queue")["completed_jobs"] == 2


def test_a_running_job_can_be_cancelled_and_the_next_one_runs(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(delay=0.2, samples=200)
    sidecar, api = serving(bench, "--set", "evaluate.eval_strategy=no")
    running = api.submit(folder, limit=100)
    waiting = api.submit(folder, limit=50)
    last = api.submit(folder, limit=2)
    api.wait_for(running, "running")
    sidecar.wait_for(lambda s: api.job(running).get("progress", {}).get("task") == "docvqa_val", what="progress")
    sidecar.wait_for(lambda s: re.search(rf"job {running}: evaluating docvqa_val \d+/100", s.log()), what="a line about it")

    assert api.ask("DELETE", f"/jobs/{waiting}")[0] == 200
    assert api.ask("DELETE", f"/jobs/{running}") == (200, {"message": f"Job {running} cancelled"})
    assert api.job(running)["status"] == "cancelled"
    assert api.ask("DELETE", f"/jobs/{running}")[0] == 400

    assert api.wait_for(last, "completed")["samples"] == {"docvqa_val": 2}
    assert bench.heard("cancelled")
    states = sidecar.query("SELECT state, reason FROM evaluations ORDER BY evaluation_id")
    assert [reason for _, reason in states].count("cancelled: no job asks for it") == 2
    assert api.get("/queue") == {"queue_size": 0, "running_job": None, "queued_jobs": [], "completed_jobs": 1, "failed_jobs": 0}


def test_cancelling_a_job_leaves_the_watchers_evaluation_running(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(at_sample={"doc": 3, "do": "wait", "until": str(bench.home / "go")})
    sidecar, api = serving(bench)
    job = api.submit(folder)
    api.wait_for(job, "running")
    assert api.ask("DELETE", f"/jobs/{job}")[0] == 200
    (bench.home / "go").touch()

    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the watcher's result")
    assert api.job(job)["status"] == "cancelled"


def test_a_failed_job_says_why_with_the_last_lines_of_the_evaluator(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    bench.tell(at_sample={"doc": 2, "do": "die", "signal": 11, "print": "CUDA error: made up"})
    _, api = serving(bench, "--set", "evaluate.eval_strategy=no", "--set", "limits.attempts=1")

    job = api.wait_for(api.submit(folder), "failed")

    assert "CUDA error: made up" in job["error"] and "signal 11" in job["error"]
    assert job["result"] is None and job["completed_at"]
    assert api.get("/queue")["failed_jobs"] == 1


def test_a_job_whose_files_are_saved_again_while_they_are_read_gets_the_second_saves_numbers(bench, shards, tmp_path):
    """lmms-engine saves its last step twice, in place, and waits for both of its jobs."""
    bench.tell(load_after=str(tmp_path / "read"))
    folder = checkpoints.write_fsdp2(bench.run, 5, shards, ema=False)
    sidecar, api = serving(bench, "--set", "watch.settle_time=2s")
    number = api.submit(folder)
    sidecar.wait_for(lambda _: bench.heard("load"), what="the reading of the first save")

    put_shard(folder, 10, shards, 0, size=900)
    (tmp_path / "read").touch()
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM attempts WHERE outcome = 'failed'"), what="the failure")
    assert sidecar.states()[5, "regular"][0] != "quarantined"
    second = api.submit(folder)
    for rank in (0, 1):
        put_shard(folder, 10, shards, rank)

    for job in (number, second):
        found = api.wait_for(job, "completed")
        assert found["metrics"]["docvqa_val"]["anls"] == pytest.approx(value_of(bench, folder))
    assert sidecar.stop() == 0


def test_what_has_no_effect_is_told_in_the_job_and_the_log(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sidecar, api = serving(bench)
    arguments = {"model": str(folder), "num_gpus": 8, "no_such_thing": "x", "max_length": 2048}
    status, answer = api.ask("POST", "/evaluate", {"model": "vllm", "tasks": ["docvqa_val"], "model_args": arguments})
    assert status == 200

    notes = api.wait_for(answer["job_id"], "completed")["notes"]

    for word in ("num_gpus=8", "no_such_thing", "max_length=2048"):
        assert any(word in note for note in notes), notes
        assert word in sidecar.log()
    log = sidecar.log()
    assert f"job {answer['job_id']}: {folder} regular, docvqa_val (from 127.0.0.1)" in log
    assert f"job {answer['job_id']}: completed in" in log and "docvqa_val/anls 0." in log


def test_serve_needs_no_configuration_and_watches_nothing_by_itself(bench):
    first = checkpoints.write_hugging_face(bench.run, 5)
    other = checkpoints.write_hugging_face(bench.home / "other", 7)
    sidecar, api = serving(bench, start=False)
    sidecar.command = [bench.evalcar, "serve", "--port", str(api.port), "--root", str(bench.home),
                       "--set", "limits.retry_delay=100ms"]
    sidecar.start()
    api.wait_until_up(sidecar)
    assert "docvqa_val" in api.get("/tasks")["tasks"] and "qwen2_5_vl" in api.get("/models")["models"]

    for folder in (first, other):
        job = api.wait_for(api.submit(folder), "completed")
        assert job["metrics"]["docvqa_val"]["anls"] == pytest.approx(value_of(bench, folder))
    done = len(bench.heard("load"))
    checkpoints.write_hugging_face(bench.run, 10)
    job = api.wait_for(api.submit(first, limit=2), "completed")
    assert job["samples"] == {"docvqa_val": 2}
    assert len(bench.heard("load")) == done + 1  # nothing but what was asked for
    sidecar.kill()
    sidecar.start()
    api.wait_until_up(sidecar)
    assert api.job(job["job_id"])["metrics"] == job["metrics"]
    assert sidecar.stop() == 0


def test_serve_takes_its_settings_from_a_file_and_its_address_from_the_command(bench):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    token = bench.home / "token"
    token.write_text("0123456789abcdef0123\n")
    token.chmod(0o600)
    file = bench.home / "evalcar.toml"
    file.write_text(f"""
[server]
listen = "127.0.0.1:{free_port()}"
token_file = "{token}"
allowed_roots = ["{bench.run}"]

[limits]
retry_delay = "100ms"
""")
    sidecar, _ = serving(bench, start=False)
    port = free_port()
    sidecar.command = [bench.evalcar, "serve", "--config", str(file), "--host", "127.0.0.2", "--port", str(port)]
    sidecar.start()
    api = Api(port, host="127.0.0.2", token="0123456789abcdef0123")
    api.wait_until_up(sidecar)

    job = api.wait_for(api.submit(folder, limit=2), "completed")
    assert job["samples"] == {"docvqa_val": 2}
    assert Api(port, host="127.0.0.2").ask("GET", "/health")[0] == 401
    for other in (port, int(file.read_text().split(":")[1].split('"')[0])):
        with pytest.raises(OSError):
            Api(other, token=api.token).ask("GET", "/health")
    body = {"model": "m", "tasks": ["docvqa_val"], "model_args": {"model": str(bench.home)}}
    assert api.ask("POST", "/evaluate", body)[0] == 403
    assert sidecar.stop() == 0


def test_a_folder_that_the_agent_would_never_see_as_a_checkpoint_is_refused_at_once(bench):
    """Beside a checkpoint that is one, it is no second one."""
    folder = checkpoints.write_hugging_face(bench.run, 5)
    other = checkpoints.write_hugging_face(bench.home / "other", 7)
    merged = bench.run / "merged"
    merged.mkdir()
    (bench.run / "newest").symlink_to(folder)
    sidecar, api = serving(bench, "--set", f'server.allowed_roots=["{bench.home}"]')

    def refusal(path):
        body = {"model": "m", "tasks": ["docvqa_val"], "model_args": {"model": str(path)}}
        status, answer = api.ask("POST", "/evaluate", body)
        assert status == 422, (path, answer)
        return answer["detail"]

    assert refusal(other) == f"{other}: does not lie in an output directory of this agent (watch.output_dir); `evalcar serve` evaluates any"
    for path in (merged, bench.run):
        assert refusal(path) == f"{path}: no checkpoint by its name: watch.pattern is checkpoint-{{step}}"
    kwargs = {"model_path": str(bench.run / "newest"), "checkpoint_type": "regular", "output_path": None}
    job = api.wait_for(api.submit(other, lmms_engine_kwargs=kwargs), "completed")
    assert job["metrics"]["docvqa_val"]["anls"] == pytest.approx(value_of(bench, folder))
    assert api.get("/queue")["failed_jobs"] == 0
    assert sidecar.stop() == 0
