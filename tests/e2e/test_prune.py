"""`evalcar prune`: results files and samples of old steps go; numbers, lines and the best steps stay."""

import subprocess

import checkpoints
import pytest
from harness import check_published_once, hash_of
from http_server import serving

STEPS = (5, 10, 15, 20, 25)


def prune(sidecar, *words):
    return subprocess.run([sidecar.evalcar, "prune", *words, "--db", str(sidecar.database)], env=sidecar.environment, capture_output=True,
                          text=True, timeout=60, check=False)  # fmt: skip


@pytest.fixture
def measured(bench):
    """Five steps that are published, the agent still runs."""
    for step in STEPS:
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar("--set", "evaluate.policy=every").start()
    sidecar.wait_for(lambda s: len(s.published()) == len(STEPS), what="the results")
    return sidecar


def best_step(sidecar):
    return sidecar.query("SELECT step FROM metrics ORDER BY value DESC, step LIMIT 1")[0][0]


def with_results(bench):
    """Steps whose folder of results holds files."""
    return {int(path.name) for path in (bench.run / "_evalcar/results").iterdir() if any(item.is_file() for item in path.rglob("*"))}


def with_samples(sidecar):
    return {step for (step,) in sidecar.query("SELECT DISTINCT step FROM samples")}


@pytest.mark.parametrize("running", [True, False], ids=["agent-runs", "agent-ended"])
def test_old_steps_lose_their_files_and_samples_and_nothing_else(bench, measured, running):
    kept = {20, 25, best_step(measured)}
    metrics, lines = measured.query("SELECT * FROM metrics"), measured.metrics_lines()
    events = (bench.run / "_evalcar/tensorboard/events.out.tfevents.1.evalcar").read_bytes()
    if not running:
        assert measured.stop() == 0

    done = prune(measured, "--keep", "2")

    assert done.returncode == 0, done
    assert with_results(bench) == kept and with_samples(measured) == kept
    assert measured.query("SELECT * FROM metrics") == metrics and measured.metrics_lines() == lines
    assert (bench.run / "_evalcar/tensorboard/events.out.tfevents.1.evalcar").read_bytes() == events
    again = prune(measured, "--keep", "2")
    assert again.returncode == 3 and "nothing to prune" in again.stdout
    if running:
        assert measured.stop() == 0
    assert measured.once() == 0  # nothing of it comes back, nothing is measured again
    assert with_results(bench) == kept
    check_published_once(measured, {(step, "regular"): hash_of(bench.evalcar, bench.run / f"checkpoint-{step}", "regular") for step in STEPS})


def test_a_dry_run_says_what_would_go_and_changes_nothing(bench, measured):
    done = prune(measured, "--keep", "2", "--dry-run")

    assert done.returncode == 0
    going = {5, 10, 15} - {best_step(measured)}
    assert {int(line.split()[1].rstrip(":")) for line in done.stdout.splitlines() if "would go" in line} == going
    assert "6 samples would go" in done.stdout
    assert with_results(bench) == set(STEPS) and with_samples(measured) == set(STEPS)
    assert measured.stop() == 0


def test_age_and_number_keep_what_either_of_them_keeps(bench, measured):
    assert prune(measured, "--older-than", "1h").returncode == 3
    assert prune(measured, "--keep", "0", "--older-than", "1h").returncode == 3
    assert prune(measured, "--keep", "5", "--older-than", "0").returncode == 3
    assert with_results(bench) == set(STEPS)
    assert prune(measured, "--older-than", "0").returncode == 0
    assert with_results(bench) == {best_step(measured)}
    assert measured.stop() == 0


@pytest.mark.parametrize("words, said", [([], "--keep N"), (["--older-than", "soon"], "--older-than"), (["--keep", "-1"], "--keep")])
def test_a_rule_that_is_none_is_refused(bench, measured, words, said):
    done = prune(measured, *words)
    assert done.returncode == 2 and said in done.stderr + done.stdout
    assert with_results(bench) == set(STEPS)
    assert measured.stop() == 0


def test_the_folders_of_jobs_go_with_the_step(bench):
    sidecar, api = serving(bench, "--set", "evaluate.policy=every")
    for step in (5, 10):
        folder = checkpoints.write_hugging_face(bench.run, step)
        sidecar.wait_for(lambda s: (step, "regular") in s.published(), what="the result")
        api.wait_for(api.submit(folder, limit=2), "completed")
    values = dict(sidecar.query("SELECT step, value FROM metrics WHERE metric = 'anls'"))
    checkpoints.write_hugging_face(bench.run, 15)
    sidecar.wait_for(lambda s: (15, "regular") in s.published(), what="the newest result")
    best = best_step(sidecar)
    jobs = {step: list((bench.run / "_evalcar" / "results" / str(step)).rglob("job-*")) for step in values}
    assert all(len(found) == 1 for found in jobs.values()), jobs

    assert prune(sidecar, "--keep", "1").returncode == 0

    assert {step for step, (folder,) in jobs.items() if folder.exists()} == {best} - {15}
    assert with_results(bench) == {15, best}


def test_the_best_of_best_json_stays_where_it_is_not_the_metrics_own(bench):
    """It goes by publish.greater_is_better."""
    for step in STEPS:
        checkpoints.write_hugging_face(bench.run, step)
    bench.tell(values_of_steps={5: 0.9, 10: 0.1, 15: 0.5, 20: 0.6, 25: 0.7})
    sidecar = bench.sidecar("--set", "publish.metric_for_best_model=eval/docvqa_val/anls", "--set", "publish.greater_is_better=false")
    assert sidecar.once() == 0

    assert prune(sidecar, "--keep", "1").returncode == 0

    assert with_results(bench) == {5, 10, 25}
