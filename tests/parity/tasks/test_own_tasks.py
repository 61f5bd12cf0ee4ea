"""A user's own task files: found in tasks_dir and run without a rebuild, over Parquet and JSON lines, with and without
pictures; mistakes are explained; broken data are refused."""

import copy
import decimal
import hashlib
import json
import random
import re
import sys
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import data_sets  # noqa: E402
from probes import ask  # noqa: E402
from strings import answers as odd_answers  # noqa: E402


@pytest.fixture
def probe(build_dir):
    return lambda request: ask(build_dir, "tasks_probe", [request])[0]


def picture(color):
    from PIL import Image

    return data_sets.encode(Image.new("RGB", (20, 10), color))


PICTURES = {name: picture(name) for name in ("red", "green", "blue")}
ROWS = [{"q": f"What color is picture {i}? {{x}}", "a": [name, name.upper()], "doc": f"d{i // 2}"} for i, name in enumerate(["red", "green", "blue", "red"])]

TASK = """
task = "my_colors"
version = "2"
[data]
{data}
[columns]
{images}
target = "a"
cluster = "doc"
[prompt]
text = "{{before}}{{q|upper}} {{{{sic}}}}{{after}}"
[prompt.variants.default]
before = "Look. "
after = "\\nOne word."
[prompt.variants.qwen3_vl]
before = ""
after = "!"
[generation]
max_new_tokens = 8
[scorer]
name = "exact_match"
ignore_case = true
[aliases]
accuracy = "exact_match"
"""


def write_task(folder, data, images='images = "picture"'):
    folder.mkdir(exist_ok=True)
    (folder / "colors.toml").write_text(TASK.format(data=data, images=images))
    return str(folder)


def write_jsonl(folder):
    (folder / "pictures").mkdir(parents=True)
    lines = []
    for i, row in enumerate(ROWS):
        name = row["a"][0]
        (folder / "pictures" / f"{name}.png").write_bytes(PICTURES[name])
        lines.append(json.dumps({**row, "picture": f"pictures/{name}.png"}))
    (folder / "val.jsonl").write_text("\n".join(lines) + "\n\n")


def write_parquet(path, form):
    images = [PICTURES[row["a"][0]] for row in ROWS]
    if form == "struct":
        column = [{"bytes": b, "path": None} for b in images]
    elif form == "bytes":
        column = images
    elif "list" in form:
        column = [[{"bytes": b, "path": "x.png"}, {"bytes": PICTURES["green"], "path": "y.png"}] for b in images]
    else:
        column = [f"pictures/{row['a'][0]}.png" for row in ROWS]
    if form == "large path":
        column = pa.array(column, pa.large_string())
    if form == "list of two":
        column = pa.array(column, pa.list_(pa.struct({"bytes": pa.binary(), "path": pa.string()}), 2))
    table = pa.table({"q": [r["q"] for r in ROWS], "picture": column, "a": [r["a"] for r in ROWS], "doc": [r["doc"] for r in ROWS]})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=2, compression="zstd")


def check_runs(probe, request, pictures_of):
    prompts = probe({"op": "prompts", **request})
    assert not isinstance(prompts, dict), prompts
    for i, (prompt, row) in enumerate(zip(prompts, ROWS, strict=True)):
        text = f"Look. {row['q'].upper()} {{sic}}\nOne word."
        assert prompt["input"] == text
        pictures = pictures_of(row)
        assert prompt["images"] == [hashlib.sha256(b).hexdigest() for b in pictures]
        assert prompt["messages"] == [{"role": "user", "content": [{"type": "image"}] * len(pictures) + [{"type": "text", "text": text}]}]
        assert prompt["doc_id"] == i
    other = probe({"op": "prompts", "family": "qwen3_vl", **request})
    assert other[0]["input"] == ROWS[0]["q"].upper() + " {sic}!"
    scores = probe({"op": "score", **request, "responses": [{"doc_id": i, "text": t} for i, t in enumerate(["Red ", "GREEN", "green", "no"])]})
    assert scores["values"] == [1, 1, 0, 0]
    results = json.loads(scores["results"])
    assert results["alias"] == "my_colors" and results["exact_match,none"] == 0.5
    assert isinstance(results["exact_match_stderr_clustered,none"], float)
    assert json.loads(scores["lines"][0])["target"] == "['red', 'RED']"
    assert json.loads(scores["config"])["metadata"] == {"version": 2}


