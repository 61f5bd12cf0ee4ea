"""The real Trainer beside the real agent: each score is logged once, at its own step, and decides what it is asked to decide."""

import logging
import re
import threading
import time

import evalcar_trainer
import pytest
import training
from evalcar_trainer import EvalcarCallback
from training import AtSave, OnEpochEnd, best_by, logged, results_in, trainer
from transformers import EarlyStoppingCallback, TrainerCallback

ANLS = "eval/docvqa_val/anls"


def pick_up(**options):
    return EvalcarCallback(**{"poll_interval": 0.1, **options})


@pytest.fixture(autouse=True)
def log(caplog):
    caplog.set_level(logging.INFO, logger="evalcar")
    return caplog


def test_every_result_is_logged_once_at_its_own_step(bench, log):
    bench.tell(samples=40)
    sidecar = bench.sidecar("--set", "evaluate.anytime=60%").start()
    trained = trainer(bench.run, [pick_up()])

    trained.train()

    lines = sidecar.metrics_lines()
    assert sidecar.stop() == 0
    assert logged(trained) == [(row["global_step"], row["metrics"]) for row in results_in(bench.run)]
    assert sorted(step for step, _ in logged(trained)) == [2, 4, 6]
    assert any(not line["final"] for line in lines), "there were scores of a part to take for results"
    for step in (2, 4, 6):
        assert log.text.count(f"checkpoint-{step} is handed over") == 1
        assert log.text.count(f"checkpoint-{step}, regular: {ANLS} ") == 1
    assert "WARNING" not in log.text


def test_a_result_that_comes_while_other_callbacks_still_work_on_the_save_is_logged(bench, log):
    bench.sidecar().start()
    asynchronous = pick_up()
    trained = trainer(bench.run, [AtSave(pick_up=asynchronous), asynchronous])  # the first one waits for it

    trained.train()

    assert [step for step, _ in logged(trained)] == [2, 4, 6]
    assert "are not logged" not in log.text


def test_the_trainers_evaluations_become_asynchronous_and_the_best_checkpoint_is_protected_and_loaded(bench, tmp_path, log):
    (tmp_path / "archive").mkdir()
    scores = {2: 0.3, 4: 0.9, 6: 0.5, 8: 0.4}
    bench.tell(values_of_steps=scores)
    sidecar = bench.sidecar("--set", "publish.keep_best=1").start()
    asynchronous = pick_up()
    at_save = AtSave(tmp_path / "archive", pick_up=asynchronous)
    trained = trainer(bench.run, [asynchronous, at_save], max_steps=8, save_steps=4, save_total_limit=1, **best_by("docvqa_val/anls"))

    trained.train()

    assert sidecar.stop() == 0
    assert at_save.steps == [2, 4, 6, 8]  # a save where an evaluation was due and no save
    assert [(row["global_step"], row["metrics"][ANLS]) for row in results_in(bench.run)] == list(scores.items())
    assert not any("eval_loss" in entry for entry in trained.state.log_history), "the Trainer evaluated by itself"
    assert (trained.state.best_global_step, trained.state.best_metric) == (4, 0.9)
    assert trained.state.best_model_checkpoint == str(bench.run / "checkpoint-4")  # protected from the moment of its score
    check_loaded(trained, tmp_path / "archive" / "4")


