"""What `evalcar merge` makes of every layout, as transformers 5.17 and 4.57 load it: no key missing or too much, the tensors bit
for bit, and the tokens that the model gave in memory.

Full tier: all layouts, and under transformers 4.57, which is installed into build/fixtures once (PyPI is needed for that)."""

import dataclasses
import functools
import os
import pathlib
import shutil

import dcp_checkpoints
import engine_cases
import fsdp2_checkpoints
import loaded_by_transformers
import lora_adapters
import make_saved_by_4x
import pytest
import small_llava
import small_mixtures
import small_models
import torch
from test_bin import write_bin
from test_checkpoints import run, tool  # noqa: F401  (tool: a fixture)
from test_dcp_runs import save, write_accelerate, write_titan
from test_deepspeed import by_deepspeed
from transformers import LlamaConfig, LlamaForCausalLM

LEAST_DIFFERENT = 8  # of the 16 tokens of an answer
VARIED = 3e-2  # of noise's size, in the parameters of an adapter and of the second checkpoint of a mean

# Models by who wrote the folder of the base model: their configurations are spelled in different ways.
QWEN = {
    "5": dict(tied=True),
    "4.57": dict(tied=True, generation="4.57"),
    "4.57-new": dict(tied=True, generation="4.57-new", names="native"),
    "4.57-untied": dict(tied=False, generation="4.57", max_shard_size="100KB"),
    "4.49": dict(tied=False, generation="4.49"),
    "hub": dict(tied=True, generation="hub", dtype="bfloat16"),
}


@dataclasses.dataclass(frozen=True)
class Base:
    """A model's folder, the model in memory in float32, its state_dict as stored, and a question to it (a file)."""

    folder: pathlib.Path
    model: torch.nn.Module
    state: dict
    inputs: pathlib.Path
    checkpoint: pathlib.Path | None = None  # of a training of such a model


def write_qwen(folder, cache_dir, **changes):
    model, ids = small_models.write_model(folder / "base", cache_dir=cache_dir, layers=2, seed=5, **changes)
    sizes = [(5 * 28, 3 * 28), (2 * 28, 4 * 28)]
    tokens = engine_cases.prompt(ids, model.config.text_config.vocab_size, 7, sizes)
    pictures = [engine_cases.picture(i, *size) for i, size in enumerate(sizes)]
    torch.save(engine_cases.batch_inputs(ids, [tokens], [pictures]), folder / "inputs.pt")
    return base_of(folder, model, getattr(torch, changes.get("dtype", "float32")))


def base_of(folder, model, dtype=torch.float32):
    state = {name: value.detach().to(dtype, copy=True) for name, value in model.state_dict().items()}
    return Base(folder / "base", model, state, folder / "inputs.pt")


