"""How requests are packed, shared, repeated or stopped changes no token."""

import engine_cases as cases
import pytest
import small_models
import torch


@pytest.fixture(scope="module")
def scene(tmp_path_factory, cache_dir):
    """One model, two pictures, nine prompts: five questions on the first picture, two on the second, two without."""
    folder = tmp_path_factory.mktemp("scene")
    model, ids = small_models.write_model(folder / "a", seed=1, cache_dir=cache_dir)
    small_models.write_model(folder / "b", seed=21, cache_dir=cache_dir)
    vocab = model.config.text_config.vocab_size
    sizes = [(6 * 28, 7 * 28), (4 * 28, 9 * 28)]
    pictures = cases.Pictures(folder)
    for i, size in enumerate(sizes):
        pictures.add(cases.picture(i, *size))
    prompts, images = [], []
    for picture, questions in ((0, 5), (1, 2), (None, 2)):
        chosen = [] if picture is None else [picture]
        head = cases.prompt(ids, vocab, 50, [sizes[i] for i in chosen], after=0)
        for question in range(questions):
            prompts.append(head + cases.prompt(ids, vocab, 60 + len(prompts), [], before=3 + 4 * question))
            images.append(chosen)
    return folder, model, ids, pictures, prompts, images


def requests(scene, **settings):
    _, _, _, _, prompts, images = scene
    return [{"tokens": t, "images": i, "max_new_tokens": 24, **settings} for t, i in zip(prompts, images, strict=True)]


def answers(scene, bin_dir, *tries):
    """The answers of each of `tries`, pairs of (requests, options)."""
    sessions = [(options, [{"folder": str(scene[0] / "a"), "requests": asked}]) for asked, options in tries]
    found = []
    for document in cases.run_sessions(bin_dir, scene[0], sessions, scene[3]):
        (result,) = document["runs"]
        assert "error" not in result, result
        found.append([answer and answer["tokens"] for answer in result["answers"]])
    return found


OPTIONS = [
    {"batch_size": 9},
    {"batch_size": 9, "share_prefixes": False},
    {"batch_size": 4},
    {"batch_size": 9, "prefill_tokens": 17},  # prompts and pictures are cut anywhere
    {"batch_size": 2, "prefill_tokens": 1},
    {"batch_size": 1, "share_prefixes": False, "picture_threads": 0},  # pictures in line, and far ahead
    {"batch_size": 2, "picture_threads": 3},
    {"batch_size": 9, "attn_implementation": "eager"},
    {"batch_size": 3, "attn_implementation": "flash_attention_2"},
    {},
]


@pytest.fixture(scope="module")
def every_way(scene, bin_dir):
    """The answers under each of OPTIONS, and before them those of one request at a time, nothing shared."""
    ways = [{"batch_size": 1, "share_prefixes": False}, *OPTIONS]
    return answers(scene, bin_dir, *[(requests(scene), options) for options in ways])


@pytest.fixture(scope="module")
def alone(every_way):
    return every_way[0]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_packed_shared_and_cut_prompts_give_the_same_tokens(every_way, alone, options):
    assert every_way[1 + OPTIONS.index(options)] == alone


@pytest.mark.parametrize("least, batch, halvings", [(8, 9, [4]), (2, 9, [4, 2, 1]), (4, 8, [4, 2]), (10, 9, [])])
def test_a_batch_that_does_not_fit_is_halved_and_the_tokens_are_those_of_one_at_a_time(scene, bin_dir, alone, least, batch, halvings):
    """A pack of `least` sequences and more runs out of memory."""
    options = {"batch_size": batch, "out_of_memory_from": least}
    runs = [{"folder": str(scene[0] / "a"), "requests": requests(scene)}, {"requests": requests(scene)[:3]}]
    (document,) = cases.run_sessions(bin_dir, scene[0], [(options, runs)], scene[3])
    first, again = document["runs"]
    assert [answer["tokens"] for answer in first["answers"]] == alone
    assert sorted(first["order"]) == list(range(len(alone)))  # each once
    assert first["shrunk"] == halvings
    assert [answer["tokens"] for answer in again["answers"]] == alone[:3]


def test_where_not_even_one_fits_the_run_fails_with_what_was_needed_and_free(scene, bin_dir):
    options = {"batch_size": 4, "out_of_memory_from": 1}
    run = {"folder": str(scene[0] / "a"), "requests": requests(scene)}
    (document,) = cases.run_sessions(bin_dir, scene[0], [(options, [run])], scene[3])
    (result,) = document["runs"]
    assert result["error"]["code"] == "unavailable" and result["order"] == []
    assert result["error"]["message"].startswith("out of memory while generating: 2.00 GiB needed, 512.0 MiB free of 79.10 GiB")
    assert "evaluate.max_pixels" in result["error"]["message"]


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_answer_each_request_once_and_as_one_rank_does(scene, bin_dir, alone, world_size):
    dealt = answers(scene, bin_dir, *[(requests(scene), {"rank": rank, "world_size": world_size}) for rank in range(world_size)])
    for i, expected in enumerate(alone):
        assert [tokens[i] for tokens in dealt if tokens[i] is not None] == [expected], f"request {i}"
    assert all(any(tokens) for tokens in dealt), "a rank has nothing to do"


