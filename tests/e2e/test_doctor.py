"""`evalcar doctor`: what it looks at, what it says of it, and how to mend each."""

import contextlib
import http.server
import json
import os
import pathlib
import subprocess
import tempfile
import threading

import checkpoints
import pytest

FAKE = pathlib.Path(__file__).resolve().parent / "fake_evaluator.py"
GPU = {"device": "cuda:0", "name": "Tesla T4", "uuid": "GPU-1", "capability": 75, "memory_bytes": 15 << 30,
       "use": {"lost": False, "free_bytes": 14 << 30, "processes": [4711]}}  # fmt: skip


@pytest.fixture
def doctor(bench, tmp_path):
    """Runs it; gives (exit code, {check: [finding, …]})."""

    def run(*arguments, user=None, **environment):
        known = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "EVALCAR_EVALUATOR": str(FAKE), "FAKE_EVALUATOR": str(bench.script), **environment}
        known.pop("STATE_DIRECTORY", None)
        done = subprocess.run([bench.evalcar, "doctor", "--json", *arguments], env=known, capture_output=True, text=True, timeout=60, check=False, user=user)
        found = {}
        for check in json.loads(done.stdout)["checks"]:
            found.setdefault(check["check"], []).append(check)
        return done.returncode, found

    return run


def test_a_well_machine_is_told_as_such_with_its_facts(bench, doctor):
    checkpoints.write_hugging_face(bench.run, 5)
    before = os.stat(bench.run / "checkpoint-5").st_mtime_ns
    code, found = doctor("--set", f"watch.output_dir={bench.run}", "--tasks", "docvqa_val", "--data", str(bench.home),
                         RANK="3", SLURM_PROCID="3", CUDA_VISIBLE_DEVICES="0")  # fmt: skip
    assert code == 0, found
    assert {"configuration", "state directory", "inotify", "clock", "rank variables", "evaluator", "libtorch", "NCCL", "driver", "GPU",
            "output directory", "disk", "file system", "permissions", "hard links", "steps", "task", "data"} <= found.keys()  # fmt: skip
    assert found["rank variables"][0]["text"].startswith("RANK=3, SLURM_PROCID=3") and 'CUDA_VISIBLE_DEVICES is "0"' in found["rank variables"][0]["text"]
    assert "max_user_watches" in found["inotify"][0]["text"]
    assert "can be linked to" in found["hard links"][0]["text"]
    assert found["data"][0]["text"] == "docvqa_val: can be read"
    assert os.listdir(bench.run) == ["checkpoint-5"]  # tried, and nothing stays
    assert os.stat(bench.run / "checkpoint-5").st_mtime_ns == before
    assert os.stat(bench.run / "checkpoint-5" / "model.safetensors").st_nlink == 1


def test_the_disk_is_judged_by_what_the_agent_leaves_the_trainer(bench, doctor):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    code, found = doctor("--set", f"watch.output_dir={bench.run}")
    assert found["disk"][0]["level"] == "ok" and "are the trainer's" in found["disk"][0]["text"], found["disk"]
    facts = os.statvfs(bench.run)
    with open(folder / "optimizer.pt", "wb") as file:  # takes no room
        file.truncate(facts.f_bavail * facts.f_frsize * 3 // 4)
    code, found = doctor("--set", f"watch.output_dir={bench.run}")
    assert found["disk"][0]["level"] == "warning" and "limits.min_free" in found["disk"][0]["mend"], found["disk"]


def test_an_output_directory_of_another_user_is_told_with_whom_to_run_as(bench, doctor):
    if os.geteuid() != 0:
        pytest.skip("only root can run it as another user")
    with tempfile.TemporaryDirectory(prefix="evalcar-doctor-") as folder:  # pytest's own are closed to others
        os.chmod(folder, 0o755)
        out, state = pathlib.Path(folder, "out"), pathlib.Path(folder, "state")
        out.mkdir()
        state.mkdir()
        os.chown(state, 65534, 65534)

        def permissions():
            try:
                return doctor("--set", f"watch.output_dir={out}", user=65534, XDG_STATE_HOME=str(state))[1]["permissions"][0]
            except PermissionError:
                pytest.skip("other users cannot reach the build folder")

        os.chmod(out, 0o755)
        found = permissions()
        assert found["level"] == "problem" and "cannot be read and written by this user (uid 65534)" in found["text"], found
        assert "User=" in found["mend"] and f"ReadWritePaths={out}" in found["mend"]
        os.chmod(out, 0o777)
        found = permissions()
        assert found["level"] == "warning" and "belongs to uid 0, this is uid 65534" in found["text"], found


def test_nothing_is_made_in_an_output_directory_without_checkpoints(bench, doctor):
    code, found = doctor("--set", f"watch.output_dir={bench.run}")
    assert code == 0 and os.listdir(bench.run) == []
    assert "once there is a checkpoint" in found["hard links"][0]["text"]
    code, found = doctor("--set", f"watch.output_dir={bench.home / 'later'}")
    assert code == 0 and "it is waited for" in found["output directory"][0]["text"]


def test_checkpoints_one_folder_down_are_told_with_what_to_do(bench, doctor):
    checkpoints.write_hugging_face(bench.run / "run-0", 5)
    code, found = doctor("--set", f"watch.output_dir={bench.run}")
    told = found["output directory"][0]
    assert told["level"] == "warning" and f"{bench.run}/run-0 does" in told["text"], told
    assert told["mend"].endswith(f"evalcar run {bench.run}/run-0")
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: f"{bench.run}/run-0 does" in s.log(), what="the log")

    def warned(agent):
        command = [bench.evalcar, "status", "--json", "--db", str(agent.database)]
        status = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return f"evalcar run {bench.run}/run-0" in json.loads(status.stdout)["agent"].get("warning", "")

    sidecar.wait_for(warned, what="the warning in the status")  # the agent says it in the log first
    assert sidecar.stop() == 0


