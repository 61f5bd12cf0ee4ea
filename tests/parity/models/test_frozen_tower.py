"""Where checkpoints have one vision tower, what it made of pictures is computed once; no answer depends on it, to the last bit."""

import json
import pathlib
import shutil

import engine_cases as cases
import numpy as np
import pytest
import small_llava
import small_models
import small_vlms
from safetensors import numpy as safetensors

ROOM = {"encoded_pictures_bytes": 1 << 30}
SIZES = [(28, 84), (84, 28), (56, 56), (28, 28), (112, 56)]
IMAGES = [[0], [1, 2], [], [3], [4], [2]]  # of each prompt
PICTURES = len(SIZES)


class Scene:
    """A model's checkpoints: "a", and those of the same tower whose language model has drifted."""

    def __init__(self, folder, cache_dir):
        self.folder, self.cache_dir = folder, cache_dir
        self.model, self.ids = small_models.write_model(folder / "a", seed=1, cache_dir=cache_dir)
        self.vocab = self.model.config.text_config.vocab_size
        self.pictures = cases.Pictures(folder)
        for i, size in enumerate(SIZES):
            self.pictures.add(cases.picture(40 + i, *size))
        self.prompts = [cases.prompt(self.ids, self.vocab, 60 + i, [SIZES[j] for j in chosen], before=3 + 4 * i) for i, chosen in enumerate(IMAGES)]
        self.number = 0

    def at(self, name):
        return str(self.folder / name)

    def requests(self, which=None):
        return [{"tokens": self.prompts[i], "images": IMAGES[i], "max_new_tokens": 12} for i in (which or range(len(self.prompts)))]

    def run(self, name, which=None, **more):
        self.number += 1
        return {"folder": self.at(name), "requests": self.requests(which), "logits": self.at(f"{self.number}.logits"), **more}

    def sessions(self, bin_dir, *of):
        """The runs of each session, each with its `logits` as bytes."""
        found = []
        for (_, runs), document in zip(of, cases.run_sessions(bin_dir, self.folder, list(of), self.pictures), strict=True):
            for run, result in zip(runs, document["runs"], strict=True):
                assert "error" not in result, result
                result["logits"] = pathlib.Path(run["logits"]).read_bytes()
            found.append(document["runs"])
        return found


def is_of_tower(name):
    return "visual." in name or any(part in name for part in ("vision_tower", "multi_modal_projector", "image_newline"))


def drift(source, target, seed, change=lambda name: not is_of_tower(name)):
    """A checkpoint beside `source` whose tensors that `change` names have moved a little. Returns their names."""
    shutil.copytree(source, target)
    path = target / "model.safetensors"
    tensors, generator = safetensors.load_file(path), np.random.RandomState(seed)
    moved = [name for name in sorted(tensors) if change(name)]
    for name in moved:
        noise = generator.standard_normal(tensors[name].shape).astype(np.float32)
        tensors[name] = (tensors[name] + 0.05 * max(tensors[name].std(), 0.02) * noise).astype(tensors[name].dtype)
    safetensors.save_file(tensors, path, metadata={"format": "pt"})
    return moved


@pytest.fixture(scope="module")
def scene(tmp_path_factory, cache_dir):
    folder = tmp_path_factory.mktemp("scene")
    made = Scene(folder, cache_dir)
    for i, name in enumerate(("b", "c")):
        assert drift(folder / "a", folder / name, seed=i)
    return made


def counts(runs):
    return [(run["encoded"], run["reused"]) for run in runs]


def logits(runs):
    return [run["logits"] for run in runs]


