"""The real evaluator takes the previous checkpoint's answers as drafts: of the same series and question alone, and nothing else changes."""

import json
import re
import shutil

import evaluator as evaluator_module
import pytest
import sidecar as sidecar_module
from fixtures import data_sets, fsdp2_checkpoints, small_models

NEW_TOKENS = 24
STEPS = (5, 10, 15)


pytestmark = pytest.mark.usefixtures("needs_the_evaluator")


@pytest.fixture(scope="module")
def scene(tmp_path_factory, cache_dir):
    """A run of lmms-engine's whose weights drift a little, and pages."""
    root = tmp_path_factory.mktemp("scene")
    small_models.write_model(root / "model", small_models.SmallModel(seed=3, layers=2, repetition_penalty=1.05), cache_dir=cache_dir)
    fsdp2_checkpoints.write_run(root / "shards", root / "model", STEPS, ema=True, noise=0.002)
    data_sets.write_docvqa(root / "data", count=4)
    return root


def measure(scene, bin_dir, *evaluations):
    """Each of `evaluations`, (step, settings with series), in one process: [(texts, result)]."""
    measured = []
    with evaluator_module.Evaluator(bin_dir) as evaluator:
        for number, (step, settings) in enumerate(evaluations):
            job = str(number)
            evaluator.load(scene / "shards" / f"checkpoint-{step}", job=job)
            evaluator.evaluate(scene / "data", ["docvqa_val"], job=job, **{"max_new_tokens": NEW_TOKENS, **settings})
            result = evaluator.wait_for("result")
            texts = {m["doc_id"]: m["text"] for m in evaluator.heard if m["type"] == "sample" and m["id"] == job}
            measured.append((texts, result))
    return measured


def drafted(result):
    """(tried, taken), which the task's notes tell, too."""
    counts = result["draft_tokens"], result["draft_tokens_taken"]
    notes = json.loads(result["tasks"][0]["notes"])
    assert (notes.get("draft_tokens", 0), notes.get("draft_tokens_taken", 0)) == counts
    return counts


def test_the_next_checkpoint_of_a_series_gets_drafts_and_gives_the_answers_that_it_gives_alone(scene, bin_dir):
    series = {"series": "run-1 regular"}
    together = measure(scene, bin_dir, *[(step, series) for step in STEPS])
    alone = [measure(scene, bin_dir, (step, {}))[0] for step in STEPS]

    for (texts, result), (texts_alone, result_alone) in zip(together, alone, strict=True):
        assert texts == texts_alone
        assert result["tasks"][0]["metrics"] == result_alone["tasks"][0]["metrics"]
        assert result["tasks"][0]["fingerprint"] == result_alone["tasks"][0]["fingerprint"]
        assert drafted(result_alone) == (0, 0)
    counts = [drafted(result) for _, result in together]
    assert counts[0] == (0, 0)
    assert all(tried >= taken > 20 for tried, taken in counts[1:]), counts


def test_only_the_same_question_of_the_same_series_is_a_draft(scene, bin_dir):
    mine, other = {"series": "run-1 regular"}, {"series": "run-1 ema"}
    results = measure(
        scene, bin_dir,
        (5, mine), (5, other), (5, {}), (5, {**mine, "max_new_tokens": NEW_TOKENS - 1}), (5, mine))  # fmt: skip
    assert [drafted(result)[0] > 0 for _, result in results] == [False, False, False, False, True]


@pytest.mark.parametrize("drafts", [True, False])
def test_the_agent_names_each_kind_of_a_run_and_tells_how_many_tokens_were_right(scene, bin_dir, tmp_path, drafts):
    run = tmp_path / "out"
    shutil.copytree(scene / "shards", run)
    arguments = ["--data", str(scene / "data"), "--device", "cpu", "--dtype", "float32", "--set", "evaluate.policy=every",
                 "--set", f"evaluate.gen_kwargs=max_new_tokens={NEW_TOKENS}", "--set", f"evaluate.drafts={str(drafts).lower()}"]  # fmt: skip
    agent = sidecar_module.Sidecar(bin_dir, tmp_path, run, arguments=arguments)
    assert agent.once() == 0, agent.log()[-3000:]

    told = re.findall(r"(checkpoint-\d+ \w+): of earlier answers, (\d+) tokens of (\d+) that were tried were right", agent.log())
    notes = {}
    for path in (run / "_evalcar" / "results").rglob("*_results.json"):
        step, kind = path.relative_to(run / "_evalcar" / "results").parts[:2]
        notes[f"checkpoint-{step} {kind}"] = json.loads(path.read_text())["evalcar"]["notes"]["docvqa_val"]
    assert len(notes) == 2 * len(STEPS)
    counted = {title: (note["draft_tokens_taken"], note["draft_tokens"]) for title, note in notes.items() if "draft_tokens" in note}
    assert {title: (int(taken), int(tried)) for title, taken, tried in told} == counted
    # The first of each kind has nothing before it.
    assert counted.keys() == {f"checkpoint-{step} {kind}" for step in STEPS[1:] for kind in ("regular", "ema") if drafts}
    assert all(taken > 20 for taken, _ in counted.values())
