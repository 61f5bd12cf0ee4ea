"""Prepared tasks that are kept on the disk: the next checkpoint takes them, and answers as if they had been prepared."""

import contextlib
import ctypes
import io
import json
import os
import pathlib
import shutil
import struct
import time

import checkpoints
import pytest
import small_models
from evaluator import Evaluator
from fixtures import data_sets
from PIL import Image

HEAD = 'task = "{name}"\n[data]\nfiles = ["{file}"]\n'
OWN = {
    "asked": ("q.jsonl", '[columns]\ntarget = "a"\n[prompt]\ntext = "{q}"\n[fewshot]\nnum = 2\nfiles = ["q.jsonl"]\n[scorer]\nname = "exact_match"\n'),
    "chosen": ("q.jsonl", '[columns]\ntarget = "a"\n[request]\nkind = "multiple_choice"\nchoices = "c"\n[prompt]\ntext = "{q}"\n'),
    "rolled": ("q.jsonl", '[request]\nkind = "rolling"\nmax_length = 4\n[prompt]\ntext = "{q}"\n'),
    "taught": ("chats.jsonl", '[request]\nkind = "loss"\nmax_length = 400\n'),
}  # fmt: skip
TASKS = ["docvqa_val", "textvqa_val", "mmmu_val", *OWN]
SETTINGS = dict(limit=None, offset=0, batch_size=0, max_new_tokens=4, max_pixels=1605632, min_pixels=3136, attn_implementation="",
                compat="lmms-eval", gen_kwargs="", num_fewshot=None, seed=0, bootstrap_iters=100)  # fmt: skip


def write_own(folder):
    """Tasks over texts, and one over conversations that show picture files."""
    folder.mkdir()
    for name, (file, rest) in OWN.items():
        (folder / f"{name}.toml").write_text(HEAD.format(name=name, file=file) + rest)
    questions = [{"q": f"What is {i} + {i}, in words that are not few?", "a": str(2 * i), "c": [str(2 * i), "none of these", "7"]} for i in range(1, 6)]
    chats = []
    for i, color in enumerate(("red", "blue", "green")):
        Image.new("RGB", (56, 56), color).save(folder / f"{i}.png")
        parts = [{"type": "image", "image": f"{i}.png"}, {"type": "text", "text": "What color?"}]
        chats.append([{"role": "user", "content": parts}, {"role": "assistant", "content": f"It is {color}."}])
    chats.append([{"role": "user", "content": "A long one. " * 200}, {"role": "assistant", "content": "Cut off."}])
    for file, rows in (("q.jsonl", questions), ("chats.jsonl", [{"messages": chat} for chat in chats])):
        (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows))


class Scene:
    def __init__(self, root):
        self.data, self.own = root / "data", root / "own"
        self.models = [root / "a", root / "b"]

    def copy(self, root):
        """One of its own, to be changed; as young as it is."""
        for folder in (self.data, self.own, *self.models):
            shutil.copytree(folder, root / folder.name)
        return Scene(root)

    def data_files(self):
        return [path for path in [*self.data.rglob("*.parquet"), *self.own.iterdir()] if path.suffix != ".toml"]

    def grow_old(self):
        """What was written within two seconds is not kept: it could change again with the same time."""
        youngest = max(path.stat().st_ctime for path in [*self.data.rglob("*"), *self.own.iterdir()])
        time.sleep(max(0.0, youngest + 2.5 - time.time()))
        return self


@pytest.fixture(scope="module")
def scene(tmp_path_factory, bin_dir, cache_dir):
    """Two checkpoints of one model, and data for tasks of all kinds."""
    if not (bin_dir / "evalcar-evaluator").exists():
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")
    made = Scene(tmp_path_factory.mktemp("scene"))
    for seed, folder in enumerate(made.models):
        small_models.write_model(folder, small_models.SmallModel(seed=5 + seed, layers=2), cache_dir=cache_dir)
    data_sets.write_all(made.data, 6, 1, 6)
    write_own(made.own)
    return made.grow_old()


def keeping(cache):
    return ["--preparation-cache", str(cache), "--preparation-cache-bytes", str(1 << 30),
            "--picture-cache", str(cache) + "-pixels", "--picture-cache-bytes", str(1 << 30)]  # fmt: skip