def test_with_a_frozen_tower_the_second_checkpoint_encodes_nothing_and_gives_the_tokens_of_transformers(scene, bin_dir):
    from transformers import AutoModelForImageTextToText

    ((first, second),) = scene.sessions(bin_dir, ({**ROOM, "batch_size": 6}, [scene.run("a"), scene.run("b")]))
    assert counts([first, second]) == [(PICTURES, 0), (0, PICTURES)]
    for name, run in (("a", first), ("b", second)):
        model = AutoModelForImageTextToText.from_pretrained(scene.at(name)).eval()
        arrays = [[scene.pictures.arrays[j] for j in chosen] for chosen in IMAGES]
        tokens, _ = cases.reference(model, scene.ids, scene.prompts, arrays, max_new_tokens=12)
        assert [answer["tokens"] for answer in run["answers"]] == tokens, name
    assert first["logits"] != second["logits"]


def test_checkpoints_give_the_bits_that_they_give_alone(scene, bin_dir):
    names = ["a", "b", "a", "c", "b"]
    alone = {name: scene.sessions(bin_dir, ({}, [scene.run(name)]))[0][0]["logits"] for name in "abc"}
    (together,) = scene.sessions(bin_dir, (ROOM, [scene.run(name) for name in names]))
    assert counts(together) == [(PICTURES, 0)] + [(0, PICTURES)] * 4
    assert logits(together) == [alone[name] for name in names]


@pytest.mark.parametrize("batch", [1, 6])
def test_pictures_that_stand_beside_others_than_before_are_encoded_again_and_give_the_bits_of_a_fresh_engine(scene, bin_dir, batch):
    options = {"batch_size": batch}
    which = [[1, 4], [0, 1, 3], None]
    fresh = [scene.sessions(bin_dir, (options, [scene.run("a", some)]))[0][0]["logits"] for some in which]
    (after_others,) = scene.sessions(bin_dir, ({**options, **ROOM}, [scene.run("a", some) for some in which] + [scene.run("b"), scene.run("a")]))
    assert logits(after_others[:3]) == fresh and after_others[4]["logits"] == fresh[2]
    assert after_others[0]["reused"] == 0
    assert [run["encoded"] for run in after_others[3:]] == [0, 0]
    if batch == 6:  # one batch of all: no picture alone is taken out of it
        assert counts(after_others[1:3]) == [(4, 0), (PICTURES, 0)]


@pytest.mark.parametrize("part", ["patch_embed.proj.weight", "blocks.1.attn.qkv.bias", "merger.mlp.2.bias"])
def test_one_changed_tensor_of_the_tower_is_enough_to_encode_again(scene, bin_dir, tmp_path, part):
    (moved,) = drift(scene.folder / "a", tmp_path / "changed", 9, change=lambda name: name.endswith(part))
    names = ["a", str(tmp_path / "changed"), "b", str(tmp_path / "changed")]
    ((alone,), runs) = scene.sessions(bin_dir, ({}, [scene.run(names[1])]), (ROOM, [scene.run(name) for name in names]))
    assert counts(runs) == [(PICTURES, 0), (PICTURES, 0), (0, PICTURES), (0, PICTURES)], moved
    assert runs[1]["logits"] == runs[3]["logits"] == alone["logits"] != runs[0]["logits"]


def test_a_changed_configuration_of_the_tower_encodes_again(scene, bin_dir, tmp_path):
    shutil.copytree(scene.folder / "a", tmp_path / "other")
    path = tmp_path / "other/config.json"
    config = json.loads(path.read_text())
    config["vision_config"]["fullatt_block_indexes"] = []
    path.write_text(json.dumps(config))
    other = str(tmp_path / "other")
    ((alone,), runs) = scene.sessions(bin_dir, ({}, [scene.run(other)]), (ROOM, [scene.run("a"), scene.run(other)]))
    assert counts(runs) == [(PICTURES, 0)] * 2
    assert runs[1]["logits"] == alone["logits"]


def test_weights_that_were_read_ahead_take_what_the_tower_made_before(scene, bin_dir):
    (direct,) = scene.sessions(bin_dir, ({}, [scene.run("b")]))
    (ahead,) = scene.sessions(bin_dir, (ROOM, [scene.run("a", prefetch=scene.at("b")), scene.run("b")]))
    assert ahead[1]["loaded"]["prefetched"] and counts(ahead) == [(PICTURES, 0), (0, PICTURES)]
    assert ahead[1]["logits"] == direct[0]["logits"]


