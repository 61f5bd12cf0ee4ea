"""The built-in tasks, from Parquet to sample lines, beside lmms-eval's own task objects on the same files and answers."""

import hashlib
import io
import json
import random
import re
import statistics
import sys
from pathlib import Path

import pytest
from PIL import Image

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import data_sets  # noqa: E402
from probes import ask  # noqa: E402
from strings import answers  # noqa: E402

TASKS = ["docvqa_val", "textvqa_val", "mmmu_val", "mme"]
COUNT = 2000
# The metric that is looked at, and the most that it can be.
MAIN = {"docvqa_val": ("anls", 1), "textvqa_val": ("exact_match", 1), "mmmu_val": ("mmmu_acc", 1), "mme": ("mme_perception_score", 2000)}


@pytest.fixture
def probe(build_dir):
    return lambda request: ask(build_dir, "tasks_probe", [request])[0]


@pytest.fixture(scope="module")
def small_data(tmp_path_factory):
    return data_sets.write_all(tmp_path_factory.mktemp("small"), 20, 20, 42, sizes=((40, 30), (90, 80)), shards=2, mme=30)


@pytest.fixture(scope="module")
def large_data(tmp_path_factory):
    """Many documents, tiny pictures: one for each generated answer."""
    return data_sets.write_all(tmp_path_factory.mktemp("large"), COUNT, COUNT, COUNT, sizes=(16, 16), shards=3, mme=COUNT)


@pytest.fixture(scope="module")
def lmms_tasks():
    """Opens lmms-eval's own chat task objects over a local data folder."""
    import datasets
    from lmms_eval.tasks import TaskManager, get_task_dict

    manager = TaskManager("ERROR", model_name="qwen2_5_vl")
    managers = {"qwen2_5_vl": manager}
    load = datasets.load_dataset

    def open_tasks(data, cache, family="qwen2_5_vl", names=TASKS):
        def load_local(path=None, name=None, **kwargs):
            kwargs = {k: v for k, v in kwargs.items() if k not in ("token", "download_config", "cache_dir")}
            return load(path=str(Path(data) / "lmms-lab" / path.split("/")[1]), name=name, cache_dir=str(cache), **kwargs)

        if family not in managers:
            managers[family] = TaskManager("ERROR", model_name=family)
        datasets.load_dataset = load_local
        try:
            return get_task_dict(list(names), managers[family], "chat")
        finally:
            datasets.load_dataset = load

    return open_tasks


