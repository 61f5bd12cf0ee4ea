"""How likely given tokens are: the engine's log-likelihoods are transformers' own log_softmax, gathered, in float32 on the CPU."""

import engine_cases as cases
import numpy as np
import pytest
import small_models
import small_text_models
import small_vlms
import torch
from small_models import SmallModel
from small_text_models import SmallTextModel
from small_vlms import SmallVlm

TOLERANCE = {"abs": 1e-4, "rel": 5e-6}  # of a sum over up to 60 tokens: float32 in another order; scores of the random models reach 40
LENGTHS = [1, 4, 2, 20, 1]  # of the continuations
SIZES = [(5, 3), (3, 11)]  # of the pictures, in merged tokens


def text_setting(folder, spec, lengths=(3, 50, 64, 1)):
    model, _ = small_text_models.write_model(folder / "checkpoint", spec)
    generator = np.random.RandomState(spec.seed)
    prompts = [generator.randint(3, spec.vocab, length).tolist() for length in lengths]
    return cases.Setting(model, {"<|endoftext|>": 0}, folder, cases.Pictures(folder), prompts, [[]] * len(prompts))


def picture_setting(folder, cache_dir, module, spec, grid, own):
    model, ids = module.write_model(folder / "checkpoint", spec, cache_dir=cache_dir)
    vocab = model.config.get_text_config().vocab_size
    sizes = [(grid * height, grid * width) for height, width in SIZES]
    pictures = cases.Pictures(folder)
    for i, size in enumerate(sizes):
        pictures.add(cases.picture(i, *size))
    images = [[0], [1], [1, 0], []]
    prompts = [cases.prompt(ids, vocab, 90 + i, [sizes[j] for j in chosen], before=3 + 5 * i, grid=grid)
               for i, chosen in enumerate(images)]  # fmt: skip
    return cases.Setting(model, ids, folder, pictures, prompts, images, own)