def measured(evaluator, scene, model, job, tasks=TASKS, **settings):
    """What one checkpoint gives: fingerprints, and the scored lines."""
    settings = {**SETTINGS, "tasks": list(tasks), "data_dir": str(scene.data), "tasks_dir": str(scene.own), **settings}
    evaluator.say("load", id=job, dir=str(model), weights="regular", dtype="auto", base_model="", settings=settings)
    evaluator.wait_for("loaded")
    evaluator.say("evaluate", id=job, settings=settings)
    prepared = evaluator.wait_for("prepared")
    result = evaluator.wait_for("result")
    assert not any(task.get("error") for task in result["tasks"]), result
    lines = [(m["task"], m["doc_id"], m["line"]) for m in evaluator.heard if m["type"] == "scored" and m["id"] == job]
    return {task["task"]: task["sha256"] for task in prepared["tasks"]}, lines, [(task["task"], task["lmms_results"], task["notes"]) for task in result["tasks"]]


def alone(bin_dir, scene, model, *options, log=os.devnull, **settings):
    """measured() by a process of its own."""
    with open(log, "ab") as stream, Evaluator(bin_dir, *options, log=stream) as evaluator:
        found = measured(evaluator, scene, model, "1", **settings)
        evaluator.say("bye")
    return found


def entries(cache):
    return {path: path.stat().st_ino for path in pathlib.Path(cache).rglob("*") if path.is_file()}


