"""Interim scores of the real evaluator: the result is that of lmms-eval whatever was told before it, and what is told of a part
is what lmms-eval's own scorers give for the documents of that part."""

import json
import math
import pathlib
from unittest import mock

import pyarrow
import pytest
import small_models
from evaluator import Evaluator
from fixtures import data_sets, lmms_eval_run
from pyarrow import parquet
from test_answers import numbers, without_set_order

TASKS = ["docvqa_val", "textvqa_val", "mmmu_val"]
SIZES = {"docvqa_val": 30, "textvqa_val": 26, "mmmu_val": 26}
FRACTIONS = [0.75, 0.85]
GENERATION = "max_new_tokens=6"


def teach(data, samples):
    """Makes some of the model's own answers the right ones: a random model has a score of 0 else, and that proves nothing."""
    columns = {"docvqa_val": ("DocVQA", "answers"), "textvqa_val": ("textvqa", "answers"), "mmmu_val": ("MMMU", "answer")}
    for task, (folder, column) in columns.items():
        (path,) = (pathlib.Path(data) / "lmms-lab" / folder).rglob("*.parquet")
        table = parquet.read_table(path)
        right = table.column(column).to_pylist()
        for doc, sample in enumerate(samples[task]):
            if task != "mmmu_val" and doc % 5 in (0, 2):
                right[doc] = [sample["filtered_resps"] or "?"] * len(right[doc])
            elif task == "mmmu_val" and sample["mmmu_acc"]["question_type"] == "multiple-choice":
                right[doc] = sample["mmmu_acc"]["parsed_pred"][0]
            elif task == "mmmu_val":  # open: one of the texts that were read out of the answer
                right[doc] = next((c for c in sample["mmmu_acc"]["parsed_pred"][0] if isinstance(c, str) and c.strip()), right[doc])
        at = table.schema.get_field_index(column)
        field = table.schema.field(at)
        parquet.write_table(table.set_column(at, field, pyarrow.array(right, field.type)), path)


@pytest.fixture(scope="module")
def bench(tmp_path_factory, bin_dir, cache_dir):
    """(a model, its data)"""
    if not (bin_dir / "evalcar-evaluator").exists():
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")
    root = tmp_path_factory.mktemp("anytime")
    small_models.write_model(root / "model", small_models.SmallModel(seed=31, layers=2), cache_dir=cache_dir)
    data = data_sets.write_all(root / "data", *SIZES.values())
    with Evaluator(bin_dir) as evaluator:
        evaluator.load(root / "model")
        teach(data, lines_of(evaluate(evaluator, data, "1")))
        evaluator.say("bye")
    return root / "model", data


def evaluate(evaluator, data, job, **message):
    """All that the evaluator says until its result."""
    start = len(evaluator.heard)
    settings = dict(tasks=TASKS, data_dir=str(data), tasks_dir="", limit=None, offset=0, batch_size=0, max_new_tokens=None,
                    max_pixels=1605632, min_pixels=200704, attn_implementation="", compat="lmms-eval", gen_kwargs=GENERATION,
                    num_fewshot=None, seed=0, bootstrap_iters=1000)  # fmt: skip
    evaluator.say("evaluate", id=job, settings=settings, **message)
    evaluator.wait_for("result")
    return evaluator.heard[start:]


def of_kind(messages, kind):
    return [message for message in messages if message["type"] == kind]


def lines_of(messages):
    """{task: its sample lines, in document order}"""
    lines = {}
    for message in of_kind(messages, "scored"):
        lines.setdefault(message["task"], []).append(json.loads(message["line"]))
    return lines


def documents_before(messages, interim):
    """{task: the documents answered by then}"""
    told = {}
    for message in messages[: messages.index(interim)]:
        if message["type"] == "sample":
            told.setdefault(message["task"], set()).add(message["doc_id"])
    return told


def expected_value(task, samples, data):
    """By lmms-eval's functions, from its own sample lines; a letter that it would draw is none of the options."""
    if task != "mmmu_val":
        metric = {"docvqa_val": "anls", "textvqa_val": "exact_match"}[task]
        return sum(sample[metric] for sample in samples) / len(samples), 0
    from lmms_eval.tasks.mmmu import utils

    (path,) = (pathlib.Path(data) / "lmms-lab" / "MMMU").rglob("*.parquet")
    docs = parquet.read_table(path, columns=["id", "options", "question_type", "answer"]).to_pylist()
    drawn = []
    results = []
    for sample in samples:
        with mock.patch("random.choice", side_effect=lambda options: drawn.append(options) or "none of them"):
            results.append(utils.mmmu_process_results(docs[sample["doc_id"]], [sample["filtered_resps"]])["mmmu_acc"])
    return utils.mmmu_aggregate_results(results), len(drawn)


def clustered_error(values, clusters):
    """Miller, arXiv 2411.00640, equation 4: the plain variance, and what members of one cluster have in common."""
    n = len(values)
    rest = [value - sum(values) / n for value in values]
    common = sum(rest[i] * rest[j] for i in range(n) for j in range(n) if i != j and clusters[i] == clusters[j])
    return math.sqrt(sum(r * r for r in rest) / (n - 1) / n + common / n**2)


