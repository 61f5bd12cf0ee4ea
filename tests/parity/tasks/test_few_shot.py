"""Examples before the question: the very texts that lmms-eval 0.7.3's chat wrappers hand to the processor, and those that it logs."""

import json
import random
import sys
import types

import pytest

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import data_sets  # noqa: E402
from probes import ask  # noqa: E402

WRAPPERS = {"qwen2_5_vl": "by input", "qwen3_vl": "by input", "huggingface": "in order"}
EXAMPLES = """
[prompt]
text = "Question: {{q}}"
[fewshot]
split = "{split}"
sampler = "{sampler}"
{more}
"""
TASK = (
    """
task = "own"
[data]
set = "me/own"
split = "test"
[columns]
target = "answers"
"""
    + EXAMPLES
    + """
[generation]
max_new_tokens = 8
[scorer]
name = "exact_match"
"""
)


@pytest.fixture
def probe(build_dir):
    return lambda request: ask(build_dir, "tasks_probe", [request])[0]


def rows(count, seed):
    """Some questions come twice, some documents too; they sort differently as texts and in their order."""
    rng = random.Random(seed)
    made = []
    for i in range(count):
        if i % 9 == 8:
            made.append(dict(made[rng.randrange(len(made))]))
            continue
        words = rng.choices(["sea", "Meer", "mer", "海", "море", "ﬁ", "𝄞", "ZA", "  ", "a\nb"], k=rng.randint(0, 3))
        made.append({"q": " ".join(words), "answers": [f"a{rng.randrange(40)}", "other"], "note": None if i % 4 else f"n{rng.randrange(5)}"})
    return made


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    from datasets import Dataset

    folder = tmp_path_factory.mktemp("data")
    place = folder / "me" / "own" / "data"
    place.mkdir(parents=True)
    for split, count in (("train", 37), ("test", 61)):
        Dataset.from_list(rows(count, count)).to_parquet(place / f"{split}-00000-of-00001.parquet")
    return folder


