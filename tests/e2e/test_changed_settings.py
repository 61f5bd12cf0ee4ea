"""A run's configuration changes and comes back: numbers that were measured in different ways are never ranked against each other,
and what was measured in today's way counts again."""

import json
import shutil
import subprocess

import checkpoints
from harness import leases

NEW_WAY, OLD_WAY = ("--set", "evaluate.limit=2"), ("--set", "evaluate.limit=4")


def measure(bench, way, values, *arguments, **told):
    """One start of the agent, with the numbers that the evaluator gives now."""
    bench.tell(values_of_steps={str(step): value for step, value in values.items()}, **told)
    sidecar = bench.sidecar(*way, *arguments)
    assert sidecar.once() == 0, sidecar.log()
    return sidecar


def save(bench, *steps):
    for step in steps:
        checkpoints.write_hugging_face(bench.run, step)


def remove(bench, *steps):
    """As the trainer's retention."""
    for step in steps:
        shutil.rmtree(bench.run / f"checkpoint-{step}")


def best_json(bench):
    return json.loads((bench.run / "_evalcar" / "best.json").read_text())


def best_of(bench):
    """(step, value) by best.json; None: there is none."""
    best = best_json(bench)["best"].get("regular")
    return best and (best["step"], best["value"])


def results(sidecar, *arguments, code=0):
    done = subprocess.run([sidecar.evalcar, "results", "--db", str(sidecar.database), *arguments], capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout


def series(sidecar, where="1"):
    return sidecar.query(f"SELECT step, value FROM metrics WHERE {where} ORDER BY step")


def measured(bench):
    return len(bench.heard("result"))


def test_the_best_is_of_those_measured_as_configured_now(bench):
    save(bench, 5, 10, 15)
    measure(bench, OLD_WAY, {5: 0.9, 10: 0.8, 15: 0.7})
    assert best_of(bench) == (5, 0.9)
    remove(bench, 5, 10)
    save(bench, 20)

    sidecar = measure(bench, NEW_WAY, {15: 0.2, 20: 0.3})

    assert best_of(bench) == (20, 0.3)
    (best,) = json.loads(results(sidecar, "--best", "--format", "json"))
    assert (best["step"], best["value"]) == (20, 0.3)


def test_numbers_of_other_settings_stay_in_the_view_marked_as_such(bench):
    save(bench, 5, 10)
    measure(bench, OLD_WAY, {5: 0.9, 10: 0.8})
    remove(bench, 5)

    sidecar = measure(bench, NEW_WAY, {10: 0.2})

    assert series(sidecar) == [(5, 0.9), (10, 0.2)]
    assert series(sidecar, "configured") == [(10, 0.2)]
    ways = sidecar.query("SELECT settings_sha256 FROM metrics ORDER BY step")
    assert len(set(ways)) == 2
    rows = json.loads(results(sidecar, "--format", "json"))
    assert [(row["step"], row["configured"]) for row in rows] == [(5, False), (10, True)]
    table = results(sidecar)
    assert "0.9000" in table and "other settings" in table
    assert "Trend" not in table  # of the settings of now there is one number


def test_what_was_measured_as_configured_counts_again_and_is_not_measured_twice(bench):
    save(bench, 5, 10)
    measure(bench, OLD_WAY, {5: 0.9, 10: 0.8})
    remove(bench, 5)
    save(bench, 15)
    measure(bench, NEW_WAY, {10: 0.95, 15: 0.96})
    before = measured(bench)

    sidecar = measure(bench, OLD_WAY, {15: 0.7})

    assert measured(bench) == before + 1  # of checkpoint 15
    assert series(sidecar, "configured") == series(sidecar) == [(5, 0.9), (10, 0.8), (15, 0.7)]
    assert best_of(bench) == (5, 0.9)
    lines = [line["metrics"]["eval/docvqa_val/anls"] for line in sidecar.metrics_lines()]
    assert sorted(lines) == [0.7, 0.8, 0.9, 0.95, 0.96]  # history

    assert sidecar.once() == 0
    assert series(sidecar) == [(5, 0.9), (10, 0.8), (15, 0.7)]
    assert best_of(bench) == (5, 0.9)


def test_a_lost_database_tells_the_same_numbers_from_the_files(bench):
    save(bench, 5, 10)
    measure(bench, OLD_WAY, {5: 0.9, 10: 0.8})
    measure(bench, NEW_WAY, {5: 0.1, 10: 0.2})
    sidecar = measure(bench, OLD_WAY, {})
    assert series(sidecar) == [(5, 0.9), (10, 0.8)]
    for end in ("", "-wal", "-shm"):
        sidecar.database.with_name(sidecar.database.name + end).unlink(missing_ok=True)

    sidecar = measure(bench, OLD_WAY, {})

    assert series(sidecar, "configured") == [(5, 0.9), (10, 0.8)]
    assert best_of(bench) == (5, 0.9)
    assert measured(bench) == 4


def test_no_best_is_told_before_the_first_number_of_the_new_settings(bench):
    """Nor are weights that were kept given up for that: the trainer has removed its own."""
    save(bench, 5, 10)
    measure(bench, OLD_WAY, {5: 0.9, 10: 0.8}, "--set", "publish.keep_best=1")
    remove(bench, 5)
    gate = bench.home / "gate"
    bench.tell(at_sample={"doc": 0, "do": "wait", "until": str(gate)}, values_of_steps={"10": 0.2})

    sidecar = bench.sidecar(*NEW_WAY, "--set", "publish.keep_best=1").start()
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM evaluations WHERE state = 'evaluating'"), what="the evaluation")

    assert best_json(bench)["best"] == {}
    assert "no results" in subprocess.run([sidecar.evalcar, "results", "--db", sidecar.database, "--best"], capture_output=True,
                                          text=True, timeout=60, check=False).stderr  # fmt: skip
    assert "5-1-regular" in leases(bench.run)

    gate.write_text("")
    sidecar.wait_for(lambda s: leases(bench.run) == ["10-1-regular"], what="the one that is kept now")
    assert best_of(bench) == (10, 0.2)
    assert sidecar.stop() == 0


def test_the_best_that_are_kept_are_of_those_measured_as_configured_now(bench):
    keep = ("--set", "publish.keep_best=1")
    save(bench, 5, 10)
    measure(bench, OLD_WAY, {5: 0.9, 10: 0.8}, *keep)
    assert leases(bench.run) == ["5-1-regular"]
    save(bench, 15)

    measure(bench, NEW_WAY, {5: 0.1, 10: 0.2, 15: 0.3}, *keep)
    assert leases(bench.run) == ["15-1-regular"]
    assert best_json(bench)["best"]["regular"]["kept_path"].endswith("15-1-regular")

    measure(bench, OLD_WAY, {15: 0.4}, *keep)
    assert leases(bench.run) == ["5-1-regular"]
    assert best_json(bench)["best"]["regular"]["kept_path"].endswith("5-1-regular")


def test_what_was_never_measured_as_configured_is_measured_once_that_comes_back(bench):
    """Its checkpoints are gone meanwhile: their leases go from the one row to the other."""
    save(bench, 5, 10)
    bench.tell(hang=True)
    for way in (OLD_WAY, NEW_WAY):
        sidecar = bench.sidecar(*way).start()
        sidecar.wait_for(lambda s: s.query("SELECT 1 FROM evaluations WHERE state = 'loading'"), what="an evaluation")
        sidecar.stop()
        for folder in bench.run.glob("checkpoint-*"):
            shutil.rmtree(folder)

    sidecar = measure(bench, OLD_WAY, {5: 0.5, 10: 0.4})

    assert series(sidecar, "configured") == [(5, 0.5), (10, 0.4)]
    states = sidecar.query("SELECT step, json_extract(settings, '$.limit'), state FROM evaluations ORDER BY 1, 2")
    assert states == [(5, 2.0, "skipped"), (5, 4.0, "published"), (10, 2.0, "skipped"), (10, 4.0, "published")]


def test_kept_weights_are_measured_as_configured_if_they_never_were(bench):
    """The configuration changed before their turn came, and back when only the lease of the best was left."""
    save(bench, 5)
    bench.tell(hang=True)
    sidecar = bench.sidecar(*OLD_WAY).start()
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM evaluations WHERE state = 'loading'"), what="the evaluation")
    sidecar.stop()
    measure(bench, NEW_WAY, {5: 0.3}, "--set", "publish.keep_best=1")
    remove(bench, 5)
    save(bench, 10)

    sidecar = measure(bench, OLD_WAY, {5: 0.9, 10: 0.8}, "--set", "publish.keep_best=1")

    assert series(sidecar, "configured") == [(5, 0.9), (10, 0.8)]
    assert best_of(bench) == (5, 0.9)
    assert leases(bench.run) == ["5-1-regular"]


NEW_PROMPT = {"prompts": {"docvqa_val": "new"}, "questions": {"docvqa_val": "new"}}


def test_a_task_that_asks_something_else_under_the_same_settings_begins_a_series_of_its_own(bench):
    save(bench, 5, 10)
    measure(bench, OLD_WAY, {5: 0.9, 10: 0.8})
    save(bench, 15, 20)

    sidecar = measure(bench, OLD_WAY, {15: 0.2, 20: 0.3}, **NEW_PROMPT)

    assert series(sidecar) == [(5, 0.9), (10, 0.8), (15, 0.2), (20, 0.3)]
    assert series(sidecar, "configured") == [(15, 0.2), (20, 0.3)]
    assert best_of(bench) == (20, 0.3)
    (best,) = json.loads(results(sidecar, "--best", "--format", "json"))
    assert (best["step"], best["value"]) == (20, 0.3)
    table = results(sidecar)
    assert table.count("†") == 3 and "of another task file or other data" in table
    assert "0.9" not in table.split("Trend")[1]
    asked = [line["question_sha256"]["docvqa_val"] for line in sidecar.metrics_lines()]
    assert asked == [*[asked[0]] * 2, *[asked[2]] * 2] and asked[0] != asked[2]
    assert asked == [sha256 for (sha256,) in sidecar.query("SELECT question_sha256 FROM metrics ORDER BY step")]
    done = subprocess.run([sidecar.evalcar, "results", "--db", str(sidecar.database), "--compare", "10", "15"], capture_output=True,
                          text=True, timeout=60, check=False)  # fmt: skip
    assert "or of another task file or other data: not compared" in done.stderr


def test_a_lost_database_knows_again_what_was_asked(bench):
    save(bench, 5, 10)
    measure(bench, OLD_WAY, {5: 0.9, 10: 0.8})
    save(bench, 15)
    sidecar = measure(bench, OLD_WAY, {15: 0.2}, **NEW_PROMPT)
    for end in ("", "-wal", "-shm"):
        sidecar.database.with_name(sidecar.database.name + end).unlink(missing_ok=True)

    sidecar = measure(bench, OLD_WAY, {}, **NEW_PROMPT)

    assert series(sidecar, "configured") == [(15, 0.2)]
    assert best_of(bench) == (15, 0.2)
    assert measured(bench) == 3


def test_the_best_that_is_kept_goes_by_what_is_asked_now(bench):
    """Nor are weights of before given up for weights of which nothing is known."""
    keep = ("--set", "publish.keep_best=1")
    save(bench, 5, 10)
    measure(bench, OLD_WAY, {5: 0.9, 10: 0.8}, *keep)
    assert leases(bench.run) == ["5-1-regular"]
    save(bench, 15)

    measure(bench, OLD_WAY, {15: 0.2}, *keep, **NEW_PROMPT)

    assert leases(bench.run) == ["15-1-regular"]
