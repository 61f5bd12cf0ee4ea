"""The real clients drive the API: lmms-eval's own, and lmms-engine's backend and trainer code. lmms-eval's real server stands beside
and says what an answer looks like."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time

import checkpoints
import httpx
import pytest
from http_server import Api, free_port, serving

from test_http_jobs import value_of

# What lmms-engine's trainer does with its backend, taken from the installed file: importing it needs another transformers.
ENGINE = """
import ast, json, os, pathlib, sys, time, types
import lmms_engine, lmms_eval
print("client", lmms_eval.__file__, flush=True)
from lmms_engine.eval.backends import EvalServerBackend
import loguru
path = pathlib.Path(lmms_engine.__file__).parent / "train/fsdp2/fsdp2_trainer.py"
methods = [node for cls in ast.parse(path.read_text()).body if isinstance(cls, ast.ClassDef) for node in cls.body
           if isinstance(node, ast.FunctionDef) and node.name in ("validation_step", "_check_eval_results")]
assert len(methods) == 2, methods
names = {"os": os, "time": time, "logger": loguru.logger}
exec(compile(ast.Module(body=methods, type_ignores=[]), str(path), "exec"), names)
config = json.loads(sys.argv[1])
trainer = types.SimpleNamespace(
    eval_backend=EvalServerBackend(url=config["server_url"], poll_interval=config["poll_interval"], eval_config=config),
    ema=types.SimpleNamespace(is_enabled=lambda: config.get("ema", False)),
    tracking=types.SimpleNamespace(log=lambda metrics: print("tracked", json.dumps(metrics), flush=True)))
for line in sys.stdin:  # one checkpoint a line, as the trainer saves them
    step, folder = line.split()
    names["validation_step"](trainer, folder, int(step))
    names["_check_eval_results"](trainer, 0)
    print("submitted", step, len(trainer.eval_backend.pending_evals), flush=True)
names["_check_eval_results"](trainer, 0, wait_until_complete=True)
"""


class Engine:
    """lmms-engine's side of a training run, in a process of its own."""

    def __init__(self, source_dir, api, standin=True, token=None, **config):
        environment = dict(os.environ)
        if standin:
            environment["PYTHONPATH"] = str(source_dir / "agent" / "trainer" / "standin")
        if token:
            environment["EVALCAR_TOKEN_FILE"] = str(token)
        config = {"server_url": api.url, "poll_interval": 0.2, "model": "vllm", "tasks": ["docvqa_val"], "checkpoint_key": "model",
                  "model_args": {"model": "Qwen/Qwen2.5-VL-7B-Instruct", "tensor_parallel_size": 1, "disable_log_stats": True},
                  "num_fewshot": 0, "batch_size": 1, "device": "cuda", **config}
        self.process = subprocess.Popen([sys.executable, "-c", ENGINE, json.dumps(config)], stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)

    def save(self, step, folder):
        self.process.stdin.write(f"{step} {folder}\n")
        self.process.stdin.flush()

    def wait_for(self, line):
        """Reads its output up to this line, which end() then no longer sees."""
        deadline = threading.Timer(120, self.process.kill)
        deadline.start()
        try:
            if any(said.strip() == line for said in self.process.stdout):
                return
        finally:
            deadline.cancel()
        raise AssertionError(self.process.communicate()[1])

    def end(self, timeout=180):
        """(what the trainer tracked by step, all its output)"""
        out, err = self.process.communicate(timeout=timeout)
        assert self.process.returncode == 0, err
        tracked = [json.loads(line.split(" ", 1)[1]) for line in out.splitlines() if line.startswith("tracked ")]
        return {row.pop("global_step"): row for row in tracked}, out + err


