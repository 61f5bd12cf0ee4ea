"""The real evaluator when a file system hangs, when it is told to stop, and when one document of a task is broken."""

import evaluator as evaluator_module
import pyarrow
import pytest
import sidecar as sidecar_module
import small_models
from fixtures import data_sets, pictures
from pyarrow import parquet


pytestmark = pytest.mark.usefixtures("needs_the_evaluator")


@pytest.fixture(scope="module")
def good(tmp_path_factory, cache_dir):
    """A small model, and pages that take long to decode."""
    root = tmp_path_factory.mktemp("good")
    small_models.write_model(root / "model", small_models.SmallModel(seed=3, layers=2), cache_dir=cache_dir)
    data_sets.write_docvqa(root / "data", count=4)
    return root


@pytest.mark.parametrize("held", ["model.safetensors", pytest.param(".parquet", marks=pytest.mark.full)])
def test_a_read_that_never_returns_is_noticed_and_the_next_try_succeeds(bin_dir, good, tmp_path, held):
    flag = tmp_path / "hang"
    flag.touch()
    run = tmp_path / "out"
    (run / "checkpoint-5").mkdir(parents=True)
    for file in (good / "model").iterdir():
        (run / "checkpoint-5" / file.name).write_bytes(file.read_bytes())
    sidecar = sidecar_module.Sidecar(
        bin_dir, tmp_path, run,
        arguments=["--data", str(good / "data"), "--device", "cpu", "--set", "watch.settle_time=1s", "--set", "evaluate.max_new_tokens=2",
                   "--set", "limits.stage_timeouts=stuck=2s"],
        environment={"LD_PRELOAD": str(bin_dir / "libhold_reads.so"), "HOLD_READS_OF": held, "HOLD_READS_WHILE": str(flag)},
    )  # fmt: skip
    sidecar.start("--once")
    sidecar.wait_for(lambda s: s.query("SELECT 1 FROM attempts WHERE outcome = 'failed'"), what="the failed attempt")
    flag.unlink()

    assert sidecar.wait(120) == 0, sidecar.log()

    assert sidecar.published() == {(5, "regular")}
    (first, kind, reason), *_, (last, _, _) = sidecar.query("SELECT outcome, error_kind, message FROM attempts ORDER BY number")
    assert (first, kind, last) == ("failed", "timeout", "scored")
    # Data are opened before weights are loaded, at the same stage.
    assert 'alive, but has not advanced for 2 s at stage "loading"' in reason and "limits.stage_timeouts, stuck" in reason


def test_the_tick_rises_while_work_is_done_and_stands_still_in_a_read_that_hangs(bin_dir, good, tmp_path):
    flag = tmp_path / "hang"
    environment = {"LD_PRELOAD": str(bin_dir / "libhold_reads.so"), "HOLD_READS_OF": ".parquet", "HOLD_READS_WHILE": str(flag)}
    with evaluator_module.Evaluator(bin_dir, environment=environment) as evaluator:
        evaluator.load(good / "model")
        loaded = evaluator.tick()
        flag.touch()
        evaluator.evaluate(good / "data", ["docvqa_val"])
        ticks = [evaluator.wait_for("progress")["tick"] for _ in range(5)][2:]
        flag.unlink()
        evaluator.wait_for("result")
        ticks_of_answers = [m["tick"] for m in evaluator.heard if m["type"] == "progress" and m["stage"] == "evaluating"]

    assert loaded > 0
    assert len(set(ticks)) == 1  # heartbeats, and no advance
    assert ticks_of_answers == sorted(ticks_of_answers)
    assert ticks_of_answers[-1] > ticks_of_answers[0] + 4 * 3  # layers of four answers


PAGES = 60


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """One question on each of many large pages: what an evaluation does first is reading pictures, for seconds. The pages look
    alike and are different files."""
    root = tmp_path_factory.mktemp("pages")
    folder = data_sets.write_docvqa(root, count=PAGES, sizes=(2400, 2400), questions_per_image=PAGES)

    def number(rows):
        for i, row in enumerate(rows):
            png = row["image"]["bytes"]
            row["image"]["bytes"] = png[:-12] + pictures.chunk(b"tEXt", b"page\0%d" % i) + png[-12:]

    edit(folder, number)
    return root


def edit(folder, change):
    (file,) = folder.rglob("*.parquet")
    table = parquet.read_table(file)
    rows = table.to_pylist()
    change(rows)
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=table.schema), file)


def test_a_cancel_while_pictures_are_decoded_ends_within_a_few_of_them(bin_dir, good, pages):
    with evaluator_module.Evaluator(bin_dir) as evaluator:
        evaluator.load(good / "model")
        evaluator.evaluate(pages, ["docvqa_val"], max_pixels=28 * 28 * 64)
        planned = evaluator.wait_for("progress", where=lambda m: m["stage"] == "evaluating")["tick"]
        at_work = evaluator.wait_for("progress", where=lambda m: m["tick"] > planned)["tick"]
        evaluator.say("cancel", id="1")
        error = evaluator.wait_for("error")
        # The next job tells how much was done until then: it ticks once for each picture, and for each layer.
        evaluator.evaluate(pages, ["docvqa_val"], job="2", limit=1, max_pixels=28 * 28 * 64)
        after = evaluator.wait_for("progress", where=lambda m: m["id"] == "2")["tick"]
        evaluator.wait_for("result")

    assert error["kind"] == "cancelled" and error["id"] == "1"
    assert not [message for message in evaluator.heard if message["type"] == "sample" and message["id"] == "1"]
    print(f"pictures: {at_work - planned} before the cancel, {after - at_work} after it")
    assert at_work - planned < PAGES * 3 // 4  # else the cancel came too late to prove anything
    assert after - at_work <= 6  # two threads, and what they do until the cancel has come through


def test_a_cancel_while_documents_are_prepared_ends_before_the_model_runs(bin_dir, good, pages):
    with evaluator_module.Evaluator(bin_dir) as evaluator:
        evaluator.load(good / "model")
        evaluator.evaluate(pages, ["docvqa_val"])
        evaluator.say("cancel", id="1")
        assert evaluator.wait_for("error")["kind"] == "cancelled"

    assert {message["stage"] for message in evaluator.heard if message["type"] == "progress"} == {"loading", "preparing"}


def test_a_task_that_failed_takes_its_other_requests_out_of_the_run(bin_dir, good, tmp_path):
    """All twelve documents are planned; that the first picture is none shows when the first of three packs is read."""
    folder = data_sets.write_docvqa(tmp_path, count=12, questions_per_image=1)
    edit(folder, lambda rows: rows[0]["image"].update(bytes=pictures.undecodable()))
    with evaluator_module.Evaluator(bin_dir) as evaluator:
        evaluator.load(good / "model")
        evaluator.evaluate(tmp_path, ["docvqa_val"], batch_size=4)
        before = evaluator.wait_for("progress", where=lambda m: m["stage"] == "evaluating")["tick"]
        error = evaluator.wait_for("error")
        evaluator.evaluate(good / "data", ["docvqa_val"], job="2")
        after = evaluator.wait_for("progress", where=lambda m: m["id"] == "2")["tick"]
        evaluator.wait_for("result")

    assert error["kind"] == "data" and "docvqa_val: document 0" in error["message"]
    assert after - before <= 12 + 3  # the pictures, and the tower's layers for the first pack: no layer of the text model

