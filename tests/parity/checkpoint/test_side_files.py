"""What a merged folder gets beside its weights: all that transformers loads a model, its code and its tokenizer from."""

import json
import math
import os

import pytest
import torch
from safetensors.torch import save_file
from test_checkpoints import run, tool  # noqa: F401  (tool: a fixture)

CODE = '''
import torch
from transformers import PretrainedConfig, PreTrainedModel


class TinyConfig(PretrainedConfig):
    model_type = "tiny_of_a_user"


class TinyModel(PreTrainedModel):
    config_class = TinyConfig

    def __init__(self, config):
        super().__init__(config)
        self.w = torch.nn.Linear(3, 3)
        self.post_init()
'''


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "run" / "checkpoint-1"
    folder.mkdir(parents=True)
    save_file({"w.weight": torch.eye(3), "w.bias": torch.ones(3)}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text("{}")
    return folder


def merged(tool, checkpoint, *options):  # noqa: F811
    output = checkpoint.parent.parent / "out"
    run(tool, "merge", "--input_dir", checkpoint, "--output_dir", output, *options)
    return output


def test_a_models_own_code_goes_along(tool, checkpoint):  # noqa: F811
    from transformers import AutoModel

    (checkpoint / "code_of_tiny.py").write_text(CODE)
    (checkpoint / "config.json").write_text(json.dumps({"model_type": "tiny_of_a_user",
                                                        "auto_map": {"AutoConfig": "code_of_tiny.TinyConfig", "AutoModel": "code_of_tiny.TinyModel"}}))  # fmt: skip

    model = AutoModel.from_pretrained(merged(tool, checkpoint), trust_remote_code=True)

    assert torch.equal(model.w.weight, torch.eye(3))


def test_every_chat_template_goes_along(tool, checkpoint):  # noqa: F811
    from tokenizers import Tokenizer, models
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
    tokenizer.chat_template = {"default": "{{ messages }}", "tool_use": "tools {{ messages }}"}
    tokenizer.save_pretrained(checkpoint)
    assert (checkpoint / "additional_chat_templates" / "tool_use.jinja").exists()

    assert AutoTokenizer.from_pretrained(merged(tool, checkpoint)).chat_template == tokenizer.chat_template


def test_a_folder_of_templates_that_leads_outside_is_left_alone(tool, checkpoint, tmp_path):  # noqa: F811
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.jinja").write_text("secret")
    (checkpoint / "additional_chat_templates").symlink_to(tmp_path / "outside")

    assert not (merged(tool, checkpoint) / "additional_chat_templates").exists()


def names_in_transformers():
    """All files that a tokenizer of transformers says it consists of."""
    import pathlib
    import re

    import transformers

    found = set()
    for source in pathlib.Path(transformers.__file__).parent.glob("models/*/tokenization_*.py"):
        for block in re.findall(r"^VOCAB_FILES_NAMES = \{([^}]*)\}", source.read_text(), re.MULTILINE):
            found |= set(re.findall(r':\s*"([^"]+)"', block))
    return found


def test_every_file_that_tokenizers_name_goes_along(tool, checkpoint):  # noqa: F811
    names = names_in_transformers()
    assert {"spm_char.model", "dict.txt", "vocab-src.json", "tokenizer.json"} <= names
    for name in names:
        (checkpoint / name).write_bytes(b"{}")
    output = merged(tool, checkpoint)
    assert names <= {path.name for path in output.iterdir()}


@pytest.mark.parametrize("name", ["normalizer.json", "source.spm", "target.spm", "spm.model", "bpe.codes", "tekken.json", "spk_dict.pt"])
def test_what_tokenizers_and_processors_read_goes_along(tool, checkpoint, name):  # noqa: F811
    (checkpoint / name).write_bytes(b"content")
    assert (merged(tool, checkpoint) / name).read_bytes() == b"content"


@pytest.mark.parametrize("options", [(), ("--dtype", "bfloat16")])
def test_numbers_that_only_python_writes_are_read_and_stay(tool, checkpoint, options):  # noqa: F811
    written = {"dtype": "float32", "limits": [0.0, math.inf, -math.inf], "x": {"nan": math.nan, "text": 'NaN \\" Infinity'}, "n": 3}
    (checkpoint / "config.json").write_text(json.dumps(written))

    read = json.loads((merged(tool, checkpoint, *options) / "config.json").read_text())

    assert read["limits"] == written["limits"] and read["x"]["text"] == written["x"]["text"] and read["n"] == 3
    assert math.isnan(read["x"]["nan"])
    assert read["dtype"] == ("bfloat16" if options else "float32")


def test_a_cast_sets_the_dtypes_of_the_model_and_its_parts_alone(tool, checkpoint):  # noqa: F811
    """What a method of quantisation calls dtype is its own; its tensors stay, which is told."""
    def config(dtype):
        part = {"model_type": "x", "dtype": dtype}
        quantised = {"quant_method": "quark", "dtype": "float32", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}, "torch_dtype": "float32"}}
        return {"torch_dtype": dtype, "text_config": {**part, "deep_config": part, "quantization_config": quantised}, "encoder": part,
                "quantization_config": quantised, "compression_config": {"dtype": "float32"}, "task_params": {"dtype": "float32"}}

    (checkpoint / "config.json").write_text(json.dumps(config("float32")))
    save_file({"w": torch.ones(3), "q": torch.ones(3).to(torch.float8_e4m3fn), "n": torch.ones(3, dtype=torch.int64), "m": torch.ones(3, dtype=torch.int64)},
              checkpoint / "model.safetensors")

    output = checkpoint.parent.parent / "out"
    done = run(tool, "merge", "--input_dir", checkpoint, "--output_dir", output, "--dtype", "bfloat16")

    assert json.loads((output / "config.json").read_text()) == config("bfloat16")
    assert "3 tensors keep their dtype, which --dtype does not cast: float8_e4m3fn (1), int64 (2)\n" in done.stderr


