"""Which score is the best and when patience is over: as transformers decides, and only among scores that can be compared."""

import json
import logging
import random
import types

import evalcar_trainer
import pytest
import training
from evalcar_trainer import EvalcarCallback, _greater_is_better, _Scores
from scripted import ScriptedAgent
from training import AtSave
from transformers import EarlyStoppingCallback, Trainer, TrainerControl, TrainerState
from transformers.trainer_utils import SaveStrategy

NAME = "eval/docvqa_val/anls"


def row(seq, step, value, **more):
    return {"seq": seq, "global_step": step, "checkpoint_type": "regular", "metrics": {NAME: value}, **more}


def scores_of(values, greater=True):
    scores = _Scores("docvqa_val/anls", greater)
    for number, value in enumerate(values, 1):
        scores.take(row(number, 2 * number, value))
    return scores


def counted_by_transformers(values, threshold, greater):
    """What its callback counts, called as its Trainer calls it."""
    callback = EarlyStoppingCallback(1000, threshold)
    args = types.SimpleNamespace(metric_for_best_model="score", greater_is_better=greater, save_strategy=SaveStrategy.STEPS)
    trainer = types.SimpleNamespace(args=args, state=TrainerState())
    for value in values:
        callback.on_evaluate(args, trainer.state, TrainerControl(), {"eval_score": value})
        Trainer._determine_best_metric(trainer, {"eval_score": value}, None)
    return callback.early_stopping_patience_counter


def test_many_small_gains_use_patience_up_as_they_do_in_transformers():
    assert counted_by_transformers([0.500, 0.506, 0.512], 0.01, True) == 2
    assert scores_of([0.500, 0.506, 0.512]).since_improvement(0.01) == 2
    assert scores_of([0.512, 0.506, 0.500], greater=False).since_improvement(0.01) == 2


@pytest.mark.parametrize("greater", [True, False])
@pytest.mark.parametrize("threshold", [0.0, 0.01, 0.1])
def test_patience_is_counted_as_transformers_counts_it(greater, threshold):
    draw = random.Random(7)
    for _ in range(200):
        values = [draw.randrange(40) / 100 + draw.choice((0, 0.004)) for _ in range(draw.randrange(1, 12))]
        assert scores_of(values, greater).since_improvement(threshold) == counted_by_transformers(values, threshold, greater), values


# ---- where the lower score is the better one


@pytest.mark.parametrize("name", ["wikitext/word_perplexity", "eval_wikitext/byte_perplexity,none", "eval/wikitext/bits_per_byte",
                                  "eval_lambada/perplexity", "taught/perplexity,strict", "taught/loss,none"])  # fmt: skip
def test_the_lower_perplexity_is_the_better_one_whatever_transformers_makes_of_the_name(tmp_path, name):
    args = training.TrainingArguments(output_dir=str(tmp_path), metric_for_best_model=name, use_cpu=True)
    assert args.greater_is_better is True, "transformers knows it by itself"

    assert _greater_is_better(args) is False
    settings = evalcar_trainer._agent_settings(args, None, None, None)
    assert "publish.greater_is_better" not in settings, "the agent knows it by itself"
    assert settings["publish.metric_for_best_model"] == "eval/" + name.replace("eval_", "").replace("eval/", "").replace(",none", "")


@pytest.mark.parametrize(("name", "told", "expected"), [("docvqa_val/anls", None, True), ("docvqa_val/anls,none", None, True), ("t/error", False, False),
                                                        ("eval_loss", None, False), ("t/perplexity_rank", None, True)])  # fmt: skip
def test_of_other_metrics_it_is_as_the_training_says(tmp_path, name, told, expected):
    args = training.TrainingArguments(output_dir=str(tmp_path), metric_for_best_model=name, greater_is_better=told, use_cpu=True)
    assert _greater_is_better(args) is expected


@pytest.mark.parametrize(("name", "told", "expected"), [("val/nll", None, {}), ("val/nll", True, {}), ("val/error", False, {"publish.greater_is_better": False}),
                                                        ("val/my_loss", None, {})])  # fmt: skip
def test_an_agent_is_told_a_direction_only_where_the_training_has_one_of_its_own(tmp_path, name, told, expected):
    args = training.TrainingArguments(output_dir=str(tmp_path), metric_for_best_model=name, greater_is_better=told, use_cpu=True)

    settings = evalcar_trainer._agent_settings(args, None, None, None)

    assert settings == {"publish.metric_for_best_model": "eval/" + name, **expected}


@pytest.mark.parametrize("of", ["eval/val/nll", "eval/val/anls"], ids=["of the metric", "of another one"])
@pytest.mark.parametrize("told", [None, False], ids=["untold", "told"])
def test_a_metric_of_the_users_own_is_ranked_as_it_says_itself(tmp_path, caplog, of, told):
    """As of `[aliases] nll = "loss"`: nothing in the name says that less is better, but best.json does."""
    scores = {2: 9.0, 4: 7.5, 6: 8.0}
    callback = EvalcarCallback(poll_interval=0.1)
    with ScriptedAgent(tmp_path / "out") as agent:

        def publish(step):
            agent.publish(step, scores[step], "eval/val/nll")
            best = {"metric": of, "greater_is_better": False, "best": {"regular": {"step": step, "kept_path": None}}}
            (agent.folder / "best.json").write_text(json.dumps(best))

        settings = training.best_by("val/nll")
        trained = training.trainer(tmp_path / "out", [callback, AtSave(then=publish)], **{**settings, "greater_is_better": told})
        trained.train()

    is_known = told is False or of == "eval/val/nll"
    assert (trained.state.best_global_step, trained.state.best_metric) == ((4, 7.5) if is_known else (2, 9.0))
    warnings = [record.getMessage() for record in caplog.records if record.name == "evalcar" and record.levelname == "WARNING"]
    assert sum("the lower score is taken for the better one" in each for each in warnings) == (told is None and is_known)


