"""Pictures of samples: the real evaluator writes each one small and once, the agent serves it, and the page shows it in a real Chromium."""

import hashlib
import http.client
import io
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import time

import checkpoints
import numpy
import pyarrow.parquet
import pytest
import sidecar as sidecar_module
import small_models
from evaluator import Evaluator
from fixtures import data_sets
from http_server import Api, free_port, serving
from PIL import Image, ImageOps
from test_live_page import SCORES, opened, shows
from test_page import CHROMIUM, PHONE, browser  # noqa: F401  (a fixture)

SIDE = 512
DOCUMENTS = 6
TASKS = {"docvqa_val": "DocVQA", "textvqa_val": "textvqa", "mmmu_val": "MMMU"}
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, bin_dir, cache_dir):
    """(two models, their data): pictures that are wide, tall and small."""
    if not (bin_dir / "evalcar-evaluator").exists():
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")
    root = tmp_path_factory.mktemp("sample_pictures")
    for seed in (5, 6):
        small_models.write_model(root / f"model{seed}", small_models.SmallModel(seed=seed, layers=2), cache_dir=cache_dir)
    return [root / "model5", root / "model6"], data_sets.write_all(root / "data", DOCUMENTS, DOCUMENTS, DOCUMENTS, sizes=((200, 150), (1100, 900)))


def sources(data, task):
    """The encoded pictures of each document, in the order of its columns."""
    rows = []
    for path in sorted((data / "lmms-lab" / TASKS[task]).rglob("*.parquet")):
        rows += pyarrow.parquet.read_table(path).to_pylist()
    columns = [f"image_{i}" for i in range(1, 8)] if task == "mmmu_val" else ["image"]
    return [[row[column]["bytes"] for column in columns if row[column]] for row in rows]


def name_of(picture):
    return hashlib.sha256(picture).hexdigest() + ".jpg"


def check_is_thumbnail_of(jpeg, source):
    """As large as Pillow makes it, and to the eye the same."""
    small = Image.open(io.BytesIO(jpeg))
    assert small.format == "JPEG" and max(small.size) <= SIDE
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(source))).convert("RGB")
    expected.thumbnail((SIDE, SIDE))
    assert small.size == expected.size
    away = numpy.abs(numpy.asarray(small.convert("RGB"), int) - numpy.asarray(expected, int))
    assert away.mean() < 3 and numpy.percentile(away, 99) < 40, (away.mean(), numpy.percentile(away, 99))


def files_of(folder):
    return {path.name: path for path in pathlib.Path(folder).rglob("*.jpg")}


def states_of(folder):
    return {name: (stat.st_ino, stat.st_mtime_ns, stat.st_size) for name, path in files_of(folder).items() for stat in [path.stat()]}


