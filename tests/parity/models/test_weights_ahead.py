"""Weights that were read ahead are those that a load would have read, or are not used."""

import os
import pathlib
import shutil

import engine_cases as cases
import numpy
import pytest
import small_models
from safetensors import numpy as safetensors


@pytest.fixture(scope="module")
def scene(tmp_path_factory, cache_dir):
    """Two checkpoints of one model, also stored in 16 bits, one of another shape, and a prompt."""
    folder = tmp_path_factory.mktemp("scene")
    model, ids = small_models.write_model(folder / "a", seed=1, cache_dir=cache_dir)
    small_models.write_model(folder / "b", seed=21, cache_dir=cache_dir)
    for name, seed in (("a16", 1), ("b16", 21)):
        small_models.write_model(folder / name, seed=seed, dtype="bfloat16", cache_dir=cache_dir)
    small_models.write_model(folder / "shorter", small_models.SmallModel(seed=5, layers=2), cache_dir=cache_dir)
    return folder, cases.prompt(ids, model.config.text_config.vocab_size, 50, [], after=6)


def sessions(scene, bin_dir, *of):
    """The runs of each session, a list of runs; each run gets `logits`, the bytes of all its steps' scores."""
    folder, prompt = scene
    number = 0
    for _, runs in of:
        for run in runs:
            number += 1
            run["requests"] = [{"tokens": prompt, "max_new_tokens": 8}]
            run["logits"] = str(folder / f"{number}.logits")
    documents = cases.run_sessions(bin_dir, folder, list(of))
    found = [document["runs"] for document in documents]
    for (_, runs), results in zip(of, found, strict=True):
        for run, result in zip(runs, results, strict=True):
            if "error" not in result:
                result["logits"] = pathlib.Path(run["logits"]).read_bytes()
    return found


def at(scene, name):
    return str(scene[0] / name)


@pytest.fixture
def copy_of_b(scene, tmp_path):
    """A checkpoint that a test may change."""
    return pathlib.Path(shutil.copytree(scene[0] / "b", tmp_path / "copy"))


def change(folder, **edits):
    """Rewrites the weights: `edits` of the first matrix of the embeddings."""
    path = folder / "model.safetensors"
    tensors = safetensors.load_file(path)
    name = min(name for name in tensors if "embed_tokens" in name)
    if "value" in edits:
        tensors[name][1, 1] = edits["value"]
    if "without" in edits:
        del tensors[name]
    safetensors.save_file(tensors, path, metadata={"format": "pt"})
    return name


@pytest.mark.parametrize("stored", ["", "16"], ids=["float32", "bfloat16"])
def test_weights_that_were_read_ahead_give_the_same_bits_and_hash_as_direct_ones(scene, bin_dir, stored):
    a, b = at(scene, "a" + stored), at(scene, "b" + stored)
    ((direct_a, direct_b), ahead) = sessions(
        scene, bin_dir, ({}, [{"folder": a}, {"folder": b}]),
        ({}, [{"folder": a, "prefetch": b}, {"folder": b, "prefetch": a}, {"folder": a}]))  # fmt: skip
    assert [run.get("prefetch") for run in ahead] == ["", "", None]
    assert [run["loaded"]["prefetched"] for run in ahead] == [False, True, True]
    assert direct_a["logits"] != direct_b["logits"]
    assert [run["logits"] for run in ahead] == [direct_a["logits"], direct_b["logits"], direct_a["logits"]]
    for run, direct in zip(ahead, [direct_a, direct_b, direct_a], strict=True):
        assert run["loaded"] == {**direct["loaded"], "prefetched": run["loaded"]["prefetched"]}


def test_another_checkpoint_than_the_one_read_ahead_is_loaded_directly_and_that_one_waits(scene, bin_dir):
    a, b, shorter = at(scene, "a"), at(scene, "b"), at(scene, "shorter")
    (direct, ahead) = sessions(
        scene, bin_dir, ({}, [{"folder": a}, {"folder": b}]),
        ({}, [{"folder": a, "prefetch": b}, {"folder": a}, {"folder": b, "prefetch": a}, {"folder": shorter}, {"folder": a}]))  # fmt: skip
    # A model of another shape needs an arena of its own: what was read ahead gives its memory back.
    assert [run["loaded"]["prefetched"] for run in ahead] == [False, False, True, False, False]
    assert ahead[1]["logits"] == direct[0]["logits"] and ahead[2]["logits"] == direct[1]["logits"]
    assert ahead[4]["logits"] == direct[0]["logits"]