@pytest.fixture(scope="module")
def small_tasks(lmms_tasks, small_data, tmp_path_factory):
    return lmms_tasks(small_data, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def large_tasks(lmms_tasks, large_data, tmp_path_factory):
    return lmms_tasks(large_data, tmp_path_factory.mktemp("cache"))


def pixels(image):
    image = image.convert("RGB")
    return hashlib.sha256(image.tobytes() + repr(image.size).encode()).hexdigest()


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_prompts_and_inputs_equal_lmms_evals(probe, small_data, lmms_tasks, tmp_path, family):
    theirs = lmms_tasks(small_data, tmp_path, family)
    files = {}
    for name in ("DocVQA/DocVQA", "textvqa/data", "MMMU/data", "MME/data"):
        import pyarrow.parquet as pq

        for path in sorted((small_data / "lmms-lab" / name).glob("*.parquet")):
            for row in pq.read_table(path).to_pylist():
                for value in row.values():
                    if isinstance(value, dict) and value.get("bytes"):
                        files[hashlib.sha256(value["bytes"]).hexdigest()] = pixels(Image.open(io.BytesIO(value["bytes"])))
    for task_name in TASKS:
        task = theirs[task_name]
        docs = task.test_docs()
        from lmms_eval.tasks.mmmu import utils

        utils.config["metadata"]["interleaved_format"] = False  # as in a fresh process: contexts are built first
        inputs = [task.fewshot_context(doc, 0) for doc in docs]
        ours = probe({"op": "prompts", "task": task_name, "data": str(small_data), "family": family})
        assert len(ours) == len(docs)
        assert [o["input"] for o in ours] == inputs
        for doc, mine in zip(docs, ours):
            messages = task.doc_to_messages(doc)
            shown = [{"role": m["role"], "content": [c if c["type"] == "text" else {"type": c["type"]} for c in m["content"]]} for m in messages]
            assert mine["messages"] == shown
            pictures = [pixels(c["url"]) for m in messages for c in m["content"] if c["type"] == "image"]
            assert [files[digest] for digest in mine["images"]] == pictures


def test_ocr_tokens_in_a_template_are_those_of_lmms_eval(probe, small_data, source_dir, tmp_path):
    """textvqa's `ocr`: the built-in file copied and switched on is refused, and the text that the refusal names is lmms-eval's."""
    import pyarrow.parquet as pq
    from lmms_eval.tasks.textvqa.utils import textvqa_doc_to_text

    builtin = (source_dir / "evaluator" / "tasks" / "builtin" / "textvqa_val.toml").read_text().replace('"textvqa_val"', '"own_textvqa"')
    own = tmp_path / "own.toml"
    own.write_text(builtin.replace("ocr = false", "ocr = true"))
    [problem] = probe({"op": "check", "path": str(own)})
    assert '"ocr" in [prompt.variants.default] is read by nothing' in problem
    addition = re.search(r'in the text, "(.*)"', problem).group(1)
    own.write_text(builtin.replace("ocr = false\n", "").replace("{post_prompt}", addition + "{post_prompt}"))

    prompts = probe({"op": "prompts", "task": "own_textvqa", "tasks_dir": str(tmp_path), "data": str(small_data)})

    rows = [row for path in sorted((small_data / "lmms-lab" / "textvqa" / "data").glob("validation*.parquet")) for row in pq.read_table(path).to_pylist()]
    settings = {"pre_prompt": "", "post_prompt": "\nAnswer the question using a single word or phrase.", "ocr": True}
    assert [prompt["input"] for prompt in prompts] == [textvqa_doc_to_text(row, settings) for row in rows]
    assert any("Reference OCR token: " in prompt["input"] for prompt in prompts)


def scored_by_lmms_eval(task, texts, seed=0):
    """lmms-eval's own scoring loop, one worker, over the task's documents and these answers."""
    from lmms_eval.api.instance import Instance, TokenCounts
    from lmms_eval.evaluator import _process_document_results
    from lmms_eval.evaluator_utils import TaskOutput, consolidate_results

    tags = [["<think>", "</think>"], ["<analysis>", "</analysis>"]]
    random.seed(seed)
    output = TaskOutput.from_taskdict(task.config.task, task)
    output.task = task

    class Arguments:
        output_path = "/tmp"

    task.args = Arguments()
    from lmms_eval.tasks.mmmu import utils

    utils.config["metadata"]["interleaved_format"] = False
    for doc_id, (doc, text) in enumerate(zip(task.eval_docs_no_media, texts)):
        context = task.doc_to_text(doc)
        request = Instance("generate_until", (context, None, task.config.generation_kwargs, doc_id, task.config.task, "validation"), 0,
                           metadata={"task": task.config.task, "doc_id": doc_id, "repeats": 1})  # fmt: skip
        request.resps = [text]
        request.token_counts = [TokenCounts(output_tokens=7)]
        request.filtered_resps["none"] = text
        processed = _process_document_results((doc_id, doc, [request]), task=task, filter_key="none", reasoning_tags=tags, log_samples=True)
        output.logged_samples.append(processed.logged_sample)
        for metric, value in processed.metrics.items():
            output.sample_metrics[(metric, "none")].append(value)
    import textvqa_stub  # noqa: F401

    output.calculate_aggregate_metric(bootstrap_iters=100000)
    output.calculate_clt_aggregate_metric()
    results = dict(consolidate_results([output])[0][task.config.task])
    results.pop("samples")
    return results, output.logged_samples


@pytest.fixture
def tracker_lines(tmp_path):
    """The lines that lmms-eval's tracker writes for logged samples."""

    def write(task_name, samples):
        from lmms_eval.loggers.evaluation_tracker import EvaluationTracker

        tracker = EvaluationTracker(output_path=str(tmp_path))
        tracker.general_config_tracker.model_name_sanitized = "m"
        tracker.date_id = "d"
        tracker.save_results_samples(task_name, samples)
        return (tmp_path / "m" / f"d_samples_{task_name}.jsonl").read_text(encoding="utf-8").split("\n")[:-1]

    return write


@pytest.fixture(autouse=True)
def no_submission_files(monkeypatch, tmp_path):
    """textvqa's aggregation writes a submission file; let it go into the test's folder."""
    import types

    from lmms_eval.tasks.textvqa import utils

    monkeypatch.setattr(utils, "generate_submission_file", lambda name, args, **_: str(tmp_path / "submission.json"))
    monkeypatch.setitem(sys.modules, "textvqa_stub", types.ModuleType("textvqa_stub"))


def without_set_order(line):
    """parsed_pred of an open question comes from a set in lmms-eval: its order, and the submission that takes its first
    element, differ from run to run."""
    sample = json.loads(line)
    for metric in ("mmmu_acc", "mmmu_acc_pass_at_k"):
        if metric in sample and sample[metric]["question_type"] == "open":
            sample[metric]["parsed_pred"] = [sorted(map(repr, p)) for p in sample[metric]["parsed_pred"]]
            sample["submission"] = list(sample["submission"])
    return json.dumps(sample)


def close(a, b):
    return a == b or (isinstance(a, (int, float)) and isinstance(b, (int, float)) and abs(a - b) <= 1e-9)


def good_and_odd_answers(task, count, seed):
    """Half of the answers near the truth, half odd."""
    rng = random.Random(seed)
    odd = answers(count, seed)
    result = []
    for doc, text in zip(task.eval_docs_no_media, odd):
        kind = rng.random()
        gold = doc.get("answers") or [doc.get("answer")]
        if kind < 0.35:
            text = rng.choice(gold)
        elif kind < 0.5:
            text = rng.choice(["The answer is {}.", "({})", "{} ", "\n{}\n", "<think>no</think>{}", "**{}**", "{}x"]).format(rng.choice(gold))
        result.append(text)
    return result


@pytest.mark.parametrize("task_name", TASKS)
def test_scores_and_sample_lines_equal_lmms_evals(probe, large_data, large_tasks, tracker_lines, task_name):
    task = large_tasks[task_name]
    texts = good_and_odd_answers(task, COUNT, 21)
    results, samples = scored_by_lmms_eval(task, texts)
    lines = tracker_lines(task_name, samples)
    ours = probe({"op": "score", "task": task_name, "data": str(large_data), "family": "qwen2_5_vl",
                  "responses": [{"doc_id": i, "text": t, "output_tokens": 7} for i, t in enumerate(texts)]})  # fmt: skip
    assert "error" not in ours, ours
    mine = json.loads(ours["results"])
    assert list(mine) == list(results), "same keys in the same order"
    for key in mine:
        assert close(mine[key], results[key]), (key, mine[key], results[key])
    assert len(ours["lines"]) == len(lines) == len(texts)
    different = 0
    for mine_line, their_line in zip(ours["lines"], lines):
        if mine_line != their_line:
            assert without_set_order(mine_line) == without_set_order(their_line)
            different += 1
    assert different <= sum(1 for line in lines if '"question_type": "open"' in line)
    metric, most = MAIN[task_name]
    main = ours["metrics"][metric]
    assert 0.15 < main["value"] / most < 0.85 and main["stderr"] > 0
    assert main["source"] == ("bootstrap" if task_name in ("mmmu_val", "mme") else "")
    if task_name == "mmmu_val":
        assert json.loads(ours["notes"])["random_draws"] > 100


def test_half_a_pair_of_mme_leaves_no_score_where_lmms_eval_fails(probe, large_data, large_tasks):
    texts = ["Yes."] * 31
    with pytest.raises(AssertionError):
        scored_by_lmms_eval(large_tasks["mme"], texts)
    ours = probe({"op": "score", "task": "mme", "data": str(large_data), "responses": [{"doc_id": i, "text": t} for i, t in enumerate(texts)]})
    halved = "mme_perception_score"  # of the second picture of the first category
    assert ours["metrics"][halved]["value"] is None and "0001.png of category count has 1 answer(s)" in ours["metrics"][halved]["missing"]
    assert ours["metrics"]["mme_cognition_score"]["value"] == 200, "one of each pair is right, in four categories: 4 · 50"
    assert halved not in ours["results"]


def test_the_spread_of_mme_is_that_of_pairs(probe, large_data):
    """Answers that are right or wrong in pairs: drawn one by one, they would spread less than half as far."""
    count, wrong = 2000, {d for d in range(2000) if (d // 2) % 3 == 0}
    texts = ["xyz" if d in wrong else ["yes", "no"][d % 2] for d in range(count)]
    ours = probe({"op": "score", "task": "mme", "data": str(large_data), "bootstrap_iters": 4000,
                  "responses": [{"doc_id": i, "text": t} for i, t in enumerate(texts)]})  # fmt: skip
    points = {}
    for d in range(0, count, 2):
        points.setdefault((d // 2) % 14, []).append(0.0 if d in wrong else 200.0)
    for metric, categories in (("mme_perception_score", range(10)), ("mme_cognition_score", range(10, 14))):
        assert close(ours["metrics"][metric]["value"], sum(sum(points[c]) / len(points[c]) for c in categories))
        # The bootstrap of a mean has the variance s²(n - 1)/n²; the categories are drawn apart from each other.
        variance = sum(statistics.pvariance(points[c]) / len(points[c]) for c in categories)
        assert abs(ours["metrics"][metric]["stderr"] / variance**0.5 - 1) < 0.05


def test_strict_counts_a_miss_where_lmms_eval_draws(probe, large_data, large_tasks):
    texts = ["no letter here"] * 400
    request = {"op": "score", "task": "mmmu_val", "data": str(large_data), "responses": [{"doc_id": i, "text": t} for i, t in enumerate(texts)]}
    loose, strict = probe(request), probe({**request, "compat": "strict"})
    choices = [i for i, line in enumerate(loose["lines"]) if '"question_type": "multiple-choice"' in line]
    assert json.loads(loose["notes"])["random_draws"] == json.loads(strict["notes"])["random_draws"] == len(choices)
    assert 0.1 < sum(loose["values"][i] for i in choices) / len(choices) < 0.4
    assert all(strict["values"][i] == 0 for i in choices)


@pytest.mark.parametrize("task_name", TASKS)
def test_the_config_entry_has_lmms_evals_keys_and_values(probe, small_data, small_tasks, task_name):
    ours = probe({"op": "score", "task": task_name, "data": str(small_data), "family": "qwen2_5_vl", "responses": [{"doc_id": 0, "text": "x"}]})
    mine = json.loads(ours["config"])
    theirs = json.loads(json.dumps(dict(small_tasks[task_name].dump_config()), default=str))
    theirs.setdefault("num_fewshot", 0)
    for key, value in mine.items():
        assert key in theirs, key
        if not isinstance(theirs[key], str) or not theirs[key].startswith("<function"):
            if key == "dataset_path":
                value = value.replace("lmms-lab/", "lmms-lab-encoder/")
            if key == "metadata":
                assert value["version"] == theirs[key]["version"]
            elif key == "metric_list":
                assert [m["metric"] for m in value] == [m["metric"] for m in theirs[key]]
            elif key != "doc_to_text":
                assert value == theirs[key], key
    missing = set(theirs) - set(mine)
    assert missing <= {"dataset_kwargs", "tag", "process_results", "num_fewshot"} | ({"metadata"} if task_name == "mme" else set()), missing


def test_limit_and_offset_choose_the_same_documents(probe, small_data, small_tasks):
    from lmms_eval.evaluator_utils import get_sample_size
    from lmms_eval.utils import create_iterator

    for task_name in TASKS:
        task = small_tasks[task_name]
        size = len(task.eval_docs)
        for limit in (None, -1, 1, 3, 5.7, 10_000, 0.5, 0.01, 0.999):
            for offset in (0, 2, size - 1):
                count = get_sample_size(task, limit)
                wanted = list(create_iterator(range(size), rank=0, world_size=1, limit=count, offset=offset))
                request = {"op": "select", "task": task_name, "data": str(small_data), "offset": offset}
                if limit is not None:
                    request["limit"] = limit
                assert probe(request) == wanted, (task_name, limit, offset)
    assert "no documents" in probe({"op": "select", "task": "docvqa_val", "data": str(small_data), "offset": 20})["error"]
    assert "limit" in probe({"op": "select", "task": "docvqa_val", "data": str(small_data), "limit": 0})["error"]


def test_a_fraction_is_resolved_on_the_first_task_as_lmms_eval_does(probe):
    assert probe({"op": "order", "names": TASKS}) == ["textvqa_val", "mmmu_val", "mme", "docvqa_val"]
    assert probe({"op": "limits", "limit": 0.5, "sizes": [5, 4, 100]}) == [3, 3, 3]
    assert probe({"op": "limits", "limit": 0.5, "sizes": [5, 4, 100], "compat": "strict"}) == [3, 2, 50]
    assert probe({"op": "limits", "limit": 7, "sizes": [5, 4]}) == [7, 7]
    assert "error" in probe({"op": "limits", "limit": 0, "sizes": [5]})


def test_media_urls_in_other_columns_are_logged_as_lmms_eval_does(probe, tmp_path, lmms_tasks, tracker_lines):
    from datasets import Dataset, load_dataset

    data = data_sets.write_all(tmp_path / "data", 3, 6, 3)
    parquet = next((data / "lmms-lab" / "textvqa").glob("data/*.parquet"))
    rows = load_dataset("parquet", data_files=str(parquet), split="train", cache_dir=str(tmp_path / "c0"))
    urls = ["https://x.org/a.jpg", "HTTP://x.org/b.PNG?x=1", "not a picture", "c.webp ", "data:image/png;base64,AA", "https://x.org/a.txt"]
    rows = rows.remove_columns("flickr_original_url").add_column("flickr_original_url", urls)
    assert isinstance(rows, Dataset)
    rows.to_parquet(parquet)
    task = lmms_tasks(data, tmp_path / "c1", names=["textvqa_val"])["textvqa_val"]
    _, samples = scored_by_lmms_eval(task, ["red"] * 6)
    lines = tracker_lines("textvqa_val", samples)
    ours = probe({"op": "score", "task": "textvqa_val", "data": str(data), "responses": [{"doc_id": i, "text": "red", "output_tokens": 7} for i in range(6)]})
    assert sum('"input_media"' in line for line in lines) == 4
    assert ours["lines"] == lines


def test_logged_samples_are_scored_again(probe, large_data, large_tasks, tracker_lines, tmp_path):
    for task_name in TASKS:
        task = large_tasks[task_name]
        texts = good_and_odd_answers(task, 2000, 33)[:300]
        results, samples = scored_by_lmms_eval(task, texts)
        path = tmp_path / f"{task_name}.jsonl"
        lines = tracker_lines(task_name, samples)
        random.Random(1).shuffle(lines)  # several ranks write out of order
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        request = {"op": "command", "task": task_name, "samples": str(path)}
        if task_name in ("docvqa_val", "mme"):
            alone = probe(request)
            assert alone["code"] == 0, alone
        else:
            refused = probe(request)
            assert refused["code"] == 2 and "--data" in refused["err"]
        scored = probe({**request, "data": str(large_data)})
        assert scored["code"] == 0, scored
        report = json.loads(scored["out"])
        assert report["n"] == 300 and report["task"] == task_name
        metrics = {name: value for name, value in report["metrics"].items() if not name.endswith("_stderr")}
        assert len(metrics) == (2 if task_name == "mme" else 1)
        for metric, value in metrics.items():
            assert close(value, results[f"{metric},none"]), metric
        assert [s["doc_id"] for s in report["per_sample"]] == list(range(300))
        if task_name in ("docvqa_val", "mme"):
            assert json.loads(alone["out"]) == report


def test_a_missing_data_set_prints_the_command_that_fetches_it(probe, tmp_path):
    answer = probe({"op": "size", "task": "docvqa_val", "data": str(tmp_path)})
    assert answer["code"] == "not_found"
    assert f"hf download --repo-type dataset lmms-lab/DocVQA --local-dir {tmp_path}/lmms-lab/DocVQA" in answer["error"]


def test_data_is_found_in_all_its_places(probe, small_data, tmp_path):
    import shutil

    source = small_data / "lmms-lab" / "DocVQA"
    wanted = 20
    other = tmp_path / "synonym" / "lmms-lab-encoder"
    shutil.copytree(source, other / "DocVQA")
    assert probe({"op": "size", "task": "docvqa_val", "data": str(other.parent)}) == wanted
    cache = tmp_path / "cache" / "datasets--lmms-lab--DocVQA"
    shutil.copytree(source, cache / "snapshots" / "abc")
    (cache / "snapshots" / "older").mkdir()
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("abc")
    assert probe({"op": "size", "task": "docvqa_val", "data": str(cache.parent)}) == wanted
    plain = tmp_path / "plain" / "lmms-lab" / "DocVQA"
    shutil.copytree(source, plain)
    (plain / "README.md").unlink()
    assert probe({"op": "size", "task": "docvqa_val", "data": str(plain.parent.parent)}) == wanted
    next(plain.glob("DocVQA/*00001-of*")).unlink()
    answer = probe({"op": "size", "task": "docvqa_val", "data": str(plain.parent.parent)})
    assert re.search("1 of 2 files are there, number 1 is missing", answer["error"])


def test_documents_come_in_any_order(probe, small_data):
    ids = list(range(20))
    random.Random(2).shuffle(ids)
    request = {"op": "prompts", "task": "docvqa_val", "data": str(small_data)}
    forward = probe(request)
    shuffled = probe({**request, "ids": ids})
    assert shuffled == [forward[i] for i in ids]