def test_lmms_evals_own_client_submits_polls_and_reads_results(bench):
    from lmms_eval.entrypoints import EvalClient

    folder = checkpoints.write_hugging_face(bench.run, 5)
    _, api = serving(bench)
    with EvalClient(api.url) as client:
        assert client.is_healthy()
        assert "docvqa_val" in client.list_tasks() and "qwen2_5_vl" in client.list_models()
        job = client.evaluate(model="qwen2_5_vl", tasks=["docvqa_val"], model_args={"pretrained": str(folder)}, batch_size=4,
                              limit=3, output_dir=str(folder / "eval"))  # fmt: skip
        assert job["status"] == "queued"
        done = client.wait_for_job(job["job_id"], poll_interval=0.1, timeout=60, verbose=False)
        assert done["status"] == "completed"
        files = done["result"]["out__checkpoint-5"]
        results = json.loads(open(files["results"]).read())["results"]
        assert results["docvqa_val"]["anls,none"] == pytest.approx(value_of(bench, folder, samples=3))
        assert client.get_queue_status()["completed_jobs"] == 1
        with pytest.raises(httpx.HTTPStatusError, match="404"):
            client.get_job("00000000-0000-4000-8000-000000000000")
        with pytest.raises(httpx.HTTPStatusError, match="400"):
            client.cancel_job(job["job_id"])


def test_lmms_evals_own_async_client_does_the_same(bench):
    from lmms_eval.entrypoints import AsyncEvalClient

    folder = checkpoints.write_hugging_face(bench.run, 5)
    _, api = serving(bench)

    async def drive():
        async with AsyncEvalClient(api.url) as client:
            jobs = [await client.evaluate(model="qwen2_5_vl", tasks=["docvqa_val"], model_args={"model": str(folder)}, limit=limit)
                    for limit in (2, 3)]  # fmt: skip
            return [await client.wait_for_job(job["job_id"], poll_interval=0.1, verbose=False) for job in jobs]

    done = asyncio.run(asyncio.wait_for(drive(), 60))
    assert [job["samples"]["docvqa_val"] for job in done] == [2, 3]


def test_an_unmodified_lmms_engine_logs_every_score_also_the_last_and_after_a_restart(bench, source_dir):
    sidecar, api = serving(bench)
    engine = Engine(source_dir, api)
    folders = {step: checkpoints.write_hugging_face(bench.run, step) for step in (5, 10)}
    for step, folder in folders.items():
        engine.save(step, folder)
    # Whatever the trainer was told before, it hears the rest from the next process.
    sidecar.wait_for(lambda s: s.published() >= {(5, "regular"), (10, "regular")}, timeout=120, what="two results")
    sidecar.wait_for(lambda s: f"{folders[10]} regular" in s.log(), timeout=120, what="the second job")
    sidecar.kill()
    bench.tell(delay=0.3)
    folders[15] = checkpoints.write_hugging_face(bench.run, 15)
    sidecar.start()
    api.wait_until_up(sidecar)
    engine.save(15, folders[15])

    tracked, output = engine.end()

    assert "standin" in next(line for line in output.splitlines() if line.startswith("client"))
    assert set(tracked) == {5, 10, 15}
    for step, row in tracked.items():
        assert row == {"eval/docvqa_val/anls": pytest.approx(value_of(bench, folders[step]))}
    assert len(bench.heard("load")) == 3  # watcher and trainer asked for the same
    assert len(sidecar.metrics_lines()) == 3


def test_what_was_asked_for_while_the_agent_was_away_is_asked_for_again_and_refusals_are_not(bench, source_dir):
    api = Api(free_port())
    engine = Engine(source_dir, api)
    folder = checkpoints.write_hugging_face(bench.run, 5)
    engine.save(5, folder)
    engine.save(10, bench.home / "elsewhere" / "checkpoint-10")
    engine.wait_for("submitted 10 2")
    _, api = serving(bench, port=api.port)

    tracked, output = engine.end()

    assert tracked == {5: {"eval/docvqa_val/anls": pytest.approx(value_of(bench, folder))}}
    assert "evaluation of step 10: 4" in output


def test_an_agent_that_never_comes_is_given_up_by_name_of_the_steps(bench, source_dir, monkeypatch):
    monkeypatch.setenv("EVALCAR_PATIENCE", "1.5")
    engine = Engine(source_dir, Api(free_port()))
    for step in (5, 10):
        engine.save(step, checkpoints.write_hugging_face(bench.run, step))

    tracked, output = engine.end()

    assert tracked == {}
    assert "silent for 2 s: the scores of steps 5, 10" in output