def test_a_processors_further_tokenizer_goes_along(tool, checkpoint):  # noqa: F811
    from transformers import BlipImageProcessorPil, InstructBlipProcessor

    text, question = word_tokenizer("a", "b"), word_tokenizer("c", "d", "e")
    InstructBlipProcessor(BlipImageProcessorPil(), text, qformer_tokenizer=question).save_pretrained(checkpoint)
    assert (checkpoint / "qformer_tokenizer" / "tokenizer.json").exists()

    loaded = InstructBlipProcessor.from_pretrained(merged(tool, checkpoint))

    assert loaded.qformer_tokenizer.get_vocab() == question.get_vocab()
    assert loaded.tokenizer.get_vocab() == text.get_vocab()


def test_of_a_folder_of_a_tokenizer_its_files_go_along_and_nothing_else(tool, checkpoint, tmp_path):  # noqa: F811
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "vocab.txt").write_text("secret")
    for name in ("char_tokenizer", "of_somebody", "empty_tokenizer"):
        (checkpoint / name).mkdir()
        (checkpoint / name / "notes.txt").write_text("of somebody")
    for name in ("char_tokenizer", "of_somebody"):
        (checkpoint / name / "vocab.txt").write_text("a")
    (checkpoint / "char_tokenizer" / "deep_tokenizer").mkdir()
    (checkpoint / "char_tokenizer" / "deep_tokenizer" / "vocab.txt").write_text("a")
    (checkpoint / "led_out_tokenizer").symlink_to(tmp_path / "outside")
    (checkpoint / "linked_tokenizer").symlink_to("of_somebody")
    for name in ("tokenizer_data", "many_tokenizer"):
        (checkpoint / name).mkdir()
        for number in range(1001):
            (checkpoint / name / f"{number}.{'txt' if name == 'tokenizer_data' else 'tiktoken'}").touch()
    output = tmp_path / "out"

    done = run(tool, "merge", "--input_dir", checkpoint, "--output_dir", output)

    assert sorted(path.name for path in output.iterdir()) == ["char_tokenizer", "config.json", "linked_tokenizer", "model.safetensors"]
    for name in ("char_tokenizer", "linked_tokenizer"):
        assert [path.name for path in (output / name).iterdir()] == ["vocab.txt"] and not (output / name).is_symlink()
    assert sorted(line for line in done.stderr.splitlines() if "left out" in line) == [
        f"evalcar merge: left out: {checkpoint}/led_out_tokenizer: a link out of the checkpoint's folder, which is not followed",
        f"evalcar merge: left out: {checkpoint}/many_tokenizer: has 1001 files of a tokenizer, more than any has"]

    (checkpoint / "char_tokenizer" / "merges.txt").symlink_to(tmp_path / "outside" / "vocab.txt")
    done = run(tool, "merge", "--input_dir", checkpoint, "--output_dir", tmp_path / "again", code=1)
    assert "char_tokenizer/merges.txt: a link out of the checkpoint's folder" in done.stderr
    (checkpoint / "char_tokenizer" / "merges.txt").unlink()
    os.mkfifo(checkpoint / "char_tokenizer" / "merges.txt")
    done = run(tool, "merge", "--input_dir", checkpoint, "--output_dir", tmp_path / "again", "--dry-run", code=1)
    assert "char_tokenizer/merges.txt: not a regular file" in done.stderr


