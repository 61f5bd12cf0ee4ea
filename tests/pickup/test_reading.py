"""What a trainer reads of the agent's files: whole lines, each once, and never a part for the whole."""

import ast
import json
import os
import subprocess
import sys
import threading
import time
import types

import checkpoints
import evalcar_trainer
import pytest
from evalcar_trainer import EvaluationMissing, Reader, follow, wait_for


def line(seq, step, value=0.5, **more):
    row = {"seq": seq, "run": "r", "global_step": step, "checkpoint_type": "regular", "final": True,
           "metrics": {"eval/docvqa_val/anls": value}, "evaluation": f"{seq:016x}", **more}  # fmt: skip
    return json.dumps(row) + "\n"


@pytest.fixture
def metrics(tmp_path):
    (tmp_path / "_evalcar").mkdir()
    return tmp_path / "_evalcar" / "metrics.jsonl"


def steps(rows):
    return [row["global_step"] for row in rows]


def test_a_torn_tail_is_read_once_it_is_whole(tmp_path, metrics):
    reader = Reader(tmp_path)
    assert reader.poll() == []  # no file yet
    whole, torn = line(1, 5), line(2, 10)
    for cut in range(1, len(torn)):
        metrics.write_text(whole + torn[:cut])
        assert steps(Reader(tmp_path).poll()) == [5]
    metrics.write_text(whole + torn[:30])
    assert steps(reader.poll()) == [5]

    with metrics.open("a") as file:
        file.write(torn[30:])

    assert steps(reader.poll()) == [10]
    assert reader.poll() == []


def test_a_file_that_was_replaced_or_cut_is_read_anew_and_nothing_comes_twice(tmp_path, metrics):
    metrics.write_text(line(1, 5) + line(3, 15))
    reader = Reader(tmp_path)
    assert steps(reader.poll()) == [5, 15]

    other = metrics.with_suffix(".tmp")
    other.write_text(line(1, 5) + line(2, 10) + line(3, 15))
    os.replace(other, metrics)
    assert steps(reader.poll()) == [10]

    metrics.write_text(line(4, 20))  # the same inode, and shorter
    assert steps(reader.poll()) == [20]


def test_scores_of_a_part_are_no_results(tmp_path, metrics):
    metrics.write_text(line(1, 5, 0.9, final=False) + line(2, 5, 0.4, supersedes=1, supersedes_interim=1))

    assert [row["metrics"] for row in Reader(tmp_path).poll()] == [{"eval/docvqa_val/anls": 0.4}]
    assert [row["final"] for row in Reader(tmp_path, interim=True).poll()] == [False, True]


def test_lines_that_cannot_be_logged_are_passed_over(tmp_path, metrics):
    nested = "[" * 100_000
    bad = ["", "null", "{", "[1]", nested, '{"seq": 1}', '{"seq": "1", "global_step": 5, "metrics": {}}',
           '{"seq": 1, "global_step": true, "metrics": {}}', '{"seq": 1, "global_step": 5, "metrics": [1]}']  # fmt: skip
    values = '{"seq": 9, "global_step": 5, "final": true, "metrics": {"a": NaN, "b": Infinity, "c": "1", "d": true, "e": 1e999, "f": %s, "g": 2}}'
    metrics.write_bytes("\n".join([*bad, values % ("9" * 400)]).encode() + b"\n\xff\xfe{\n")

    rows = Reader(tmp_path).poll()

    assert [row["metrics"] for row in rows] == [{"g": 2.0}]


def test_follow_gives_each_row_of_a_real_run_once_and_in_order(bench):
    bench.tell(samples=40)
    sidecar = bench.sidecar("--set", "evaluate.anytime=60%").start()
    stop, rows = threading.Event(), []
    thread = threading.Thread(target=lambda: rows.extend(follow(bench.run, poll_interval=0.05, stop=stop)))
    thread.start()
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
        sidecar.wait_for(lambda s, step=step: (step, "regular") in s.published(), what="the result")
    lines = sidecar.metrics_lines()
    assert sidecar.stop() == 0
    stop.set()
    thread.join(60)

    assert steps(rows) == [5, 10]
    assert any(not each["final"] for each in lines), "there were scores of a part to take for results"
    assert [row["metrics"] for row in rows] == [each["metrics"] for each in lines if each["final"]]


def test_wait_for_gives_the_result_of_its_step(bench):
    bench.tell(delay=0.02)
    sidecar = bench.sidecar().start()
    checkpoints.write_hugging_face(bench.run, 5)

    row = wait_for(bench.run, 5, timeout=120, poll_interval=0.05)

    assert (row["global_step"], row["final"]) == (5, True)
    assert row["metrics"] == sidecar.metrics_lines()[0]["metrics"]
    assert sidecar.stop() == 0


