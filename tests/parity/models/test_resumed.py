"""A run that goes on after an interruption gives what the undisturbed one gives, to the last bit."""

import engine_cases as cases
import numpy as np
import pytest
import small_models
import small_text_models
from small_models import SmallModel
from small_text_models import SmallTextModel
from test_likelihoods import continuations_of, picture_setting

WAYS = [{"batch_size": 3}, {"batch_size": 4, "prefill_tokens": 60}, {"batch_size": 3, "dtype": "bfloat16"}]


def text_scene(folder):
    """Prompts of many lengths, some of which share a beginning."""
    spec = SmallTextModel("qwen3", seed=33, tied=True, head_dim=32)
    model, _ = small_text_models.write_model(folder / "checkpoint", spec)
    generator = np.random.RandomState(5)
    words = lambda count: generator.randint(3, spec.vocab, count).tolist()  # noqa: E731
    head = words(40)
    prompts = [words(length) for length in (3, 50, 64, 17, 29)] + [head + words(length) for length in (2, 9, 5, 14)]
    return cases.Setting(model, {"<|endoftext|>": 0}, folder, cases.Pictures(folder), prompts, [[]] * len(prompts))


def picture_scene(folder, cache_dir):
    """Behind other words each time, so that no prefix is shared and packs take pictures over from the one before."""
    setting = picture_setting(folder, cache_dir, small_models, SmallModel(seed=32), 28, {})
    vocab, sizes = setting.model.config.get_text_config().vocab_size, [array.shape[:2] for array in setting.pictures.arrays]
    images = [[0], [1], [1, 0], [], [0], [1], [0, 1], [1], [0]]
    prompts = [cases.prompt(setting.ids, vocab, 120 + i, [sizes[j] for j in chosen], before=3 + 2 * i)
               for i, chosen in enumerate(images)]  # fmt: skip
    return cases.Setting(setting.model, setting.ids, folder, setting.pictures, prompts, images)


@pytest.fixture(scope="module", params=["text", "pictures"])
def scene(request, tmp_path_factory, cache_dir):
    folder = tmp_path_factory.mktemp(request.param)
    return text_scene(folder) if request.param == "text" else picture_scene(folder, cache_dir)


def requests_of(scene):
    """Some are answered, some have choices, some a text that is scored: all in one run."""
    made = []
    for i, (tokens, images) in enumerate(zip(scene.prompts, scene.images, strict=True)):
        asked = {"tokens": tokens, "images": images}
        text = tokens + continuations_of(scene, 40 + i)[3]
        made += [{**asked, "max_new_tokens": 3 + i}, {**asked, "continuations": continuations_of(scene, i)},
                 {**asked, "tokens": text, "spans": [[len(tokens), len(tokens) + 4], [len(text) - 6, len(text)]]}]  # fmt: skip
    return made


def runs(scene, bin_dir, options, *tries):
    """The document of each of `tries`, lists of requests, each on an engine of its own."""
    folder = str(scene.folder / "checkpoint")
    sessions = [({**options, **scene.processor}, [{"folder": folder, "requests": requests}]) for requests in tries]
    return [document["runs"][0] for document in cases.run_sessions(bin_dir, scene.folder, sessions, scene.pictures)]


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_what_is_left_after_an_interruption_gets_the_bits_of_an_undisturbed_run(scene, bin_dir, options):
    requests = requests_of(scene)
    (whole,) = runs(scene, bin_dir, options, requests)
    order = whole["order"]
    assert sorted(order) == list(range(len(requests)))

    points = range(1, len(order) + 1, 2)
    tries = [[{**request, "answered_before": i in order[:point]} for i, request in enumerate(requests)] for point in points]
    for point, resumed in zip(points, runs(scene, bin_dir, options, *tries), strict=True):
        assert "error" not in resumed, resumed
        assert resumed["order"] == order[point:], "the answers that are missing, each once, in their order"
        for i in order[point:]:
            assert resumed["answers"][i] == whole["answers"][i], (point, i, requests[i].keys())


def packs_begun(scene, bin_dir, requests):
    """How many packs of three a run of `requests` computes: the n-th of a run is made not to fit, until there is no n-th."""
    run = {"folder": str(scene.folder / "checkpoint"), "requests": requests}
    sessions = [({"batch_size": 3, "out_of_memory_once": n}, [run]) for n in range(1, len(requests) + 2)]
    documents = cases.run_sessions(bin_dir, scene.folder, sessions, scene.pictures)
    return next(n for n, document in enumerate(documents) if document["runs"][0]["shrunk"] == [])


def test_packs_that_are_done_are_passed_over(scene, bin_dir):
    requests = [request for request in requests_of(scene) if "continuations" in request]
    order = runs(scene, bin_dir, {"batch_size": 3}, requests)[0]["order"]
    left = lambda count: [{**request, "answered_before": i in order[:count]} for i, request in enumerate(requests)]  # noqa: E731

    packs = packs_begun(scene, bin_dir, requests)

    assert packs >= 3
    assert packs_begun(scene, bin_dir, left(4)) == packs - 1  # a pack of three is done, and one of the next's answers is known
    assert packs_begun(scene, bin_dir, left(len(order) - 1)) == 1
    assert packs_begun(scene, bin_dir, left(len(order))) == 0
