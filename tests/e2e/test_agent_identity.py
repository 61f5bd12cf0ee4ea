"""Whose checkpoints are these? Output directories that are deleted, made anew, or away for a moment."""

import shutil

import checkpoints


def runs(sidecar):
    return [name for name, in sidecar.query("SELECT name FROM run ORDER BY run_id")]


def run_id(bench):
    return (bench.run / "_evalcar" / "run_id").read_text()


def test_a_directory_made_anew_is_another_run_even_with_the_same_inode(bench):
    checkpoints.write_hugging_face(bench.run, 5, seed="first")
    checkpoints.write_hugging_face(bench.run, 10, seed="first")
    sidecar = bench.sidecar()
    assert sidecar.once() == 0
    first = run_id(bench)
    # What a reused inode looks like: the very same folder, with nothing of before in it.
    for entry in list(bench.run.iterdir()):
        shutil.rmtree(entry)

    assert sidecar.once() == 3
    assert list(bench.run.iterdir()) == []  # not a run before its first checkpoint

    checkpoints.write_hugging_face(bench.run, 5, seed="second")
    assert sidecar.once() == 0
    assert len(runs(sidecar)) == 2 and run_id(bench) != first
    line, = sidecar.metrics_lines()
    assert line["global_step"] == 5 and not line.get("supersedes")


def test_a_running_agent_notices_that_its_directory_was_made_anew(bench):
    checkpoints.write_hugging_face(bench.run, 10, seed="first")
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: len(s.published()) == 1, what="the first result")
    for entry in list(bench.run.iterdir()):
        shutil.rmtree(entry)
    checkpoints.write_hugging_face(bench.run, 5, seed="second")
    sidecar.wait_for(lambda s: len(runs(s)) == 2 and len(s.metrics_lines()) == 1, what="a second run")
    assert sidecar.stop() == 0
    assert [line["global_step"] for line in sidecar.metrics_lines()] == [5]


def test_an_empty_mount_point_is_no_run_and_the_run_goes_on_when_it_is_back(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: len(s.published()) == 1, what="the result")
    away = bench.home / "away"
    bench.run.rename(away)
    bench.run.mkdir()
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM run") and "out" in s.log(), what="a look")
    import time
    time.sleep(3)  # longer than the pause before anything is concluded
    assert list(bench.run.iterdir()) == []
    bench.run.rmdir()
    away.rename(bench.run)
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="the next result")
    assert sidecar.stop() == 0
    assert len(runs(sidecar)) == 1
    assert len(bench.heard("load")) == 2  # nothing was measured again


def test_deleting_only_our_folder_keeps_the_run_and_its_numbers(bench):
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar()
    assert sidecar.once() == 0
    before = run_id(bench)
    shutil.rmtree(bench.run / "_evalcar")

    assert sidecar.once() == 0

    assert len(runs(sidecar)) == 1 and run_id(bench) == before
    assert len(bench.heard("load")) == 1
