"""The demo's model: Qwen2.5-VL as transformers has it, made small, with Qwen's own tokenizer cut to its first merges."""

import functools
import json
import pathlib

import transformers
from fixtures import qwen_tokenizer

MERGES = 4000
MIN_PIXELS, MAX_PIXELS = 28 * 28 * 4, 28 * 28 * 1280
IMAGE_SETTINGS = {
    "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor",
    "min_pixels": MIN_PIXELS, "max_pixels": MAX_PIXELS, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
}  # fmt: skip


def load_processor(cache_dir):
    """Qwen2_5_VLProcessor with the small tokenizer; its files are made once under `cache_dir`."""
    folder = pathlib.Path(cache_dir) / f"demo-processor-{MERGES}"
    qwen_tokenizer.copy_tokenizer(cache_dir, folder, MERGES)
    (folder / "preprocessor_config.json").write_text(json.dumps(IMAGE_SETTINGS, indent=2))
    return transformers.AutoProcessor.from_pretrained(folder)


def chat(processor, prompt):
    """One user turn with a picture before the text, rendered by the chat template, ready for the answer."""
    return _chat_with(processor)(prompt)


@functools.cache
def _chat_with(processor):
    @functools.cache
    def render(prompt):
        content = [{"type": "image"}, {"type": "text", "text": prompt}]
        return processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False)

    return render


def make_model(tokenizer, hidden=128, layers=3, vision_layers=3):
    """A freshly initialised Qwen2_5_VLForConditionalGeneration of about 2 million parameters, float32."""
    return transformers.Qwen2_5_VLForConditionalGeneration(make_config(tokenizer, hidden, layers, vision_layers))


def make_config(tokenizer, hidden, layers, vision_layers):
    ids = {token: tokenizer.convert_tokens_to_ids(f"<|{token}|>") for token in
           ("im_end", "endoftext", "vision_start", "image_pad", "video_pad")}  # fmt: skip
    text = {
        "vocab_size": (len(tokenizer) + 63) // 64 * 64, "hidden_size": hidden, "intermediate_size": hidden * 3,
        "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "initializer_range": 0.05,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": mrope_section(hidden // 4)},
        "bos_token_id": ids["endoftext"], "eos_token_id": ids["im_end"], "pad_token_id": ids["endoftext"],
    }  # fmt: skip
    vision = {
        "depth": vision_layers, "hidden_size": 128, "intermediate_size": 256, "num_heads": 4, "out_hidden_size": hidden,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112,
        "fullatt_block_indexes": [vision_layers - 1], "initializer_range": 0.05,
    }  # fmt: skip
    return transformers.Qwen2_5_VLConfig(
        text_config=text, vision_config=vision, tie_word_embeddings=True, initializer_range=0.05, dtype="float32",
        architectures=["Qwen2_5_VLForConditionalGeneration"],
        image_token_id=ids["image_pad"], video_token_id=ids["video_pad"], vision_start_token_id=ids["vision_start"],
        eos_token_id=ids["im_end"], pad_token_id=ids["endoftext"],
    )  # fmt: skip


def mrope_section(head_dim):
    """Frequencies for time, height and width: half the head, in about Qwen's proportion 16:24:24."""
    half = head_dim // 2
    time = half // 4
    return [time, (half - time) // 2, half - time - (half - time) // 2]
