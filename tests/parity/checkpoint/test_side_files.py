"""What a merged folder gets beside its weights: all that transformers loads a model, its code and its tokenizer from."""

import json
import math

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