def test_the_newest_of_several_that_were_read_ahead_is_the_one(scene, bin_dir):
    a, b, shorter = at(scene, "a"), at(scene, "b"), at(scene, "shorter")
    ((run_a, _, run_shorter),) = sessions(
        scene, bin_dir, ({}, [{"folder": a, "prefetch": b}, {"folder": a, "prefetch": shorter}, {"folder": shorter}]))  # fmt: skip
    assert run_shorter["loaded"]["prefetched"] and run_shorter["loaded"]["tensors"] < run_a["loaded"]["tensors"]


@pytest.mark.parametrize("value", [0.5, None], ids=["other values", "the same values"])
def test_a_checkpoint_that_was_replaced_after_it_was_read_ahead_is_read_afresh(scene, bin_dir, copy_of_b, tmp_path, value):
    a, copy = at(scene, "a"), str(copy_of_b)
    shutil.copytree(copy_of_b, tmp_path / "after")
    if value is not None:
        change(tmp_path / "after", value=value)
    stamp = (copy_of_b / "model.safetensors").stat().st_mtime_ns
    os.utime(tmp_path / "after/model.safetensors", ns=(stamp, stamp))
    rename = [str(tmp_path / "after/model.safetensors"), str(copy_of_b / "model.safetensors")]
    ((before,), (_, ahead)) = sessions(
        scene, bin_dir, ({}, [{"folder": copy}]), ({}, [{"folder": a, "prefetch": copy}, {"rename": rename, "folder": copy}]))  # fmt: skip
    ((after,),) = sessions(scene, bin_dir, ({}, [{"folder": copy}]))
    assert not ahead["loaded"]["prefetched"]
    assert ahead["logits"] == after["logits"] and ahead["loaded"] == after["loaded"]
    assert (before["loaded"] != after["loaded"]) == (value is not None)


@pytest.mark.parametrize("edits, said", [({"value": numpy.nan}, "is NaN or infinite"), ({"without": True}, "1 missing")])
def test_broken_weights_are_told_by_the_load_as_ever_and_the_resident_ones_run_on(scene, bin_dir, copy_of_b, edits, said):
    a, broken = at(scene, "a"), str(copy_of_b)
    name = change(copy_of_b, **edits)
    ((direct_a,), (direct,), (run_a, again, ahead)) = sessions(
        scene, bin_dir, ({}, [{"folder": a}]), ({}, [{"folder": broken}]),
        ({}, [{"folder": a, "prefetch": broken}, {}, {"folder": broken}]))  # fmt: skip
    assert said in run_a["prefetch"] and name in run_a["prefetch"]
    assert run_a["logits"] == again["logits"] == direct_a["logits"]
    assert ahead["error"] == direct["error"]
    assert said in ahead["error"]["message"]


def test_a_checkpoint_that_is_not_there_is_nobodys_harm(scene, bin_dir):
    a, gone = at(scene, "a"), at(scene, "gone")
    ((run_a, again, error),) = sessions(scene, bin_dir, ({}, [{"folder": a, "prefetch": gone}, {}, {"folder": gone}]))
    assert gone in run_a["prefetch"]
    assert run_a["logits"] == again["logits"]
    assert gone in error["error"]["message"]


