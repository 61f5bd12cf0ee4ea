"""`evalcar run` with the real evaluator: checkpoints that cannot be measured beside one that can, tasks of the user's own, full disks."""

import io
import json
import os
import shutil
import subprocess

import pyarrow
import pytest
import sidecar as sidecar_module
from fixtures import data_sets, small_models
from PIL import Image
from pyarrow import parquet


@pytest.fixture(scope="module")
def good(tmp_path_factory, cache_dir, bin_dir):
    if not (bin_dir / "evalcar-evaluator").exists():
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")
    root = tmp_path_factory.mktemp("good")
    small_models.write_model(root / "model", small_models.SmallModel(seed=3, layers=2), cache_dir=cache_dir)
    data_sets.write_docvqa(root / "data", count=2)
    return root


def edit_tensors(folder, change):
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def other_architecture(folder):
    config = json.loads((folder / "config.json").read_text())
    config.update(model_type="gpt_neo", architectures=["GPTNeoForCausalLM"])
    (folder / "config.json").write_text(json.dumps(config))


def test_each_bad_checkpoint_ends_with_its_reason_and_the_good_one_is_published(bin_dir, good, tmp_path):
    bad = {
        5: (lambda f: edit_tensors(f, lambda t: t["model.norm.weight"].fill_(float("nan"))), ["model.norm.weight", "finite"]),
        10: (lambda f: edit_tensors(f, lambda t: t.pop("model.norm.weight")), ["model.norm.weight", "missing"]),
        15: (other_architecture, ["gpt_neo", "known are"]),
        20: (lambda f: (f / "tokenizer.json").unlink(), ["no tokenizer.json"]),
    }
    run = tmp_path / "out"
    for step in (1, *bad, 25):
        shutil.copytree(good / "model", run / f"checkpoint-{step}")
        edit_tensors(run / f"checkpoint-{step}", lambda t, step=step: t["model.norm.weight"].mul_(1 + step / 100))
        if step in bad:
            bad[step][0](run / f"checkpoint-{step}")
    sidecar = sidecar_module.Sidecar(bin_dir, tmp_path, run, arguments=[
        "--data", str(good / "data"), "--device", "cpu", "--set", "evaluate.max_new_tokens=2", "--set", "evaluate.bootstrap_iters=10",
        "--set", "watch.settle_time=1s"])  # fmt: skip

    assert sidecar.once() == 4, sidecar.log()

    assert sidecar.published() == {(1, "regular"), (25, "regular")}
    for step, (_, words) in bad.items():
        state, reason = sidecar.states()[step, "regular"]
        assert state == "quarantined", (step, state, reason)
        assert all(word in reason for word in words), (step, reason)
    assert sorted(line["global_step"] for line in sidecar.metrics_lines()) == [1, 25]
    assert os.listdir(run / "_evalcar" / "leases") == []


TASK = """task = "{name}"
[data]
{data}
[columns]
{images}target = "a"
[prompt]
text = "{{q}}"
[generation]
max_new_tokens = 2
[scorer]
name = "exact_match"
"""


@pytest.fixture
def own_tasks(tmp_path):
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "pictures.toml").write_text(TASK.format(name="pictures", data='set = "me/pictures"\nsplit = "test"', images='images = "picture"\n'))
    (tasks / "words.toml").write_text(TASK.format(name="words", data='files = "words.jsonl"', images=""))
    (tasks / "words.jsonl").write_text("".join(json.dumps({"q": f"Say {word}.", "a": word}) + "\n" for word in ("red", "green", "blue")))
    file = io.BytesIO()
    Image.new("RGB", (64, 48), "red").save(file, "PNG")
    folder = tmp_path / "data" / "me" / "pictures"
    folder.mkdir(parents=True)
    table = pyarrow.table({"q": ["What color?"] * 2, "picture": [{"bytes": file.getvalue(), "path": None}] * 2, "a": ["red"] * 2})
    parquet.write_table(table, folder / "test.parquet")
    return tasks


