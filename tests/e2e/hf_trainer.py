"""A program: the real Hugging Face Trainer trains a small Qwen2.5-VL on made-up text and saves checkpoints.

    python hf_trainer.py MODEL_FOLDER OUTPUT_DIR --saves 3 --save-total-limit 1 --archive DIR --pause 1.0

After each save the folder is copied to DIR, so that a test can look at it after the Trainer removed it."""

import argparse
import pathlib
import shutil
import time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("output_dir")
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--save-total-limit", type=int, default=1)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--pause", type=float, default=1.0)
    arguments = parser.parse_args()

    import torch
    from transformers import (AutoProcessor, Qwen2_5_VLForConditionalGeneration, Trainer, TrainerCallback,
                              TrainingArguments)

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(arguments.model)
    processor = AutoProcessor.from_pretrained(arguments.model)
    texts = [f"the picture shows {count} {color} shapes" for count in range(8) for color in ("red", "green", "blue")]
    rows = []
    for text in texts:
        ids = processor.tokenizer(text, padding="max_length", max_length=24, truncation=True)["input_ids"]
        rows.append({"input_ids": ids, "labels": ids, "attention_mask": [1] * len(ids)})

    class Archive(TrainerCallback):
        def on_save(self, args, state, control, **_):
            folder = pathlib.Path(args.output_dir) / f"checkpoint-{state.global_step}"
            shutil.copytree(folder, pathlib.Path(arguments.archive) / folder.name)
            time.sleep(arguments.pause)

    Trainer(
        model=model,
        args=TrainingArguments(output_dir=arguments.output_dir, max_steps=2 * arguments.saves, save_steps=2,
                               save_total_limit=arguments.save_total_limit, per_device_train_batch_size=4,
                               learning_rate=1e-2, report_to=[], use_cpu=True, disable_tqdm=True, logging_steps=100),
        train_dataset=rows, processing_class=processor, callbacks=[Archive()]).train()


if __name__ == "__main__":
    main()