def lmms_task(data, split, sampler, cache, **more):
    import lmms_eval.api.metrics  # noqa: F401 (registers them)
    from lmms_eval.api.task import ConfigurableMessagesTask, ConfigurableTask

    config = {"task": "own", "dataset_path": str(data / "me" / "own"), "dataset_kwargs": {"cache_dir": str(cache)}, "test_split": "test",
              "fewshot_split": split, "fewshot_config": {"sampler": sampler}, "output_type": "generate_until", "doc_to_text": "Question: {{q}}",
              "doc_to_target": "answers", "generation_kwargs": {"max_new_tokens": 8},
              "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}]}  # fmt: skip
    config.update(more)
    kind = ConfigurableMessagesTask if config["output_type"] == "generate_until" else ConfigurableTask  # messages are for generation only
    return kind(config=config, model_name="qwen2_5_vl")


class Tensors(dict):
    def to(self, _):
        return self

    @property
    def input_ids(self):
        return self["input_ids"]


def shown_by(wrapper, task, batch_size):
    """The last text of each request, in their order, as lmms-eval's wrapper hands it to the chat template."""
    import importlib

    module = importlib.import_module(f"lmms_eval.models.chat.{wrapper}")
    model_class = {"qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3_VL", "huggingface": "Huggingface"}[wrapper]

    class Processor:
        def apply_chat_template(self, messages, **_):
            if isinstance(messages[0], dict):
                return json.dumps(messages)
            return [json.dumps(one) for one in messages]

        def __call__(self, text, **_):
            self.texts = text
            return Tensors(input_ids=[[0]] * len(text))

        def batch_decode(self, _, **__):
            return self.texts

    class Lmm(getattr(module, model_class)):
        def __init__(self):
            self.__dict__.update(max_pixels=1605632, min_pixels=200704, fps=None, max_num_frames=32, processor=Processor(), device_map="cpu",
                                 use_cache=True, system_prompt="s" if wrapper == "qwen3_vl" else None, _rank=0, _world_size=1, batch_size_per_gpu=batch_size,
                                 _device="cpu", task_dict={"own": task.dataset},
                                 cache_hook=types.SimpleNamespace(add_partial=lambda *_: None),
                                 _tokenizer=types.SimpleNamespace(eos_token_id=1, pad_token_id=0),
                                 _model=types.SimpleNamespace(generate=lambda input_ids, **_: [[0, 1]] * len(input_ids)))  # fmt: skip

        model = property(lambda self: self._model)

        def __getattr__(self, name):  # settings of videos
            return None

    answers = Lmm().generate_until(list(task.instances))
    return [json.loads(answer.text)[-1]["content"][-1]["text"] for answer in answers]


def built(task, shots, limit, offset):
    """As simple_evaluate() and evaluate() prepare a task."""
    task.set_config(key="num_fewshot", value=shots)
    task.set_fewshot_seed(seed=1234)
    task.build_all_requests(limit=limit, offset=offset, rank=0, world_size=1)
    return [request.args[0] for request in task.instances]


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize(("sampler", "split", "shots", "batch", "delimiters"), [
    ("default", "train", 3, 1, {}),
    ("default", "test", 2, 4, {}),
    ("default", "train", 9, 1, {"fewshot_delimiter": "\n--\n", "target_delimiter": ": "}),  # a pool, not a set
    ("default", "test", 30, 1, {}),
    ("first_n", "test", 4, 1, {}),
    ("first_n", "train", 1, 3, {}),
])  # fmt: skip
def test_texts_are_those_of_the_wrapper_and_of_the_log(probe, data, tmp_path, wrapper, sampler, split, shots, batch, delimiters):
    task = lmms_task(data, split, sampler, tmp_path / "cache", **delimiters)
    logged = built(task, shots, limit=40, offset=7)
    shown = shown_by(wrapper, task, batch)
    names = {"fewshot_delimiter": "delimiter", "target_delimiter": "target_delimiter"}
    more = "\n".join(f"{names[key]} = {json.dumps(value)}" for key, value in delimiters.items())
    (tmp_path / "own.toml").write_text(TASK.format(split=split, sampler=sampler, more=more))
    request = {"task": "own", "tasks_dir": str(tmp_path), "data": str(data), "shots": shots, "ids": list(range(7, 47)), "op": "few_shot"}

    ours = probe({**request, "turn": WRAPPERS[wrapper]})

    assert "error" not in ours, ours
    assert ours["inputs"] == logged
    assert ours["prompts"] == shown
    assert (logged == shown) == (sampler == "first_n"), "drawn again, or this proves little"
    assert probe({**request, "turn": "logged"}) == {"inputs": logged, "prompts": logged}
    if sampler == "default":
        assert probe({**request, "seed": 7})["inputs"] != logged


SCORED = (
    """
task = "own"
[data]
set = "me/scored"
split = "test"
[columns]
target = "{target}"
[request]
{request}
"""
    + EXAMPLES
)


@pytest.fixture(scope="module")
def scored_data(tmp_path_factory):
    from datasets import Dataset

    rng = random.Random(5)
    folder = tmp_path_factory.mktemp("scored")
    place = folder / "me" / "scored" / "data"
    place.mkdir(parents=True)
    for split, count in (("train", 23), ("test", 31)):
        made = []
        for i in range(count):
            options = [f"o{rng.randrange(90)}", f"two words {i}", "海"]
            right = rng.randrange(3)
            made.append({"q": f"q{rng.randrange(20)}", "options": options, "right": right, "named": options[right]})
        Dataset.from_list(made).to_parquet(place / f"{split}-00000-of-00001.parquet")
    return folder


@pytest.mark.parametrize(("kind", "target"), [("multiple_choice", "right"), ("multiple_choice", "named"), ("loglikelihood", "named")])
@pytest.mark.parametrize(("sampler", "split", "shots", "delimiters"), [
    ("default", "train", 5, {}),
    ("default", "test", 3, {"fewshot_delimiter": "\n--\n", "target_delimiter": ": "}),
    ("first_n", "train", 2, {}),
])  # fmt: skip
def test_contexts_before_given_tokens_are_those_that_lmms_eval_scores_behind(probe, scored_data, tmp_path, kind, target, sampler, split, shots, delimiters):
    """Nothing is drawn again: what is logged is what a model's loglikelihood() gets."""
    choices = {"doc_to_choice": "options"} if kind == "multiple_choice" else {}
    task = lmms_task(scored_data, split, sampler, tmp_path / "cache", dataset_path=str(scored_data / "me" / "scored"), output_type=kind,
                     doc_to_target=target, generation_kwargs=None, metric_list=[{"metric": "acc"}], **choices, **delimiters)  # fmt: skip
    built(task, shots, limit=20, offset=4)
    logged = {request.doc_id: request.args[0] for request in task.instances}
    if kind == "multiple_choice":
        assert [r.args[1] for r in task.instances[:3]] == [delimiters.get("target_delimiter", " ") + c for c in task.test_docs()[4]["options"]]
    names = {"fewshot_delimiter": "delimiter", "target_delimiter": "target_delimiter"}
    more = "\n".join(f"{names[key]} = {json.dumps(value)}" for key, value in delimiters.items())
    settings = f'kind = "{kind}"' + ('\nchoices = "options"' if choices else "")
    (tmp_path / "own.toml").write_text(SCORED.format(split=split, sampler=sampler, more=more, target=target, request=settings))

    ours = probe({"op": "few_shot", "task": "own", "tasks_dir": str(tmp_path), "data": str(scored_data), "shots": shots,
                  "ids": list(range(4, 24)), "turn": "logged"})  # fmt: skip

    assert "error" not in ours, ours
    assert ours["inputs"] == ours["prompts"] == [logged[i] for i in range(4, 24)]
    assert len(set(ours["inputs"])) > 10 and ours["inputs"][0].count("Question:") == shots + 1


def test_pictures_that_the_prompt_does_not_show_count_where_documents_are_compared(probe, tmp_path):
    """The log is made without them, where no example equals its document; the prompt with them."""
    from datasets import Dataset, Features, Image, Value

    place = tmp_path / "me" / "own" / "data"
    place.mkdir(parents=True)
    colors = [(10 * i, 0, 0) for i in range(4)]
    made = [{"q": f"q{i // 2}", "answers": "x", "picture": {"bytes": picture(colors[i % 4]), "path": f"{i}.png"}} for i in range(8)]
    features = Features({"q": Value("string"), "answers": Value("string"), "picture": Image()})
    Dataset.from_list(made, features=features).to_parquet(place / "test-00000-of-00001.parquet")
    task = lmms_task(tmp_path, "test", "default", tmp_path / "cache")
    logged = built(task, 5, limit=None, offset=0)
    shown = shown_by("qwen2_5_vl", task, 1)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "own.toml").write_text(TASK.format(split="test", sampler="default", more=""))

    ours = probe({"op": "few_shot", "task": "own", "tasks_dir": str(tmp_path / "tasks"), "data": str(tmp_path), "shots": 5, "ids": list(range(8))})

    assert ours["inputs"] == logged
    assert ours["prompts"] == shown