def command(bin_dir, *arguments):
    return subprocess.run([str(bin_dir / "evalcar"), *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)


def test_tasks_of_the_users_own_are_checked_evaluated_and_watched(bin_dir, good, own_tasks, tmp_path):
    for name in ("pictures", "words"):
        checked = command(bin_dir, "tasks", "--check", own_tasks / f"{name}.toml")
        assert checked.returncode == 0 and "good" in checked.stdout, checked.stdout + checked.stderr
    broken = tmp_path / "broken.toml"
    broken.write_text((own_tasks / "words.toml").read_text().replace("exact_match", "exact_mach").replace("[columns]", "[colums]"))
    refused = command(bin_dir, "tasks", "--check", broken)
    assert refused.returncode == 2
    assert 'did you mean "exact_match"?' in refused.stdout and 'did you mean "columns"?' in refused.stdout, refused.stdout

    place = ["--data", tmp_path / "data", "--device", "cpu", "--set", f"evaluate.tasks_dir={own_tasks}"]
    done = command(bin_dir, "eval", good / "model", "--tasks", "pictures,words", *place, "--output", tmp_path / "results", "--json")
    assert done.returncode == 0, done.stderr
    evaluated = json.loads(done.stdout)
    assert evaluated["samples"] == {"pictures": 2, "words": 3}
    assert {"exact_match"} <= evaluated["results"]["pictures"].keys() & evaluated["results"]["words"].keys()

    run = tmp_path / "out"
    shutil.copytree(good / "model", run / "checkpoint-5")
    sidecar = sidecar_module.Sidecar(bin_dir, tmp_path, run, tasks="pictures,words", arguments=[*map(str, place), "--set", "watch.settle_time=1s"])
    assert sidecar.once() == 0, sidecar.log()
    (line,) = sidecar.metrics_lines()
    for task in ("pictures", "words"):
        assert line["metrics"][f"eval/{task}/exact_match"] == evaluated["results"][task]["exact_match"]
    assert line["weights_sha256"] == evaluated["weights_sha256"]


# ---- full disks


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MB, and a file that fills it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk):
    with open(disk / "filler", "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return disk / "filler"


def test_results_that_do_not_fit_on_the_disk_are_told_and_leave_no_part_behind(bin_dir, good, small_disk):
    filler = fill(small_disk)
    arguments = ["eval", good / "model", "--tasks", "docvqa_val", "--data", good / "data", "--device", "cpu", "--set", "evaluate.max_new_tokens=2",
                 "--output", small_disk]  # fmt: skip

    done = command(bin_dir, *arguments)

    assert done.returncode == 1, done.stderr
    assert "No space left on device" in done.stderr and str(small_disk) in done.stderr
    left = [path for path in small_disk.rglob("*") if path.is_file() and path != filler]
    assert left == []
    filler.unlink()
    assert command(bin_dir, *arguments).returncode == 0


def test_a_full_disk_under_the_database_is_told_and_the_agent_goes_on_when_there_is_room(bin_dir, good, small_disk, tmp_path):
    run = tmp_path / "out"
    run.mkdir()
    sidecar = sidecar_module.Sidecar(bin_dir, tmp_path, run, arguments=[
        "--data", str(good / "data"), "--device", "cpu", "--set", "evaluate.max_new_tokens=2", "--set", "evaluate.bootstrap_iters=10",
        "--set", "watch.settle_time=1s"])  # fmt: skip
    database = small_disk / "state.db"
    sidecar.command = [word.replace(str(sidecar.database), str(database)) for word in sidecar.command]
    sidecar.database = database
    sidecar.start()
    sidecar.wait_for(lambda s: "watching" in s.log(), what="the start")
    filler = fill(small_disk)
    shutil.copytree(good / "model", run / "checkpoint-5")
    sidecar.wait_for(lambda s: "disk is full" in s.log() or "No space left" in s.log(), timeout=30, what="the complaint")
    assert sidecar.metrics_lines() == []
    filler.unlink()

    sidecar.wait_for(lambda s: (5, "regular") in s.published(), timeout=60, what="the result")
    assert sidecar.stop() == 0
    assert len(sidecar.metrics_lines()) == 1
