"""Our results files against those of the real lmms-eval: the same keys in the same order, the same derived numbers,
and read by the programs that read lmms-eval's."""

import json
import math
import os
import random
import shutil
import subprocess

import data_sets
import lmms_eval_run
import pytest
import small_models

TASKS = ("docvqa_val", "mmmu_val", "textvqa_val")
# What is of the run and not of the format: compared by key only.
OF_THE_RUN = {"config", "git_hash", "git_branch", "lmms_eval_version", "date", "throughput", "model_source", "model_name",
              "model_name_sanitized", "start_time", "end_time", "total_evaluation_time_seconds"}  # fmt: skip


@pytest.fixture(scope="module")
def real(cache_dir):
    """Three documents of each task by the real lmms-eval (about 15 s, once): (results, path of samples by task)."""
    folder = cache_dir / "publish_lmms_eval_1"
    if not folder.exists():
        work = cache_dir / f"publish_lmms_eval_1.tmp{os.getpid()}"
        data_sets.write_all(work / "data", docvqa=5, textvqa=4, mmmu=4)
        checkpoint = small_models.write_model(work / "run" / "checkpoint-500", cache_dir=cache_dir)
        checkpoint = checkpoint if checkpoint else work / "run" / "checkpoint-500"
        lmms_eval_run.run_lmms_eval(work / "run" / "checkpoint-500", work / "data", list(TASKS), work / "out", limit=3)
        try:
            work.rename(folder)
        except OSError:  # another run was faster
            shutil.rmtree(work)
    path = next((folder / "out").glob("**/*_results.json"))
    stem = path.name.removesuffix("_results.json")
    samples = {task: path.parent / f"{stem}_samples_{task}.jsonl" for task in TASKS}
    return json.loads(path.read_text()), samples


@pytest.fixture(scope="module")
def ours(real, bin_dir, tmp_path_factory):
    """The same results and samples through our writer: (parsed file, its path, paths of samples, the table's text)."""
    results, samples = real
    folder = tmp_path_factory.mktemp("ours")
    spec = {
        "checkpoint": "/data/run/checkpoint-500",
        "limit": 3,
        "seconds": 4.5,
        "tasks": [
            {
                "task": task,
                "version": str(results["versions"][task]),
                "n": 3,
                "n_original": results["n-samples"][task]["original"],
                "n_effective": results["n-samples"][task]["effective"],
                "results": results["results"][task],
                "config": results["configs"][task],
                "samples": str(samples[task]),
            }
            for task in reversed(TASKS)
        ],
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    written = json.loads(
        subprocess.run([bin_dir / "publish_probe", "results", folder / "spec.json", folder / "out"], check=True,
                       capture_output=True, text=True).stdout)  # fmt: skip
    with open(written["results"], encoding="utf-8") as file:
        parsed = json.load(file)
    with open(written["table"], encoding="utf-8") as file:
        table = file.read()
    return parsed, written["results"], written["samples"], table


def key_orders(value, path=""):
    """Path → list of keys, for every object below."""
    found = {}
    if isinstance(value, dict):
        found[path] = list(value)
        for key, child in value.items():
            found.update(key_orders(child, f"{path}/{key}"))
    return found


def test_top_level_keys_are_lmms_evals_in_its_order_and_ours_come_last(real, ours):
    assert list(ours[0])[: len(real[0])] == list(real[0])
    assert list(ours[0])[len(real[0]) :] == ["evalcar"]


def test_keys_below_are_lmms_evals_in_its_order(real, ours):
    wanted = key_orders(real[0])
    found = key_orders(ours[0])
    for path, keys in wanted.items():
        if path.startswith("/config/resolved_cli_args"):  # the arguments of another program
            continue
        if path in ("/n-samples", "/efficiency/by_task", "/task_hashes"):  # lmms-eval: the order of a set
            assert sorted(found[path]) == sorted(keys)
        elif path:
            assert found[path] == keys, path


def test_values_are_lmms_evals(real, ours):
    for key, value in real[0].items():
        if key not in OF_THE_RUN:
            assert ours[0][key] == value, key
    for key in ("limit", "offset", "bootstrap_iters", "random_seed", "numpy_seed", "torch_seed", "fewshot_seed", "device"):
        assert ours[0]["config"][key] == real[0]["config"][key], key
    assert type(ours[0]["versions"]["mmmu_val"]) is float
    assert isinstance(ours[0]["total_evaluation_time_seconds"], str)


def test_sample_files_keep_their_lines(real, ours):
    assert len(ours[2]) == len(TASKS)
    for path in ours[2]:
        task = path.split("_samples_")[1].removesuffix(".jsonl")
        with open(path, encoding="utf-8") as file:
            assert file.read() == real[1][task].read_text(encoding="utf-8")


def test_lmms_evals_baseline_reader_reads_our_samples(ours):
    from lmms_eval.baselines.loader import load_baseline

    for path in ours[2]:
        if "docvqa" in path:
            scores, _ = load_baseline(path, "docvqa_val")
            assert len(scores) == 3


def trainer_metrics(document):
    """The rules by which lmms-engine's client turns a results file into metrics."""
    metrics = {}
    for task, entry in document["results"].items():
        for key, value in entry.items():
            if "_stderr," in key or "_pass_at_k," in key:
                continue
            name = key.split(",")[0]
            if value == "N/A":
                metrics[f"eval/{task}_{name}"] = math.nan
                continue
            if isinstance(value, list) and not value:
                continue
            try:
                metrics[f"eval/{task}_{name}"] = float(value)
            except (TypeError, ValueError):
                continue
    return metrics


def test_the_trainers_client_gets_the_same_metrics_from_our_file_as_from_lmms_evals(real, ours):
    wanted = trainer_metrics(real[0])
    found = trainer_metrics(ours[0])
    assert repr(found) == repr(wanted)  # NaN equals itself as text
    assert {"eval/docvqa_val_anls", "eval/mmmu_val_mmmu_acc", "eval/textvqa_val_exact_match"} <= set(found)


def test_model_folders_are_named_as_lmms_eval_names_them(bin_dir):
    from lmms_eval.utils import sanitize_model_name

    rng = random.Random(5)
    names = ["/a/b/c", "a", "a/b", "/a", "Qwen/Qwen2.5-VL-3B", "/x/run 1/checkpoint-5", 'a/"<>b', "a/b::c??", "[x]/y|z*"]
    names += ["".join(rng.choice('ab/:*?"<>|[]\\-_. é') for _ in range(rng.randint(1, 20))).strip("/ ") or "x"
              for _ in range(500)]  # fmt: skip
    names = [name for name in names if "//" not in name]
    found = subprocess.run([bin_dir / "publish_probe", "names"], input="\n".join(names) + "\n", capture_output=True,
                           text=True, check=True).stdout.split("\n")[:-1]  # fmt: skip
    assert found == [sanitize_model_name(name) for name in names]


def test_the_table_says_what_the_file_says(ours):
    assert ours[3].startswith("|")
    assert len(ours[3].splitlines()) >= 2