def test_wait_for_gives_the_result_of_the_newest_save(tmp_path, metrics):
    """Of a step that was saved again: what the agent tells of it is not there at first."""

    def tell(beat, *states, ended=False):
        rows = [{"step": 5, "checkpoint_type": "regular", "generation": at + 1, "state": state, "weights_sha256": sha256}
                for at, (state, sha256) in enumerate(states)]  # fmt: skip
        text = json.dumps({"agent": {"state": "ended" if ended else "running"}, "evaluations": rows, "time": beat})
        scratch = metrics.with_name("status.tmp")
        scratch.write_text(text)
        scratch.replace(metrics.with_name("status.json"))

    def wait(**options):
        try:
            return wait_for(tmp_path, 5, timeout=0.4, poll_interval=0.05, **options)["seq"]
        except EvaluationMissing as missing:
            return missing.reason.split(" (")[0]

    metrics.write_text(line(1, 5, 0.3, weights_sha256="a"))
    tell(1, ("published", "a"))
    assert wait() == 1
    assert wait(since=1) == "not within 0.4 s"  # it was saved again just now
    tell(2, ("published", "a"), ended=True)
    assert wait(since=1) == "not within 0.4 s"
    tell(3, ("published", "a"), ("leased", None))
    assert wait() == "not within 0.4 s"
    tell(4, ("published", "a"), ("published", "b"))
    with metrics.open("a") as file:
        file.write(line(2, 5, 0.4, weights_sha256="b", supersedes=1))
    assert (wait(), wait(since=1)) == (2, 2)
    tell(5, ("published", "a"), ("superseded", "a"), ended=True)  # the same weights
    assert (wait(), wait(since=2)) == (1, 1)
    tell(6, ("published", "a"), ("published", "b"), ("quarantined", None), ended=True)
    assert wait() == "quarantined: no reason given"
    tell(7, ended=True)  # of a long list it tells a part
    assert wait() == 2


def test_wait_for_tells_why_an_evaluation_gave_no_number(bench):
    bench.tell(error={"kind": "unsupported", "message": "a model that nobody knows"})
    sidecar = bench.sidecar().start()
    checkpoints.write_hugging_face(bench.run, 5)

    with pytest.raises(EvaluationMissing, match="step 5: quarantined: .*a model that nobody knows"):
        wait_for(bench.run, 5, timeout=120, poll_interval=0.05)
    assert sidecar.stop() == 4


def test_wait_for_gives_up_where_no_agent_shows_itself_and_when_its_time_is_over(tmp_path):
    with pytest.raises(EvaluationMissing, match="step 5: no agent has been seen"):
        wait_for(tmp_path, 5, stale_after=0.2, poll_interval=0.05)
    with pytest.raises(EvaluationMissing, match="step 5: not within 0.1 s"):
        wait_for(tmp_path, 5, timeout=0.1, poll_interval=0.05)


def test_an_orderly_end_of_the_agent_shows_in_its_heartbeat(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: (5, "regular") in s.published(), what="the result")
    heartbeat = evalcar_trainer.Heartbeat(bench.run)
    heartbeat.look()
    assert heartbeat.agent()["state"] == "running"

    code = sidecar.stop()

    heartbeat.look()
    assert (heartbeat.agent()["state"], heartbeat.agent()["exit_code"]) == ("ended", code)
    assert heartbeat.describe() == f"the agent has ended (exit code {code})"
    before = heartbeat.age()
    time.sleep(0.01)
    assert heartbeat.age() > before


def test_the_file_needs_python_3_9_and_nothing_but_its_library(source_dir):
    path = source_dir / "agent" / "trainer" / "evalcar_trainer.py"
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    imported = {name.name.split(".")[0] for node in tree.body if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module.split(".")[0] for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names

    # Isolated, and without site-packages: nothing that is installed can be imported.
    done = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(path.parent)!r}); import evalcar_trainer;"
                           " print(sorted(set(m.split('.')[0] for m in sys.modules) - set(sys.stdlib_module_names)))"],
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.stdout.strip() == "['__main__', 'evalcar_trainer']", done.stderr


def test_a_removed_checkpoint_that_a_long_backlog_leaves_out_of_the_heartbeat_is_still_waited_for(tmp_path):
    status = tmp_path / "_evalcar" / "status.json"
    status.parent.mkdir()
    heartbeat = evalcar_trainer.Heartbeat(tmp_path)
    end = types.SimpleNamespace(output_dir=str(tmp_path), snapshots=None, removed={}, seen=heartbeat)

    def is_missed(beat, **more):
        status.write_text(json.dumps({"agent": {"pid": 1}, "evaluations": [], "time": beat, **more}))
        heartbeat.look()
        return evalcar_trainer._Training._is_missed(end, 5)

    assert not any([is_missed(beat, evaluations_left_out=300, open_left_out=300) for beat in range(5)])
    # All that waits is told now: it is not among that.
    assert [is_missed(beat, evaluations_left_out=300) for beat in range(5, 9)] == [False, False, True, True]