def test_a_server_that_lives_but_cannot_measure_is_given_up_with_its_warning(bench, source_dir, monkeypatch):
    monkeypatch.setenv("EVALCAR_PATIENCE", "3")
    bench.tell(error={"kind": "no_device", "message": "no CUDA device"})
    sidecar, api = serving(bench)
    engine = Engine(source_dir, api)
    for step in (5, 10):
        engine.save(step, checkpoints.write_hugging_face(bench.run, step))

    tracked, output = engine.end()  # would wait for ever

    assert tracked == {}
    assert "nothing can be evaluated: no CUDA device, and has measured nothing, for 3 s: the scores of steps 5, 10" in output
    assert output.count("the evaluation server warns: ") == 1
    assert sidecar.process.poll() is None


def test_a_job_whose_turn_has_not_come_is_waited_for_though_the_agent_warns_of_something(bench, source_dir, monkeypatch):
    monkeypatch.setenv("EVALCAR_PATIENCE", "8")
    gate = bench.home / "gate"
    bench.tell(at_sample={"doc": 0, "do": "wait", "until": str(gate)}, failing_tasks={"textvqa_val": "its data are not there"})
    sidecar, api = serving(bench, tasks="docvqa_val,textvqa_val")
    checkpoints.write_hugging_face(bench.run, 5)
    heartbeat = bench.run / "_evalcar" / "status.json"
    sidecar.wait_for(lambda s: s.states().get((5, "regular"), ("",))[0] == "evaluating" and heartbeat.exists()
                     and "textvqa_val" in json.loads(heartbeat.read_text())["agent"].get("warning", ""), what="the work and the warning")
    assert "warning" not in api.get("/health")  # docvqa_val can be measured
    engine = Engine(source_dir, api)
    folder = checkpoints.write_hugging_face(bench.run, 10)
    engine.save(10, folder)
    engine.wait_for("submitted 10 1")
    time.sleep(11)
    gate.write_text("")

    tracked, output = engine.end()

    assert tracked == {10: {"eval/docvqa_val/anls": pytest.approx(value_of(bench, folder))}}, output


def test_lmms_engine_asks_for_ema_and_brings_its_token(bench, source_dir, shards):
    token = bench.home / "token"
    token.write_text("0123456789abcdef0123\n")
    token.chmod(0o600)
    folder = checkpoints.write_fsdp2(bench.run, 5, shards)
    _, api = serving(bench, "--set", f"server.token_file={token}", token="0123456789abcdef0123")
    engine = Engine(source_dir, api, token=token, ema=True)
    engine.save(5, folder)

    tracked, _ = engine.end()

    assert tracked == {5: {"eval/docvqa_val/anls": pytest.approx(value_of(bench, folder, kind="ema"))}}


def test_with_the_token_in_the_url_the_clients_need_no_setting(bench, source_dir):
    from lmms_eval.entrypoints import EvalClient

    token = bench.home / "token"
    token.write_text("0123456789abcdef0123\n")
    token.chmod(0o600)
    folder = checkpoints.write_hugging_face(bench.run, 5)
    _, api = serving(bench, "--set", f"server.token_file={token}", token="0123456789abcdef0123")
    with EvalClient(f"http://evalcar:wrong-wrong-wrong-wrong@127.0.0.1:{api.port}") as client:
        assert not client.is_healthy()
    url = f"http://evalcar:0123456789abcdef0123@127.0.0.1:{api.port}"
    with EvalClient(url) as client:
        assert client.is_healthy()
    api.url = url
    engine = Engine(source_dir, api)
    engine.save(5, folder)
    assert set(engine.end()[0]) == {5}


