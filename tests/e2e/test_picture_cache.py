"""Prepared pictures that are kept on the disk: the next evaluator takes them, and answers as if they had been made."""

import json
import os
import pathlib

import checkpoints
import pytest
import small_models
from evaluator import Evaluator
from fixtures import data_sets

TASKS = ["docvqa_val", "mmmu_val"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, bin_dir, cache_dir):
    """(a model, its data)"""
    if not (bin_dir / "evalcar-evaluator").exists():
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")
    root = tmp_path_factory.mktemp("pictures")
    small_models.write_model(root / "model", small_models.SmallModel(seed=5, layers=2), cache_dir=cache_dir)
    return root / "model", data_sets.write_all(root / "data", 6, 1, 6)


def scored(bin_dir, inputs, *arguments, log=None, **settings):
    """All lines of a new process."""
    model, data = inputs
    with open(log or os.devnull, "ab") as stream, Evaluator(bin_dir, *arguments, log=stream) as evaluator:
        evaluator.load(model)
        evaluator.evaluate(data, TASKS, **settings)
        evaluator.wait_for("result")
        evaluator.say("bye")
    return [(message["task"], message["line"]) for message in evaluator.heard if message["type"] == "scored"]


def entries(folder):
    return {path: path.stat() for path in pathlib.Path(folder).rglob("*") if path.is_file()}


def age(folder):
    """As if nobody had asked for them in two hours."""
    for path, stat in entries(folder).items():
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns - 2 * 3600 * 10**9))


def test_the_next_evaluator_takes_what_was_prepared(bin_dir, inputs, tmp_path):
    plain = scored(bin_dir, inputs)
    cache = tmp_path / "pictures"
    options = ["--picture-cache", str(cache), "--picture-cache-bytes", str(1 << 30)]
    assert len(plain) == 12

    assert scored(bin_dir, inputs, *options) == plain
    kept = entries(cache)
    assert len(kept) > 6
    age(cache)
    assert scored(bin_dir, inputs, *options) == plain

    again = entries(cache)
    assert {path: stat.st_ino for path, stat in again.items()} == {path: stat.st_ino for path, stat in kept.items()}  # none was made anew
    assert all(stat.st_mtime_ns > kept[path].st_mtime_ns - 3600 * 10**9 for path, stat in again.items())  # each was asked for

    # Other settings have other pixels; these stay.
    assert scored(bin_dir, inputs, *options, max_pixels=100 * 784) == scored(bin_dir, inputs, max_pixels=100 * 784)
    assert entries(cache).keys() > kept.keys()


def test_a_damaged_entry_changes_no_answer(bin_dir, inputs, tmp_path):
    plain = scored(bin_dir, inputs)
    cache, log = tmp_path / "pictures", tmp_path / "log"
    options = ["--picture-cache", str(cache), "--picture-cache-bytes", str(1 << 30)]
    scored(bin_dir, inputs, *options)
    for number, path in enumerate(sorted(entries(cache))):
        content = bytearray(path.read_bytes())
        if number % 3 == 0:
            content[-100] ^= 255
        elif number % 3 == 1:
            del content[len(content) // 2:]
        else:
            content[:] = sorted(entries(cache))[0].read_bytes()
        path.write_bytes(content)

    assert scored(bin_dir, inputs, *options, log=log) == plain

    assert log.read_text().count("picture cache") == 1 and "made anew" in log.read_text()
    assert scored(bin_dir, inputs, *options, log=log) == plain
    assert log.read_text().count("picture cache") == 1  # they are whole again


@pytest.mark.parametrize("size", ["1GiB", "0"])
def test_the_agent_says_where_and_how_much(bench, size):
    bench.tell(log_arguments=True)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar("--set", f"limits.picture_cache={size}", "--set", "limits.min_free=1MiB")

    assert sidecar.once() == 0, sidecar.log()

    arguments = json.loads(bench.heard("arguments")[0].split(" ", 1)[1])
    told = dict(zip(arguments, arguments[1:]))
    if size == "0":
        assert not any(argument.startswith("--picture-cache") for argument in arguments)
    else:
        assert told["--picture-cache"] == str(bench.home / "state" / "evalcar" / "pictures")
        assert (told["--picture-cache-bytes"], told["--picture-cache-keep-free"]) == (str(1 << 30), str(1 << 20))
