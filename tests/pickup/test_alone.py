"""A training whose checkpoints nobody evaluates says so while it goes on, not only at its end."""

import logging
import re
import time

import evalcar_trainer
import pytest
import training
from evalcar_trainer import EvalcarCallback
from scripted import ScriptedAgent
from training import AtSave, trainer
from transformers import TrainerCallback

ALONE = "nobody evaluates what is saved"


@pytest.fixture(autouse=True)
def log(caplog, monkeypatch):
    assert evalcar_trainer._SHOWS_ITSELF >= evalcar_trainer._START_PATIENCE + 10
    monkeypatch.setattr(evalcar_trainer, "_SHOWS_ITSELF", 0.8)
    caplog.set_level(logging.INFO, logger="evalcar")
    return caplog


def callback(**options):
    return EvalcarCallback(**{"poll_interval": 0.1, "stale_after": 0.8, **options})


class Slow(TrainerCallback):
    """Two steps take longer than an agent to show itself."""

    def on_step_begin(self, *_, **__):
        time.sleep(0.5)


def told(log):
    return [record.getMessage() for record in log.records if ALONE in record.getMessage()]


def test_that_nobody_evaluates_is_told_once_with_the_place_and_the_command(tmp_path, log):
    run, saved = tmp_path / "the run", []
    look = AtSave(then=lambda step: saved.append((step, len(told(log)))))

    trainer(run, [Slow(), callback(), look], max_steps=6, **{**training.best_by("docvqa_val/anls"), "load_best_model_at_end": False}).train()

    # At the first one no agent could have written anything: before there is a checkpoint it does not.
    assert saved == [(2, 0), (4, 1), (6, 1)]
    assert told(log) == [f"no agent has been seen ({run}/_evalcar/status.json is not there): {ALONE}, and the Trainer's own evaluations are replaced. The"
                         f" agent's heartbeat is looked for in {run}/_evalcar/status.json; it is started by: evalcar run '{run}'"]  # fmt: skip


def test_each_outage_is_told_once_and_an_agent_that_lives_never(tmp_path, log):
    run, saved = tmp_path / "out", []
    pick_up = callback()

    with ScriptedAgent(run) as agent:
        def live(step):
            agent.is_silent = step in (4, 6, 10)
            if agent.is_silent:
                time.sleep(1.2)
                return
            changes = pick_up._training.watch.seen.changes
            training.wait_until(lambda: pick_up._training.watch.seen.changes > changes, what="the heartbeat")

        note = AtSave(then=lambda step: saved.append((step, len(told(log)))))
        trainer(run, [AtSave(then=live), Slow(), pick_up, note], max_steps=10).train()

    assert saved == [(2, 0), (4, 1), (6, 1), (8, 1), (10, 2)]
    assert all(re.match(r"the agent's last heartbeat is \d+ s old: nobody evaluates what is saved\. The agent's", each) for each in told(log))


def test_the_heartbeat_of_an_agent_of_before_is_none(tmp_path, log):
    """A training is resumed, and nobody started the agent again."""
    run, saved = tmp_path / "out", []
    trainer(run, [], max_steps=2).train()
    ScriptedAgent(run).beat()

    look = AtSave(then=lambda step: saved.append((step, len(told(log)))))
    trainer(run, [Slow(), callback(), look], max_steps=6).train(resume_from_checkpoint=True)

    assert saved == [(4, 1), (6, 1)]


def test_a_folder_of_its_own_is_named_with_the_command(tmp_path, log):
    trainer(tmp_path / "out", [Slow(), callback(folder=tmp_path / "elsewhere")], max_steps=4).train()
    (message,) = told(log)
    assert message.endswith(f"looked for in {tmp_path}/elsewhere/status.json; it is started by: evalcar run {tmp_path}/out --set publish.dir={tmp_path}/elsewhere")
