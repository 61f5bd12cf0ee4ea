"""Between a stop in the middle of an evaluation and the next start somebody changes the prompt, the data or the model's text
files: what is published is what a new evaluation gives, and nothing of it was answered before the change."""

import json
import random
import shutil
import subprocess

import checkpoints
import evaluator as evaluator_module
import pytest
import sidecar as sidecar_module
import small_models
from fixtures import data_sets

TASK = """
task = "own"
[data]
files = ["val.jsonl"]
split = "test"
[columns]
images = "picture"
target = "a"
[prompt]
text = "{q} WORDS"
[generation]
max_new_tokens = 24
[scorer]
name = "contains"
"""
DOCUMENTS = 120  # enough that a stop comes in the middle on a fast machine, too
TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "preprocessor_config.json", "processor_config.json")


def write_data(folder, words="in short"):
    (folder / "tasks").mkdir(parents=True, exist_ok=True)
    (folder / "tasks" / "own.toml").write_text(TASK.replace("WORDS", words))
    moves = random.Random(1)
    lines = []
    for i in range(DOCUMENTS):
        picture = data_sets.make_scene(moves, (56, 56)).image
        (folder / "tasks" / f"{i}.png").write_bytes(data_sets.encode(picture))
        lines.append({"q": f"What is in picture {i}?", "a": "e", "picture": f"{i}.png"})
    (folder / "tasks" / "val.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def made(bin_dir, tmp_path_factory, cache_dir):
    """A checkpoint with weights and config.json alone, the model that it was trained from, and a task."""
    if not (bin_dir / "evalcar-evaluator").exists():
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")
    root = tmp_path_factory.mktemp("made")
    small_models.write_model(root / "base", small_models.SmallModel(seed=21, layers=2), cache_dir=cache_dir)
    checkpoint = root / "out" / "checkpoint-5"
    checkpoint.mkdir(parents=True)
    for file in (root / "base").iterdir():
        if file.name not in TEXT_FILES:
            shutil.copyfile(file, checkpoint / file.name)
    write_data(root)
    return root


@pytest.fixture
def start(bin_dir, tmp_path):
    """Starts a sidecar beside `root`/out; ends it with the test."""
    started = []

    def start_in(root):
        arguments = [*options(root), "--set", "watch.settle_time=1s"]
        started.append(sidecar_module.Sidecar(bin_dir, tmp_path, root / "out", tasks="own", arguments=arguments).start())
        return started[-1]

    yield start_in
    for sidecar in started:
        sidecar.kill()


def options(root):
    return ["--set", f"evaluate.tasks_dir={root / 'tasks'}", "--set", f"evaluate.base_model={root / 'base'}",
            "--set", "evaluate.batch_size=1", "--device", "cpu"]  # fmt: skip


def sample_lines(folder):
    (path,) = folder.glob("**/*_samples_own.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def change_prompt(root):
    path = root / "tasks" / "own.toml"
    path.write_text(path.read_text().replace("in short", "at length"))


def change_pictures(root):
    for i in range(0, DOCUMENTS, 2):
        shutil.copyfile(root / "tasks" / f"{i + 1}.png", root / "tasks" / f"{i}.png")


def change_answers(root):
    path = root / "tasks" / "val.jsonl"
    path.write_text(path.read_text().replace('"a": "e"', '"a": "i"'))


def change_template(root):
    path = root / "base" / "chat_template.jinja"
    path.write_text(path.read_text().replace("You are a helpful assistant.", "You are terse."))


CHANGES = [change_prompt, *(pytest.param(change, marks=pytest.mark.full) for change in (change_template, change_pictures, change_answers))]


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_stop_and_restart_is_never_mixed(start, made, tmp_path, change):
    root = tmp_path / "made"
    shutil.copytree(made, root)
    sidecar = start(root)
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM answer LIMIT 1"), what="a stored answer")
    sidecar.stop()
    left = dict(sidecar.query("SELECT doc_id, text FROM answer"))
    assert 0 < len(left) < DOCUMENTS, "the stop was not in the middle"

    change(root)
    command = [sidecar.evalcar, "eval", str(root / "out" / "checkpoint-5"), "--tasks", "own", "--output", str(tmp_path / "undisturbed"), *options(root), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert sidecar.once() == 0, sidecar.log()

    fresh = sample_lines(tmp_path / "undisturbed")
    ours = sample_lines(root / "out" / "_evalcar" / "results")
    if change is not change_answers:
        assert any(left[line["doc_id"]] != line["filtered_resps"] for line in fresh if line["doc_id"] in left), "the change changes no answer"
    assert ours == fresh
    line = sidecar.metrics_lines()[-1]  # interim scores came before
    assert 0 < line["metrics"]["eval/own/contains"] == json.loads(done.stdout)["results"]["own"]["contains"]
    assert f"{len(left)} known answers are to other prompts or of other data" in sidecar.log()


def test_what_does_not_change_is_not_answered_again(start, made, tmp_path):
    """Also where the data were copied and touched meanwhile."""
    root = tmp_path / "made"
    shutil.copytree(made, root)
    sidecar = start(root)
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM answer LIMIT 1"), what="a stored answer")
    sidecar.stop()
    (left,) = sidecar.query("SELECT count(*) FROM answer")[0]
    shutil.copytree(root / "tasks", tmp_path / "copy", copy_function=shutil.copyfile)
    shutil.rmtree(root / "tasks")
    shutil.copytree(tmp_path / "copy", root / "tasks", copy_function=shutil.copyfile)

    assert sidecar.once() == 0, sidecar.log()

    assert f"{left} answers are known already" in sidecar.log()
    assert len(sample_lines(root / "out" / "_evalcar" / "results")) == DOCUMENTS


def answers_of(evaluator, root, known=(), fingerprint="", **settings):
    """({doc_id: generated text}, fingerprint) of the task, with these answers known."""
    for doc_id, text in known:
        evaluator.say("answered", id="1", task="own", doc_id=doc_id, text=text, output_tokens=1, fingerprint=fingerprint)
    heard = len(evaluator.heard)
    evaluator.evaluate("", ["own"], tasks_dir=str(root / "tasks"), max_new_tokens=12, **settings)
    (task,) = evaluator.wait_for("result")["tasks"]
    assert task["error"] == ""
    return {m["doc_id"]: m["text"] for m in evaluator.heard[heard:] if m["type"] == "sample"}, task["fingerprint"]


def test_drawn_answers_are_the_same_whichever_are_known_already(bin_dir, made):
    drawn = {"gen_kwargs": "temperature=1.0", "limit": 16}
    with evaluator_module.Evaluator(bin_dir) as evaluator:
        evaluator.load(made / "base")
        whole, fingerprint = answers_of(evaluator, made, **drawn)
        known = [(doc_id, text) for doc_id, text in whole.items() if doc_id % 2 == 0]
        rest, same = answers_of(evaluator, made, known, fingerprint, **drawn)
        again, other = answers_of(evaluator, made, known, "0" * 64, **drawn)
        reseeded, _ = answers_of(evaluator, made, seed=1, **drawn)

    assert fingerprint == same == other
    assert sorted(rest) == list(range(1, 16, 2))
    assert rest == {doc_id: text for doc_id, text in whole.items() if doc_id % 2}
    assert again == whole  # answers of another fingerprint are not taken
    assert reseeded != whole and len(set(whole.values())) > 8


def test_the_same_weights_written_again_after_a_new_prompt_supersede_their_old_number(bench):
    checkpoints.write_hugging_face(bench.run, 5, seed="s")
    sidecar = bench.sidecar()
    assert sidecar.once() == 0
    shutil.rmtree(bench.run / "checkpoint-5")
    checkpoints.write_hugging_face(bench.run, 5, seed="s")
    bench.tell(prompts={"docvqa_val": "new"})

    assert sidecar.once() == 0

    first, second = sidecar.metrics_lines()
    assert first["weights_sha256"] == second["weights_sha256"]
    assert second["supersedes"] == first["seq"]
    assert second["metrics"] != first["metrics"]
    assert sidecar.query("SELECT value FROM metrics") == [(second["metrics"]["eval/docvqa_val/anls"],)]
    assert len(bench.heard("generate")) == 12


def test_a_prompt_that_changes_between_two_checkpoints_parts_their_numbers(start, made, tmp_path):
    """A checkpoint whose own template changed is asked the same by the same task."""
    root = tmp_path / "made"
    shutil.copytree(made, root)
    path = root / "tasks" / "val.jsonl"
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:4]))
    sidecar = start(root)
    sidecar.wait_for(lambda s: s.metrics_lines(), what="the first number")
    sidecar.stop()
    for step, change in ((10, change_template), (15, change_prompt)):
        shutil.copytree(root / "out" / "checkpoint-5", root / "out" / f"checkpoint-{step}", copy_function=shutil.copyfile)
        change(root)
        assert sidecar.once() == 0, sidecar.log()

    rows = sidecar.query("SELECT step, configured, question_sha256, fingerprint FROM metrics ORDER BY step")

    assert [row[:2] for row in rows] == [(5, 0), (10, 0), (15, 1)]
    assert rows[0][2] == rows[1][2] != rows[2][2] and len({row[3] for row in rows}) == 3