def test_each_further_tokenizer_comes_from_where_it_can_be_loaded(tool, checkpoint, tmp_path):  # noqa: F811
    base = tmp_path / "base"
    for folder, name, file in ((checkpoint, "own_tokenizer", "vocab.txt"), (base, "own_tokenizer", "tokenizer.json"), (base, "other_tokenizer", "vocab.txt"),
                               (checkpoint, "half_tokenizer", "tokenizer_config.json"), (base, "half_tokenizer", "vocab.txt")):  # fmt: skip
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / file).write_text(folder.name)
    (base / "config.json").write_text("{}")

    output = merged(tool, checkpoint, "--model_name_or_class", base)

    files = {str(path.relative_to(output)): path.read_text() for path in output.glob("*_tokenizer/*")}
    assert files == {"own_tokenizer/vocab.txt": checkpoint.name, "other_tokenizer/vocab.txt": "base", "half_tokenizer/vocab.txt": "base"}


def word_tokenizer(*words):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(words)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token=words[0])))


def save_tokenizer(folder):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))).save_pretrained(folder)


def test_a_base_models_template_does_not_hide_that_of_the_checkpoint(tool, checkpoint, tmp_path):  # noqa: F811
    """transformers reads chat_template.jinja before what tokenizer_config.json says, and the base model is of another generation."""
    from transformers import AutoTokenizer

    for folder in (checkpoint, tmp_path / "base"):
        save_tokenizer(folder)
    settings = json.loads((checkpoint / "tokenizer_config.json").read_text()) | {"chat_template": "as trained"}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "base" / "config.json").write_text("{}")
    (tmp_path / "base" / "chat_template.jinja").write_text("of the base model")
    (tmp_path / "base" / "additional_chat_templates").mkdir()
    (tmp_path / "base" / "additional_chat_templates" / "tool_use.jinja").write_text("of the base model")

    output = merged(tool, checkpoint, "--model_name_or_class", tmp_path / "base")

    assert AutoTokenizer.from_pretrained(checkpoint).chat_template == "as trained"
    assert AutoTokenizer.from_pretrained(output).chat_template == "as trained"


def test_a_base_models_processor_does_not_hide_that_of_the_checkpoint(tool, checkpoint, tmp_path):  # noqa: F811
    """The checkpoint has a 4.x preprocessor_config.json, the base model a processor_config.json of 5.x, which is read first."""
    from transformers import AutoImageProcessor

    common = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2}
    (checkpoint / "preprocessor_config.json").write_text(json.dumps(common | {"min_pixels": 1111, "max_pixels": 2222}))
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    (tmp_path / "base" / "processor_config.json").write_text(json.dumps(
        {"processor_class": "Qwen2_5_VLProcessor", "image_processor": common | {"size": {"shortest_edge": 3333, "longest_edge": 4444}}}))

    output = merged(tool, checkpoint, "--model_name_or_class", tmp_path / "base")

    assert AutoImageProcessor.from_pretrained(output).to_dict() == AutoImageProcessor.from_pretrained(checkpoint).to_dict()
    assert sorted(path.name for path in output.iterdir()) == ["config.json", "model.safetensors", "preprocessor_config.json"]


def test_what_a_checkpoint_has_nothing_of_comes_whole_from_the_base_model(tool, checkpoint, tmp_path):  # noqa: F811
    """A template alone is no tokenizer; generation_config.json belongs to the config.json that it was saved with."""
    save_tokenizer(tmp_path / "base")
    for name, content in {"config.json": '{"of": "base"}', "generation_config.json": '{"of": "base"}', "chat_template.jinja": "base",
                          "processor_config.json": "{}", "video_preprocessor_config.json": "{}", "code_of_base.py": ""}.items():  # fmt: skip
        (tmp_path / "base" / name).write_text(content)
    (checkpoint / "special_tokens_map.json").write_text("{}")
    (checkpoint / "chat_template.jinja").write_text("alone")

    output = merged(tool, checkpoint, "--model_name_or_class", tmp_path / "base")

    taken = ["chat_template.jinja", "code_of_base.py", "processor_config.json", "tokenizer.json", "tokenizer_config.json", "video_preprocessor_config.json"]
    assert sorted(path.name for path in output.iterdir()) == sorted([*taken, "config.json", "model.safetensors"])
    assert all((output / name).read_bytes() == (tmp_path / "base" / name).read_bytes() for name in taken)
    assert (output / "config.json").read_text() == "{}"


def test_what_deepspeed_lays_beside_a_checkpoint_is_no_code_of_a_model(tool, checkpoint):  # noqa: F811
    for name in ("zero_to_fp32.py", "zero_to_torch.py", "modeling_x.py"):
        (checkpoint / name).write_text("pass")

    assert sorted(path.name for path in merged(tool, checkpoint).iterdir()) == ["config.json", "model.safetensors", "modeling_x.py"]
