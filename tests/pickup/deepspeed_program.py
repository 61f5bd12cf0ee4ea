"""A training with DeepSpeed ZeRO-1 whose retention has taken the best checkpoint when its score comes: deepspeed_program.py RUN.

The agent (scripted) has kept that one's weights, and nothing beside them. The last line is what the training ended with."""

import json
import os
import pathlib
import shutil
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[2] / "agent" / "trainer")]
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[2], RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")

import deepspeed.comm
import training
from evalcar_trainer import EvalcarCallback
from scripted import ScriptedAgent
from transformers import TrainerCallback

sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # a faster all-reduce that would be compiled first
run = pathlib.Path(sys.argv[1])
kept = run / "_evalcar" / "leases" / "2-1-regular"


class Scores(TrainerCallback):
    """All scores come when the last checkpoint is saved; the first one's weights are linked when it is."""

    def on_save(self, args, state, control, **_):
        if state.global_step == 2:
            kept.mkdir(parents=True)
            for name in ("model.safetensors", "config.json"):
                shutil.copy(run / "checkpoint-2" / name, kept)
        if state.global_step == 6:
            (run / "_evalcar" / "best.json").write_text(json.dumps({"best": {"regular": {"step": 2, "kept_path": str(kept)}}}))
            for step, value in {2: 0.9, 4: 0.5, 6: 0.4}.items():
                agent.publish(step, value)


plugin = {"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 1, "train_batch_size": 1, "zero_allow_untested_optimizer": True}
with ScriptedAgent(run) as agent:
    agent.agent["keep_best"] = 1
    trained = training.trainer(run, [EvalcarCallback(poll_interval=0.1), Scores()], max_steps=6, save_total_limit=1, deepspeed=plugin,
                               **training.best_by("docvqa_val/anls"))  # fmt: skip
    trained.train()
print(json.dumps({"ended_at": trained.state.global_step, "place": trained.state.best_model_checkpoint,
                  "there": sorted(path.name for path in run.glob("checkpoint-*"))}))  # fmt: skip
