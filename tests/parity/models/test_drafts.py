"""An earlier checkpoint's answer as a draft saves passes and changes no token: float32 on the CPU, drifted weights, every kind of draft."""

import pathlib
import shutil

import engine_cases as cases
import numpy
import pytest
import small_models
import small_text_models
import torch
from safetensors import torch as safetensors
from small_text_models import SmallTextModel

CLEAR_MARGIN = 1 / 4096  # kClearMargin of engine/sampler.h
NEW_TOKENS = 40
LENGTHS = (3, 17, 41, 64, 9)  # of the prompts
DRIFTS = (0.0, 0.003, 0.03, 0.5)  # of each weight's own spread: the same checkpoint, the next one, a later one, another model
FAMILIES = {
    "llama": {},
    "mistral": {"extra": {"sliding_window": 12}},
    "qwen2": {"tied": True, "kv_heads": 1},
    "qwen3": {"head_dim": 32, "dtype": "bfloat16"},
}


class Course:
    """A model, the checkpoints that follow it, prompts, and each checkpoint's answers without drafts."""

    def __init__(self, bin_dir, folder, spec):
        self.bin_dir, self.folder, self.vocab = bin_dir, folder, spec.vocab
        small_text_models.write_model(folder / "first", spec)
        generator = numpy.random.RandomState(spec.seed)
        self.prompts = [generator.randint(3, spec.vocab, length).tolist() for length in LENGTHS]
        self.folders = [small_models.drift(folder / "first", folder / f"drift-{amount}", amount, spec.seed) for amount in DRIFTS]
        runs = [{"folder": str(each), "requests": self.requests()} for each in [folder / "first", *self.folders]]
        (document,) = cases.run_sessions(bin_dir, folder, [({"batch_size": 5}, runs)])
        self.earlier, *self.plain = [[answer["tokens"] for answer in run["answers"]] for run in document["runs"]]

    def requests(self, drafts=None, **settings):
        chosen = [{}] * len(self.prompts) if drafts is None else [{"draft": draft} for draft in drafts]
        return [{"tokens": prompt, "max_new_tokens": NEW_TOKENS, **settings, **draft} for prompt, draft in zip(self.prompts, chosen, strict=True)]

    def run(self, tries):
        """[(options, folder, requests)] → the runs."""
        sessions = [(options, [{"folder": str(folder), "requests": requests}]) for options, folder, requests in tries]
        runs = [run for document in cases.run_sessions(self.bin_dir, self.folder, sessions) for run in document["runs"]]
        for run in runs:
            assert "error" not in run, run
        return runs


def tokens_of(run):
    return [answer["tokens"] for answer in run["answers"]]


def drafted(run):
    """(tried, taken) of all answers."""
    return tuple(sum(answer.get("drafted", (0, 0))[i] for answer in run["answers"]) for i in (0, 1))


_courses = {}


@pytest.fixture
def course(tmp_path_factory, bin_dir):
    def of(family, seed):
        if (family, seed) not in _courses:
            spec = SmallTextModel(family, seed=seed, vocab=300, layers=2, **FAMILIES[family])
            _courses[family, seed] = Course(bin_dir, tmp_path_factory.mktemp(f"{family}-{seed}"), spec)
        return _courses[family, seed]

    return of