def test_a_metric_that_no_result_has_is_told_with_the_first_result(bench, log):
    bench.sidecar().start()
    told = []

    class Look(TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            if state.global_step == 4:
                training.wait_until(lambda: len(results_in(bench.run)) == 2, what="the first results")
                time.sleep(0.5)  # they are looked for ten times a second

        def on_save(self, args, state, control, **_):
            told.append((state.global_step, "no result has eval_loss (metric_for_best_model)" in log.text))

    trained = trainer(bench.run, [pick_up(), Look()], **{**best_by("eval_loss"), "greater_is_better": False})
    trained.train()
    assert told[0] == (2, False) and told[-1] == (6, True)
    assert f"the results have {ANLS}" in log.text
    assert trained.state.best_model_checkpoint is None


def test_evaluations_that_stay_the_trainers_own_choose_its_best_checkpoint(bench, log):
    bench.sidecar().start()
    trained = trainer(bench.run, [pick_up(replace_evaluations=False)], **{**best_by("eval_loss"), "greater_is_better": False})
    trained.train()
    own = {entry["step"]: entry["eval_loss"] for entry in trained.state.log_history if "eval_loss" in entry}
    assert sorted(own) == [2, 4, 6]
    assert trained.state.best_model_checkpoint.endswith(f"checkpoint-{min(own, key=own.get)}")
    assert "no result has" not in log.text
    assert sorted(step for step, _ in logged(trained)) == [2, 4, 6]


def test_the_best_checkpoint_that_retention_took_is_loaded_from_its_lease(bench, tmp_path, log):
    """The scores come when training is over, and the folders are gone."""
    (tmp_path / "archive").mkdir()
    gate = tmp_path / "gate"
    bench.tell(values_of_steps={2: 0.3, 4: 0.9, 6: 0.5}, at_sample={"doc": 0, "do": "wait", "until": str(gate)})
    sidecar = bench.sidecar("--set", "publish.keep_best=1").start()
    leased = AtSave(tmp_path / "archive", then=lambda step: wait_for_lease(sidecar, step))
    opens = OnEpochEnd(lambda: gate.write_text(""))
    trained = trainer(bench.run, [leased, opens, pick_up()], save_total_limit=1, **best_by("eval_docvqa_val/anls"))

    trained.train()

    assert sidecar.stop() == 0
    assert (trained.state.best_global_step, trained.state.best_metric) == (4, 0.9)
    assert "_evalcar/leases/" in trained.state.best_model_checkpoint
    check_loaded(trained, tmp_path / "archive" / "4")
    assert [path.name for path in bench.run.glob("checkpoint-*")] == ["checkpoint-6"]  # what training can be resumed from stays
    assert trained.args.save_total_limit == 1


def test_early_stopping_counts_scores_in_the_order_of_the_steps(bench, tmp_path, log):
    bench.tell(values_of_steps={2: 0.3, 4: 0.9, 6: 0.5, 8: 0.4})
    sidecar = bench.sidecar().start()
    asynchronous = pick_up()
    callbacks = [asynchronous, AtSave(pick_up=asynchronous), EarlyStoppingCallback(2)]
    trained = trainer(bench.run, callbacks, max_steps=40, **best_by(ANLS))

    trained.train()

    assert sidecar.stop() == 0
    assert trained.state.global_step == 9  # the first step after the score of step 8
    assert trained.state.best_global_step == 4
    assert log.text.count("training stops early") == 1


def wait_for_lease(sidecar, step):
    sidecar.wait_for(lambda s: s.states().get((step, "regular"), ("found",))[0] not in ("found", "complete"), what="the lease")


def check_loaded(trained, folder):
    best = training.LlamaForCausalLM.from_pretrained(folder).state_dict()
    assert all(training.torch.equal(value, best[name]) for name, value in trained.model.state_dict().items())


def test_the_end_waits_for_scores_that_come_out_of_order_and_tells_what_for(bench, tmp_path, log):
    gate = tmp_path / "gate"
    bench.tell(at_sample={"doc": 0, "do": "wait", "until": str(gate)})
    sidecar = bench.sidecar().start()
    leased = AtSave(then=lambda step: wait_for_lease(sidecar, step))
    told = OnEpochEnd(lambda: training.wait_until(lambda: training.steps_in_status(bench.run) == {2, 4, 6}))
    trained = trainer(bench.run, [leased, told, pick_up()])
    opener = threading.Thread(target=lambda: (training.wait_until(lambda: "training is over" in log.text), gate.write_text("")))
    opener.start()

    trained.train()

    opener.join()
    assert sidecar.stop() == 0
    written = [(row["global_step"], row["metrics"]) for row in results_in(bench.run)]
    assert [step for step, _ in written] != [2, 4, 6], "they came in order"  # newest first
    assert logged(trained) == written
    waiting = re.search("training is over; waiting for (.*)", log.text)[1]
    assert re.fullmatch(r"step 2 \((loading|evaluating[^)]*)\); step 4 \(leased\); step 6 \(leased\)", waiting), waiting


def test_what_the_end_waits_for_is_said_again_and_again_as_it_stands(bench, tmp_path, log, monkeypatch):
    assert evalcar_trainer.SAY_AGAIN_AFTER == 60
    monkeypatch.setattr(evalcar_trainer, "SAY_AGAIN_AFTER", 1.0)
    gate = tmp_path / "gate"
    bench.tell(at_sample={"doc": 0, "do": "wait", "until": str(gate)})
    sidecar = bench.sidecar().start()
    leased = AtSave(then=lambda step: wait_for_lease(sidecar, step))
    trained = trainer(bench.run, [leased, pick_up()])
    said = lambda: re.findall("training is over; waiting for (.*)", log.text)  # noqa: E731
    opener = threading.Thread(target=lambda: (training.wait_until(lambda: len(said()) >= 3 and "evaluating" in said()[-1]), gate.write_text("")))
    opener.start()

    trained.train()

    opener.join()
    assert sidecar.stop() == 0
    assert any("evaluating" in each and re.findall(r"step (\d+) ", each) == ["2", "4", "6"] for each in said()[2:])
    assert sorted(step for step, _ in logged(trained)) == [2, 4, 6]


def test_the_end_does_not_wait_for_an_agent_that_died_and_names_the_missing_steps(bench, log):
    sidecar = bench.sidecar().start()

    def die(step):
        if step == 2:
            sidecar.wait_for(lambda s: s.metrics_lines(), what="the first result")
            bench.tell(at_sample={"doc": 0, "do": "hang"})
        if step == 6:
            sidecar.kill()

    trained = trainer(bench.run, [pick_up(stale_after=2.0), AtSave(then=die)])

    trained.train()

    assert 2 in [step for step, _ in logged(trained)]
    missing = [record.getMessage() for record in log.records if record.levelname == "WARNING" and record.name == "evalcar"]
    assert len(missing) == 1
    assert re.match(r"the agent's last heartbeat is \d+ s old: no result of (step 4 .*; )?step 6 \(.*\); they can be sent later: evalcar push", missing[0])


def test_a_result_is_not_called_missing_where_the_agent_died_before_its_heartbeat_told_of_it(bench, tmp_path, log):
    gate, heartbeat = tmp_path / "gate", bench.run / "_evalcar" / "status.json"
    bench.tell(at_sample={"doc": 0, "do": "wait", "until": str(gate)})
    sidecar = bench.sidecar().start()
    older = []

    def die(step):
        if step == 2:
            training.wait_until(heartbeat.exists)
            training.wait_until(lambda: [row["state"] for row in training.status_of(bench.run)["evaluations"]] == ["evaluating"])
            older.append(heartbeat.read_bytes())
            gate.write_text("")
            sidecar.wait_for(lambda s: s.metrics_lines(), what="the first result")
            bench.tell(at_sample={"doc": 0, "do": "hang"})
        if step == 4:
            sidecar.kill()
            heartbeat.write_bytes(older[0])  # as where the disk was too slow for another one

    trained = trainer(bench.run, [AtSave(then=die), pick_up(stale_after=2.0)], max_steps=4)

    trained.train()

    assert [step for step, _ in logged(trained)] == [2]
    assert re.search(r"heartbeat is \d+ s old: no result of step 4 \(the agent has told nothing of it yet\); they can", log.text)


def test_the_end_waits_no_longer_than_the_user_says(bench, log):
    bench.tell(at_sample={"doc": 0, "do": "hang"})
    sidecar = bench.sidecar().start()
    trained = trainer(bench.run, [pick_up(timeout=3)], max_steps=2)

    trained.train()

    assert sidecar.stop() == 0
    assert logged(trained) == []
    assert re.search(r"3 s are over: no result of step 2 \(.*\); they can be sent later: evalcar push --output-dir ", log.text)


def test_an_evaluation_that_failed_for_good_is_not_waited_for_and_its_reason_told(bench, log):
    bench.tell(error={"kind": "unsupported", "message": "a model that nobody knows"})
    sidecar = bench.sidecar().start()
    trained = trainer(bench.run, [pick_up()], max_steps=2)

    trained.train()

    assert sidecar.stop() == 4
    assert re.search("no result of step 2: quarantined: .*a model that nobody knows", log.text)
