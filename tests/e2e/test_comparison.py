"""`evalcar results --compare`: its p-values are scipy's, over samples as they lie in a real database."""

import json
import random
import sqlite3
import subprocess

import checkpoints
import pytest

SAMPLES = 300


@pytest.fixture
def compare(bench):
    """Scores of the two steps' documents take the place of what the evaluator gave; then they are compared."""
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar()
    bench.tell(samples=SAMPLES)
    assert sidecar.once() == 0, sidecar.log()

    def compare(before, after, told=None):
        connection = sqlite3.connect(sidecar.database)
        rows = connection.execute("SELECT s.evaluation_id, s.doc_id, s.line, e.step FROM scored_sample s JOIN evaluation e "
                                  "USING (evaluation_id)").fetchall()  # fmt: skip
        assert len(rows) == 2 * len(before)
        for evaluation, doc, line, step in rows:
            changed = json.loads(line) | {"anls": (before if step == 5 else after)[doc]}
            connection.execute("UPDATE scored_sample SET line = ? WHERE evaluation_id = ? AND doc_id = ?",
                               (json.dumps(changed), evaluation, doc))  # fmt: skip
        for step, scores in ((5, before), (10, after)):
            connection.execute("UPDATE metric SET value = ? WHERE name = 'anls' AND result_id IN (SELECT t.result_id FROM "
                               "evaluation_task t JOIN evaluation e USING (evaluation_id) WHERE e.step = ?)",
                               (told or sum(scores) / len(scores), step))  # fmt: skip
        connection.commit()
        connection.close()
        done = subprocess.run([bench.evalcar, "results", "--db", str(sidecar.database), "--compare", "5", "10", "--json"],
                              capture_output=True, text=True, timeout=120)  # fmt: skip
        assert done.returncode == 0, done.stderr
        (found,) = json.loads(done.stdout)
        return found

    return compare


def test_right_and_wrong_answers_are_tested_as_scipys_binomial_test_does(compare):
    stats = pytest.importorskip("scipy.stats")
    draw = random.Random(3)
    before = [float(draw.random() < 0.5) for _ in range(SAMPLES)]
    after = [float(draw.random() < 0.6) if draw.random() < 0.5 else score for score in before]

    found = compare(before, after)

    won = sum(b > a for a, b in zip(before, after))
    lost = sum(b < a for a, b in zip(before, after))
    assert found["pairs"] == SAMPLES
    assert found["test"] == "exact McNemar"
    assert found["p"] == pytest.approx(stats.binomtest(won, won + lost).pvalue, rel=1e-9)
    assert (found["became_right"], found["became_wrong"]) == (won, lost)
    flipped = {row["doc_id"]: row["became"] for row in found["flipped"]}
    assert flipped == {i: "right" if b > a else "wrong" for i, (a, b) in enumerate(zip(before, after)) if a != b}


def test_other_scores_are_tested_as_scipys_permutation_test_does(compare):
    stats = pytest.importorskip("scipy.stats")
    numpy = pytest.importorskip("numpy")
    draw = random.Random(4)
    before = [draw.choice([0.0, 0.5, 0.75, 1.0]) for _ in range(SAMPLES)]
    after = [min(1.0, score + 0.25) if draw.random() < 0.06 else draw.choice([0.0, score, score, score]) for score in before]
    differences = numpy.array(after) - numpy.array(before)

    found = compare(before, after)

    reference = stats.permutation_test((differences,), numpy.sum, permutation_type="samples", n_resamples=20000, rng=1)
    assert found["pairs"] == SAMPLES
    assert found["test"] == "sign-flip permutation"
    assert found["p"] == pytest.approx(reference.pvalue, abs=0.015)
    assert found["stderr"] == pytest.approx(differences.std(ddof=1) / len(differences) ** 0.5, rel=1e-9)
    assert found["stderr_of"] == "pairs"


def test_a_number_that_is_not_made_of_its_samples_has_no_test(compare):
    """As MME's, a sum over categories: an error of its single answers would be that of another number."""
    found = compare([0.0, 1.0] * (SAMPLES // 2), [1.0] * SAMPLES, told=250.0)

    assert (found["test"], found["p"], found["pairs"]) == (None, None, 0)
    assert found["stderr_of"] != "pairs"
    assert found["note"] == "no test: the metric is not the mean of what its samples score"
    assert found["became_right"] == SAMPLES // 2  # which these are is known all the same
