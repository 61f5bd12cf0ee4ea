"""An output directory that was renamed or copied with its `_evalcar`: what is published there is neither measured nor told again."""

import shutil
import subprocess

import checkpoints
import pytest
from harness import check_published_once, hash_of


def move(bench):
    bench.run.rename(bench.home / "renamed")
    return bench.home / "renamed"


def copy_with_times(bench):
    subprocess.run(["cp", "-a", str(bench.run), str(bench.home / "copy")], check=True)
    return bench.home / "copy"


def copy_plainly(bench):
    shutil.copytree(bench.run, bench.home / "plain", copy_function=shutil.copyfile, symlinks=True)
    return bench.home / "plain"


def check_told_once(sidecar, expected):
    """Of a copy, whose files have other inodes, a second row says that its weights were measured before."""
    assert [(line["global_step"], line["weights_sha256"]) for line in sorted(sidecar.metrics_lines(), key=lambda line: line["global_step"])] == [
        (step, sha256) for (step, _), sha256 in sorted(expected.items())]  # fmt: skip
    assert sorted(sidecar.query("SELECT DISTINCT step, checkpoint_type FROM metrics")) == sorted(expected)
    assert {state for _, _, state in sidecar.query("SELECT step, checkpoint_type, state FROM evaluations")} <= {"published", "superseded"}


@pytest.mark.parametrize("away", [move, copy_with_times, copy_plainly])
def test_a_run_goes_on_elsewhere(bench, away):
    expected = {}
    for step in (5, 10):
        expected[step, "regular"] = hash_of(bench.evalcar, checkpoints.write_hugging_face(bench.run, step), "regular")
    first = bench.sidecar()
    assert first.once() == 0, first.log()
    check_published_once(first, expected)
    lines = first.metrics_lines()
    generated = len(bench.heard("generate"))

    bench.run = away(bench)
    expected[15, "regular"] = hash_of(bench.evalcar, checkpoints.write_hugging_face(bench.run, 15), "regular")
    second = bench.sidecar()
    second.database = bench.home / "second.db"
    second.command = [part.replace(str(first.database), str(second.database)) for part in second.command]
    assert second.once() == 0, second.log()
    check_told_once(second, expected)
    assert second.metrics_lines()[:2] == lines
    assert "2 published evaluations that the database did not know" in second.log()
    if away is move:
        assert len(bench.heard("generate")) * 2 == generated * 3  # the new step alone; a copy is known by its hash, so it is loaded
    values = "SELECT step, value FROM metrics WHERE step < 15 ORDER BY step, metric"
    assert second.query(values) == first.query(values)
    assert {run for (run,) in second.query("SELECT DISTINCT run FROM metrics")} == {second.metrics_lines()[2]["run"]}

    again = bench.sidecar()  # and of that directory the database may be lost, too: two names of one run
    again.database = bench.home / "third.db"
    again.command = [part.replace(str(first.database), str(again.database)) for part in again.command]
    assert again.once() == 0, again.log()
    check_told_once(again, expected)


def test_a_copy_of_another_life_brings_nothing(bench):
    """Only `metrics.jsonl` and results were copied, beside other weights of the same steps: the mark is not theirs."""
    checkpoints.write_hugging_face(bench.run, 5)
    first = bench.sidecar()
    assert first.once() == 0, first.log()

    published = bench.run / "_evalcar"
    bench.run = bench.home / "other"
    folder = checkpoints.write_hugging_face(bench.run, 5, value=3.0)
    (bench.run / "_evalcar").mkdir()
    shutil.copy(published / "metrics.jsonl", bench.run / "_evalcar" / "metrics.jsonl")
    shutil.copytree(published / "results", bench.run / "_evalcar" / "results")
    second = bench.sidecar()
    second.database = bench.home / "second.db"
    second.command = [part.replace(str(first.database), str(second.database)) for part in second.command]
    assert second.once() == 0, second.log()
    assert "did not know" not in second.log()
    assert [line["weights_sha256"] for line in second.metrics_lines()][1:] == [hash_of(bench.evalcar, folder, "regular")]