def test_the_checkpoint_of_the_lowest_perplexity_is_loaded_and_it_is_said_once_that_lower_is_better(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="evalcar")
    scores = {2: 9.0, 4: 7.5, 6: 8.0}
    callback = EvalcarCallback(poll_interval=0.1)
    with ScriptedAgent(tmp_path / "out") as agent:
        publish = AtSave(pick_up=callback, then=lambda step: agent.publish(step, scores[step], "eval/wikitext/word_perplexity"))
        settings = training.best_by("wikitext/word_perplexity,none")
        trained = training.trainer(tmp_path / "out", [callback, publish], **{**settings, "greater_is_better": None})
        trained.train()

    assert (trained.state.best_global_step, trained.state.best_metric) == (4, 7.5)
    assert trained.state.best_model_checkpoint.endswith("checkpoint-4")
    told = [record.getMessage() for record in caplog.records if record.name == "evalcar" and record.levelname == "WARNING"]
    assert len(told) == 1 and "of wikitext/word_perplexity,none (metric_for_best_model) the lower score is taken for the better one" in told[0]


# ---- settings that change


def test_scores_of_other_settings_than_those_of_the_newest_row_are_not_ranked_with_it():
    scores = _Scores("docvqa_val/anls", True)
    scores.take(row(1, 2, 0.9, settings_sha256="a"))
    scores.take(row(2, 4, 0.8, settings_sha256="a"))
    assert scores.ranked() == [2, 4] and scores.since_improvement(0.0) == 1 and scores.passed_over() == []

    scores.take(row(3, 6, 0.3, settings_sha256="b"))
    assert scores.ranked() == [6] and scores.since_improvement(0.0) == 0 and scores.passed_over() == [2, 4]
    scores.take(row(5, 4, 0.4, settings_sha256="b"))  # of an earlier step, measured again
    assert scores.ranked() == [4, 6] and scores.since_improvement(0.0) == 1 and scores.passed_over() == [2]
    scores.take(row(4, 8, 0.99, settings_sha256="a"))  # which was held back for a while: it is the older one
    assert scores.ranked() == [4, 6] and scores.passed_over() == [2, 8]


def test_scores_of_another_question_than_that_of_the_newest_row_are_not_ranked_with_it():
    scores = _Scores("docvqa_val/anls", True)
    asked = lambda question: {"settings_sha256": "a", "question_sha256": {"docvqa_val": question, "mmmu_val": "other"}}  # noqa: E731
    scores.take(row(1, 2, 0.9, **asked("q1")))
    scores.take(row(2, 4, 0.3, **asked("q2")))
    assert scores.ranked() == [4] and scores.passed_over() == [2]
    scores.take(row(3, 6, 0.5, settings_sha256="a"))  # does not tell
    assert scores.ranked() == [2, 6, 4], "an older agent's row goes with all"
    scores.take(row(4, 8, 0.4, **asked("q2")))
    assert scores.ranked() == [6, 8, 4] and scores.since_improvement(0.0) == 1 and scores.passed_over() == [2]
    scores.take(row(5, 10, 0.2, settings_sha256="a", question_sha256="no table"))
    assert scores.ranked() == [2, 6, 8, 4, 10]


def test_rows_of_an_agent_that_tells_no_settings_are_ranked_with_all():
    scores = _Scores("docvqa_val/anls", True)
    scores.take(row(1, 2, 0.5))
    scores.take(row(2, 4, 0.9, settings_sha256="a"))
    scores.take(row(3, 6, 0.4, settings_sha256="b"))
    scores.take(row(4, 8, 0.3))
    assert scores.ranked() == [2, 6, 8]
    scores.take({**row(5, 10, 0.0, settings_sha256="c"), "metrics": {"eval/mmmu_val/mmmu_acc": 1.0}})
    assert scores.ranked() == [2, 6, 8], "a row without the metric has a say"


def test_the_trainers_best_checkpoint_is_the_best_of_the_settings_that_are_in_force(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="evalcar")
    scores = {2: (0.9, "a"), 4: (0.8, "a"), 6: (0.3, "b"), 8: (0.4, "b"), 10: (0.35, "b")}
    callback = EvalcarCallback(poll_interval=0.1)
    with ScriptedAgent(tmp_path / "out") as agent:
        publish = AtSave(pick_up=callback, then=lambda step: agent.publish(step, scores[step][0], settings_sha256=scores[step][1]))
        trained = training.trainer(tmp_path / "out", [callback, publish], max_steps=10, save_total_limit=2, **training.best_by("docvqa_val/anls"))
        trained.train()

    assert (trained.state.best_global_step, trained.state.best_metric) == (8, 0.4)
    assert sorted(path.name for path in (tmp_path / "out").glob("checkpoint-*")) == ["checkpoint-10", "checkpoint-8"]  # what retention spares
    assert "2 scores, the last of step 4, are of other settings than the newest one" in caplog.text