def test_what_was_read_ahead_gives_way_before_the_batch_is_halved(scene, bin_dir):
    a, b = at(scene, "a"), at(scene, "b")
    options = {"out_of_memory_once": 1}
    ((alone,), (run_a, run_b)) = sessions(
        scene, bin_dir, (options, [{"folder": a}]), (options, [{"folder": a, "prefetch": b}, {"folder": b}]))  # fmt: skip
    assert alone["shrunk"] != [] and run_a["shrunk"] == []
    assert run_a["logits"] == alone["logits"]
    assert not run_b["loaded"]["prefetched"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_where_it_gives_way_a_pack_that_was_partly_answered_is_computed_whole(scene, bin_dir, dtype):
    """Of a pack that is scored, what is read first is answered first. The others have the same company again, and so the same bits."""
    folder, prompt = scene
    words = numpy.random.RandomState(4)
    choices = lambda: [words.randint(3, 300, 5).tolist() for _ in range(3)]  # noqa: E731
    asked = [{"tokens": [*words.randint(3, 300, 37 + 3 * i).tolist(), *prompt], "continuations": choices()} for i in range(7)]
    run = {"folder": at(scene, "a"), "requests": asked}
    layers = 3  # each a step, of batches of 100 tokens
    options = {"batch_size": 7, "prefill_tokens": 100, "dtype": dtype}
    tries = [(options, [run])] + [
        (options, [{**run, "prefetch": at(scene, "b"), "out_of_memory_at_step": layers * batch}]) for batch in (2, 3, 4)]  # fmt: skip
    (whole,), *disturbed = (document["runs"] for document in cases.run_sessions(bin_dir, folder, tries))
    assert whole["packs"] == [7]
    for (again,) in disturbed:
        assert again["shrunk"] == [] and again["packs"] == [7, 7]
        assert sorted(again["order"]) == list(range(7)), "each once"
        assert again["answers"] == whole["answers"]


def test_what_is_read_ahead_decides_no_pack(scene, bin_dir):
    """Where packs would be narrower beside it, it goes, if that is enough; where others have the memory it stays."""
    folder, prompt = scene
    asked = [{"tokens": [*prompt, 7 + i], "max_new_tokens": 8} for i in range(5)]
    position = 2 * 3 * 2 * 16 * 4  # keys and values, layers, key heads, head_dim, float32: of small_models' default
    one = (len(prompt) + 1 + 8) * position
    wide = 100 * one

    def session(*, prefetch=False, batch=8, more=(), **budget):
        budget = {"free": wide, "next": one, "planned": wide, "alone": wide, **budget}
        runs = [{"folder": at(scene, "a"), "requests": [*asked, *more]}, {"folder": at(scene, "b"), "requests": asked}]
        if prefetch:
            runs[0]["prefetch"] = at(scene, "b")
        return {"cache_budget": budget, "share_prefixes": False, "batch_size": batch}, runs

    never = {"tokens": prompt, "max_new_tokens": 1000 * len(prompt)}
    cases_of = {  # packs of the first run, whether it was narrower than usual, whether the second was read ahead
        "all together": (session(), [5], False, False),
        "more is free than is planned for": (session(planned=2 * one), [2, 2, 1], False, False),
        "beside the next one as much as is planned for": (session(prefetch=True, free=3 * one, planned=2 * one), [2, 2, 1], False, True),
        "only without it": (session(prefetch=True, free=2 * one, planned=2 * one), [2, 2, 1], False, False),
        "others have it, not even without": (session(prefetch=True, free=2 * one, planned=4 * one), [1] * 5, True, True),
        "less than one is planned for": (session(planned=one - 1), [1] * 5, False, False),
        "one that never fits changes nothing": (session(prefetch=True, free=3 * one, planned=2 * one, more=[never]), [2, 2, 1], False, True),
        "fewer requests than there is width for": (session(prefetch=True, batch=64, free=6 * one, planned=40 * one), [5], False, True),
    }
    found = [document["runs"] for document in cases.run_sessions(bin_dir, folder, [of for of, *_ in cases_of.values()])]
    alone = [answer["tokens"] for answer in found[0][0]["answers"]]
    for (name, (_, packs, narrowed, prefetched)), (first, second) in zip(cases_of.items(), found, strict=True):
        assert first["packs"] == packs, name
        assert [answer["tokens"] for answer in first["answers"][:5]] == alone, name
        assert bool(first["narrowed"]) == narrowed, (name, first["narrowed"])
        assert second["loaded"]["prefetched"] == prefetched, name
    assert "out of memory" in found[6][0]["answers"][5]["error"]["message"]


def test_packs_that_stay_narrow_after_memory_ran_out_are_told(scene, bin_dir):
    folder, prompt = scene
    asked = [{"tokens": [*prompt, 7 + i], "max_new_tokens": 8} for i in range(5)]
    runs = [{"folder": at(scene, "a"), "requests": asked}, {"requests": asked}, {"requests": asked}]
    for count, told in ((8, [False, True, False]), (1, [False, False, False])):
        once = {"batch_size": count, "share_prefixes": False, "out_of_memory_once": 1 if count > 1 else 100}
        (document,) = cases.run_sessions(bin_dir, folder, [(once, runs)])
        assert [bool(run["shrunk"]) for run in document["runs"]] == [count > 1, False, False]
        assert [any("ran out before" in reason for reason in run["narrowed"]) for run in document["runs"]][1:] == told[1:], count