def test_json_lines_with_pictures_beside_the_task_file(probe, tmp_path):
    write_jsonl(tmp_path / "tasks")
    tasks_dir = write_task(tmp_path / "tasks", 'files = "val.jsonl"')
    assert probe({"op": "list", "tasks_dir": tasks_dir}) == ["docvqa_val", "mme", "mmmu_val", "my_colors", "textvqa_val"]
    check_runs(probe, {"task": "my_colors", "tasks_dir": tasks_dir}, lambda row: [PICTURES[row["a"][0]]])


def test_json_lines_of_text_alone_in_the_data_folder(probe, tmp_path):
    write_jsonl(tmp_path / "data" / "me" / "colors")
    (tmp_path / "data" / "me" / "colors" / "val.jsonl").rename(tmp_path / "data" / "me" / "colors" / "test.jsonl")
    tasks_dir = write_task(tmp_path / "tasks", 'set = "me/colors"\nsplit = "test"', images="")
    check_runs(probe, {"task": "my_colors", "tasks_dir": tasks_dir, "data": str(tmp_path / "data")}, lambda row: [])


@pytest.mark.parametrize("form", ["struct", "bytes", "list", "list of two", "path", "large path"])
def test_parquet_with_pictures_in_every_form(probe, tmp_path, form):
    folder = tmp_path / "data" / "me" / "colors"
    write_jsonl(folder)
    (folder / "val.jsonl").unlink()
    write_parquet(folder / "test.parquet", form)
    tasks_dir = write_task(tmp_path / "tasks", 'set = "me/colors"\nsplit = "test"')
    request = {"task": "my_colors", "tasks_dir": tasks_dir, "data": str(tmp_path / "data")}
    more = [PICTURES["green"]] if "list" in form else []
    check_runs(probe, request, lambda row: [PICTURES[row["a"][0]], *more])


@pytest.mark.parametrize(
    "options", [{}, {"ignore_case": True}, {"ignore_case": True, "ignore_punctuation": True}, {"ignore_numbers": True, "ignore_punctuation": True, "ignore_case": False}]
)
def test_what_a_metric_ignores_is_ignored_as_lmms_eval_does(probe, tmp_path, options):
    """metric_list as its files have it: what stands beside the metric's name goes to the metric's function."""
    import lmms_eval.api.metrics  # noqa: F401 (registers them)
    from lmms_eval.api.task import ConfigurableTask

    targets = ["Red", "1,000", ["Blue", "b.l.u.e"], "x9", "x"]
    texts = ["red.", "1000", "BLUE", "x", "X!"]
    answers = [(target, text) for target in targets for text in texts]
    (tmp_path / "val.jsonl").write_text("".join(json.dumps({"q": "?", "a": target}) + "\n" for target, _ in answers))
    extra = "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items())
    (tmp_path / "own.toml").write_text(
        'task = "own"\n[data]\nfiles = "val.jsonl"\n[columns]\ntarget = "a"\n[prompt]\ntext = "{q}"\n[scorer]\nname = "exact_match"\n'
        f'[[metrics]]\nname = "exact_match"\naggregation = "mean"\nhigher_is_better = true\n{extra}'
    )

    class Reference(ConfigurableTask):
        def __init__(self, multiple):
            metric = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True, **options}
            self._config = types.SimpleNamespace(metric_list=[metric], process_results=None, doc_to_choice=None, task="own")
            self.OUTPUT_TYPE, self.multiple_target = "generate_until", multiple
            self._prepare_metric_and_aggregation()

        def doc_to_target(self, doc):
            return doc["a"]

    wanted = [Reference(isinstance(target, list)).process_results({"a": target}, [text])["exact_match"] for target, text in answers]
    scores = probe({"op": "score", "task": "own", "tasks_dir": str(tmp_path), "responses": [{"doc_id": i, "text": text} for i, (_, text) in enumerate(answers)]})

    assert scores["values"] == wanted
    assert 0 < sum(wanted) < len(wanted)
    logged = json.loads(scores["config"])["metric_list"][0]
    assert logged == {**logged, **options}