def test_ema_weights_beside_regular_ones_have_what_their_own_tower_made(scene, bin_dir, tmp_path):
    drift(scene.folder / "a", tmp_path / "ema", 5, change=lambda name: True)
    drift(tmp_path / "ema", tmp_path / "ema of b", 6)
    names = ["a", str(tmp_path / "ema"), "b", str(tmp_path / "ema of b")]
    ((alone,), together) = scene.sessions(bin_dir, ({}, [scene.run(names[3])]), (ROOM, [scene.run(name) for name in names]))
    assert counts(together) == [(PICTURES, 0), (PICTURES, 0), (0, PICTURES), (0, PICTURES)]
    assert together[3]["logits"] == alone["logits"]


def test_nothing_is_taken_without_room_without_a_known_content_or_after_the_memory_was_given_back(scene, bin_dir):
    pair = lambda **more: [scene.run("a", **more), scene.run("b")]  # noqa: E731
    none, unloaded, full = scene.sessions(
        bin_dir, ({}, pair()), (ROOM, pair(unload=True)), ({"encoded_pictures_bytes": 4096, "batch_size": 1}, pair()))  # fmt: skip
    assert counts(none) == counts(unloaded) == [(PICTURES, 0)] * 2
    assert full[0]["reused"] < full[1]["reused"] and full[1]["encoded"] > 0  # 4 KiB hold some of them
    assert none[1]["logits"] == unloaded[1]["logits"]
    unknown = cases.Pictures(scene.folder)
    for array in scene.pictures.arrays:
        unknown.add(array, known=False)
    document = cases.run_probe(bin_dir, scene.folder, pair(), unknown, **ROOM)
    assert counts(document["runs"]) == [(PICTURES, 0)] * 2


def test_a_picture_of_other_content_under_the_same_index_is_not_mistaken(scene, bin_dir):
    others = cases.Pictures(scene.folder)
    for array in scene.pictures.arrays:
        others.add(255 - array)
    both = cases.Pictures(scene.folder)
    both.entries = scene.pictures.entries + others.entries
    moved = [{**request, "images": [i + PICTURES for i in request["images"]]} for request in scene.requests()]
    run = {**scene.run("a"), "requests": moved}
    (first, second, third) = cases.run_probe(bin_dir, scene.folder, [scene.run("a"), run, scene.run("b")], both, **ROOM)["runs"]
    assert counts([first, second, third]) == [(PICTURES, 0), (PICTURES, 0), (0, PICTURES)]


def test_a_run_that_is_stopped_while_the_tower_computes_leaves_nothing_half_made(scene, bin_dir):
    ((alone,),) = scene.sessions(bin_dir, ({}, [scene.run("a")]))
    # Without threads of its own the engine prepares five pictures, then computes layer by layer.
    stopped = [scene.run("a", cancel_at_step=step) for step in range(1, 13)]
    after = [scene.run("a") for _ in stopped]
    sessions = [({**ROOM, "picture_threads": 0}, [first, second]) for first, second in zip(stopped, after, strict=True)]
    documents = cases.run_sessions(bin_dir, scene.folder, sessions, scene.pictures)
    assert [document["runs"][0]["error"]["code"] for document in documents] == ["cancelled"] * len(stopped)
    assert [pathlib.Path(run["logits"]).read_bytes() for run in after] == [alone["logits"]] * len(after)
    reused = [document["runs"][1]["reused"] for document in documents]
    assert reused[0] == 0 and reused[-1] == PICTURES, reused


def test_memory_that_runs_out_takes_what_was_kept_before_the_batch_is_halved(scene, bin_dir):
    (runs,) = scene.sessions(bin_dir, ({**ROOM, "out_of_memory_once": 2}, [scene.run("a"), scene.run("b")]))
    assert [run["shrunk"] for run in runs] == [[], []]
    assert counts(runs) == [(PICTURES, 0), (PICTURES, 0)]


