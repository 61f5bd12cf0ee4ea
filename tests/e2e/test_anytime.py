"""Scores of a part while the rest is answered (evaluate.anytime), and evaluations that make way for a newer checkpoint
(evaluate.preempt), with a scripted evaluator."""

import json
import re
import sqlite3
import time

import checkpoints
import fake_evaluator
import pytest
from harness import hash_of, leases

SAMPLES = 40
PARTS = fake_evaluator.parts_of("docvqa_val", SAMPLES, [0.5, 0.8], 20)
ANYTIME = ("--set", "evaluate.anytime=50%,80%")


def finals(lines):
    return [line for line in lines if line["final"]]


def check_interim(line, sha256, fraction, documents):
    assert line["final"] is False and line["fraction"] == fraction
    assert (line["samples"], line["documents"], line["weights_sha256"]) == (len(documents), SAMPLES, sha256)
    value = fake_evaluator.interim_value(sha256, "docvqa_val", documents)
    assert line["metrics"] == {"eval/docvqa_val/anls": pytest.approx(value), "eval/docvqa_val/anls_stderr": 0.05}
    low, high = line["intervals"]["eval/docvqa_val/anls"]
    assert low == pytest.approx(value - 1.96 * 0.05) and high == pytest.approx(value + 1.96 * 0.05)


def check_final(line, sha256):
    assert line["final"] is True and line["weights_sha256"] == sha256 and line["samples"] == SAMPLES
    assert line["metrics"]["eval/docvqa_val/anls"] == pytest.approx(fake_evaluator.expected_value(sha256, "docvqa_val", SAMPLES))


def generated(bench, sha256):
    return [tuple(line.split()[2:]) for line in bench.heard("generate " + sha256[:12])]


def test_two_interim_scores_come_before_the_result_and_nothing_takes_them_for_one(bench):
    bench.tell(samples=SAMPLES)
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sha256 = hash_of(bench.evalcar, folder, "regular")
    sidecar = bench.sidecar(*ANYTIME)
    assert sidecar.once() == 0

    lines = sidecar.metrics_lines()
    assert [line["seq"] for line in lines] == [1, 2, 3]
    assert [line.get("supersedes") for line in lines] == [None, 1, 2]
    for line, (fraction, documents) in zip(lines, PARTS):
        check_interim(line, sha256, fraction, documents)
    check_final(lines[2], sha256)
    assert generated(bench, sha256)[:20] == [("docvqa_val", str(doc)) for doc in sorted(PARTS[0][1])]
    assert sidecar.query("SELECT value, n FROM metrics WHERE metric = 'anls'") == [(lines[2]["metrics"]["eval/docvqa_val/anls"], SAMPLES)]
    assert sidecar.query("SELECT * FROM interim_metrics") == []
    assert len(list((bench.run / "_evalcar" / "results").rglob("*_results.json"))) == 1
    best = json.loads((bench.run / "_evalcar" / "best.json").read_text())["best"]["regular"]
    assert best["value"] == lines[2]["metrics"]["eval/docvqa_val/anls"]


def test_without_the_setting_and_for_few_documents_there_is_the_result_alone(bench):
    bench.tell(samples=SAMPLES)
    checkpoints.write_hugging_face(bench.run, 5)
    assert bench.sidecar("--set", "evaluate.anytime=[]").once() == 0
    bench.tell(samples=6)
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar = bench.sidecar()
    assert sidecar.once() == 0
    assert [line["final"] for line in sidecar.metrics_lines()] == [True, True]


def test_while_it_runs_the_interim_score_is_in_a_view_of_its_own_and_in_no_other(bench):
    bench.tell(samples=SAMPLES, at_sample={"doc": next(d for d in range(SAMPLES) if d not in PARTS[1][1]), "do": "hang"})
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar(*ANYTIME).start()
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 2, what="both interim scores")

    ((value, n, documents, fraction, state),) = sidecar.query(
        "SELECT value, n, documents, fraction, state FROM interim_metrics WHERE task = 'docvqa_val' AND metric = 'anls'")  # fmt: skip
    assert (n, documents, fraction, state) == (32, SAMPLES, 0.8, "evaluating")
    assert value == sidecar.metrics_lines()[1]["metrics"]["eval/docvqa_val/anls"]
    assert sidecar.query("SELECT * FROM metrics") == [] and sidecar.query("SELECT * FROM samples") == []
    home = bench.run / "_evalcar"
    assert not (home / "best.json").exists() and not (home / "tensorboard").exists() and not list(home.glob("results/**/*.json"))
    assert sidecar.states()[5, "regular"][0] == "evaluating"
    sidecar.stop()


