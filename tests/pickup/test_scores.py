"""Which score is the best and when patience is over: as transformers decides, and only among scores that can be compared."""

import random
import types

import pytest
from evalcar_trainer import _Scores
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