def test_a_batch_whose_pictures_are_kept_anew_before_memory_runs_out_is_halved(scene, bin_dir):
    """What was kept is given up for it once: made again by the same attempt, it would be given up for ever."""
    options = {"batch_size": 6, "picture_threads": 0}
    runs = [scene.run("a"), scene.run("b", out_of_memory_behind_pictures=3), *[scene.run("b") for _ in range(5)]]
    ((first, second, *later), (alone,)) = scene.sessions(bin_dir, ({**ROOM, **options}, runs), (options, [scene.run("b")]))
    assert first["shrunk"] == [] and second["shrunk"] == [3, 1], second["shrunk"]
    assert later[0]["reused"] == 0 and counts(later)[-1] == (0, PICTURES), counts(later)  # batches widen again, and are kept
    assert [answer["tokens"] for answer in second["answers"]] == [answer["tokens"] for answer in alone["answers"]]


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen3_vl"])
def test_the_other_qwen_towers_are_taken_too(name, tmp_path, bin_dir, cache_dir):
    spec = small_vlms.SmallVlm(name, seed=1)
    model, ids = small_vlms.write_model(tmp_path / "a", spec, cache_dir=cache_dir)
    drift(tmp_path / "a", tmp_path / "b", 3)
    grid, vocab = 2 * spec.patch, model.config.get_text_config().vocab_size
    pictures = cases.Pictures(tmp_path)
    sizes = [(grid, 3 * grid), (2 * grid, grid)]
    for i, size in enumerate(sizes):
        pictures.add(cases.picture(i, *size))
    requests = [{"tokens": cases.prompt(ids, vocab, 5, sizes, grid=grid), "images": [0, 1], "max_new_tokens": 8}]
    processor = {} if name == "qwen2_vl" else {"patch_size": 16}
    check_pair(bin_dir, tmp_path, requests, pictures, processor)


def test_llava_onevision_is_taken_too_and_its_newline_counts(tmp_path, bin_dir, cache_dir):
    from transformers import AutoProcessor

    spec = small_llava.SmallLlava(seed=1)
    small_llava.write_model(tmp_path / "a", spec, cache_dir=cache_dir)
    drift(tmp_path / "a", tmp_path / "b", 3)
    drift(tmp_path / "a", tmp_path / "newline", 4, change=lambda tensor: "image_newline" in tensor)
    pictures = cases.Pictures(tmp_path)
    pictures.add(cases.picture(7, 40, 150))
    processor = AutoProcessor.from_pretrained(tmp_path / "a")
    message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}
    text = processor.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
    tokens = processor(text=text, images=[pictures.arrays[0]], return_tensors="pt")["input_ids"][0].tolist()
    requests = [{"tokens": tokens, "images": [0], "max_new_tokens": 8}]
    options = {"anyres_folder": str(tmp_path / "a"), "patch_size": spec.patch}
    check_pair(bin_dir, tmp_path, requests, pictures, options)
    runs = [{"folder": str(tmp_path / folder), "requests": requests} for folder in ("a", "newline")]
    assert counts(cases.run_probe(bin_dir, tmp_path, runs, pictures, **ROOM, **options)["runs"]) == [(1, 0), (1, 0)]


def check_pair(bin_dir, folder, requests, pictures, options):
    """The checkpoints "a" and "b" have one tower: of "b" nothing is encoded, and its bits are those of "b" alone."""
    run = lambda name, file: {"folder": str(folder / name), "requests": requests, "logits": str(folder / file)}  # noqa: E731
    documents = cases.run_sessions(
        bin_dir, folder, [(options, [run("b", "alone")]), ({**options, **ROOM}, [run("a", "first"), run("b", "second")])], pictures)  # fmt: skip
    encoded = len(pictures.entries)
    assert counts(documents[1]["runs"]) == [(encoded, 0), (0, encoded)]
    assert (folder / "second").read_bytes() == (folder / "alone").read_bytes() != (folder / "first").read_bytes()