def raw(api, path, method="GET"):
    """(status, fields, bytes), the path as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=30)
    connection.putrequest(method, path, skip_accept_encoding=True)
    connection.endheaders()
    answer = connection.getresponse()
    with answer:
        return answer.status, dict(answer.getheaders()), answer.read()


@pytest.fixture
def real(bin_dir, inputs, tmp_path):
    """(sidecar, Api, folder of pictures): an agent with the real evaluator that has measured step 5."""
    models, data = inputs
    run = tmp_path / "out"
    shutil.copytree(models[0], run / "checkpoint-5")
    port = free_port()
    settings = ["watch.settle_time=1s", "evaluate.max_new_tokens=2", "evaluate.min_pixels=3136", "evaluate.max_pixels=50176",
                "limits.min_free=1MiB", f"server.listen=127.0.0.1:{port}"]  # fmt: skip
    arguments = ["--data", str(data), "--device", "cpu", *(word for setting in settings for word in ("--set", setting))]
    sidecar = sidecar_module.Sidecar(bin_dir, tmp_path, run, tasks=",".join(TASKS), arguments=arguments)
    api = Api(port)
    sidecar.start()
    try:
        api.wait_until_up(sidecar)
        sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the result")
        yield sidecar, api, tmp_path / "state" / "evalcar" / "sample-pictures"
    finally:
        if sidecar.process.poll() is None:
            sidecar.kill()


def open_samples(page, task):
    """The samples of the newest step."""
    column = page.locator("#scores thead th").all_inner_texts().index(next(
        text for text in page.locator("#scores thead th").all_inner_texts() if text.startswith(task)))  # fmt: skip
    page.locator("#scores tbody tr").first.locator("td").nth(column - 1).click()
    shows(page, f"document.getElementById('samples-title').textContent.includes('{task}')")


LOADED = "[...document.querySelectorAll('#samples-list img')].every((image) => image.complete && image.naturalWidth > 0)"


@needs_chromium
def test_a_real_evaluations_pictures_arrive_at_the_page(browser, real, inputs):  # noqa: F811
    sidecar, api, folder = real
    models, data = inputs
    distinct = {name_of(picture): picture for task in TASKS for document in sources(data, task) for picture in document}
    assert files_of(folder).keys() == distinct.keys()
    for name, path in files_of(folder).items():
        check_is_thumbnail_of(path.read_bytes(), distinct[name])
        assert path.stat().st_mode & 0o777 == 0o600

    with opened(browser, api) as page:
        shows(page, f"{SCORES} === 1")
        for task in TASKS:
            open_samples(page, task)
            shows(page, f"document.querySelectorAll('#samples-list li').length === {DOCUMENTS}")
            for image in page.locator("#samples-list img").all():
                image.scroll_into_view_if_needed()
            shows(page, LOADED)
            items = page.locator("#samples-list li").all()
            for item, pictures in zip(items, sources(data, task), strict=True):
                shown = [image.get_attribute("src").rsplit("/", 1)[1] for image in item.locator("img").all()]
                assert shown == [name_of(picture) for picture in pictures]
            sizes = page.evaluate("[...document.querySelectorAll('#samples-list img')].map((i) => [i.naturalWidth, i.naturalHeight])")
            assert max(max(size) for size in sizes) <= SIDE
        assert any(len(pictures) == 2 for pictures in sources(data, "mmmu_val"))
        labels = [image.get_attribute("alt") for image in page.locator("#samples-list img").all()]
        assert labels[0] == "picture of document 0" and "picture 2 of 2 of document 4" in labels

        # What the server gives is the file, and what Pillow makes of the source.
        name, source = next(iter(distinct.items()))
        status, fields, body = raw(api, "/page/pictures/" + name)
        assert (status, fields["Content-Type"], fields["X-Content-Type-Options"]) == (200, "image/jpeg", "nosniff")
        assert fields["Cache-Control"] == "private, max-age=31536000, immutable"
        assert body == files_of(folder)[name].read_bytes()
        check_is_thumbnail_of(body, source)

    before = states_of(folder)
    rows = sidecar.query("SELECT * FROM document_pictures")
    shutil.copytree(models[1], sidecar.run / "checkpoint-10")
    sidecar.wait_for(lambda s: (10, "regular") in s.published(), what="the second checkpoint")
    assert states_of(folder) == before  # not one was written again
    assert sidecar.query("SELECT * FROM document_pictures") == rows
    of_steps = sidecar.query("SELECT step, group_concat(pictures) FROM (SELECT * FROM samples ORDER BY task, doc_id) GROUP BY step")
    assert [step for step, _ in of_steps] == [5, 10] and of_steps[0][1] == of_steps[1][1]


@needs_chromium
@pytest.mark.parametrize("options", [{}, PHONE, {"color_scheme": "dark"}], ids=["desktop", "phone", "dark"])
def test_a_picture_is_made_larger_and_small_again_by_click_and_keys(browser, bench, tmp_path, options):  # noqa: F811
    _, api, name = with_one_picture(bench)
    with opened(browser, api, **options) as page:
        shows(page, f"{SCORES} === 1")
        page.locator("#scores td").first.click()
        shows(page, "document.querySelectorAll('#samples-list li').length === 6")
        shows(page, LOADED)
        picture = page.get_by_role("button", name="picture of document 0")
        small = picture.bounding_box()
        picture.click()
        large = picture.bounding_box()
        assert picture.get_attribute("aria-pressed") == "true" and large["height"] > small["height"] + 50
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if os.environ.get("EVALCAR_SCREENSHOTS"):
            page.screenshot(path=pathlib.Path(os.environ["EVALCAR_SCREENSHOTS"]) / f"{'-'.join(options) or 'desktop'}.png", full_page=True)
        page.keyboard.press("Enter")
        assert picture.get_attribute("aria-pressed") == "false" and picture.bounding_box()["height"] == small["height"]
        # A document without pictures, and one whose picture is gone: a note, no complaint of the browser.
        items = page.locator("#samples-list li").all()
        assert items[1].locator(".pictures").count() == 0
        assert items[2].locator(".pictures").inner_text() == "picture of document 2 is not kept"
        assert page.locator("#samples-list img").count() == 1 and name in page.locator("#samples-list img").get_attribute("src")


def with_one_picture(bench):
    """(sidecar, Api, name): document 0 has a picture, that of document 2 is gone."""
    image = data_sets.make_scene(random.Random(3), (SIDE, 400)).image
    encoded = io.BytesIO()
    image.save(encoded, "JPEG")
    name, gone = name_of(b"one"), name_of(b"another")
    place = bench.home / "state" / "evalcar" / "sample-pictures" / name[:2] / name
    place.parent.mkdir(parents=True)
    place.write_bytes(encoded.getvalue())
    bench.tell(pictures={"0": [name], "2": [gone]})
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar, api = serving(bench)
    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the result")
    sidecar.wait_for(lambda _: api.get("/page/data")["run"], what="the run")
    return sidecar, api, name


def test_the_route_gives_pictures_and_nothing_else(bench):
    sidecar, api, name = with_one_picture(bench)
    assert raw(api, f"/page/pictures/{name}")[0] == 200
    secret = bench.home / "state" / "evalcar" / "secret.jpg"
    shutil.copy(next((bench.home / "state" / "evalcar" / "sample-pictures").rglob("*.jpg")), secret)
    hostile = ["", "secret.jpg", "../secret.jpg", "%2e%2e/secret.jpg", "..%2fsecret.jpg", "..%5csecret.jpg", str(secret), name[:2] + "/" + name,
               name.upper(), name[:-4], name[:-4] + ".png", name + "/", name + "%00", name + "%00.jpg", "%00" + name, "a" * 64 + ".jpg", "a" * 5000,
               f"{name}/../../secret.jpg", "../data"]  # fmt: skip
    for path in hostile:
        status, fields, body = raw(api, "/page/pictures/" + path)
        assert status in (400, 404), (path, status)
        assert fields["Content-Type"] == "application/json" and "immutable" not in fields["Cache-Control"], path
        assert b"\xff\xd8" not in body
    assert raw(api, f"/page/pictures/{name}", method="POST")[0] == 405
    assert raw(api, f"/page/pictures/{name}?since=1")[0] == 200
    assert sidecar.process.poll() is None


def test_pictures_need_the_token_too(bench):
    token = bench.home / "token"
    token.write_text("0123456789abcdef0123\n")
    token.chmod(0o600)
    bench.tell()
    checkpoints.write_hugging_face(bench.run, 5)
    _, api = serving(bench, "--set", f"server.token_file={token}", token="0123456789abcdef0123")
    assert raw(api, "/page/pictures/" + "a" * 64 + ".jpg")[0] == 401


@pytest.mark.parametrize("names", [["../../../etc/passwd"], ["a" * 64], ["a" * 64 + ".jpg"] * 17], ids=["path", "no-ending", "too-many"])
def test_names_that_are_none_end_the_evaluation_and_not_the_agent(bench, names):
    bench.tell(pictures={"0": names})
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar("--set", "limits.attempts=1")
    assert sidecar.once() == 4, sidecar.log()
    assert "pictures" in sidecar.states()[5, "regular"][1]
    assert sidecar.query("SELECT count(*) FROM document_pictures") == [(0,)]


def shown(bin_dir, inputs, folder, *arguments, known=(), tasks=("docvqa_val", "mmmu_val"), **settings):
    """All messages of a new evaluator over these tasks."""
    models, data = inputs
    options = ["--sample-pictures", str(folder), "--sample-pictures-bytes", str(1 << 30)] if folder else []
    with Evaluator(bin_dir, *options, *arguments) as evaluator:
        evaluator.load(models[0])
        for message in known:
            evaluator.say("answered", **{key: value for key, value in message.items() if key != "type"})
        evaluator.evaluate(data, list(tasks), max_pixels=50176, **settings)
        evaluator.wait_for("result")
        evaluator.say("bye")
    return evaluator.heard


def of_kind(heard, kind):
    return [message for message in heard if message["type"] == kind]


def lines(heard):
    return [(message["task"], message["line"]) for message in of_kind(heard, "scored")]


def test_an_evaluation_whose_answers_are_all_known_has_its_pictures(bin_dir, inputs, tmp_path):
    first = shown(bin_dir, inputs, None)
    folder = tmp_path / "pictures"

    second = shown(bin_dir, inputs, folder, known=of_kind(first, "sample"))

    assert of_kind(second, "sample") == [] and lines(second) == lines(first)
    told = {name for message in of_kind(second, "scored") for name in message["pictures"]}
    assert told == files_of(folder).keys() and len(told) > DOCUMENTS
    for picture in {picture for task in ("docvqa_val", "mmmu_val") for document in sources(inputs[1], task) for picture in document}:
        check_is_thumbnail_of(files_of(folder)[name_of(picture)].read_bytes(), picture)


def test_where_no_pictures_are_made_it_is_told_all_the_same_which_documents_share_them(bin_dir, inputs, tmp_path):
    told = {(message["task"], message["doc_id"]): message["pictures"] for message in of_kind(shown(bin_dir, inputs, None), "scored")}

    expected = {(task, number): [name_of(picture) for picture in document]
                for task in ("docvqa_val", "mmmu_val") for number, document in enumerate(sources(inputs[1], task))}  # fmt: skip
    assert told == expected
    assert files_of(tmp_path) == {}


def test_prepared_pictures_that_are_kept_do_not_keep_the_small_ones_away(bin_dir, inputs, tmp_path):
    cache = ["--picture-cache", str(tmp_path / "cache"), "--picture-cache-bytes", str(1 << 30)]
    first = shown(bin_dir, inputs, None, *cache)
    folder = tmp_path / "pictures"
    assert lines(shown(bin_dir, inputs, folder, *cache)) == lines(first)
    before = states_of(folder)
    assert len(before) > DOCUMENTS

    shown(bin_dir, inputs, folder, *cache)

    assert states_of(folder) == before


@pytest.mark.parametrize("trouble", ["the disk is full", *(pytest.param(each, marks=pytest.mark.full) for each in ("a file is in the way", "no room"))])
def test_a_picture_that_cannot_be_written_costs_no_evaluation(bin_dir, inputs, tmp_path, trouble):
    folder = tmp_path / "pictures"
    more = []
    if trouble == "a file is in the way":
        folder.write_text("not a folder")
    elif trouble == "no room":
        more = ["--sample-pictures-keep-free", str(1 << 60)]
    else:
        folder = pathlib.Path("/dev/full")
    assert lines(shown(bin_dir, inputs, folder, *more)) == lines(shown(bin_dir, inputs, None))
    assert files_of(tmp_path) == {}


TEXT_TASK = '''
task = "words"
[data]
files = ["val.jsonl"]
split = "test"
[columns]
target = "a"
[prompt]
text = "{q}"
[generation]
max_new_tokens = 4
[scorer]
name = "contains"
'''


def test_a_task_of_text_alone_costs_nothing(bin_dir, inputs, tmp_path):
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "words.toml").write_text(TEXT_TASK)
    (tasks / "val.jsonl").write_text("".join(json.dumps({"q": f"What is {i}?", "a": "e"}) + "\n" for i in range(4)))
    folder = tmp_path / "pictures"

    heard = shown(bin_dir, inputs, folder, tasks=["words"], tasks_dir=str(tasks))

    assert len(of_kind(heard, "scored")) == 4 and not any("pictures" in message for message in of_kind(heard, "scored"))
    assert not folder.exists()


def test_a_torn_file_is_made_anew_by_the_next_evaluation(bin_dir, inputs, tmp_path):
    folder = tmp_path / "pictures"
    shown(bin_dir, inputs, folder)
    whole = {name: path.read_bytes() for name, path in files_of(folder).items()}
    for number, path in enumerate(files_of(folder).values()):
        path.write_bytes([b"", path.read_bytes()[:-7], bytes(path.stat().st_size)][number % 3])

    shown(bin_dir, inputs, folder)

    assert {name: path.read_bytes() for name, path in files_of(folder).items()} == whole


@pytest.mark.parametrize("size", ["1GiB", "0"])
def test_the_agent_says_where_and_how_much(bench, size):
    bench.tell(log_arguments=True)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar("--set", f"limits.sample_pictures={size}", "--set", "limits.min_free=1MiB")

    assert sidecar.once() == 0, sidecar.log()

    arguments = json.loads(bench.heard("arguments")[0].split(" ", 1)[1])
    told = dict(zip(arguments, arguments[1:]))
    if size == "0":
        assert not any("sample-pictures" in argument for argument in arguments)
    else:
        assert told["--sample-pictures"] == str(bench.home / "state" / "evalcar" / "sample-pictures")
        assert (told["--sample-pictures-bytes"], told["--sample-pictures-keep-free"]) == (str(1 << 30), str(1 << 20))


@pytest.mark.parametrize("running", [True, False], ids=["agent-runs", "agent-ended"])
def test_pruning_removes_the_pictures_that_no_sample_shows_any_more(bench, running):
    folder = bench.home / "state" / "evalcar" / "sample-pictures"
    old, new = name_of(b"old"), name_of(b"new")
    for name in (old, new, name_of(b"nobody's, of now")):
        (folder / name[:2]).mkdir(parents=True, exist_ok=True)
        (folder / name[:2] / name).write_bytes(b"\xff\xd8\xff jpeg \xff\xd9")
    yesterday = time.time() - 25 * 3600
    for name in (old, new):
        os.utime(folder / name[:2] / name, (yesterday, yesterday))
    bench.tell(pictures={"0": [old]}, prompts={"docvqa_val": "old"}, values_of_steps={"5": 0.1, "10": 0.2})
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar("--set", "evaluate.policy=every").start()
    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the first result")
    bench.tell(pictures={"0": [new]}, values_of_steps={"5": 0.1, "10": 0.2})
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="the second result")
    if not running:
        assert sidecar.stop() == 0

    def prune(*words):
        return subprocess.run([sidecar.evalcar, "prune", *words, "--db", str(sidecar.database)], env=sidecar.environment, capture_output=True,
                              text=True, timeout=60, check=False)  # fmt: skip

    assert prune("--keep", "1", "--dry-run").returncode == 0 and len(files_of(folder)) == 3
    done = prune("--keep", "1")

    assert done.returncode == 0 and re.search(r"^1 picture that no sample shows \(\d+ B\) removed$", done.stdout, re.MULTILINE), done
    assert files_of(folder).keys() == {new, name_of(b"nobody's, of now")}
    assert prune("--keep", "1").returncode == 3