SEEDS = [pytest.param(seed, marks=[] if seed < 3 else pytest.mark.full) for seed in range(1, 9)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_drafts_of_an_earlier_checkpoint_change_no_token_however_far_the_weights_have_drifted(course, family, seed, figures):
    scene = course(family, seed)
    ways = [{"batch_size": batch, **more} for batch in (1, 2, 5) for more in ({}, {"draft_rows": 7})]
    ways.append({"batch_size": 5, "attn_implementation": "eager", "draft_rows": 64})
    tries = [(way, folder, scene.requests(scene.earlier)) for way in ways for folder in scene.folders]
    runs = scene.run(tries)
    for number, (run, (way, folder, _)) in enumerate(zip(runs, tries, strict=True)):
        assert tokens_of(run) == scene.plain[number % len(DRIFTS)], (way, folder.name)
    counts = [drafted(run) for run in runs[: len(DRIFTS)]]
    for tried, taken in counts[:2]:  # the very same weights, and the next checkpoint's; a place that is not clear ends a draft
        assert tried >= taken > 0.5 * tried > 40
    assert counts[0][1] > counts[2][1]
    figures(f"{family} {seed}: tokens tried and taken after each drift: {dict(zip(DRIFTS, counts, strict=True))}")


def with_every(step, tokens, change):
    return [change(token) if i % step == step - 1 else token for i, token in enumerate(tokens)]


def kinds_of_drafts(answers, vocab):
    """{what it is: (drafts, whether any of their tokens have to be tried, and taken; None: that is chance)} for a checkpoint that
    gives these answers."""
    other = lambda token: (token + 7) % vocab  # noqa: E731
    return {
        "wrong from the first token on": ([[other(t) for t in tokens] for tokens in answers], None, None),
        "wrong behind the first token": ([tokens[:1] + [other(t) for t in tokens[1:]] for tokens in answers], True, None),
        "wrong everywhere": ([tokens[:1] + [vocab - 1] * NEW_TOKENS for tokens in answers], True, False),
        "every 4th token another": ([with_every(4, tokens, other) for tokens in answers], True, True),
        "every 7th token missing": ([[t for i, t in enumerate(tokens) if i % 7 != 6] for tokens in answers], True, True),
        "words between": ([[t for i, token in enumerate(tokens) for t in [other(token)] * (i % 5 == 4) + [token]] for tokens in answers], True, True),
        "another prompt's answer": (answers[1:] + answers[:1], None, None),
        "a token again and again": ([[tokens[0]] * 60 for tokens in answers], True, None),
        "longer than an answer may be": ([tokens * 3 for tokens in answers], True, True),
        "its beginning": ([tokens[:3] for tokens in answers], True, True),
        "for some requests alone": ([tokens if i % 2 else [] for i, tokens in enumerate(answers)], True, True),
        "of another vocabulary": ([[*tokens, vocab] for tokens in answers], False, False),
        "no tokens": ([[-1, *tokens] for tokens in answers], False, False),
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_a_draft_that_is_wrong_in_any_way_changes_no_token(course, family):
    scene = course(family, 1)
    assert all(scene.vocab - 1 not in tokens for tokens in scene.earlier)
    kinds = kinds_of_drafts(scene.earlier, scene.vocab)
    ways = [{"batch_size": 1}, {"batch_size": 5}, {"batch_size": 3, "draft_rows": 5}]
    runs = scene.run([(way, scene.folder / "first", scene.requests(kind[0])) for kind in kinds.values() for way in ways])
    for number, run in enumerate(runs):
        name, (_, *expected) = list(kinds.items())[number // len(ways)]
        assert tokens_of(run) == scene.earlier, (name, ways[number % len(ways)])
        for count, claim in zip(drafted(run), expected, strict=True):
            assert claim is None or (count > 0) == claim, (name, ways[number % len(ways)], drafted(run))


SETTINGS = {
    "a penalty": {"repetition_penalty": 1.3},
    "few tokens": {"max_new_tokens": 6},
    "one token": {"max_new_tokens": 1},
    "draws": {"temperature": 0.8, "top_k": 20, "seed": 5},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_drafts_change_no_token_under_other_settings(course, settings):
    scene = course("llama", 1)
    ways = [{"batch_size": 1}, {"batch_size": 5}]
    folder = scene.folder / "first"
    plain = scene.run([(way, folder, scene.requests(**settings)) for way in ways])
    drafts = tokens_of(plain[0])
    runs = scene.run([(way, folder, scene.requests(drafts, **settings)) for way in ways])
    assert [tokens_of(run) for run in runs] == [tokens_of(run) for run in plain]
    uses_drafts = settings.get("max_new_tokens") != 1 and "temperature" not in settings
    for run in runs:
        assert (drafted(run)[1] > 0) == uses_drafts, drafted(run)


def test_an_answer_ends_where_a_stop_token_comes_in_the_middle_of_a_draft(course):
    scene = course("llama", 1)
    stop_ids = sorted({tokens[i] for i, tokens in enumerate(scene.earlier, start=9)})
    folder = scene.folder / "first"
    tries = [({"batch_size": batch}, folder, scene.requests(drafts, stop_ids=stop_ids))
             for batch in (1, 5) for drafts in (None, scene.earlier)]  # fmt: skip
    runs = scene.run(tries)
    for plain, run in (runs[:2], runs[2:]):
        assert tokens_of(run) == tokens_of(plain)
        assert all(answer["stopped"] for answer in run["answers"])
        assert max(map(len, tokens_of(run))) < 15
        assert drafted(run)[1] > 0


def test_an_answer_ends_where_its_caller_says_so_with_and_without_drafts(course):
    scene = course("llama", 1)
    folder = scene.folder / "first"
    last = scene.earlier[1][9:11]

    def until(tokens):
        for end in range(len(last), len(tokens) + 1):
            if tokens[end - len(last) : end] == last:
                return tokens[:end], True
        return tokens, False

    expected = [until(tokens) for tokens in scene.earlier]
    assert 0 < sum(ended for _, ended in expected) and len(expected[1][0]) <= 11
    ways = [({"batch_size": batch}, drafts) for batch in (1, 5) for drafts in (None, scene.earlier)]
    sessions = [(options, [{"folder": str(folder), "requests": scene.requests(drafts), "ends": last}]) for options, drafts in ways]
    for document, (_, drafts) in zip(cases.run_sessions(scene.bin_dir, scene.folder, sessions), ways, strict=True):
        (run,) = document["runs"]
        assert [(answer["tokens"], answer.get("ended", False)) for answer in run["answers"]] == expected
        assert not any(answer["stopped"] for answer in run["answers"])
        assert (drafted(run)[1] > 0) == (drafts is not None)


def test_a_pack_in_which_one_answer_is_drawn_is_computed_without_drafts(course):
    scene = course("llama", 1)
    requests = scene.requests(scene.earlier)
    requests[2] = {**requests[2], "temperature": 0.8}
    (plain, run) = scene.run([({"batch_size": 5, "draft_rows": rows}, scene.folder / "first", requests) for rows in (0, 32)])
    assert run["answers"] == plain["answers"]
    assert drafted(run) == (0, 0)


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"draft_rows": 0}], ids=str)
def test_no_draft_is_tried_where_rounding_decides_too_much_or_nobody_wants_one(course, options):
    scene = course("llama", 1)
    requests = [scene.requests(drafts) for drafts in (None, scene.earlier)]
    (plain, run) = scene.run([({"batch_size": 5, **options}, scene.folder / "first", each) for each in requests])
    assert run["answers"] == plain["answers"]
    assert drafted(run) == (0, 0)


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"draft_rows": 0}, {}], ids=str)
def test_expected_lengths_order_packs_only_where_drafts_are_tried(course, options):
    """In bfloat16 what stands beside a request decides tokens, and that must not depend on what was measured before."""
    scene = course("llama", 1)
    expected = [{**request, "expected_tokens": tokens} for request, tokens in zip(scene.requests(), (1, 40, 1, 40, 1), strict=True)]
    (plain, run) = scene.run([({"batch_size": 2, **options}, scene.folder / "first", each) for each in (scene.requests(), expected)])
    if options:
        assert run["answers"] == plain["answers"]
    assert (run["order"] == plain["order"]) == bool(options)