@pytest.mark.parametrize("where", ["after_interim", "after_line"])
def test_a_kill_while_an_interim_score_is_told_leaves_one_line_of_it_and_redoes_no_answer(bench, where):
    bench.tell(samples=SAMPLES)
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sha256 = hash_of(bench.evalcar, folder, "regular")
    killed = bench.sidecar(*ANYTIME, environment={"EVALCAR_CRASH_AT": where})
    assert killed.once() == -9
    stored = killed.query("SELECT count(*) FROM answer")[0][0]
    assert stored >= 20
    sidecar = bench.sidecar(*ANYTIME)
    assert sidecar.once() == 0

    lines = sidecar.metrics_lines()
    assert [(line["seq"], line.get("fraction")) for line in lines] == [(1, 0.5), (2, 0.8), (3, None)]
    check_interim(lines[0], sha256, *PARTS[0])
    check_final(lines[2], sha256)
    assert len(generated(bench, sha256)) <= 2 * SAMPLES - stored
    assert len(set(generated(bench, sha256)[:20])) == 20


def test_a_kill_at_any_time_gives_the_same_lines(bench):
    bench.tell(samples=SAMPLES, delay=0.15)
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sha256 = hash_of(bench.evalcar, folder, "regular")
    sidecar = bench.sidecar(*ANYTIME).start()
    for number, (answers, pause) in enumerate(((4, 0), (9, 0.02), (9, 0.03), (7, 0.01)), start=1):
        sidecar.wait_for(lambda s, n=number: s.query(
            f"SELECT 1 FROM attempts JOIN evaluations USING (evaluation_id) WHERE number = {n} AND state = 'evaluating'"), what="the attempt")
        before = len(bench.heard("generate"))  # of it and of those before, whose evaluator may answer on until it sees that it is alone
        sidecar.wait_for(lambda s, least=before + answers - 1: len(bench.heard("generate")) >= least, what="its answers")
        time.sleep(pause)
        sidecar.kill()
        sidecar.start()
    sidecar.wait_for(lambda s: s.published(), what="the result")
    assert sidecar.stop() == 0

    outcomes = [outcome for (outcome,) in sidecar.query("SELECT outcome FROM attempts ORDER BY number")]
    assert outcomes == ["interrupted"] * 4 + ["scored"], "each kill met the evaluation while it ran"
    assert len(generated(bench, sha256)) <= SAMPLES + 4 * 4, "what was stored is not made again"
    lines = sidecar.metrics_lines()
    assert [line["seq"] for line in lines] == [1, 2, 3]
    for line, (fraction, documents) in zip(lines, PARTS):
        check_interim(line, sha256, fraction, documents)
    check_final(lines[2], sha256)


def test_files_that_are_rewritten_give_no_interim_score(bench):
    """In place, through the hard link, before the score comes: what was measured is not what the folder holds any more. The
    save's last file follows when that was judged: until then the folder is being written, however slow everything is."""
    rewritten = bench.home / "rewritten"
    bench.tell(samples=SAMPLES, at_sample={"doc": sorted(PARTS[0][1])[3], "do": "wait", "until": str(rewritten), "once": str(bench.home / "waits")})
    folder = checkpoints.write_hugging_face(bench.run, 5, seed="first")
    sidecar = bench.sidecar(*ANYTIME, "--set", "watch.settle_time=10min").start()
    sidecar.wait_for(lambda s: (bench.home / "waits").exists(), what="the first answers")
    first = hash_of(bench.evalcar, folder, "regular")
    checkpoints.write_safetensors(folder / "model.safetensors", "other")
    other = hash_of(bench.evalcar, folder, "regular")
    rewritten.touch()
    # Where the whole result is there before its parts were looked at, that is what is discarded.
    sidecar.wait_for(lambda s: re.search("its interim score is not told|changed while it was measured; discarded", s.log()),
                     what="the score of the first weights")  # fmt: skip
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 5}))
    sidecar.wait_for(lambda s: s.published(), timeout=90, what="the result of the other weights")
    assert sidecar.stop() == 0
    assert any(line.split()[1] == first[:12] for line in bench.heard("interim")), "the score of the first weights was sent"
    assert {line["weights_sha256"] for line in sidecar.metrics_lines()} == {other}


