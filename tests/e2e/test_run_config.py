"""Beside lmms-engine nothing has to be configured: `evalcar run OUTPUT_DIR` takes up what the run's own config.yaml says."""

import checkpoints
import yaml
from http_server import free_port


def write_config(run, strategy="steps", **evaluation):
    config = {"trainer_type": "fsdp2_trainer", "dataset_config": {"dataset_type": "vision"},
              "trainer_args": {"output_dir": str(run), "eval_strategy": strategy, "eval_steps": 10, "save_steps": 5,
                               "save_total_limit": 1, "ema_enabled": False, "report_to": "none",
                               "eval_config": {"model": "qwen_vl", "tasks": ["docvqa_val", "textvqa_val"], "checkpoint_key": "model",
                                               "poll_interval": 10.0, "num_fewshot": 0, "limit": 4,
                                               "model_args": {"model": "x", "max_pixels": 200704}, **evaluation}}}  # fmt: skip
    (run / "config.yaml").write_text(yaml.dump(config, default_flow_style=False, sort_keys=False))


def without_tasks(sidecar):
    at = sidecar.command.index("--tasks")
    del sidecar.command[at : at + 2]
    return sidecar


def test_a_run_that_names_no_tasks_is_evaluated_as_its_trainer_wanted(bench, shards):
    write_config(bench.run)
    for step in (5, 10, 15):
        checkpoints.write_fsdp2(bench.run, step, shards, ema=False)
    sidecar = without_tasks(bench.sidecar())

    assert sidecar.once() == 0, sidecar.log()

    assert sidecar.published() == {(10, "regular"), (15, "regular")} or sidecar.published() == {(10, "regular")}
    assert all(line["samples"] == 8 for line in sidecar.metrics_lines())
    settings = {row for row in sidecar.query("SELECT settings->>'limit', settings->>'max_pixels' FROM evaluation")}
    assert settings == {(4, 200704)}
    assert {row for row in sidecar.query("SELECT settings->>'num_fewshot' FROM evaluation")} == {(None,)}  # no task has examples
    for word in ("evaluate.tasks", "evaluate.limit = 4", "evaluate.eval_steps = 10"):
        assert f"{bench.run}/config.yaml: {word}" in sidecar.log()


def test_the_command_line_goes_before_the_runs_own_words(bench):
    write_config(bench.run)
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar = without_tasks(bench.sidecar("--set", "evaluate.limit=2"))

    assert sidecar.once() == 0, sidecar.log()
    assert [line["samples"] for line in sidecar.metrics_lines()] == [4]


def test_the_file_of_the_next_training_is_taken_up_when_it_comes(bench):
    """The agent begins beside the file of the training before; the next one writes its own a moment later."""
    write_config(bench.run, tasks=["docvqa_val"])
    sidecar = without_tasks(bench.sidecar()).start()
    sidecar.wait_for(lambda s: "evaluate.limit = 4" in s.log(), what="what was taken from the first file")

    write_config(bench.run, tasks=["docvqa_val"], limit=2)
    sidecar.wait_for(lambda s: "the configuration changes: evaluate.limit: 4 -> 2" in s.log(), what="the second file")
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar.wait_for(lambda s: s.published() == {(10, "regular")}, what="the result")

    assert [line["samples"] for line in sidecar.metrics_lines()] == [2]
    write_config(bench.run, tasks=["no_such_task"], limit=2)
    sidecar.wait_for(lambda s: "the configuration stays as it was" in s.log(), what="the third file")
    assert sidecar.stop() == 0


def test_a_trainer_that_evaluates_nothing_gets_nothing_by_itself(bench):
    write_config(bench.run, strategy="no")
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar = without_tasks(bench.sidecar())

    sidecar.once()
    assert sidecar.metrics_lines() == []
    assert sidecar.states()[10, "regular"][0] == "skipped"


def test_what_the_trainer_submits_is_what_was_taken_from_its_file(bench):
    from lmms_eval.entrypoints import EvalClient

    from http_server import Api

    write_config(bench.run, tasks=["docvqa_val"])
    port = free_port()
    sidecar = without_tasks(bench.sidecar("--set", f"server.listen=127.0.0.1:{port}")).start()
    api = Api(port)
    api.wait_until_up(sidecar)
    folder = checkpoints.write_hugging_face(bench.run, 10)
    with EvalClient(api.url) as client:
        job = client.evaluate(model="qwen_vl", tasks=["docvqa_val"], limit=4, num_fewshot=0,
                              model_args={"model": str(folder), "max_pixels": 200704})  # fmt: skip
    api.wait_for(job["job_id"], "completed")
    sidecar.wait_for(lambda s: s.published() == {(10, "regular")}, what="the line")
    assert len(bench.heard("load")) == 1


def test_no_examples_in_the_runs_file_and_in_its_request_are_one_evaluation(bench, tmp_path):
    """lmms-engine says 0 in both, and lmms-eval's 0 takes the examples of a task that has some by itself."""
    from lmms_eval.entrypoints import EvalClient

    from http_server import Api

    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "mine.toml").write_text(
        'task = "mine"\n[data]\nfiles = "val.jsonl"\n[columns]\ntarget = "a"\n[prompt]\ntext = "{q}"\n'
        '[fewshot]\nnum = 2\nfiles = "train.jsonl"\n[scorer]\nname = "exact_match"\n')  # fmt: skip
    write_config(bench.run, tasks=["mine"])
    port = free_port()
    sidecar = without_tasks(bench.sidecar("--set", f"server.listen=127.0.0.1:{port}", "--set", f"evaluate.tasks_dir={tmp_path / 'tasks'}")).start()
    api = Api(port)
    api.wait_until_up(sidecar)
    folder = checkpoints.write_hugging_face(bench.run, 10)
    with EvalClient(api.url) as client:
        job = client.evaluate(model="qwen_vl", tasks=["mine"], limit=4, num_fewshot=0,
                              model_args={"model": str(folder), "max_pixels": 200704})  # fmt: skip
    api.wait_for(job["job_id"], "completed")
    assert len(bench.heard("load")) == 1
    assert sidecar.query("SELECT settings->>'num_fewshot' FROM evaluation") == [(0,)]


def test_without_tasks_anywhere_it_says_where_they_were_looked_for(bench):
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar = without_tasks(bench.sidecar())
    assert sidecar.once() == 2
    assert "config.yaml" in sidecar.log() and "no tasks" in sidecar.log()