VQA = 'task = "own"\n[data]\nfiles = "val.jsonl"\n[columns]\ntarget_text = "answer"\n[prompt]\ntext = "{q}"\n[scorer]\nname = "vqa"\nanswers = "answers"\nid = "question_id"\n'


def test_answers_in_the_form_of_vqav2_are_scored_as_its_task_does(probe, tmp_path):
    """Records, not texts: another normaliser, and what is equal in all of a record counts once."""
    from lmms_eval.tasks.vqav2.utils import vqav2_process_results

    rng = random.Random(9)
    texts = [text for text in odd_answers(400, 19) if not re.search("think|analysis", text)] + ["red blue", "red,blue", "1,000", "a, b", "yes?", "cat's", "two"] * 4
    documents = [{"q": "?", "question_id": 0, "answers": [{"answer": "red,blue", "answer_confidence": "yes", "answer_id": i} for i in range(10)]}]
    predictions = ["red blue"]
    for i, text in enumerate(texts):
        pool = [text, text.upper(), text + "?", text.replace(",", " "), text.replace(" ", ","), rng.choice(texts)]
        # Some without numbers, so that equal answers are equal in all.
        numbers = rng.choice([range(10), [0] * 10, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]])
        confidence = rng.choice([["yes"], ["yes", "maybe"]])
        answers = [{"answer": rng.choice(pool), "answer_confidence": rng.choice(confidence), "answer_id": n} for n in numbers]
        documents.append({"q": "?", "question_id": i + 1, "answers": answers})
        predictions.append(rng.choice([text, rng.choice(pool)]).strip())
    (tmp_path / "val.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    (tmp_path / "own.toml").write_text(VQA)
    wanted = [vqav2_process_results(copy.deepcopy(document), [text]) for document, text in zip(documents, predictions, strict=True)]

    scores = probe({"op": "score", "task": "own", "tasks_dir": str(tmp_path), "responses": [{"doc_id": i, "text": text} for i, text in enumerate(predictions)]})

    assert wanted[0]["exact_match"] == 1 and len({one["exact_match"] for one in wanted}) > 10
    for line, one in zip(scores["lines"], wanted, strict=True):
        sample = json.loads(line)
        assert {key: sample[key] for key in one} == one, line
    assert scores["values"] == [one["exact_match"] for one in wanted]


@pytest.mark.parametrize("answers", [[{"answer": "x"}, "x"], ["x", {"answer": "x"}], [{"text": "x"}]])
def test_answers_of_two_forms_are_refused(probe, tmp_path, answers):
    (tmp_path / "val.jsonl").write_text(json.dumps({"q": "?", "question_id": 1, "answers": answers}) + "\n")
    (tmp_path / "own.toml").write_text(VQA)
    scores = probe({"op": "score", "task": "own", "tasks_dir": str(tmp_path), "responses": [{"doc_id": 0, "text": "x"}]})
    assert 'document 0: column "answers" holds an answer of another form' in scores["error"]


def test_check_explains_every_mistake_with_its_line(probe, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(
        'tsk = "x"\ntask = "a/b"\n[data]\nset = "x/y"\nsplt = "v"\n[columns]\ntarget = 3\n[prompt]\ntext = "{q|capitalise} }"\n'
        '[prompt.variants.default]\nx = [1]\n[generation]\nmax_new_tokens = 0\ntemperature = "hot"\n[scorer]\nname = "amls"\n[[metrics]]\nname = "acc"\n'
    )
    problems = probe({"op": "check", "path": str(path)})
    text = "\n".join(problems)
    for expected in [
        ':1: unknown key "tsk" in the file; did you mean "task"?',
        ':2: "task" is "a/b"',
        ':5: unknown key "splt" in [data]; did you mean "split"?',
        '[data] lacks the key "split" (a string)',
        ':7: "target" in [columns] is an integer, expected a string',
        ':9: "text" in [prompt] has the unknown filter "capitalise"; known are capitalize, join, letters, lower, strip, upper; did you mean "capitalize"?',
        ':11: "x" in [prompt.variants.default] is a list',
        ':13: "max_new_tokens" in [generation] is 0, expected 1 to 1000000',
        ':14: "temperature" in [generation] is a string, expected a number',
        ':16: "name" in [scorer] is "amls"; known are anls, contains, exact_match, mme, mmmu, vqa; did you mean "anls"?',
    ]:
        assert f"{expected}" in text, (expected, text)
    assert all(problem.startswith(str(path)) for problem in problems)
    path.write_text('task = "x"\n[data\n')
    assert "bad.toml:2: not TOML" in probe({"op": "check", "path": str(path)})[0]
    good = write_task(tmp_path / "good", 'files = ["val.jsonl"]')
    assert probe({"op": "check", "path": good + "/colors.toml"}) == []


def test_a_wrong_column_is_named_with_those_that_are_there(probe, tmp_path):
    folder = tmp_path / "tasks"
    write_jsonl(folder)
    tasks_dir = write_task(folder, 'files = "val.jsonl"', images='images = "pictur"')
    answer = probe({"op": "size", "task": "my_colors", "tasks_dir": tasks_dir})
    assert answer["code"] == "invalid_argument"
    assert 'has no column "pictur", which [columns] images needs; did you mean "picture"?; there are q (string)' in answer["error"]
    assert "my_colors" in probe({"op": "size", "task": "my_colours", "tasks_dir": tasks_dir})["error"]


def test_a_task_name_that_is_taken_is_refused(probe, tmp_path):
    folder = tmp_path / "tasks"
    write_jsonl(folder)
    text = TASK.format(data='files = "val.jsonl"', images="").replace("my_colors", "mmmu_val")
    (folder / "x.toml").write_text(text)
    assert "taken by a built-in task" in probe({"op": "list", "tasks_dir": str(folder)})["error"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"q": 1', "val.jsonl:2"),
        ("[1]", "val.jsonl:2: is a JSON list, expected an object"),
        ("[" * 100000, "nested deeper than 64"),
        ('{"q": "x"}', 'document 1: has no column "a"'),
        ('{"q": "x", "a": ["b"], "doc": "d", "picture": "pictures/none.png"}', "none.png"),
        ('{"q": "x", "a": ["b"], "doc": "d", "picture": 7}', "expected the path of a picture"),
        ('{"q": "x", "a": [], "doc": "d", "picture": null}', "holds no answer to compare with"),
    ],
)
def test_a_broken_line_is_named(probe, tmp_path, line, expected):
    folder = tmp_path / "tasks"
    write_jsonl(folder)
    lines = (folder / "val.jsonl").read_text().split("\n")
    lines[1] = line
    (folder / "val.jsonl").write_text("\n".join(lines))
    request = {"task": "my_colors", "tasks_dir": write_task(folder, 'files = "val.jsonl"')}
    answers = [probe({"op": "prompts", **request}), probe({"op": "score", **request, "responses": [{"doc_id": 1, "text": "x"}]})]
    text = json.dumps(answers).replace("\\\"", '"')
    assert "error" in text
    if expected.startswith("document 1: has no"):
        assert 'no column "a"' in text or "picture" in text
    else:
        assert expected in text


def test_an_empty_data_set_is_an_error(probe, tmp_path):
    folder = tmp_path / "tasks"
    tasks_dir = write_task(folder, 'files = "val.jsonl"')
    (folder / "val.jsonl").write_text("\n\n")
    assert "no documents" in probe({"op": "size", "task": "my_colors", "tasks_dir": tasks_dir})["error"]


def python_values():
    """A column for each type that Parquet has and that is not shown as Arrow shows it."""
    day = 86_400
    seconds = [0, 1, -1, 1_577_934_245, -62_135_596_800, 253_402_300_799, None]
    columns = {"date32": pa.array([s if s is None else s // day for s in seconds], pa.int32()).cast(pa.date32())}
    columns["date64"] = columns["date32"].cast(pa.date64())
    for unit, per in (("ms", 1000), ("us", 10**6), ("ns", 10**9)):
        near = [s if s is None or unit != "ns" else max(-(9 * 10**9), min(s, 9 * 10**9)) for s in seconds]
        counts = [s if s is None else s * per + i % 3 * (per // 2 + i) for i, s in enumerate(near[:-2])] + near[-2:-1] + [None]
        counts[-2] *= per
        for zone in (None, "UTC"):
            columns[f"timestamp_{unit}_{zone}"] = pa.array(counts, pa.int64()).cast(pa.timestamp(unit, zone))
    columns["time_ms"] = pa.array([0, 1, 1000, day * 1000 - 1, 43_200_000, 500, None], pa.int32()).cast(pa.time32("ms"))
    columns["time_us"] = pa.array([0, 1, 10**6, day * 10**6 - 1, 5, 500, None], pa.int64()).cast(pa.time64("us"))
    columns["time_ns"] = pa.array([0, 1, 10**9, day * 10**9 - 1, 1001, 500_000, None], pa.int64()).cast(pa.time64("ns"))
    for scale in (0, 2, 7, 10):
        numbers = [decimal.Decimal(n).scaleb(-scale) for n in (0, 1, -1, 12, 150, -123_456_789_012)] + [None]
        columns[f"decimal_{scale}"] = pa.array(numbers, pa.decimal128(25, scale))
        columns[f"wide_decimal_{scale}"] = pa.array(numbers, pa.decimal256(50, scale))
    for name, item in (("texts", pa.string()), ("numbers", pa.int16())):
        items = [["x", "y"], ["", "é"], ["a", None]] if name == "texts" else [[1, 2], [-3, 4], [5, None]]
        columns[f"two_{name}"] = pa.array([*items, None, *items], pa.list_(item, 2))
        columns[f"many_{name}"] = pa.array([*items, None, *items], pa.large_list(item))
    columns["nested"] = pa.array([[{"l": [i, i]}, {"l": [0, 1]}] for i in range(7)], pa.list_(pa.struct({"l": pa.list_(pa.int8(), 2)}), 2))
    return columns


def test_values_are_written_as_python_writes_what_datasets_gives(probe, tmp_path):
    from datasets import load_dataset

    columns = python_values()
    path = tmp_path / "val.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=3)
    rows = load_dataset("parquet", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    for name in columns:
        (tmp_path / f"{name}.toml").write_text(
            f'task = "{name}"\n[data]\nfiles = "val.parquet"\n[columns]\ntarget = "{name}"\n[prompt]\ntext = "{{{name}}}"\n[scorer]\nname = "exact_match"\n'
        )
        prompts = probe({"op": "prompts", "task": name, "tasks_dir": str(tmp_path)})
        wanted = [row[name] for row in rows]

        assert [None if "error" in prompt else prompt["input"] for prompt in prompts] == [None if v is None else str(v) for v in wanted], name
        assert all("is empty (null)" in prompt["error"] for prompt in prompts if "error" in prompt), prompts


def test_a_fixed_number_of_answers_is_a_list_of_answers(probe, tmp_path):
    table = pa.table({"q": ["x", "y"], "a": pa.array([["red", "Red"], ["blue", "Blue"]], pa.list_(pa.string(), 2)), "doc": ["d", "d"]})
    (tmp_path / "tasks").mkdir()
    pq.write_table(table, tmp_path / "tasks" / "val.parquet")
    request = {"task": "my_colors", "tasks_dir": write_task(tmp_path / "tasks", 'files = "val.parquet"', images="")}

    scores = probe({"op": "score", **request, "responses": [{"doc_id": 0, "text": "Red"}, {"doc_id": 1, "text": "red"}]})

    assert scores["values"] == [1, 0]
    assert json.loads(scores["lines"][0])["target"] == "['red', 'Red']"


@pytest.mark.parametrize(
    ("type_", "shown"), [(pa.duration("us"), "duration[us]"), (pa.map_(pa.string(), pa.string()), "map<string, string"), (pa.timestamp("us", "Europe/Paris"), "tz=Europe/Paris"), (pa.list_(pa.date32()), "date32[day]")]
)
def test_a_column_that_no_task_can_read_is_named_where_one_reads_it(probe, tmp_path, type_, shown):
    value = [("k", "v")] if pa.types.is_map(type_) else [5] if pa.types.is_list(type_) else 5
    table = pa.table({"q": pa.array([value], type_), "a": [["x"]], "doc": ["d"], "other": ["y"], "l": pa.array([[value]], pa.list_(type_))})
    folder = tmp_path / "tasks"
    tasks_dir = write_task(folder, 'files = "val.parquet"', images="")
    pq.write_table(table, folder / "val.parquet")

    def answer_of(column):
        (folder / "colors.toml").write_text(TASK.format(data='files = "val.parquet"', images="").replace("{q|upper}", f"{{{column}}}"))
        return probe({"op": "prompts", "task": "my_colors", "tasks_dir": tasks_dir})

    for column in ("q", "l"):
        error = answer_of(column)["error"]
        assert f'column "{column}" is of type ' in error and shown in error and f"which the prompt's {{{column}}} cannot read" in error
    assert answer_of("other")[0]["input"] == "Look. y {sic}\nOne word.", "a column that nobody reads harms nobody"


def test_cut_and_changed_parquet_never_crashes(build_dir, tmp_path):
    """Every request goes to one process: a crash would end it. Data pages carry no checksum by default, so a changed
    byte may go unnoticed; what is asked here is an answer or an error, and that a cut file is always an error."""
    folder = tmp_path / "tasks"
    tasks_dir = write_task(folder, 'files = "val.parquet"')
    write_parquet(folder / "whole.parquet", "struct")
    whole = (folder / "whole.parquet").read_bytes()
    rng = random.Random(5)
    cut = [whole[:n] for n in [0, 1, 4, 7, 8, 11, 12, *range(20, len(whole), max(1, len(whole) // 40))]]
    changed = []
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 3, 10])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        changed.append(bytes(data))
    requests = []
    for i, data in enumerate(cut + changed):
        own = tmp_path / f"t{i}"
        write_task(own, 'files = "val.parquet"')
        (own / "val.parquet").write_bytes(data)
        requests.append({"op": "prompts", "task": "my_colors", "tasks_dir": str(own)})
    answers = ask(build_dir, "tasks_probe", requests)
    assert all("error" in a for a in answers[: len(cut)])
    assert sum("error" in json.dumps(a) for a in answers[len(cut) :]) > 5
    (folder / "val.parquet").write_bytes(whole)
    assert len(ask(build_dir, "tasks_probe", [{"op": "prompts", "task": "my_colors", "tasks_dir": tasks_dir}])[0]) == 4


def test_pictures_of_a_row_group_too_large_to_keep_are_read_in_any_order(probe, tmp_path):
    """A stream of 16 rows at a time: forward, one block back (as threads ask that go forward together), far back, far ahead."""
    rows = 270
    pictures = [b"%08d" % i + bytes(1 << 20) for i in range(rows)]
    table = pa.table({"q": [f"q{i}" for i in range(rows)], "picture": pictures, "a": [["x"]] * rows, "doc": ["d"] * rows})
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "val.parquet"
    pq.write_table(table, path, row_group_size=rows, compression="zstd", use_dictionary=False)
    assert pq.ParquetFile(path).metadata.row_group(0).total_byte_size > 256 << 20
    ids = [0, 15, 16, 14, 17, 31, 32, 30, 47, 100, 95, 80, 3, 269, 260, 0]

    prompts = probe({"op": "prompts", "task": "my_colors", "tasks_dir": write_task(tmp_path / "tasks", f'files = ["{path}"]'), "ids": ids})

    assert [prompt["images"] for prompt in prompts] == [[hashlib.sha256(pictures[i]).hexdigest()] for i in ids]
