"""A program: the real Hugging Face Trainer teaches a small Qwen2.5-VL the questions of a file and saves checkpoints.

    python hf_trainer.py MODEL_FOLDER OUTPUT_DIR --lessons FILE --saves 3 --save-steps 4 --save-total-limit 1 --archive DIR

FILE is of fixtures/lessons.py. After each save the folder is copied to DIR, so that a test can look at it after the Trainer
removed it. With --fsdp it is one of several ranks (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set) that shard the model by
FSDP2 and save by accelerate's SHARDED_STATE_DICT: torch.distributed.checkpoint folders."""

import argparse
import pathlib
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fixtures"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("output_dir")
    parser.add_argument("--lessons", required=True)
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--save-steps", type=int, default=4)
    parser.add_argument("--save-total-limit", type=int, default=1)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--pause", type=float, default=1.0)
    parser.add_argument("--fsdp", action="store_true")
    arguments = parser.parse_args()

    import lessons
    import torch
    from transformers import (AutoProcessor, Qwen2_5_VLForConditionalGeneration, Trainer, TrainerCallback,
                              TrainingArguments)

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(arguments.model)
    processor = AutoProcessor.from_pretrained(arguments.model)
    questions = torch.load(arguments.lessons)

    class Archive(TrainerCallback):
        def on_save(self, args, state, control, **_):
            if not state.is_world_process_zero:
                return
            folder = pathlib.Path(args.output_dir) / f"checkpoint-{state.global_step}"
            shutil.copytree(folder, pathlib.Path(arguments.archive) / folder.name)
            time.sleep(arguments.pause)

    sharding = {}
    if arguments.fsdp:
        sharding = {"fsdp": True, "ddp_backend": "gloo",
                    "fsdp_config": {"version": 2, "state_dict_type": "SHARDED_STATE_DICT",
                                    "transformer_layer_cls_to_wrap": ["Qwen2_5_VLDecoderLayer"]}}
    settings = TrainingArguments(
        output_dir=arguments.output_dir, max_steps=arguments.saves * arguments.save_steps, save_steps=arguments.save_steps,
        save_total_limit=arguments.save_total_limit, per_device_train_batch_size=len(questions), learning_rate=lessons.LEARNING_RATE,
        adam_beta2=lessons.BETAS[1], lr_scheduler_type="constant", remove_unused_columns=False, report_to=[], use_cpu=True,
        disable_tqdm=True, logging_steps=100, **sharding)
    if arguments.fsdp:
        from accelerate.state import DistributedType, PartialState

        # accelerate shards on every kind of device but the CPU; its own code takes the device from elsewhere
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    Trainer(model=model, args=settings, train_dataset=questions, data_collator=lessons.batch, processing_class=processor,
            callbacks=[Archive()]).train()


if __name__ == "__main__":
    main()
