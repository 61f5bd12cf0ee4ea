"""lmms-engine 0.1.4 trains, by its own command line, two ranks over gloo: its loop, its saving and retention, its evaluation
backend, as they are (lmms_engine_training.py says what is replaced for want of a GPU). Every score arrives."""

import ast
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest
import small_models
import yaml
from http_server import Api, free_port

from test_averages import LAST_2, average_lines, hash_of_merge
from test_http_jobs import value_of
from test_run_config import without_tasks

PROGRAM = pathlib.Path(__file__).with_name("lmms_engine_training.py")


def questions():
    for number in range(64):
        yield {"messages": [{"role": "user", "content": [{"type": "text", "text": f"What is {number} plus {number}?"}]},
                            {"role": "assistant", "content": [{"type": "text", "text": str(2 * number)}]}]}  # fmt: skip


class Training:
    """A run of lmms-engine in the background."""

    def __init__(self, bench, source_dir, cache_dir, url, steps, **arguments):
        model = bench.home / "model"
        small_models.write_model(model, cache_dir=cache_dir, layers=2)
        (bench.home / "questions.json").write_text(json.dumps(list(questions())))
        config = {
            "trainer_type": "fsdp2_trainer",
            "dataset_config": {"dataset_type": "vision", "dataset_format": "json", "dataset_path": str(bench.home / "questions.json"),
                               "processor_config": {"processor_name": str(model), "processor_type": "qwen2_5_vl"}},
            "model_config": {"load_from_pretrained_path": str(model), "attn_implementation": "sdpa"},
            "trainer_args": {"output_dir": str(bench.run), "use_cpu": True, "bf16": True, "per_device_train_batch_size": 1,
                             "max_steps": steps, "save_steps": 5, "eval_steps": 5, "eval_strategy": "steps", "report_to": [],
                             "lr_scheduler_type": "constant", "warmup_steps": 1, "learning_rate": 1e-3, "fsdp2": True,
                             "fsdp_config": {"transformer_layer_cls_to_wrap": ["Qwen2_5_VLDecoderLayer"]},
                             "dataloader_pin_memory": False, "reduce_dtype": "float32", "output_dtype": "float32",
                             "include_num_input_tokens_seen": False,
                             "eval_config": {"server_url": url, "poll_interval": 0.5, "model": "qwen_vl", "tasks": ["docvqa_val"],
                                             "checkpoint_key": "model"}, **arguments},
        }  # fmt: skip
        (bench.home / "training.yaml").write_text(yaml.safe_dump(config))
        self.out, self.errors = bench.home / "training.out", bench.home / "training.err"
        environment = dict(os.environ, OMP_NUM_THREADS="1", COLUMNS="200",
                           PYTHONPATH=os.pathsep.join([str(source_dir / "agent/trainer/standin"), os.environ.get("PYTHONPATH", "")]))
        with open(self.out, "w") as out, open(self.errors, "w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()), str(PROGRAM),
                 f"config_yaml={bench.home}/training.yaml", f"hydra.run.dir={bench.home}/hydra"],
                stdout=out, stderr=errors, env=environment, cwd=bench.home, start_new_session=True)  # fmt: skip

    def said(self):
        return self.out.read_text() + self.errors.read_text()

    def wait_for(self, condition, what, timeout=240):
        end = time.monotonic() + timeout
        while not condition():
            assert self.process.poll() is None, f"the training ended early:\n{self.said()[-5000:]}"
            assert time.monotonic() < end, f"{what} did not come:\n{self.said()[-5000:]}"
            time.sleep(0.05)

    def finish(self):
        code = self.process.wait(300)
        assert code == 0, self.said()[-5000:]

    def tracked(self):
        """{step: [scores]} that its tracking was told."""
        found = {}
        for line in self.out.read_text().splitlines():
            if line.startswith("{'eval"):
                metrics, _, step = line.rpartition(", step=")
                found.setdefault(int(step), []).append(ast.literal_eval(metrics))
        return found

    def end(self):
        if self.process.poll() is not None:
            return
        self.process.terminate()  # it ends its ranks, which have sessions of their own
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture
def train(bench, source_dir, cache_dir):
    for package in ("torchdata", "hydra", "omegaconf"):
        pytest.importorskip(package, reason="of tests/requirements.txt")
    made = []

    def start(*arguments, **options):
        made.append(Training(bench, source_dir, cache_dir, *arguments, **options))
        return made[0]

    yield start
    for training in made:
        training.end()