TEXT = {
    "llama": SmallTextModel("llama", seed=1, tied=True, rope=small_text_models.LLAMA3_ROPE, rope_theta=500000.0),
    "mistral-window": SmallTextModel("mistral", seed=5, extra={"sliding_window": 12}),
    "qwen3": SmallTextModel("qwen3", seed=33, tied=True, head_dim=32),
}
QWEN3_PIXELS = {"patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
_settings = {}


@pytest.fixture(params=[*TEXT, "qwen2_5_vl", "qwen3_vl"])
def setting(request, tmp_path_factory, cache_dir):
    name = request.param
    if name not in _settings:
        folder = tmp_path_factory.mktemp(name)
        if name in TEXT:
            _settings[name] = text_setting(folder, TEXT[name])
        elif name == "qwen2_5_vl":
            _settings[name] = picture_setting(folder, cache_dir, small_models, SmallModel(seed=32), 28, {})
        else:
            _settings[name] = picture_setting(folder, cache_dir, small_vlms, SmallVlm("qwen3_vl", seed=85), 32, QWEN3_PIXELS)
    return _settings[name]


@torch.inference_mode()
def rows_of(setting, prompt, tokens):
    """(len(tokens) - 1, vocab) float64: what transformers gives each token of `tokens` by those before it; `prompt` says whose pictures."""
    arrays = [setting.pictures.arrays[j] for j in setting.images[prompt]]
    inputs = cases.batch_inputs(setting.ids, [tokens], [arrays], **setting.processor)
    logits = setting.model(**inputs, use_cache=False).logits[0, :-1].float()
    if hasattr(setting.model.model, "rope_deltas"):
        setting.model.model.rope_deltas = None
    return torch.log_softmax(logits, -1)


def expected_score(setting, prompt, tokens, begin, end):
    rows = rows_of(setting, prompt, tokens)[begin - 1 : end - 1]
    targets = torch.tensor(tokens[begin:end])
    own = rows.gather(1, targets[:, None])[:, 0].double()
    return own.sum().item(), len(targets), bool((rows.argmax(-1) == targets).all())


def continuations_of(setting, seed):
    generator = np.random.RandomState(seed)
    top = min(min(setting.ids.values()) or setting.vocab, setting.vocab)
    return [generator.randint(3, top, length).tolist() for length in LENGTHS]


def scored(setting, bin_dir, *tries):
    """The answers of each of `tries`, pairs of (requests, options)."""
    folder = str(setting.folder / "checkpoint")
    sessions = [({**options, **setting.processor}, [{"folder": folder, "requests": requests}]) for requests, options in tries]
    found = []
    for document in cases.run_sessions(bin_dir, setting.folder, sessions, setting.pictures):
        (result,) = document["runs"]
        assert "error" not in result, result
        found.append([answer["scores"] if "scores" in answer else answer for answer in result["answers"]])
    return found


def check(got, expected):
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert ours[0] == pytest.approx(theirs[0], **TOLERANCE), (ours, theirs)
        assert ours[1:] == list(theirs[1:]), (ours, theirs)


OPTIONS = [
    {"batch_size": 1, "share_prefixes": False},
    {"batch_size": 8},
    {"batch_size": 8, "prefill_tokens": 7, "scored_rows": 3},  # contexts, branches and scored rows are cut anywhere
    {"batch_size": 3, "attn_implementation": "eager"},
]


def test_every_choice_is_as_likely_as_transformers_says(setting, bin_dir, figures):
    requests, expected = [], []
    for i, (tokens, images) in enumerate(zip(setting.prompts, setting.images, strict=True)):
        choices = continuations_of(setting, 10 + i)
        choices[0] = [rows_of(setting, i, [*tokens, 3]).argmax(-1)[-1].item()]  # the best next token: greedy
        requests.append({"tokens": tokens, "images": images, "continuations": choices})
        expected.append([expected_score(setting, i, tokens + choice, len(tokens), len(tokens + choice)) for choice in choices])

    for answers, options in zip(scored(setting, bin_dir, *[(requests, options) for options in OPTIONS]), OPTIONS, strict=True):
        for ours, theirs in zip(answers, expected, strict=True):
            check(ours, theirs)
            assert np.argmax([s[0] for s in ours]) == np.argmax([s[0] for s in theirs]), options
            assert ours[0][2], "the best next token is not called greedy"
    largest = max(abs(o[0] - t[0]) for ours, theirs in zip(answers, expected, strict=True) for o, t in zip(ours, theirs, strict=True))
    figures(f"log-likelihoods of {sum(map(len, expected))} continuations: largest difference {largest:.1e}")


def test_spans_of_a_text_are_scored_as_transformers_masks_labels(setting, bin_dir):
    """Teacher-forced, behind pictures too; the same texts twice: what is scored is never shared away."""
    requests, expected = [], []
    for i, (tokens, images) in enumerate(zip(setting.prompts, setting.images, strict=True)):
        text = tokens + continuations_of(setting, 40 + i)[3] * 3
        spans = [(len(tokens), len(tokens) + 7), (len(tokens) + 9, len(tokens) + 10), (len(tokens) + 20, len(text))]
        requests.append({"tokens": text, "images": images, "spans": spans})
        expected.append([expected_score(setting, i, text, *span) for span in spans])

    for answers in scored(setting, bin_dir, *[(requests * 2, options) for options in OPTIONS]):
        for ours, theirs in zip(answers, expected * 2, strict=True):
            check(ours, theirs)


def test_a_run_of_both_kinds_changes_no_answer_of_either_and_is_the_same_bits_twice(setting, bin_dir):
    generating = [{**request, "max_new_tokens": 6, "temperature": 0.7, "stream": 5 + i} for i, request in enumerate(setting.requests())]
    choosing = [{"tokens": tokens, "images": images, "continuations": continuations_of(setting, 70)}
                for tokens, images in zip(setting.prompts, setting.images, strict=True)]  # fmt: skip
    mixed = [request for pair in zip(choosing, generating, strict=True) for request in pair]

    apart, alone, together, again = scored(setting, bin_dir, (generating, {}), (choosing, {}), (mixed, {}), (mixed, {}))

    assert together[::2] == alone and together[1::2] == apart
    assert together == again


def test_shared_contexts_are_as_likely_as_unshared_ones(setting, bin_dir):
    """Five questions behind one long text, each with choices of its own."""
    head = next(i for i, tokens in enumerate(setting.prompts) if len(tokens) > 33)
    requests = [{"tokens": setting.prompts[head] + [7 + q, 8], "images": setting.images[head],
                 "continuations": continuations_of(setting, q)} for q in range(5)]  # fmt: skip
    shared, apart = scored(setting, bin_dir, (requests, {"batch_size": 8}), (requests, {"batch_size": 1, "share_prefixes": False}))
    for ours, theirs in zip(shared, apart, strict=True):
        check(ours, theirs)


def test_what_cannot_be_scored_is_the_error_of_its_request_alone(tmp_path_factory, bin_dir):
    setting = text_setting(tmp_path_factory.mktemp("wrong"), TEXT["qwen3"])
    wrong = [{"spans": [[0, 2]]}, {"spans": [[2, 2]]}, {"spans": [[1, 9]]}, {"spans": [[2, 3], [1, 2]]}, {"continuations": [[]]},
             {"continuations": [[5], [100000]]}, {"spans": []}]  # fmt: skip
    requests = [{"tokens": [5, 6, 7], **scoring} for scoring in wrong] + [{"tokens": [5, 6, 7], "spans": [[1, 3]]}]
    (answers,) = scored(setting, bin_dir, (requests, {}))
    for answer, scoring in zip(answers[:-1], wrong, strict=True):
        assert answer["error"]["code"] == "invalid_argument", (scoring, answer)
    assert "continuation 1: token 0 is 100000" in answers[5]["error"]["message"]
    assert answers[-1][0][1] == 2


def test_a_long_text_is_scored_in_chunks_and_its_mean_is_transformers_loss(tmp_path_factory, bin_dir):
    setting = text_setting(tmp_path_factory.mktemp("long"), TEXT["llama"], lengths=(700,))
    (tokens,) = setting.prompts
    labels = torch.tensor([[-100] * 100 + tokens[100:400] + [-100] * 50 + tokens[450:]])
    with torch.inference_mode():
        loss = setting.model(input_ids=torch.tensor([tokens]), labels=labels).loss.item()
    request = {"tokens": tokens, "spans": [[100, 400], [450, 700]]}
    for (scores,) in scored(setting, bin_dir, ([request], {}), ([request], {"prefill_tokens": 64, "scored_rows": 10})):
        mean = -sum(score[0] for score in scores) / sum(score[1] for score in scores)
        assert mean == pytest.approx(loss, rel=1e-5)
