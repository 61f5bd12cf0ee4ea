"""lmms-eval 0.7.3 itself and `evalcar eval` on the same checkpoint and data: same text for every sample, same metrics.

lmms-eval runs unchanged in a process of its own (fixtures/lmms_eval_run.py: float32, CPU, offline). The models are random, so
most answers cannot be parsed and MMMU's letters are drawn: the draws have to be the same ones.
"""

import json
import subprocess

import pytest
from fixtures import data_sets, lmms_eval_run, small_models

TASKS = ["docvqa_val", "textvqa_val", "mmmu_val"]


def run_eval(bin_dir, checkpoint, data, output, *arguments, tasks=TASKS):
    """`evalcar eval --json` in float32 on the CPU. Gives (its JSON document, {task: parsed sample lines}, results file)."""
    command = [bin_dir / "evalcar", "eval", checkpoint, "--tasks", ",".join(tasks), "--data", data, "--output", output,
               "--device", "cpu", "--dtype", "float32", "--json", *arguments]  # fmt: skip
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    document = json.loads(done.stdout)
    (results,) = output.glob("**/*_results.json")
    samples = {}
    for path in output.glob("**/*_samples_*.jsonl"):
        task = path.name.split("_samples_", 1)[1].removesuffix(".jsonl")
        samples[task] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return document, samples, json.loads(results.read_text(encoding="utf-8"))


def without_set_order(sample):
    """lmms-eval makes an open question's `parsed_pred` from a set: its order differs from run to run."""
    if sample.get("mmmu_acc", {}).get("question_type") == "open":
        for metric in ("mmmu_acc", "mmmu_acc_pass_at_k"):
            sample[metric]["parsed_pred"] = [sorted(map(repr, parsed)) for parsed in sample[metric]["parsed_pred"]]
        sample["submission"] = list(sample["submission"])
    return sample


def numbers(entry):
    return {key: value for key, value in entry.items() if isinstance(value, int | float)}


CASES = [
    # (model, documents a task, picture sizes, limit and offset)
    pytest.param(small_models.SmallModel(seed=31), 8, (112, 112), ["--limit", "0.9"], id="5.x"),
    pytest.param(
        small_models.SmallModel(seed=32, generation="4.49", tied=False, repetition_penalty=1.05, merges=None),
        30, ((60, 70), (500, 420)), [], id="4.49-penalty-odd-sizes", marks=pytest.mark.full,
    ),
    pytest.param(
        small_models.SmallModel(seed=33, generation="4.57", names="native", heads=6, kv_heads=3, hidden=96),
        40, ((90, 300), (800, 640)), ["--limit", "0.4", "--offset", "3"], id="4.57-limit-offset", marks=pytest.mark.full,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "documents", "sizes", "arguments"), CASES)
def test_every_answer_and_every_metric_is_that_of_lmms_eval(
    bin_dir, cache_dir, tmp_path, spec, documents, sizes, arguments
):
    checkpoint = tmp_path / "run" / "checkpoint-7"
    small_models.write_model(checkpoint, spec, cache_dir=cache_dir)
    # Unequal sizes: a fractional limit is resolved on one of them and used for all.
    data = data_sets.write_all(tmp_path / "data", documents + 5, documents, documents + 2, sizes=sizes)
    chosen = dict(zip(arguments[::2], arguments[1::2]))

    document, samples, results = run_eval(bin_dir, checkpoint, data, tmp_path / "ours", *arguments)
    theirs = lmms_eval_run.run_lmms_eval(
        checkpoint, data, TASKS, tmp_path / "theirs", limit=chosen.get("--limit"), offset=int(chosen.get("--offset", 0))
    )

    assert results["n-samples"] == theirs.results["n-samples"]
    for task in TASKS:
        assert [s["doc_id"] for s in samples[task]] == [s["doc_id"] for s in theirs.samples[task]]
        for ours, reference in zip(samples[task], theirs.samples[task]):
            assert list(ours) == list(reference), f"{task}: keys of document {ours['doc_id']}"
            assert without_set_order(ours) == without_set_order(reference), f"{task}: document {ours['doc_id']}"
        expected = numbers(theirs.results["results"][task])
        ours = numbers(results["results"][task])
        assert set(ours) == set(expected), task
        for key, value in expected.items():
            assert ours[key] == pytest.approx(value, abs=1e-9), f"{task}: {key}"
        assert list(results["results"][task]) == list(theirs.results["results"][task]), f"{task}: keys and their order"
        for key, value in expected.items():
            name, _, _ = key.partition(",")
            if not name.endswith("_clt"):
                assert document["results"][task][name] == pytest.approx(value, abs=1e-9)
        assert document["samples"][task] == len(theirs.samples[task])
    texts = {s["filtered_resps"] for task in TASKS for s in samples[task]}
    assert len(texts) > 3, "the model says the same thing again and again: this run proves nothing"