def pair_tokens(source, target, chosen, amount):
    """The scores of each token of `chosen` and of the one behind it become equal but for `amount`, of their own size."""
    shutil.copytree(source, target)
    (path,) = pathlib.Path(target).glob("*.safetensors")
    tensors = safetensors.load_file(path)
    head = tensors["lm_head.weight"]
    generator = torch.Generator().manual_seed(1)
    for token in chosen:
        head[token + 1] = head[token] * (1 + amount * torch.randn(head.shape[1], generator=generator))
    safetensors.save_file(tensors, path, metadata={"format": "pt"})
    return target


@pytest.mark.parametrize("amount", [0.0, 1e-7], ids=["ties", "what rounding decides"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_where_two_tokens_are_as_good_the_one_without_drafts_is_taken(course, tmp_path, seed, amount):
    """Everywhere, or in a few places behind tokens that a draft gave: what was doubtful before is computed again, too."""
    scene = course("llama", seed)
    everywhere = pair_tokens(scene.folder / "first", tmp_path / "everywhere", range(0, scene.vocab, 2), amount)
    somewhere = pair_tokens(scene.folder / "first", tmp_path / "somewhere", range(seed % 5 * 2, scene.vocab, 10), amount)
    tries = [(batch, folder) for batch in (1, 5) for folder in (everywhere, somewhere)]
    plain = scene.run([({"batch_size": batch}, folder, scene.requests()) for batch, folder in tries])
    runs = scene.run([({"batch_size": batch}, folder, scene.requests(tokens_of(run))) for (batch, folder), run in zip(tries, plain, strict=True)])
    for (batch, folder), run, without in zip(tries, runs, plain, strict=True):
        assert tokens_of(run) == tokens_of(without), (batch, folder.name)
        assert (drafted(run)[1] > 0) == (folder == somewhere)
        assert 0 < drafted(run)[0] < len(LENGTHS) * (NEW_TOKENS - 1)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_how_far_the_others_have_come_decides_no_token(course, tmp_path, seed):
    """Answers of many lengths: with drafts other sequences stand beside a row than without them, while rounding decides between two tokens."""
    scene = course("llama", seed)
    folder = pair_tokens(scene.folder / "first", tmp_path / "paired", range(seed % 5 * 2, scene.vocab, 10), 1e-7)
    requests = [{**request, "max_new_tokens": most} for request, most in zip(scene.requests(), (13, 40, 22, 31, 40), strict=True)]
    requests += [{**requests[i], "tokens": scene.prompts[i][::-1], "max_new_tokens": 17 + 9 * i} for i in (1, 2)]
    (plain,) = scene.run([({"batch_size": 7}, folder, requests)])
    drafts = [{**request, "draft": tokens} for request, tokens in zip(requests, tokens_of(plain), strict=True)]
    (run,) = scene.run([({"batch_size": 7}, folder, drafts)])
    assert tokens_of(run) == tokens_of(plain)
    assert drafted(run)[1] > 0


def test_a_place_that_is_not_clear_does_not_wait_until_the_others_have_no_guesses_left(course, tmp_path):
    scene = course("llama", 1)
    every = range(len(LENGTHS))
    short, long = next((i, j) for i in every for j in every if {scene.earlier[i][1], scene.earlier[i][1] + 1}.isdisjoint(scene.earlier[j]))
    folder = pair_tokens(scene.folder / "first", tmp_path / "paired", [scene.earlier[short][1]], 0.0)
    requests = [{"tokens": scene.prompts[short], "max_new_tokens": 2}, {"tokens": scene.prompts[long], "max_new_tokens": NEW_TOKENS}]
    drafts = [{**request, "draft": scene.earlier[i]} for request, i in zip(requests, (short, long), strict=True)]
    (plain, run) = scene.run([({"batch_size": 2}, folder, each) for each in (requests, drafts)])
    assert tokens_of(run) == tokens_of(plain)
    assert "drafted" not in run["answers"][0] and drafted(run)[1] > 20
    assert run["order"] == [0, 1]


def test_scores_change_far_less_by_drafts_than_a_token_has_to_be_ahead(course, figures):
    largest = 0.0
    for family in FAMILIES:
        scene = course(family, 1)
        files = [scene.folder / f"scores-{i}.bin" for i in range(2)]
        runs = [{"folder": str(scene.folder / "first"), "logits": str(file), "requests": scene.requests(drafts)}
                for file, drafts in zip(files, (None, scene.earlier), strict=True)]  # fmt: skip
        (document,) = cases.run_sessions(scene.bin_dir, scene.folder, [({"batch_size": 5}, runs)])
        assert drafted(document["runs"][1])[1] > 50
        plain, with_drafts = (numpy.fromfile(file, numpy.float32).reshape(-1, scene.vocab) for file in files)
        difference = numpy.abs(with_drafts - plain).max(1) / numpy.abs(plain).max(1)
        largest = max(largest, float(difference.max()))
    assert 0 < largest < CLEAR_MARGIN / 16
    figures(f"largest difference of a score with and without drafts: {largest:.1e} of the row's largest; a token has to be ahead by {CLEAR_MARGIN:.1e}")


def test_pictures_and_shared_prompts_give_the_same_tokens_with_drafts(tmp_path, bin_dir, cache_dir):
    model, ids = small_models.write_model(tmp_path / "first", seed=1, cache_dir=cache_dir)
    vocab = model.config.text_config.vocab_size
    drifted = small_models.drift(tmp_path / "first", tmp_path / "drifted", 0.002, 3)
    pictures = cases.Pictures(tmp_path)
    size = (6 * 28, 7 * 28)
    pictures.add(cases.picture(0, *size))
    head = cases.prompt(ids, vocab, 50, [size], after=0)
    prompts = [(head + cases.prompt(ids, vocab, 60 + i, [], before=3 + 4 * i), [0]) for i in range(4)]
    prompts.append((cases.prompt(ids, vocab, 70, [], before=30), []))
    requests = [{"tokens": tokens, "images": images, "max_new_tokens": NEW_TOKENS} for tokens, images in prompts]

    def runs(*tries):
        sessions = [(options, [{"folder": str(folder), "requests": asked}]) for options, folder, asked in tries]
        return [document["runs"][0] for document in cases.run_sessions(bin_dir, tmp_path, sessions, pictures)]

    (earlier, plain) = runs(*[({"batch_size": 5}, folder, requests) for folder in (tmp_path / "first", drifted)])
    asked = [{**request, "draft": answer["tokens"]} for request, answer in zip(requests, earlier["answers"], strict=True)]
    for run in runs(*[(options, drifted, asked) for options in ({"batch_size": 1}, {"batch_size": 5}, {"batch_size": 5, "share_prefixes": False})]):
        assert tokens_of(run) == tokens_of(plain)
        assert drafted(run)[1] > 50