def test_an_interim_score_of_other_weights_is_a_lie_and_is_not_told(bench):
    bench.tell(samples=SAMPLES, interim={"weights_sha256": "0" * 64})
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar(*ANYTIME)
    assert sidecar.once() == 4
    assert sidecar.metrics_lines() == []
    state, reason = sidecar.states()[5, "regular"]
    assert state == "quarantined" and "interim score" in reason


def test_retention_by_the_trainer_does_not_keep_interim_scores_back(bench):
    """Its unlink changes the ctime of the leased files: they are hashed once more before anything of them is told."""
    last = [d for d in range(SAMPLES) if d not in PARTS[1][1]]
    bench.tell(samples=SAMPLES, delay=0.05, at_sample={"doc": last[0], "do": "hang"})
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sha256 = hash_of(bench.evalcar, folder, "regular")
    sidecar = bench.sidecar(*ANYTIME).start()
    sidecar.wait_for(lambda s: bench.heard("generate"), what="the first answer")
    checkpoints.write_hugging_face(bench.run, 10)
    checkpoints.prune_hugging_face(bench.run, 1)
    assert not folder.exists()
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 2, what="both interim scores")
    for line, (fraction, documents) in zip(sidecar.metrics_lines(), PARTS):
        check_interim(line, sha256, fraction, documents)
    sidecar.stop()


def test_a_lost_database_takes_no_interim_line_for_a_result(bench):
    last = next(d for d in range(SAMPLES) if d not in PARTS[1][1])
    bench.tell(samples=SAMPLES, at_sample={"doc": last, "do": "hang"})
    folder = checkpoints.write_hugging_face(bench.run, 5)
    sha256 = hash_of(bench.evalcar, folder, "regular")
    sidecar = bench.sidecar(*ANYTIME).start()
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 2, what="both interim scores")
    before = sidecar.metrics_lines()
    sidecar.kill()
    for suffix in ("", "-wal", "-shm"):
        (bench.home / f"state.db{suffix}").unlink(missing_ok=True)
    bench.tell(samples=SAMPLES)
    assert bench.sidecar(*ANYTIME).once() == 0
    lines = sidecar.metrics_lines()
    assert lines[:2] == before and len(lines) == 3
    check_final(lines[2], sha256)


# ---- evaluate.preempt


def slow(bench, **script):
    bench.tell(samples=SAMPLES, delay=0.04, **script)


def hold(bench):
    """The first evaluation stands still behind its first interim score, until the file that is returned is there."""
    goes_on = bench.home / "goes-on"
    behind = sorted(set(PARTS[1][1]) - set(PARTS[0][1]))
    slow(bench, at_sample={"doc": behind[3], "do": "wait", "until": str(goes_on), "once": str(bench.home / "stands")})
    return goes_on


def test_a_newer_checkpoint_goes_first_once_something_is_known_of_the_older_and_no_answer_is_made_twice(bench):
    goes_on = hold(bench)
    folders = {5: checkpoints.write_hugging_face(bench.run, 5)}
    sidecar = bench.sidecar(*ANYTIME, "--set", "evaluate.preempt=true").start()
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 1, what="the first interim score")
    folders[10] = checkpoints.write_hugging_face(bench.run, 10)
    hashes = {step: hash_of(bench.evalcar, folder, "regular") for step, folder in folders.items()}
    sidecar.wait_for(lambda s: s.states()[5, "regular"][0] != "evaluating", what="that it makes way")
    state, reason = sidecar.states()[5, "regular"]
    assert state == "leased" and "step 10 goes first (evaluate.preempt)" in reason
    assert "5-1-regular" in leases(bench.run)
    goes_on.touch()
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="both results")
    assert sidecar.stop() == 0

    lines = sidecar.metrics_lines()
    assert [line["global_step"] for line in finals(lines)] == [10, 5]
    for line in finals(lines):
        check_final(line, hashes[line["global_step"]])
    for step, sha256 in hashes.items():
        interims = [line for line in lines if line["global_step"] == step and not line["final"]]
        assert [line["fraction"] for line in interims] == [0.5, 0.8]
        again = len(generated(bench, sha256)) - SAMPLES
        assert 0 <= again <= 4, "what was being made, or on its way, may be made again"
    attempts = sidecar.query("SELECT outcome, message FROM attempts WHERE step = 5 ORDER BY number")
    assert [outcome for outcome, _ in attempts] == ["interrupted", "scored"] and "goes first" in attempts[0][1]
    assert sidecar.query("SELECT failures FROM evaluations WHERE step = 5") == [(0,)]