def test_a_gpu_is_told_with_what_is_wrong_with_it(bench, doctor):
    bench.tell(devices={"gpus": [GPU], "driver": "580.95"})
    code, found = doctor("--device", "cuda")
    assert code == 0 and found["driver"][0]["text"] == "NVIDIA 580.95"
    assert found["GPU memory"][0]["level"] == "warning" and "16 GB" in found["GPU memory"][0]["text"]
    assert "4711" in found["GPU use"][0]["text"] and "share_gpu" in found["GPU use"][0]["mend"]
    bench.tell(devices={"gpus": [{**GPU, "capability": 70}]})
    code, found = doctor("--device", "cuda")
    assert code == 1 and "7.5 or newer" in found["GPU"][0]["text"]
    bench.tell(devices={"gpus": [], "no_gpu": "no CUDA device: no NVIDIA driver is loaded"})
    code, found = doctor("--device", "cuda")
    assert code == 1 and "no NVIDIA driver" in found["GPU"][0]["text"] and "nvidia-smi" in found["GPU"][0]["mend"]
    assert doctor()[0] == 0  # auto: the CPU, and a warning
    bench.tell(devices={"mps": "/tmp/nvidia-mps/control"})
    code, found = doctor()
    assert code == 1 and "CUDA_MPS_PIPE_DIRECTORY" in found["MPS"][0]["mend"]
    assert doctor("--set", "evaluate.share_gpu=true")[0] == 0


def test_what_is_configured_is_judged_and_not_the_default(bench, doctor, tmp_path):
    """The folder of store.path and the GPU of evaluate.device; the others are told alone."""
    code, found = doctor("--set", f"store.path={tmp_path}/db/run.db")
    assert code == 0 and found["state directory"][0]["text"].startswith(f"{tmp_path}/db:")
    assert not (tmp_path / "state").exists()
    code, found = doctor("--set", "store.path=/proc/nowhere/run.db")
    assert code == 1 and "/proc/nowhere" in found["state directory"][0]["text"]

    old = {**GPU, "capability": 70, "use": {"lost": True}}
    good = {**GPU, "device": "cuda:1", "name": "H100", "capability": 90, "memory_bytes": 80 << 30, "use": {}}
    bench.tell(devices={"gpus": [old, good]})
    code, found = doctor("--device", "cuda:1")
    assert code == 0 and [gpu["text"].split()[0] for gpu in found["GPU"]] == ["cuda:1"], found
    assert "cuda:0 (Tesla T4)" in found["other GPUs"][0]["text"]
    assert doctor("--device", "cuda:0")[0] == 1
    code, found = doctor("--device", "cuda:7")
    assert code == 1 and '"cuda:7"' in found["GPU"][0]["text"] and "cuda:1 (H100)" in found["GPU"][0]["text"]