@contextlib.contextmanager
def watching(paths):
    """Gives a function that tells which of the files were opened since, by inotify."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_NONBLOCK)
    names = {libc.inotify_add_watch(fd, os.fsencode(path), 0x20): path for path in paths}  # IN_OPEN
    assert fd >= 0 and all(watch > 0 for watch in names)

    def opened():
        found = set()
        with contextlib.suppress(BlockingIOError):
            while events := os.read(fd, 1 << 16):
                while events:
                    watch, _, _, length = struct.unpack_from("iIII", events)
                    found.add(names[watch])
                    events = events[16 + length :]
        return found

    yield opened
    os.close(fd)


def test_the_second_checkpoint_opens_no_data_file_and_is_measured_as_without_what_is_kept(bin_dir, scene, tmp_path):
    plain = [alone(bin_dir, scene, model) for model in scene.models]
    assert len(plain[0][1]) == 6 + 1 + 6 + 3 * 5 + 4 and plain[0][0] == plain[1][0] and plain[0][1] != plain[1][1]

    with Evaluator(bin_dir, *keeping(tmp_path / "kept")) as evaluator, watching(scene.data_files()) as opened:
        first = measured(evaluator, scene, scene.models[0], "1")
        assert opened() == set(scene.data_files())
        second = measured(evaluator, scene, scene.models[1], "2")
        assert opened() == set()
        evaluator.say("bye")

    assert [first, second] == plain
    assert len(entries(tmp_path / "kept")) == len(TASKS)
    kept = entries(tmp_path / "kept")
    with watching([path for path in scene.data_files() if path.suffix == ".png"]) as opened:
        assert alone(bin_dir, scene, scene.models[1], *keeping(tmp_path / "kept")) == plain[1]  # a process that is started later
        assert opened() == set()
    assert entries(tmp_path / "kept") == kept


def rewrite_in_place(path, change):
    """Other bytes of the same length in the same file, which bears its old date."""
    stat, old = path.stat(), path.read_bytes()
    new = change(old)
    assert len(new) == len(old) and new != old
    with path.open("r+b") as file:
        file.write(new)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_mtime_ns == stat.st_mtime_ns


def other_questions(scene):
    rewrite_in_place(scene.own / "q.jsonl", lambda old: old.replace(b"What is", b"Where is"[:7]))


def other_picture(scene):
    buffer = io.BytesIO()
    Image.new("RGB", (56, 56), "black").save(buffer, "PNG")
    path = scene.own / "1.png"
    new = buffer.getvalue()
    if len(new) < path.stat().st_size:  # what follows the picture is not read
        new += b"\0" * (path.stat().st_size - len(new))
        rewrite_in_place(path, lambda _: new)
    else:
        path.write_bytes(new)


def other_rows(scene):
    data_sets.write_docvqa(scene.data, 6, seed=99)


def other_template(scene):
    for model in scene.models:
        path = model / "chat_template.jinja"
        path.write_text("{{ 'Be brief. ' }}" + path.read_text())


def other_tokenizer(scene):
    for model in scene.models:
        path = model / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:-200]
        path.write_text(json.dumps(tokenizer))


def other_task(scene):
    path = scene.own / "asked.toml"
    path.write_text(path.read_text().replace('"{q}"', '"{q} Say it."'))


CHANGES = [
    (other_questions, {"asked", "chosen", "rolled"}), (other_picture, {"taught"}), (other_rows, {"docvqa_val"}),
    (other_template, set(TASKS)), (other_tokenizer, set(TASKS)), (other_task, {"asked"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def copies(scene, tmp_path_factory):
    """One for each change, which grew old together."""
    made = [scene.copy(tmp_path_factory.mktemp("own")) for _ in CHANGES]
    made[-1].grow_old()
    return made


@pytest.mark.parametrize("change, tasks", CHANGES)
def test_whatever_changes_a_prompt_is_prepared_anew(bin_dir, copies, tmp_path, change, tasks):
    own = copies.pop()
    with Evaluator(bin_dir, *keeping(tmp_path / "kept")) as evaluator:
        before = measured(evaluator, own, own.models[0], "1")
        change(own)
        after = measured(evaluator, own, own.models[0], "2")
        evaluator.say("bye")

    assert after == alone(bin_dir, own, own.models[0])
    assert {task for task in TASKS if after[0][task] != before[0][task]} == tasks


def test_a_damaged_entry_is_made_anew_and_changes_nothing(bin_dir, scene, tmp_path):
    log, cache = tmp_path / "log", tmp_path / "kept"
    plain = alone(bin_dir, scene, scene.models[0], *keeping(cache))
    for number, path in enumerate(sorted(entries(cache))):
        content = bytearray(path.read_bytes())
        if number % 3 == 0:
            content[-1] ^= 255
        elif number % 3 == 1:
            del content[len(content) // 2 :]
        else:
            content[:8] = b"evctask0"
        path.write_bytes(content)

    assert alone(bin_dir, scene, scene.models[0], *keeping(cache), log=log) == plain
    assert log.read_text().count("preparation cache") == 1 and "made anew" in log.read_text()
    assert alone(bin_dir, scene, scene.models[0], *keeping(cache), log=log) == plain
    assert log.read_text().count("preparation cache") == 1  # they are whole again


def test_two_processes_that_prepare_at_once_are_in_each_other_s_way_in_nothing(bin_dir, scene, tmp_path):
    plain = alone(bin_dir, scene, scene.models[0])
    settings = {**SETTINGS, "tasks": TASKS, "data_dir": str(scene.data), "tasks_dir": str(scene.own)}
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(Evaluator(bin_dir, *keeping(tmp_path / "kept"))) for _ in range(2)]
        for evaluator in both:
            evaluator.load(scene.models[0])
        for evaluator in both:
            evaluator.say("evaluate", id="1", settings=settings)
        for evaluator in both:
            evaluator.wait_for("result")
            evaluator.say("bye")
            lines = [(m["task"], m["doc_id"], m["line"]) for m in evaluator.heard if m["type"] == "scored"]
            assert lines == plain[1]

    kept = entries(tmp_path / "kept")
    assert len(kept) == len(TASKS)
    assert alone(bin_dir, scene, scene.models[0], *keeping(tmp_path / "kept")) == plain
    assert entries(tmp_path / "kept") == kept


def test_a_picture_whose_pixels_are_not_kept_is_read_from_the_data_again(bin_dir, scene, tmp_path):
    prompts_alone = keeping(tmp_path / "kept")[:4]
    plain = alone(bin_dir, scene, scene.models[0], *prompts_alone)

    with watching(scene.data_files()) as opened:
        assert alone(bin_dir, scene, scene.models[0], *prompts_alone) == plain
        assert {path.name for path in opened()} >= {"0.png", "1.png", "2.png"}


@pytest.mark.parametrize("size", ["1GiB", "0"])
def test_the_agent_says_where_and_how_much(bench, size):
    bench.tell(log_arguments=True)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar("--set", f"limits.preparation_cache={size}", "--set", "limits.min_free=1MiB")

    assert sidecar.once() == 0, sidecar.log()

    arguments = json.loads(bench.heard("arguments")[0].split(" ", 1)[1])
    told = dict(zip(arguments, arguments[1:]))
    if size == "0":
        assert not any(argument.startswith("--preparation-cache") for argument in arguments)
    else:
        assert told["--preparation-cache"] == str(bench.home / "state" / "evalcar" / "prepared")
        assert (told["--preparation-cache-bytes"], told["--preparation-cache-keep-free"]) == (str(1 << 30), str(1 << 20))