@pytest.mark.parametrize("arguments", [(), ("--set", "evaluate.preempt=true", "--set", "evaluate.policy=every")])
def test_without_the_setting_and_under_every_what_runs_is_let_finish(bench, arguments):
    goes_on = hold(bench)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar(*ANYTIME, *arguments).start()
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 1, what="the first interim score")
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar.wait_for(lambda s: s.states().get((10, "regular"), ("",))[0] == "leased", what="the newer one's lease")
    goes_on.touch()
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="both results")
    assert sidecar.stop() == 0
    assert [line["global_step"] for line in finals(sidecar.metrics_lines())] == [5, 10]


def test_before_anything_is_known_of_it_an_evaluation_makes_no_way(bench):
    slow(bench)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar("--set", "evaluate.anytime=[]", "--set", "evaluate.preempt=true").start()
    sidecar.wait_for(lambda s: bench.heard("generate"), what="the first answer")
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar.wait_for(lambda s: len(s.published()) == 2, what="both results")
    assert sidecar.stop() == 0
    assert [line["global_step"] for line in sidecar.metrics_lines()] == [5, 10]


def test_under_latest_what_makes_way_is_given_up_with_its_reason_and_its_interim_score_stands(bench):
    goes_on = hold(bench)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar(*ANYTIME, "--set", "evaluate.preempt=true", "--set", "evaluate.policy=latest").start()
    sidecar.wait_for(lambda s: len(s.metrics_lines()) == 1, what="the first interim score")
    checkpoints.write_hugging_face(bench.run, 10)
    sidecar.wait_for(lambda s: s.states()[5, "regular"][0] != "evaluating", what="that it makes way")
    goes_on.touch()
    sidecar.wait_for(lambda s: (10, "regular") in s.published(), what="the newer result")
    assert sidecar.stop() == 0
    assert sidecar.states()[5, "regular"][0] == "superseded"
    assert sidecar.query("SELECT step, state FROM interim_metrics WHERE metric = 'anls'") == [(5, "superseded")]
    assert [line["global_step"] for line in finals(sidecar.metrics_lines())] == [10]


def test_many_checkpoints_faster_than_the_evaluator_all_have_an_interim_score_soon_and_their_number_in_the_end(bench):
    bench.tell(samples=SAMPLES, delay=0.03)
    sidecar = bench.sidecar(*ANYTIME, "--set", "evaluate.preempt=true").start()
    sidecar.wait_for(lambda s: "watching" in s.log(), what="the start")
    hashes = {}
    for step in range(5, 45, 5):
        hashes[step] = hash_of(bench.evalcar, checkpoints.write_hugging_face(bench.run, step), "regular")
        checkpoints.prune_hugging_face(bench.run, 1)
        time.sleep(0.35)
    sidecar.wait_for(lambda s: len(s.published()) == len(hashes), timeout=90, what="every result")
    assert sidecar.stop() == 0
    lines = sidecar.metrics_lines()
    assert sorted(line["global_step"] for line in finals(lines)) == sorted(hashes)
    for line in finals(lines):
        check_final(line, hashes[line["global_step"]])
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    replaced = {line["supersedes"] for line in lines if "supersedes" in line}
    assert {line["seq"] for line in lines if not line["final"]} <= replaced
    gave_way = {step for (step,) in sidecar.query("SELECT step FROM attempts WHERE outcome = 'interrupted' AND message LIKE '%goes first%'")}
    assert gave_way
    for step in gave_way:  # its score, then the result of a newer one, then its own
        seqs = {kind: next(line["seq"] for line in lines if line["global_step"] == step and line["final"] is kind) for kind in (False, True)}
        between = [line["global_step"] for line in finals(lines) if seqs[False] < line["seq"] < seqs[True]]
        assert any(newer > step for newer in between)
    with sqlite3.connect(f"file:{sidecar.database}?mode=ro", uri=True) as connection:
        assert connection.execute("SELECT count(*) FROM answer").fetchone() == (0,)