def picture(color):
    from PIL import Image

    return data_sets.encode(Image.new("RGB", (20, 10), color))


def test_the_built_in_tasks_have_no_examples_in_lmms_eval_either(data, tmp_path):
    """No task of TASKS has a fewshot_config, so none has a sampler; one that shows pictures would not show the examples."""
    from lmms_eval.tasks import TaskManager

    manager = TaskManager("ERROR", model_name="qwen2_5_vl")
    for name in ("docvqa_val", "textvqa_val", "mmmu_val", "mme"):
        config = manager._get_config(name)
        assert "fewshot_config" not in config and "num_fewshot" not in config
    task = lmms_task(data, None, "default", tmp_path / "c0", fewshot_config=None)
    with pytest.raises(AttributeError, match="sampler"):
        built(task, 2, limit=3, offset=0)
    task = lmms_task(data, "train", "default", tmp_path / "c1", doc_to_visual=lambda doc: [])
    logged = built(task, 2, limit=3, offset=0)
    assert shown_by("qwen2_5_vl", task, 1) == [f"Question: {doc['q']}" for doc in list(task.test_docs())[:3]] != logged


def test_the_config_entry_names_the_examples_as_lmms_evals_does(probe, data, tmp_path):
    task = lmms_task(data, "train", "first_n", tmp_path / "cache", fewshot_delimiter="\n")
    task.set_config(key="num_fewshot", value=2)
    theirs = json.loads(json.dumps(dict(task.dump_config()), default=str))
    (tmp_path / "own.toml").write_text(TASK.format(split="train", sampler="first_n", more='delimiter = "\\n"'))
    ours = probe({"op": "score", "task": "own", "tasks_dir": str(tmp_path), "data": str(data), "shots": 2,
                  "responses": [{"doc_id": 0, "text": "x"}]})  # fmt: skip
    mine = json.loads(ours["config"])
    for key in ("fewshot_split", "fewshot_config", "num_fewshot", "fewshot_delimiter", "target_delimiter"):
        assert mine[key] == theirs[key], key
    assert mine["generation_kwargs"]["until"] == theirs["generation_kwargs"]["until"] == ["\n"]
    assert ours["num_fewshot"] == 2


def test_too_few_documents_and_a_missing_split_are_told(probe, data, tmp_path):
    def asked(split, shots):
        (tmp_path / "own.toml").write_text(TASK.format(split=split, sampler="default", more=""))
        return probe({"op": "size", "task": "own", "tasks_dir": str(tmp_path), "data": str(data), "shots": shots})

    assert asked("train", 37) == 61
    assert "num_fewshot = 38 needs 38 documents to draw from, and [fewshot] names 37" in asked("train", 38)["error"]
    assert asked("test", 60) == 61
    assert "num_fewshot = 61 needs 62 documents" in asked("test", 61)["error"]
    assert 'holds no files of split "dev"' in asked("dev", 1)["error"]
    assert asked("dev", 0) == 61
