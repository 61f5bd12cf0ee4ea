"""A whole run of lmms-eval's command line, its answers scored again here: the order of tasks and of random draws, the
resolution of a fractional limit, and every sample line are those of the real program."""

import json
import math
import sys

import pytest

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import data_sets  # noqa: E402
import lmms_eval_run  # noqa: E402
import small_models  # noqa: E402
from probes import ask  # noqa: E402

TASKS = ["docvqa_val", "mmmu_val", "textvqa_val"]


def without_set_order(sample):
    if sample.get("mmmu_acc", {}).get("question_type") == "open":
        for metric in ("mmmu_acc", "mmmu_acc_pass_at_k"):
            sample[metric]["parsed_pred"] = [sorted(map(repr, p)) for p in sample[metric]["parsed_pred"]]
        sample["submission"] = list(sample["submission"])
    return sample


@pytest.mark.full
def test_answers_of_a_real_run_score_the_same(build_dir, cache_dir, tmp_path):
    checkpoint = tmp_path / "run" / "checkpoint-3"
    small_models.write_model(checkpoint, small_models.SmallModel(seed=77), cache_dir=cache_dir)
    data = data_sets.write_all(tmp_path / "data", 17, 15, 31, sizes=((40, 30), (120, 150)))
    run = lmms_eval_run.run_lmms_eval(checkpoint, data, TASKS, tmp_path / "out", limit=0.7, offset=2)

    order = ask(build_dir, "tasks_probe", [{"op": "order", "names": TASKS}])[0]
    assert list(run.results["n-samples"]) == order
    sizes = [run.results["n-samples"][task]["original"] for task in order]
    limits = ask(build_dir, "tasks_probe", [{"op": "limits", "limit": 0.7, "sizes": sizes}])[0]
    assert limits == [math.ceil(0.7 * 15)] * 3
    effective = ask(build_dir, "tasks_probe", [{"op": "effective", "limit": limit, "size": size} for limit, size in zip(limits, sizes)])
    assert effective == [run.results["n-samples"][task]["effective"] for task in order]
    for task, limit in zip(order, limits):
        theirs = run.samples[task]
        chosen = ask(build_dir, "tasks_probe", [{"op": "select", "task": task, "data": str(data), "limit": limit, "offset": 2}])[0]
        assert [sample["doc_id"] for sample in theirs] == chosen
        responses = [{"doc_id": s["doc_id"], "text": s.get("resps", s["filtered_resps"]), "output_tokens": s["token_counts"][0]["output_tokens"]}
                     for s in theirs]  # fmt: skip
        request = {"op": "score", "task": task, "data": str(data), "family": "qwen2_5_vl", "responses": responses}
        ours = ask(build_dir, "tasks_probe", [request])[0]
        for mine, line in zip(ours["lines"], run.sample_lines[task], strict=True):
            if mine != line:
                assert without_set_order(json.loads(mine)) == without_set_order(json.loads(line))
        results = run.results["results"][task]
        mine = json.loads(ours["results"])
        assert list(mine) == list(results)
        for key, value in results.items():
            assert mine[key] == value or abs(mine[key] - value) < 1e-9, key
    assert json.loads(ours["notes"])["compat"] == "lmms-eval"
    drawn = [s["mmmu_acc"]["parsed_pred"][0] for s in run.samples["mmmu_val"] if s["mmmu_acc"]["question_type"] != "open"]
    assert len(set(drawn)) >= 3, "letters must vary, or the draws prove nothing"