@pytest.mark.parametrize("ema", [False, pytest.param(True, marks=pytest.mark.full)])
def test_every_score_of_a_whole_training_arrives_also_the_last_and_after_a_restart(bench, train, ema):
    steps = (5, 10, 15, 20)
    api = Api(free_port())
    training = train(api.url, steps[-1], ema_enabled=ema, ema_decay=0.9)
    # Nothing but the folder and the address is told: the rest is in the config.yaml that the training writes.
    training.wait_for((bench.run / "config.yaml").exists, "config.yaml")
    sidecar = without_tasks(bench.sidecar("--set", f"server.listen=127.0.0.1:{api.port}")).start()
    training.wait_for(lambda: "submitted for step 5" in training.said(), "the first request")
    sidecar.kill()
    training.wait_for((bench.run / "checkpoint-10" / "config.json").exists, "a checkpoint that was saved while the agent was away")
    sidecar.start()

    training.finish()

    kind = "ema" if ema else "regular"
    tracked = training.tracked()
    assert set(tracked) == set(steps), training.said()[-5000:]
    for step, rows in tracked.items():
        for row in rows:
            assert row == {"eval/docvqa_val/anls": pytest.approx(value_of(bench, bench.run / f"checkpoint-{step}", kind=kind))}
    # The last step is saved twice, with the same weights: one number, by whichever of the two evaluations.
    def steps_told():
        return sorted(line["global_step"] for line in sidecar.metrics_lines() if line["checkpoint_type"] == kind)

    sidecar.wait_for(lambda _: set(steps_told()) == set(steps), what="the lines of all steps")
    assert steps_told() == list(steps)


@pytest.mark.full
def test_every_score_arrives_where_one_checkpoint_is_kept(bench, train):
    steps = (5, 10, 15, 20)
    api = Api(free_port())
    bench.tell(delay=1.5)  # longer than five steps: the folder is gone before its score is there
    training = train(api.url, steps[-1], save_total_limit=1)
    training.wait_for((bench.run / "config.yaml").exists, "config.yaml")
    sidecar = without_tasks(bench.sidecar("--set", f"server.listen=127.0.0.1:{api.port}", *LAST_2)).start()
    for step in steps[:-1]:  # the last is saved a second time, and stays
        training.wait_for(lambda step=step: f"submitted for step {step}" in training.said(), f"the request of step {step}")
        shutil.copytree(bench.run / f"checkpoint-{step}", bench.home / "kept" / f"checkpoint-{step}", symlinks=True)

    training.finish()

    assert [path.name for path in bench.run.glob("checkpoint-*")] == ["checkpoint-20"]
    tracked = training.tracked()
    assert set(tracked) == set(steps), training.said()[-5000:]
    for step, rows in tracked.items():
        folder = (bench.run if step == steps[-1] else bench.home / "kept") / f"checkpoint-{step}"
        for row in rows:  # the last is asked for twice
            assert row == {"eval/docvqa_val/anls": pytest.approx(value_of(bench, folder))}
    # The rotation of the last step's first save took the older one of the two that the second one's average is of.
    sidecar.wait_for(lambda s: set(average_lines(s)) == set(steps[1:]), what="the averages")
    lines = sidecar.metrics_lines()
    assert sorted(line["global_step"] for line in lines if line["checkpoint_type"] == "regular") == list(steps)
    averages = average_lines(sidecar)
    assert sorted(averages) == list(steps[1:])
    members = [bench.home / "kept" / "checkpoint-15", bench.run / "checkpoint-20"]
    assert averages[20]["weights_sha256"] == hash_of_merge(sidecar, members, bench.home / "mean")
    assert sidecar.stop() == 0