def test_questions_on_equal_pictures_share_by_key(scene, bin_dir, alone):
    folder, model, ids, pictures, prompts, images = scene
    copies = cases.Pictures(folder)
    for array in [pictures.arrays[0]] * 5 + [pictures.arrays[1]] * 2:
        copies.add(array, key=7 if array is pictures.arrays[0] else 8)
    shifted = [{**r, "images": [i] if r["images"] else []} for i, r in enumerate(requests(scene))]
    run = {"folder": str(folder / "a"), "requests": shifted}
    (result,) = cases.run_probe(bin_dir, folder, [run], copies)["runs"]
    assert [answer["tokens"] for answer in result["answers"]] == alone


def test_pictures_that_differ_are_not_shared(scene, bin_dir):
    """The same words over two pictures of one size: the placeholders are equal, the answers must not be."""
    folder, model, ids, _, _, _ = scene
    vocab = model.config.text_config.vocab_size
    pictures = cases.Pictures(folder)
    arrays = [cases.picture(i, 6 * 28, 7 * 28) for i in (31, 32)]
    for array in arrays:
        pictures.add(array)
    tokens = cases.prompt(ids, vocab, 5, [(6 * 28, 7 * 28)], before=40)
    run = {"folder": str(folder / "a"),
           "requests": [{"tokens": tokens, "images": [i], "max_new_tokens": 24} for i in (0, 1)]}  # fmt: skip
    (result,) = cases.run_probe(bin_dir, folder, [run], pictures)["runs"]
    got = [answer["tokens"] for answer in result["answers"]]
    expected, _ = cases.reference(model, ids, [tokens] * 2, [[a] for a in arrays], 24)
    assert got == expected
    assert got[0] != got[1]


def test_the_same_run_twice_gives_the_same_bits(scene, bin_dir):
    folder, *_ = scene
    files = [folder / f"twice-{i}.bin" for i in range(2)]
    runs = [{"folder": str(folder / "a"), "requests": requests(scene), "logits": str(file)} for file in files]
    first, second = cases.run_probe(bin_dir, folder, runs, scene[3])["runs"]
    assert first["answers"] == second["answers"]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_swapping_to_other_weights_and_back_gives_the_first_answers_again(scene, bin_dir):
    folder, *_ = scene
    files = [folder / f"swap-{i}.bin" for i in range(3)]
    runs = [{"folder": str(folder / name), "requests": requests(scene), "logits": str(file)}
            for name, file in zip("aba", files, strict=True)]  # fmt: skip
    a, b, again = cases.run_probe(bin_dir, folder, runs, scene[3])["runs"]
    assert a["answers"] == again["answers"]
    assert files[0].read_bytes() == files[2].read_bytes()
    assert a["loaded"]["weights_sha256"] == again["loaded"]["weights_sha256"] != b["loaded"]["weights_sha256"]
    assert a["answers"] != b["answers"]


def test_answers_stop_early_and_leave_no_trace_on_the_others(scene, bin_dir, alone):
    stops = [tokens[3 + i % 7] for i, tokens in enumerate(alone)]
    settings = [{**r, "stop_ids": [stop]} for r, stop in zip(requests(scene), stops, strict=True)]
    (got,) = answers(scene, bin_dir, (settings, {}))
    assert got == [tokens[: tokens.index(stop)] for tokens, stop in zip(alone, stops, strict=True)]


def test_repetition_penalty_is_transformers(scene, bin_dir):
    """Over prompt and answer. Batched answers are compared with transformers' single ones: its own padding is penalised too."""
    folder, model, ids, pictures, prompts, images = scene
    penalised = requests(scene, repetition_penalty=1.3)[:5]
    one, five = answers(scene, bin_dir, (penalised, {"batch_size": 1}), (penalised, {"batch_size": 5}))
    expected = []
    for tokens, chosen in zip(prompts[:5], images, strict=False):
        expected += cases.reference(model, ids, [tokens], [[pictures.arrays[i] for i in chosen]], 24, penalty=1.3)[0]
    assert one == five == expected


def test_sampling_depends_on_seed_and_request_alone(scene, bin_dir, alone):
    drawn = lambda seed: requests(scene, temperature=0.8, top_p=0.9, top_k=50, seed=seed)  # noqa: E731
    named = [{**request, "stream": 70 + i} for i, request in enumerate(drawn(1))]
    first, packed, other, best, all_named, half = answers(
        scene, bin_dir, (drawn(1), {"batch_size": 1}), (drawn(1), {"batch_size": 9}), (drawn(2), {}),
        (requests(scene, temperature=0.8, top_k=1, seed=3), {}), (named, {}), (named[::-2], {}))  # fmt: skip
    assert first == packed != other
    assert best == alone
    assert half == all_named[::-2] and all_named != first, "a draw is of its stream, not of its place"