class RealServer:
    """lmms-eval's own server, from the installed package."""

    def __init__(self, home):
        self.api = Api(free_port())
        self.log = home / "real.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "lmms_eval.launch_server", "--port", str(self.api.port)],
                                            stdout=log, stderr=log, start_new_session=True, cwd=home)  # fmt: skip
        self.api.url = f"http://localhost:{self.api.port}"

    def wait(self, timeout=240):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.read_text()
            try:
                return self.api.get("/health")
            except OSError:
                time.sleep(0.2)
        raise AssertionError(self.log.read_text())

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def shape(value):
    """Keys and kinds of a JSON value, without its contents."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return type(value).__name__


def test_the_answers_are_those_of_lmms_evals_own_server(bench, tmp_path):
    real = RealServer(tmp_path)
    try:
        folder = checkpoints.write_hugging_face(bench.run, 5)
        bench.tell(delay=5)  # what is submitted here stays until it is cancelled
        _, ours = serving(bench, "--set", "evaluate.eval_strategy=no")
        real.wait()
        nobody = "/jobs/00000000-0000-4000-8000-000000000000"
        for method, path, body in [
            ("GET", "/health", None), ("GET", "/queue", None), ("GET", nobody, None), ("DELETE", nobody, None),
            ("GET", "/nothing", None), ("POST", "/health", None), ("PUT", nobody, None), ("GET", "/evaluate", None),
            ("GET", "/merge", None),
            ("POST", "/evaluate", {}), ("POST", "/evaluate", {"model": "m"}), ("POST", "/evaluate", {"model": 1, "tasks": "x"}),
            ("POST", "/evaluate", {"model": "m", "tasks": ["a", 1]}), ("POST", "/evaluate", []), ("POST", "/evaluate", b"{nope"),
            ("POST", "/evaluate", {"model": "m", "tasks": ["a"], "model_args": 3, "num_fewshot": "x", "log_samples": "perhaps"}),
            ("POST", "/merge", {}), ("POST", "/merge", {"checkpoint_path": 1}),
        ]:  # fmt: skip
            theirs, our = real.api.ask(method, path, body), ours.ask(method, path, body)
            assert our[0] == theirs[0], (method, path, body, theirs, our)
            assert shape(our[1]) == shape(theirs[1]), (method, path, body)
            if our[0] in (404, 405):
                assert our[1] == theirs[1], (method, path)
            if our[0] == 422 and body != b"{nope":
                brief = [[(e["type"], e["loc"], e["msg"]) for e in answer["detail"]] for answer in (theirs[1], our[1])]
                assert brief[0] == brief[1], (method, path, body)

        request = {"model": "dummy", "tasks": ["docvqa_val"], "model_args": {"pretrained": str(folder)}, "limit": 3}
        answers = {}
        for name, api in (("theirs", real.api), ("ours", ours)):
            first = api.ask("POST", "/evaluate", request)
            api.wait_for(first[1]["job_id"], "running")
            second = api.ask("POST", "/evaluate", {**request, "limit": 2})
            queued = api.job(second[1]["job_id"])
            cancelled = api.ask("DELETE", f"/jobs/{second[1]['job_id']}")
            again = api.ask("DELETE", f"/jobs/{second[1]['job_id']}")
            answers[name] = (first, second, queued, cancelled, again, api.job(second[1]["job_id"]), api.get("/queue"))
        theirs, our = answers["theirs"], answers["ours"]
        for index in (0, 1):
            assert our[index][0] == theirs[index][0] == 200
            assert shape(our[index][1]) == shape(theirs[index][1])
            assert our[index][1]["message"] == theirs[index][1]["message"]
            assert our[index][1]["position_in_queue"] == theirs[index][1]["position_in_queue"]
        for index in (2, 5):
            assert set(theirs[index]) <= set(our[index])
            assert our[index]["request"] == theirs[index]["request"] and our[index]["status"] == theirs[index]["status"]
            assert shape(our[index]["created_at"]) == "str" and len(our[index]["created_at"]) == len(theirs[index]["created_at"])
        assert our[3][0] == theirs[3][0] == 200
        assert our[3][1]["message"].replace(our[1][1]["job_id"], "ID") == theirs[3][1]["message"].replace(theirs[1][1]["job_id"], "ID")
        assert our[4] == theirs[4]
        assert shape(our[6]) == shape(theirs[6])
        assert our[6]["queue_size"] == theirs[6]["queue_size"] == 0
    finally:
        real.end()