def test_tasks_data_and_steps_that_do_not_fit_are_told_with_the_nearest(bench, doctor):
    code, found = doctor("--tasks", "docvqa_vla")
    assert code == 1 and 'did you mean "docvqa_val"?' in found["task"][0]["text"] and found["task"][0]["mend"]
    bench.tell(failing_tasks={"docvqa_val": "data set lmms-lab/DocVQA is not in /data"})
    code, found = doctor("--tasks", "docvqa_val", "--data", str(bench.home))
    assert code == 1 and "DocVQA is not in /data" in found["data"][0]["text"]
    folder = checkpoints.write_hugging_face(bench.run, 300)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 300, "save_steps": 300}))
    code, found = doctor("--set", f"watch.output_dir={bench.run}", "--set", "evaluate.eval_steps=500")
    assert code == 0 and found["steps"][0]["level"] == "warning" and "every 1500 steps" in found["steps"][0]["text"]


def test_what_is_said_in_several_lines_is_printed_in_lines_and_not_with_their_escapes(bench):
    bench.tell(failing_tasks={"docvqa_val": "data set lmms-lab/DocVQA was not found; looked at\n  /data/a\n  /data/\x1bb"})
    environment = {**os.environ, "EVALCAR_EVALUATOR": str(FAKE), "FAKE_EVALUATOR": str(bench.script), "XDG_STATE_HOME": str(bench.home)}

    done = subprocess.run([bench.evalcar, "doctor", "--tasks", "docvqa_val", "--data", str(bench.home)], env=environment,
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip

    lines = done.stdout.splitlines()
    begun = lines.index("PROBLEM  data: docvqa_val: data set lmms-lab/DocVQA was not found; looked at")
    assert lines[begun + 1 : begun + 3] == ["           /data/a", r"           /data/\x1bb"] and lines[begun + 3].startswith("         -> fetch it")


def test_an_api_that_every_user_of_the_machine_may_ask_is_told_as_such(doctor):
    code, found = doctor("--set", "server.listen=127.0.0.1:8000")
    assert code == 0 and found["HTTP API"][0]["level"] == "warning" and "every user of this machine" in found["HTTP API"][0]["text"]
    assert "server.token_file" in found["HTTP API"][0]["mend"] and "HTTP API" not in doctor()[1]
    assert doctor("--set", "server.listen=0.0.0.0:8000")[0] == 1


def test_a_checkpoint_that_is_whole_or_not_is_told_as_such(bench, doctor):
    whole = checkpoints.write_hugging_face(bench.run, 5)
    code, found = doctor(str(whole))
    assert code == 0 and "hugging_face, step 5" in found["checkpoint"][0]["text"] and "complete" in found["checkpoint"][1]["text"]
    torn = checkpoints.write_hugging_face(bench.run, 10)
    os.truncate(torn / "model.safetensors", 500)
    code, found = doctor(str(torn))
    assert code == 1 and any("model.safetensors" in finding["text"] and finding["mend"] for finding in found["checkpoint"])
    assert doctor(str(bench.home / "nothing"))[0] == 1


class Api(http.server.BaseHTTPRequestHandler):
    answers = {"/health": {"status": "healthy", "queue_size": 0}, "/openapi.json": {"info": {"title": "LMMS-Eval Server", "version": "0.1.0"}}}

    def do_GET(self):
        body = json.dumps(self.answers.get(self.path, {"detail": "Not Found"})).encode()
        self.send_response(200 if self.path in self.answers else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(handler):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_server_is_asked_for_its_health_and_version(doctor):
    with serving(Api) as url:
        code, found = doctor("--server", url)
    assert code == 0 and found["server"][0]["text"] == f"{url}: healthy, LMMS-Eval Server 0.1.0"
    code, found = doctor("--server", url)  # gone
    assert code == 1 and "refused" in found["server"][0]["text"] and found["server"][0]["mend"]
    with serving(type("Other", (Api,), {"answers": {}})) as url:
        code, found = doctor("--server", url)
    assert code == 1 and "answers 404" in found["server"][0]["text"]
    assert doctor("--server", "https://localhost")[0] == 1


def test_an_evaluator_that_cannot_run_is_told_with_what_it_said(bench, doctor, tmp_path):
    program = tmp_path / "broken"
    program.write_text("#!/bin/sh\necho 'libtorch.so: cannot open shared object file' >&2\nexit 127\n")
    program.chmod(0o755)
    code, found = doctor(EVALCAR_EVALUATOR=str(program))
    assert code == 1 and "exit code 127" in found["evaluator"][0]["text"] and "libtorch.so" in found["evaluator"][0]["text"]
    assert "ldd" in found["evaluator"][0]["mend"]