def test_a_stop_between_answers_is_cancelled(scene, bin_dir):
    run = {"folder": str(scene[0] / "a"), "requests": requests(scene), "cancel_after": 2}
    (result,) = cases.run_probe(bin_dir, scene[0], [run], scene[3], batch_size=2)["runs"]
    assert result["error"]["code"] == "cancelled"
    assert len(result["order"]) == 2


POSITION_BYTES = 2 * 3 * 2 * 16 * 4  # keys and values, layers, key heads, head_dim, float32: of small_models' default


def longest_need(scene):
    return max(len(tokens) for tokens in scene[4]) + 24


@pytest.mark.parametrize("sequences", [1.0, 2.5, 4.0])
def test_a_batch_that_does_not_fit_the_cache_is_made_smaller_and_gives_the_same_tokens(scene, bin_dir, alone, sequences):
    """Room for so many of the longest sequences, where nine are asked for."""
    room = int(sequences * longest_need(scene)) * POSITION_BYTES
    run = {"folder": str(scene[0] / "a"), "requests": requests(scene)}
    (result,) = cases.run_probe(bin_dir, scene[0], [run], scene[3], batch_size=9, cache_bytes=room)["runs"]
    assert [answer["tokens"] for answer in result["answers"]] == alone


def test_a_request_longer_than_the_cache_is_refused_and_the_others_are_answered(scene, bin_dir, alone):
    need = longest_need(scene)
    asked = requests(scene)
    asked[3]["max_new_tokens"] = need + 1  # its prompt has to fit, too
    run = {"folder": str(scene[0] / "a"), "requests": asked}
    (result,) = cases.run_probe(bin_dir, scene[0], [run], scene[3], batch_size=9, cache_bytes=need * POSITION_BYTES)["runs"]
    refused = result["answers"].pop(3)["error"]
    prompt = len(asked[3]["tokens"])
    assert refused["code"] == "unavailable"
    assert refused["message"] == (
        f"out of memory: {prompt + need + 1} cache positions are needed ({prompt} of the prompt, {need + 1} to generate), "
        f"and there is room for {need}")  # fmt: skip
    assert [answer["tokens"] for answer in result["answers"]] == alone[:3] + alone[4:]


def test_a_cache_that_grows_between_packs_changes_no_token(scene, bin_dir, alone):
    """The long answer goes first and alone, for the five questions that share a picture fill a pack of their own: that one needs
    more memory than the first. In `alone` the first pack needed the most."""
    folder, model, ids, pictures, prompts, images = scene
    long = {"tokens": prompts[8], "images": images[8], "max_new_tokens": 300}
    five = requests(scene)[:5]
    assert 5 * min(len(r["tokens"]) + 24 for r in five) > len(long["tokens"]) + 300
    run = {"folder": str(folder / "a"), "requests": [*five, long]}
    (growing,) = cases.run_probe(bin_dir, folder, [run], pictures, batch_size=5)["runs"]
    assert growing["order"][0] == 5  # alone in the first pack: it took 300 steps, the others 24
    answered = [answer["tokens"] for answer in growing["answers"]]
    assert answered[:5] == alone[:5]
    assert answered[5][:24] == alone[8]
    assert answered[5:] == cases.reference(model, ids, [long["tokens"]], [[]], 300)[0]


def test_bfloat16_scores_are_as_close_as_transformers_own(scene, bin_dir):
    """In bfloat16 tokens may differ; the first scores must be as near to float32's as transformers' are (within a factor of 2)."""
    folder, model, ids, pictures, prompts, images = scene
    logits_file = folder / "bf16.bin"
    run = {"folder": str(folder / "a"), "requests": requests(scene), "logits": str(logits_file)}
    (result,) = cases.run_probe(bin_dir, folder, [run], pictures, dtype="bfloat16")["runs"]
    assert result["loaded"]["dtype"] == "bfloat16"
    vocab = model.config.text_config.vocab_size
    ours = cases.read_logits(logits_file, vocab, [len(a["tokens"]) for a in result["answers"]])
    half = small_models.build(small_models.SmallModel(seed=1), ids).to(torch.bfloat16)
    errors = []
    for i, (tokens, chosen) in enumerate(zip(prompts, images, strict=True)):
        arrays = [[pictures.arrays[j] for j in chosen]]
        exact = cases.reference(model, ids, [tokens], arrays, 1)[1][0][0]
        theirs = cases.reference(half, ids, [tokens], arrays, 1)[1][0][0]
        errors.append(((ours[i][0] - exact).pow(2).mean().sqrt().item(), (theirs - exact).pow(2).mean().sqrt().item()))
    mean = [sum(pair[side] for pair in errors) / len(errors) for side in (0, 1)]
    print(f"\n  bfloat16 error, root mean square: {mean[0]:.3f} ours, {mean[1]:.3f} transformers'")
    assert mean[0] < 2 * mean[1]