def write_llama(folder, tied):
    config = LlamaConfig(vocab_size=192, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, tie_word_embeddings=tied, eos_token_id=None)  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    small_models.draw_weights(model, seed=3)
    model.save_pretrained(folder / "base")
    tokens = torch.randint(0, 192, (1, 12), generator=torch.Generator().manual_seed(2))
    torch.save({"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, folder / "inputs.pt")
    return base_of(folder, model)


def write_llava(folder, cache_dir):
    """Of 4.57's configuration; 5.x has other names for the modules of its tower."""
    model, _ = small_llava.write_model(folder / "base", small_llava.SmallLlava(generation="4", names="hub"), cache_dir=cache_dir)
    tokens = torch.randint(10, 100, (1, 12), generator=torch.Generator().manual_seed(2))
    torch.save({"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, folder / "inputs.pt")
    return base_of(folder, model)


def write_mixture(folder, family):
    """Of 5.x, whose modules hold experts in other tensors than 4.57's."""
    model = small_mixtures.write_model(folder / "base", family)
    small_mixtures.spell_for_4(folder / "base")
    vocabulary = small_mixtures.VOCABULARY - 20
    tokens = torch.randint(10, vocabulary, (1, 12), generator=torch.Generator().manual_seed(2))
    torch.save({"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, folder / "inputs.pt")
    return base_of(folder, model)


# ---- the layouts: each writes one below `work` and gives the arguments of merge, and the state_dict that is to come out


def as_it_is(work, base):
    return ["--input_dir", base.folder], base.state


def bin_files(how, native=True):
    def write(work, base):
        state = base.state if native else {small_models.hub_name(name): value for name, value in base.state.items()}
        return ["--input_dir", write_bin(work / "checkpoint-5", base.folder, how, state)], base.state

    return write


def accelerate(work, base):
    write_accelerate(work / "checkpoint-5", base.state)
    return ["--input_dir", work, "--type", "hf", "--model_name_or_class", base.folder], base.state


def titan(work, base):
    write_titan(work / "step-5", base.state)
    return ["--input_dir", work / "step-5", "--type", "dcp", "--model_name_or_class", base.folder], base.state


def plain_dcp(work, base):
    save(base.state, work / "checkpoint-5")
    return ["--input_dir", work / "checkpoint-5", "--model_name_or_class", base.folder], base.state


def sharded_dcp(name):
    """By two ranks: accelerate's tree, or safetensors, consolidated or not."""

    def write(work, base):
        torch.save(base.state, work / "state.pt")
        folder = dcp_checkpoints.write_saves(work, [name], world_size=2, state=work / "state.pt") / name
        (folder / "config.json").unlink()
        return ["--input_dir", folder, "--model_name_or_class", base.folder], base.state

    return write


def fsdp2(kind="regular"):
    def write(work, base):
        fsdp2_checkpoints.write_run(work / "run", base.folder, [3, 10], world_size=2, ema=True, expected_dir=work / "expected", noise=VARIED)
        return ["--input_dir", work / "run", "--type", "fsdp2", "--weights", kind], torch.load(work / "expected" / f"10-{kind}.pt")

    return write


def mean_of_shards(work, base):
    arguments, _ = fsdp2()(work, base)
    states = [torch.load(work / "expected" / f"{step}-regular.pt") for step in (3, 10)]
    return [*arguments, "--merge"], mean(*states)


def mean_of_folders(work, base):
    generator = torch.Generator().manual_seed(1)
    other = {name: value + VARIED * value.std(correction=0) * torch.randn(value.shape, generator=generator)
             for name, value in base.state.items()}
    if base.model.config.get_text_config().tie_word_embeddings:
        other["lm_head.weight"] = other[base.model._tied_weights_keys["lm_head.weight"]]
    second = write_bin(work / "checkpoint-10", base.folder, "pytorch_model.bin", other)
    first = write_bin(work / "checkpoint-5", base.folder, "shards", base.state)
    return ["--input_dir", f"{first},{second}", "--merge"], mean(base.state, other)


def mean(one, other):
    return {name: ((value.double() + other[name].double()) / 2).to(value.dtype) for name, value in one.items()}


def adapter(targets):
    def write(work, base):
        folder = lora_adapters.write(work / "checkpoint-5", base.folder, type(base.model), r=4, lora_alpha=6, target_modules=targets)
        return ["--input_dir", folder], lora_adapters.merged_by_peft(folder, base.folder, type(base.model))

    return write


def partitions(work, base):
    """Of DeepSpeed, with the configuration of the model that the Trainer began with: its own is of 5.x (ONLY_5)."""
    folder = shutil.copytree(base.checkpoint, work / "checkpoint-2")
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink(missing_ok=True)
    return ["--input_dir", folder, "--model_name_or_class", base.folder], by_deepspeed(folder)


@dataclasses.dataclass(frozen=True)
class Layout:
    base: str
    write: object
    arguments: tuple = ()
    quick: bool = False  # of the CI tier


LAYOUTS = {
    "safetensors-of-5": Layout("5", as_it_is),
    "safetensors-of-4.57": Layout("4.57", as_it_is, quick=True),
    "safetensors-of-4.57-new": Layout("4.57-new", as_it_is),
    "safetensors-index-to-one-file": Layout("4.57-untied", as_it_is),
    "safetensors-of-the-hub": Layout("hub", as_it_is),
    "one-file-to-an-index": Layout("4.57", as_it_is, ("--max-shard-size", "100KB")),
    "bin": Layout("4.57-new", bin_files("pytorch_model.bin")),
    "bin-shards-in-bfloat16": Layout("4.57-untied", bin_files("shards"), ("--dtype", "bfloat16"), quick=True),
    "bin-of-accelerate": Layout("5", bin_files("pytorch_model_fsdp.bin")),
    "bin-with-older-names": Layout("4.49", bin_files("pytorch_model.bin", native=False)),
    "fsdp2": Layout("4.57-untied", fsdp2()),
    "fsdp2-ema": Layout("4.57", fsdp2("ema"), ("--max-shard-size", "100KB")),
    "fsdp2-mean": Layout("4.57", mean_of_shards),
    "mean-of-folders": Layout("4.57", mean_of_folders, quick=True),
    "dcp-of-accelerate": Layout("4.57", accelerate),
    "dcp-of-torchtitan": Layout("4.57-new", titan),
    "dcp-plain": Layout("hub", plain_dcp, quick=True),
    "dcp-tree-by-two-ranks": Layout("4.57", sharded_dcp("tree")),
    "dcp-safetensors": Layout("4.57", sharded_dcp("safetensors")),
    "dcp-safetensors-two-files-a-rank": Layout("4.57-untied", sharded_dcp("safetensors_files"), ("--dtype", "bfloat16")),
    "dcp-consolidated": Layout("4.57", sharded_dcp("consolidated")),
    "deepspeed-zero-2": Layout("zero-2", partitions),
    "deepspeed-zero-3-in-bfloat16": Layout("zero-3", partitions, ("--dtype", "bfloat16")),
    "lora": Layout("4.57", adapter(["q_proj", "v_proj", "qkv", "down_proj", "merger.mlp.0"])),
    "lora-over-the-hub": Layout("hub", adapter(["q_proj", "o_proj", "up_proj"]), ("--dtype", "float32", "--max-shard-size", "200KB")),
    "llama": Layout("llama", as_it_is),
    "llama-bin": Layout("llama-tied", bin_files("pytorch_model.bin"), ("--max-shard-size", "30KB")),
    "llama-fsdp2-in-bfloat16": Layout("llama-tied", fsdp2(), ("--dtype", "bfloat16")),
    "llama-dcp": Layout("llama", plain_dcp),
    "llava-onevision-of-accelerate": Layout("llava", bin_files("pytorch_model_fsdp.bin"), quick=True),
    "llava-onevision-dcp": Layout("llava", plain_dcp),
    "llava-onevision-lora": Layout("llava", adapter(["q_proj", "v_proj", "fc1"])),
    "mixtral-of-accelerate": Layout("mixtral", bin_files("pytorch_model_fsdp.bin"), quick=True),
    "qwen3-moe-dcp": Layout("qwen3_moe", sharded_dcp("tree"), ("--max-shard-size", "30KB")),
    "qwen3-moe-fsdp2-mean": Layout("qwen3_moe", mean_of_shards),
    "qwen3-vl-moe-dcp": Layout("qwen3_vl_moe", plain_dcp),
    "deepseek-v3-of-accelerate": Layout("deepseek_v3", bin_files("pytorch_model_fsdp.bin")),
    "llama-lora": Layout("llama", adapter(["q_proj", "down_proj"])),
}
# 4.57 reads no `rope_parameters`, which 5.x writes: it does not load what 5.x itself saves of this family.
ONLY_5 = {name for name, layout in LAYOUTS.items() if layout.base == "5"}


@dataclasses.dataclass(frozen=True)
class Merged:
    folder: pathlib.Path
    expected: pathlib.Path  # torch.save of the state_dict
    tokens: list  # that the model in memory answers
    base: Base

    @property
    def job(self):
        return self.folder, self.expected, self.base.inputs


@pytest.fixture(scope="module")
def bases(request, tmp_path_factory, cache_dir):
    @functools.cache
    def base(name):
        if name.startswith("zero-"):  # the Trainer began with the same architecture
            train = request.getfixturevalue("zero_runs")
            return dataclasses.replace(base("4.57"), checkpoint=train(int(name.removeprefix("zero-"))))
        folder = tmp_path_factory.mktemp(name)
        if name in QWEN:
            return write_qwen(folder, cache_dir, **QWEN[name])
        if name in small_mixtures.FAMILIES:
            return write_mixture(folder, name)
        if name == "llava":
            return write_llava(folder, cache_dir)
        return write_llama(folder, tied=name == "llama-tied")

    return base


@pytest.fixture(scope="module")
def merged(tmp_path_factory, tool, bases):  # noqa: F811
    """A layout's name → what merge makes of it."""

    @functools.cache
    def merge(name):
        layout, work = LAYOUTS[name], tmp_path_factory.mktemp(name)
        base = bases(layout.base)
        (work / "source").mkdir()
        arguments, state = layout.write(work / "source", base)
        run(tool, "merge", *arguments, "--output_dir", work / "out", *layout.arguments)
        shutil.rmtree(work / "source")
        if "--dtype" in layout.arguments:
            dtype = getattr(torch, layout.arguments[layout.arguments.index("--dtype") + 1])
            state = {key: value.to(dtype) for key, value in state.items()}
        torch.save({key: value.contiguous() for key, value in state.items()}, work / "expected.pt")
        return Merged(work / "out", work / "expected.pt", answer_in_memory(base, state), base)

    return merge


def answer_in_memory(base, state):
    base.model.load_state_dict(state)  # strict, and cast to the model's float32
    return loaded_by_transformers.greedy(base.model, torch.load(base.inputs))


def check(merged, found):
    assert found["wrong"] == {}
    assert found["tokens"] == merged.tokens
    assert len(set(found["tokens"])) >= LEAST_DIFFERENT, found["tokens"]


@pytest.mark.parametrize("name", [name if layout.quick else pytest.param(name, marks=pytest.mark.full) for name, layout in LAYOUTS.items()])
def test_transformers_5_loads_it_whole_and_answers_as_the_model_in_memory(merged, name):
    found = loaded_by_transformers.look(*merged(name).job)

    assert found["transformers"].startswith("5.")
    check(merged(name), found)


@pytest.fixture(scope="module")
def answers_of_4_57(request, merged, cache_dir, tmp_path_factory):
    """A layout's name → what transformers 4.57 says, all that are asked for in one process."""
    packages = cache_dir / make_saved_by_4x.REQUIREMENTS["4.57"][0].replace("==", "-")
    if not packages.exists():
        scratch = cache_dir / f"{packages.name}.{os.getpid()}"
        make_saved_by_4x.install("4.57", scratch)
        scratch.rename(packages)
    asked = {item.callspec.params["name"] for item in request.session.items if "answers_of_4_57" in item.fixturenames}
    names = [name for name in LAYOUTS if name in asked]
    found = loaded_by_transformers.look_with(packages, [merged(name).job for name in names], tmp_path_factory.mktemp("4.57"))
    return dict(zip(names, found, strict=True))


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in LAYOUTS if name not in ONLY_5])
def test_transformers_4_57_loads_it_whole_and_answers_as_the_model_in_memory(merged, answers_of_4_57, name):
    assert answers_of_4_57[name]["transformers"].startswith("4.57.")
    check(merged(name), answers_of_4_57[name])