def check_same(one, two):
    """The same bits: answers, lines and numbers."""
    for kind, varies in (("result", ("id", "seconds")), ("scored", ("id",)), ("prepared", ("id",))):
        left, right = ([{k: v for k, v in m.items() if k not in varies} for m in of_kind(run, kind)] for run in (one, two))
        assert left == right, kind
    texts = [{(m["task"], m["doc_id"]): m["text"] for m in of_kind(run, "sample")} for run in (one, two)]
    assert texts[0] == texts[1]


def check_interims(messages, samples, data):
    """What was told of each part is the score of its documents."""
    interims = of_kind(messages, "interim")
    assert [interim["fraction"] for interim in interims] == FRACTIONS
    draws = 0
    for interim in interims:
        told = documents_before(messages, interim)
        assert [score["task"] for score in interim["tasks"]] == TASKS
        for score in interim["tasks"]:
            task = score["task"]
            assert score["n"] == len(told[task]) and score["documents"] == SIZES[task] > score["n"]
            assert score["n"] >= interim["fraction"] * SIZES[task]
            chosen = [s for s in samples[task] if s["doc_id"] in told[task]]
            value, misses = expected_value(task, chosen, data)
            draws += misses
            (metric,) = [m for m in score["metrics"] if m["name"] in ("anls", "exact_match", "mmmu_acc")]
            assert 0 < value < 1, f"{task}: this proves nothing"
            assert metric["value"] == pytest.approx(value, abs=1e-9), task
            assert json.loads(score["notes"]).get("counted_as_misses", 0) == misses
            if task == "docvqa_val":  # three questions a page
                assert metric["stderr_source"] == "clustered"
                error = clustered_error([s["anls"] for s in chosen], [s["doc_id"] // 3 for s in chosen])
                assert metric["stderr"] == pytest.approx(error)
                assert len(chosen) == 3 * len({s["doc_id"] // 3 for s in chosen}), "whole pages"
    assert draws > 0, "every answer could be parsed: this proves nothing about draws"


def test_interim_scores_are_those_of_their_documents_and_leave_every_answer_and_number_as_it_is(bench, bin_dir):
    model, data = bench
    with Evaluator(bin_dir) as evaluator:
        evaluator.load(model)
        whole = evaluate(evaluator, data, "2")
        parts = evaluate(evaluator, data, "3", interim_at=FRACTIONS)
        again = evaluate(evaluator, data, "4", interim_at=FRACTIONS)
        evaluator.say("bye")

    assert of_kind(whole, "interim") == []
    check_same(whole, parts)
    check_same(parts, again)
    assert [i["tasks"] for i in of_kind(again, "interim")] == [i["tasks"] for i in of_kind(parts, "interim")]
    check_interims(parts, lines_of(whole), data)


@pytest.mark.full
def test_the_result_behind_interim_scores_is_that_of_lmms_eval(bench, bin_dir, tmp_path):
    model, data = bench
    theirs = lmms_eval_run.run_lmms_eval(model, data, TASKS, tmp_path, gen_kwargs=GENERATION)
    with Evaluator(bin_dir) as evaluator:
        evaluator.load(model)
        parts = evaluate(evaluator, data, "3", interim_at=FRACTIONS)
        evaluator.say("bye")

    check_interims(parts, theirs.samples, data)
    for result in of_kind(parts, "result")[0]["tasks"]:
        expected = numbers(theirs.results["results"][result["task"]])
        assert numbers(json.loads(result["lmms_results"])) == {k: pytest.approx(v, abs=1e-9) for k, v in expected.items()}
    for task, lines in lines_of(parts).items():
        assert [without_set_order(line) for line in lines] == [without_set_order(line) for line in theirs.samples[task]]


def test_answers_that_are_known_are_not_made_again_and_give_the_same_interim_scores(bench, bin_dir):
    """As after a kill right behind the first score."""
    model, data = bench
    with Evaluator(bin_dir) as evaluator:
        evaluator.load(model)
        first = evaluate(evaluator, data, "2", interim_at=FRACTIONS)
        known = [m for m in first[: first.index(of_kind(first, "interim")[0])] if m["type"] == "sample"]
        evaluator.load(model, job="3")
        for sample in known:
            evaluator.say("answered", **{**{k: v for k, v in sample.items() if k != "type"}, "id": "3"})
        second = evaluate(evaluator, data, "3", interim_at=FRACTIONS)
        evaluator.say("bye")

    made = [(m["task"], m["doc_id"]) for m in of_kind(second, "sample")]
    assert not {(m["task"], m["doc_id"]) for m in known} & set(made)
    assert len(made) + len(known) == sum(SIZES.values())
    assert [i["tasks"] for i in of_kind(second, "interim")] == [i["tasks"] for i in of_kind(first, "interim")]
    assert of_kind(second, "result")[0]["tasks"] == of_kind(first, "result")[0]["tasks"]
