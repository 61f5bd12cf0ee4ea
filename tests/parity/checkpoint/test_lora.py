"""LoRA adapters written by PEFT, merged from the plan, against PEFT's own merge_and_unload()."""

import json
import os
import pathlib
import shutil

import engine_cases
import lessons
import pytest
import torch
import torch.distributed.checkpoint
from fixtures import dcp_checkpoints, lora_adapters
from safetensors.torch import load_file, save_file
from test_checkpoints import assert_same, check_hashes, inspect, load_folder, run, tool  # noqa: F401  (tool: a fixture)

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ALL = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]


@pytest.fixture(scope="module")
def in_order():
    if not lora_adapters.torch_multiplies_in_order():
        pytest.skip("torch's matrix product on this CPU is no chain of fused multiply-adds: its bits are not the standard here")


def same_names(merged, base):
    """PEFT's result without what the base's files do not hold: the output head where it is the embedding."""
    stored = set()
    for file in pathlib.Path(base).glob("*.safetensors"):
        stored |= set(load_file(file))
    extra = {name for name in merged if name not in stored}
    return {name: tensor for name, tensor in merged.items() if name not in extra or not name.endswith("lm_head.weight")}


LLAMA = {
    "attention": dict(target_modules=ATTENTION, r=8, lora_alpha=16),
    "all-linear": dict(target_modules="all-linear", r=4, lora_alpha=3),
    "rslora": dict(target_modules=ALL, r=6, lora_alpha=5, use_rslora=True),
    "odd-scale": dict(target_modules=ALL, r=7, lora_alpha=3.3),
    "rank-one": dict(target_modules=ALL, r=1, lora_alpha=2),
    "high-rank": dict(target_modules=ALL, r=256, lora_alpha=16),
    "patterns": dict(target_modules=ALL, r=8, lora_alpha=16,
                     rank_pattern={"q_proj": 2, r"layers\.1\.mlp\..*_proj": 3, "^model.layers.0.self_attn.k_proj": 5, "never": 9},
                     alpha_pattern={r"(up|down)_proj": 7.5, "layers.[0-9]+.self_attn.o_proj": 1, "model.layers.1.self_attn.q_proj": 40}),
    "patterns-rslora": dict(target_modules=ALL, r=8, lora_alpha=16, use_rslora=True, rank_pattern={"v_proj": 3}, alpha_pattern={"v_proj": 9}),
    "regex-targets": dict(target_modules=r".*layers\.1\..*(q|v)_proj", r=4),
    "one-layer": dict(target_modules=ATTENTION, r=4, layers_to_transform=[1]),
    "bias-lora": dict(target_modules=ATTENTION, r=4, bias="lora_only"),
    "bias-all": dict(target_modules=["gate_proj"], r=4, bias="all"),
    "head": dict(target_modules=["lm_head", "q_proj"], r=4),
    "embedding": dict(target_modules=["embed_tokens", "q_proj"], r=4, lora_alpha=5),
    "saved-modules": dict(target_modules=["q_proj"], r=4, modules_to_save=["lm_head", "embed_tokens", "input_layernorm"]),
    "gaussian": dict(target_modules=["q_proj"], r=4, init_lora_weights="gaussian"),
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    bases = {}

    def base(dtype):
        if dtype not in bases:
            folder = tmp_path_factory.mktemp("llama")
            bases[dtype] = folder, lora_adapters.llama(folder, dtype)
        return bases[dtype]

    return base


def check(tool, adapter, base, model_class):  # noqa: F811
    expected = same_names(lora_adapters.merged_by_peft(adapter, base, model_class), base)
    before = load_file(base / "model.safetensors")
    assert any(not torch.equal(expected[name], tensor) for name, tensor in before.items())
    check_hashes(tool, adapter, expected, "lora_adapter")
    return expected


@pytest.mark.parametrize("name", LLAMA)
def test_an_adapter_is_merged_to_the_bits_of_peft(tool, tmp_path, llama, in_order, name):  # noqa: F811
    base, model_class = llama(torch.float32)
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, **LLAMA[name])
    check(tool, adapter, base, model_class)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtypes_of_base_and_adapter_are_mixed_as_peft_does(tool, tmp_path, llama, in_order, dtype, stored):  # noqa: F811
    base, model_class = llama(dtype)
    settings = dict(target_modules=["embed_tokens", *ALL], r=4, lora_alpha=3, bias="all", modules_to_save=["lm_head"])
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, dtype=stored, **settings)
    weights = load_file(adapter / "adapter_model.safetensors")
    save_file({name: tensor if "lora_" in name else tensor.to(stored) for name, tensor in weights.items()},
              adapter / "adapter_model.safetensors")  # what is saved whole is cast to the base's dtype, too
    expected = check(tool, adapter, base, model_class)
    assert {tensor.dtype for tensor in expected.values()} == {dtype}


@pytest.mark.parametrize("flag", [True, False])
def test_conv1d_layers_get_the_update_transposed_whatever_the_flag_says(tool, tmp_path, in_order, flag):  # noqa: F811
    base = tmp_path / "gpt2"
    model_class = lora_adapters.gpt2(base)
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, target_modules=["c_attn", "c_fc", "wpe"], r=4,
                                  edit=lambda config: config.update(fan_in_fan_out=flag))
    check(tool, adapter, base, model_class)


def test_a_square_conv1d_layer_is_told_by_the_flag_or_refused(tool, tmp_path, in_order):  # noqa: F811
    base = tmp_path / "gpt2"
    model_class = lora_adapters.gpt2(base)
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, target_modules=["c_attn", "attn.c_proj"], r=4, fan_in_fan_out=True)
    check(tool, adapter, base, model_class)

    def lie(config):
        config.update(fan_in_fan_out=False)

    lora_adapters.write(adapter, base, model_class, target_modules=["c_attn", "attn.c_proj"], r=4, fan_in_fan_out=True, edit=lie)
    assert "is square" in inspect_failure(tool, adapter)


def test_a_vision_language_model_of_either_generation_takes_the_adapter_of_the_other(tool, tmp_path, cache_dir, in_order):  # noqa: F811
    from fixtures import small_models
    from transformers import Qwen2_5_VLForConditionalGeneration

    for names in ("hub", "native"):
        base = tmp_path / names
        small_models.write_model(base, cache_dir=cache_dir, layers=2, names=names, dtype="bfloat16")
        settings = dict(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "qkv", "patch_embed.proj", "down_proj", "merger.mlp.0"])
        adapter = lora_adapters.write(tmp_path / f"checkpoint-{len(names)}", base, Qwen2_5_VLForConditionalGeneration, **settings)
        expected = lora_adapters.merged_by_peft(adapter, base, Qwen2_5_VLForConditionalGeneration)
        report = inspect(tool, adapter, "--hash")
        assert report["layout"] == "lora_adapter", report
        # A base without the tied head; hub names are those of the files.
        renamed = {}
        for name, tensor in expected.items():
            if name == "lm_head.weight":
                continue
            if names == "hub":
                name = name.replace("model.language_model.", "model.", 1).replace("model.visual.", "visual.", 1)
            renamed[name] = tensor
        check_hashes(tool, adapter, renamed, "lora_adapter")


def test_bin_adapters_and_adapters_with_wrapped_names_are_read(tool, tmp_path, llama, in_order):  # noqa: F811
    base, model_class = llama(torch.float32)
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, **LLAMA["bias-lora"])
    expected = check(tool, adapter, base, model_class)
    weights = load_file(adapter / "adapter_model.safetensors")
    (adapter / "adapter_model.safetensors").unlink()
    torch.save(weights, adapter / "adapter_model.bin")
    check_hashes(tool, adapter, expected, "lora_adapter")

    wrapped = {name.replace(".layers.0.", ".layers.0._fsdp_wrapped_module.").replace("model.model", "model._orig_mod.model"): tensor
               for name, tensor in weights.items()}
    assert sum("_orig_mod" in name for name in wrapped) == len(wrapped)
    save_file(wrapped, adapter / "adapter_model.safetensors")
    check_hashes(tool, adapter, expected, "lora_adapter")


QV = dict(target_modules=["q_proj", "v_proj"], r=4, lora_alpha=6)
TIED = {
    "saved-head": dict(QV, modules_to_save=["lm_head"]),
    "saved-embedding": dict(QV, modules_to_save=["embed_tokens"]),
    "saved-both": dict(QV, modules_to_save=["embed_tokens", "lm_head"]),
    "saved-embedding-ensured": dict(QV, modules_to_save=["embed_tokens"], ensure_weight_tying=True),
    "embedding": dict(QV, target_modules=["q_proj", "embed_tokens"]),
    "head": dict(QV, target_modules=["q_proj", "lm_head"]),
    "both": dict(QV, target_modules=["q_proj", "embed_tokens", "lm_head"]),
    "embedding-ensured": dict(QV, target_modules=["q_proj", "embed_tokens"], ensure_weight_tying=True),
    "head-ensured": dict(QV, target_modules=["q_proj", "lm_head"], ensure_weight_tying=True),
}


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.full)], ids=str)
def test_over_a_base_with_a_tied_head_embedding_and_head_become_what_peft_makes_of_them(tool, tmp_path, in_order, dtype):  # noqa: F811
    base = tmp_path / "base"
    model_class = lora_adapters.llama(base, dtype, tied=True)
    for name, settings in TIED.items():
        adapter = lora_adapters.write(tmp_path / name / "checkpoint-5", base, model_class, **settings)
        expected = lora_adapters.merged_by_peft(adapter, base, model_class)
        run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / name / "out")

        merged = load_folder(tmp_path / name / "out")
        is_one = torch.equal(expected["lm_head.weight"], expected["model.embed_tokens.weight"])
        assert is_one == (name not in ("saved-head", "saved-embedding", "saved-both")), name
        if "lm_head.weight" not in merged and is_one:
            merged["lm_head.weight"] = merged["model.embed_tokens.weight"]  # as transformers ties them
        assert_same(merged, expected)
        assert_same(model_class.from_pretrained(tmp_path / name / "out", dtype="auto").state_dict(), expected)


def test_merge_writes_a_model_that_transformers_loads(tool, tmp_path, llama, in_order):  # noqa: F811
    base, model_class = llama(torch.bfloat16)
    adapter = lora_adapters.write(tmp_path / "run" / "checkpoint-5", base, model_class, **LLAMA["patterns"])
    expected = lora_adapters.merged_by_peft(adapter, base, model_class)
    run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "out")
    assert_same(load_folder(tmp_path / "out"), expected)
    loaded = model_class.from_pretrained(tmp_path / "out", dtype="auto").state_dict()
    assert_same(loaded, expected)


@pytest.mark.parametrize("saved", [None, ["embed_tokens", "lm_head"]], ids=["", "tied base, both of its own"])
def test_an_adapter_is_evaluated_as_what_merge_makes_of_it(bin_dir, tool, tmp_path, cache_dir, saved):  # noqa: F811
    """Under `run`: found, judged, leased, and loaded over the base that its configuration names."""
    if not (bin_dir / "evalcar-evaluator").exists():
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")
    from fixtures import small_models
    from transformers import Qwen2_5_VLForConditionalGeneration

    base = tmp_path / "base"
    small_models.write_model(base, cache_dir=cache_dir, layers=2)
    assert json.loads((base / "config.json").read_text())["tie_word_embeddings"]
    adapter = lora_adapters.write(tmp_path / "adapter" / "checkpoint-5", base, Qwen2_5_VLForConditionalGeneration, r=4,
                                  target_modules=["q_proj", "v_proj", "qkv", "down_proj"], modules_to_save=saved)  # fmt: skip
    (adapter / "trainer_state.json").write_text('{"global_step": 5}')
    merged = tmp_path / "merged" / "checkpoint-5"
    run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "out")
    shutil.copytree(tmp_path / "out", merged)
    shutil.copy(adapter / "trainer_state.json", merged)
    plain = shutil.copytree(base, tmp_path / "plain" / "checkpoint-5")
    shutil.copy(adapter / "trainer_state.json", plain)

    data = lessons.write_data(tmp_path / "data", docvqa=2, mmmu=1)
    lines, answers = {}, {}
    for name in ("adapter", "merged", "plain"):
        run(tool, "run", tmp_path / name, "--once", "--tasks", "docvqa_val", "--data", data, "--device", "cpu",
            "--set", "evaluate.max_new_tokens=6", "--set", "evaluate.min_pixels=3136", "--set", f"store.path={tmp_path / name}.db")
        lines[name] = json.loads((tmp_path / name / "_evalcar" / "metrics.jsonl").read_text())
        [file] = (tmp_path / name / "_evalcar" / "results").rglob("*_samples_*.jsonl")
        answers[name] = [json.loads(line)["filtered_resps"] for line in file.read_text().splitlines()]
    assert lines["adapter"]["weights_sha256"] == lines["merged"]["weights_sha256"] != lines["plain"]["weights_sha256"]
    assert lines["adapter"]["metrics"] == lines["merged"]["metrics"]
    assert answers["adapter"] == answers["merged"] != answers["plain"]


@pytest.mark.parametrize("name", ["saved-head", "saved-embedding", "saved-both", "saved-embedding-ensured"])
def test_over_a_base_with_a_tied_head_the_answers_are_those_of_peft(bin_dir, tmp_path, name):
    """The configuration is the base's, and ties: an adapter of added tokens has given that up."""
    if not (bin_dir / "engine_probe").exists():
        pytest.skip("the engine is not built (EVALCAR_EVALUATOR=OFF)")
    from peft import PeftModel

    model_class = lora_adapters.llama(tmp_path / "base", tied=True)
    adapter = lora_adapters.write(tmp_path / "run" / "checkpoint-5", tmp_path / "base", model_class, **TIED[name])
    shutil.copy(tmp_path / "base" / "config.json", adapter)  # the probe knows one folder
    model = PeftModel.from_pretrained(model_class.from_pretrained(tmp_path / "base"), adapter).eval()
    prompts = [torch.randint(0, 96, (1, 7), generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    expected = [model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=12, eos_token_id=None,
                               pad_token_id=0)[0, 7:].tolist() for prompt in prompts]  # fmt: skip
    assert len({tuple(tokens) for tokens in expected}) > 1

    requests = [{"tokens": prompt[0].tolist(), "max_new_tokens": 12} for prompt in prompts]
    runs = [{"folder": str(folder), "requests": requests, **more} for folder, more in
            [(adapter, {}), (tmp_path / "base", {"prefetch": str(adapter)}), (adapter, {})]]  # fmt: skip
    loaded, base, ahead = engine_cases.run_probe(bin_dir, tmp_path, runs)["runs"]

    assert [answer["tokens"] for answer in loaded["answers"]] == expected
    assert base["prefetch"] == "" and ahead["loaded"]["prefetched"]
    assert ahead["answers"] == loaded["answers"] != base["answers"]


def test_a_folder_where_the_agent_runs_is_not_the_base_that_an_id_of_the_hub_names(tool, tmp_path, llama):  # noqa: F811
    """transformers takes a folder of that name where the trainer runs; the agent may run elsewhere."""
    base, model_class = llama(torch.float32)
    snapshot = tmp_path / "hub" / "models--org--base" / "snapshots" / "abc"
    shutil.copytree(base, snapshot)
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, target_modules=["q_proj"], r=4,
                                  edit=lambda config: config.update(base_model_name_or_path="org/base", revision="abc"))  # fmt: skip
    lora_adapters.llama(tmp_path / "here" / "org" / "base", seed=9)
    places = {"env": {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub")}}

    elsewhere = json.loads(run(tool, "inspect", adapter, "--hash", "--json", cwd=tmp_path, **places).stdout)
    assert elsewhere["complete"]
    done = run(tool, "inspect", adapter, "--hash", "--json", cwd=tmp_path / "here", code=1, **places)
    refused = json.loads(done.stdout)
    assert not refused["complete"] and "evaluate.base_model" in refused["reason"] and "org/base in the working directory" in refused["reason"]

    for given, same in ((snapshot, True), ("org/base", False)):
        done = run(tool, "inspect", adapter, "--hash", "--json", "--model_name_or_class", given, cwd=tmp_path / "here", **places)
        assert (json.loads(done.stdout)["weights_sha256"] == elsewhere["weights_sha256"]) == same


def test_a_base_that_is_not_on_this_machine_is_an_error_with_the_command_that_fetches_it(tool, tmp_path, llama):  # noqa: F811
    base, model_class = llama(torch.float32)
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", base, model_class, target_modules=["q_proj"], r=4,
                                  edit=lambda config: config.update(base_model_name_or_path="no-such-org/no-such-model"))
    assert "hf download no-such-org/no-such-model" in inspect_failure(tool, adapter, code=3)
    # The base that is given on the command line stands in for it.
    run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "out", "--model_name_or_class", base)
    assert (tmp_path / "out" / "config.json").exists()


def test_an_adapter_that_replaces_the_experts_of_a_mixture_is_refused_by_that(tool, tmp_path):  # noqa: F811
    """modules_to_save=["mlp"]: the module has all experts in one tensor, the files of the model each by itself."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(hidden_size=16, intermediate_size=24, moe_intermediate_size=8, num_hidden_layers=1, num_attention_heads=4, head_dim=4,
                            num_key_value_heads=2, vocab_size=50, num_experts=4, num_experts_per_tok=2)  # fmt: skip
    Qwen3MoeForCausalLM(config).save_pretrained(tmp_path / "base")
    adapter = lora_adapters.write(tmp_path / "checkpoint-5", tmp_path / "base", Qwen3MoeForCausalLM, target_modules=["q_proj"], modules_to_save=["mlp"], r=4)
    assert "base_model.model.model.layers.0.mlp.experts.gate_up_proj" in load_file(adapter / "adapter_model.safetensors")

    done = run(tool, "merge", "--input_dir", adapter, "--output_dir", tmp_path / "out", code=1)

    assert '.mlp.experts.' in done.stderr and "each expert by itself" in done.stderr and "merge_and_unload" in done.stderr


@pytest.fixture
def sharded_adapter(tmp_path, llama):
    """What the Hugging Face Trainer leaves under FSDP2 with PEFT: a DCP of the adapter's tensors alone; and PEFT's own files of it, and its base."""
    base, model_class = llama(torch.float32)
    adapter = lora_adapters.write(tmp_path / "adapter", base, model_class, **LLAMA["saved-modules"])

    def write(rename=lambda name: name):
        checkpoint = tmp_path / "run" / "checkpoint-5"
        checkpoint.mkdir(parents=True)
        state = {rename(name): tensor for name, tensor in load_file(adapter / "adapter_model.safetensors").items()}
        torch.save(state, tmp_path / "state.pt")
        dcp_checkpoints.write_saves(tmp_path / "saves", ["tree"], world_size=2, state=tmp_path / "state.pt")
        shutil.move(tmp_path / "saves" / "tree", checkpoint / "pytorch_model_fsdp_0")
        (checkpoint / "trainer_state.json").write_text('{"global_step": 5}')
        return checkpoint

    return write, adapter, base, model_class


def refused(tool, checkpoint, base, *more):  # noqa: F811
    """By each command that would take the tensors for a model's."""
    output = checkpoint.parent.parent / "refused"
    for given in ((), ("--model_name_or_class", base)):
        done = run(tool, "merge", "--input_dir", checkpoint.parent, "--output_dir", output, *given, code=1)
        assert all(text in done.stderr for text in ("adapter_config.json", *more)) and not output.exists(), done.stderr
        assert done.stderr.count("random weights") == 1
    run(tool, "eval", checkpoint, "--tasks", "docvqa_val", "--data", checkpoint, "--output", output, code=1)
    return inspect_failure(tool, checkpoint)


def test_an_adapter_that_was_saved_sharded_is_no_model(tool, sharded_adapter):  # noqa: F811
    write, adapter, base, _ = sharded_adapter

    checkpoint = write()

    assert "adapter tensors only" in refused(tool, checkpoint, base, "adapter tensors only", "lora_A")


@pytest.mark.parametrize("named", [False, True])
def test_an_adapter_that_was_saved_sharded_is_merged_to_the_bits_of_peft_where_its_configuration_is(tool, tmp_path, sharded_adapter, in_order, named):  # noqa: F811
    write, adapter, base, model_class = sharded_adapter
    checkpoint = write(lambda name: name.replace(".lora_A.", ".lora_A.default.").replace(".lora_B.", ".lora_B.default.") if named else name)
    shutil.copy(adapter / "adapter_config.json", checkpoint)
    expected = same_names(lora_adapters.merged_by_peft(adapter, base, model_class), base)

    report = check_hashes(tool, checkpoint, expected, "lora_adapter")
    run(tool, "merge", "--input_dir", tmp_path / "run", "--type", "hf", "--output_dir", tmp_path / "out")

    assert report["step"] == 5
    assert_same(load_folder(tmp_path / "out"), expected)
    assert (tmp_path / "out" / "config.json").read_bytes() == (base / "config.json").read_bytes()


@pytest.mark.parametrize("tied", [False, True])
def test_a_whole_model_with_its_adapter_is_merged_to_the_bits_of_peft_where_its_configuration_is(tool, tmp_path, in_order, tied):  # noqa: F811
    """What a trainer saves that does not know PEFT: the base's tensors are in the DCP, too."""
    from peft import PeftModel

    model_class = lora_adapters.llama(tmp_path / "base", tied=tied)
    adapter = lora_adapters.write(tmp_path / "adapter", tmp_path / "base", model_class, **LLAMA["attention"])
    checkpoint = tmp_path / "run" / "checkpoint-5"
    model = PeftModel.from_pretrained(model_class.from_pretrained(tmp_path / "base"), adapter)
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    torch.distributed.checkpoint.save({"model": state}, checkpoint_id=str(checkpoint / "pytorch_model_fsdp_0"), no_dist=True)
    shutil.copy(adapter / "adapter_config.json", checkpoint)

    run(tool, "merge", "--input_dir", checkpoint, "--output_dir", tmp_path / "out")

    assert_same(dict(model_class.from_pretrained(tmp_path / "out").state_dict()), dict(model.merge_and_unload().state_dict()))


@pytest.mark.parametrize("tied", [False, True])
def test_a_whole_model_has_its_saved_modules_once(tool, tmp_path, tied):  # noqa: F811
    """In its state each of them lies twice: as it was (original_module), and the copy that was trained."""
    from peft import PeftModel

    model_class = lora_adapters.llama(tmp_path / "base", tied=tied)
    saved = ["lm_head", "input_layernorm"]
    adapter = lora_adapters.write(tmp_path / "adapter", tmp_path / "base", model_class, **LLAMA["attention"], modules_to_save=saved)
    checkpoint = tmp_path / "run" / "checkpoint-5"
    model = PeftModel.from_pretrained(model_class.from_pretrained(tmp_path / "base"), adapter)
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    assert "base_model.model.lm_head.original_module.weight" in state
    torch.distributed.checkpoint.save({"model": state}, checkpoint_id=str(checkpoint / "pytorch_model_fsdp_0"), no_dist=True)
    shutil.copy(adapter / "adapter_config.json", checkpoint)

    run(tool, "merge", "--input_dir", checkpoint, "--output_dir", tmp_path / "out")

    merged, expected = load_folder(tmp_path / "out"), model.merge_and_unload().state_dict()
    assert merged.keys() == expected.keys()
    trained = [name for name in merged if any(module in name for module in saved)]
    assert_same({name: merged[name] for name in trained}, {name: expected[name] for name in trained})
    assert len(trained) == 3


def test_a_model_with_an_adapter_still_in_it_is_refused(tool, tmp_path, llama):  # noqa: F811
    """FSDP2 shards of a PeftModel: the base's tensors are there, under names that no model has."""
    from peft import LoraConfig, get_peft_model

    base, model_class = llama(torch.float32)
    checkpoint = tmp_path / "run" / "checkpoint-5"
    (checkpoint / "pytorch_model_fsdp_0").mkdir(parents=True)
    model = get_peft_model(model_class.from_pretrained(base), LoraConfig(target_modules=["q_proj"], r=4))
    torch.save(model.state_dict(), checkpoint / "pytorch_model_fsdp_0" / "model_world_size_1_rank_0.pt")
    shutil.copy(base / "config.json", checkpoint)

    done = run(tool, "merge", "--input_dir", checkpoint, "--output_dir", tmp_path / "out", code=1)

    assert "an adapter of PEFT still in it" in done.stderr and not (tmp_path / "out").exists()
    assert "an adapter of PEFT still in it" in inspect_failure(tool, checkpoint)


def save_shards(state, folder):
    (folder / "pytorch_model_fsdp_0").mkdir()
    torch.save(state, folder / "pytorch_model_fsdp_0" / "model_world_size_1_rank_0.pt")


WITH_ADAPTER = {
    "safetensors": lambda state, folder: save_file(state, folder / "model.safetensors"),
    "bin": lambda state, folder: torch.save(state, folder / "pytorch_model.bin"),
    "fsdp2": save_shards,
    "dcp": lambda state, folder: torch.distributed.checkpoint.save({"model": state}, checkpoint_id=str(folder / "pytorch_model_fsdp_0"), no_dist=True),
}


@pytest.mark.parametrize("layout", WITH_ADAPTER)
def test_a_model_to_which_transformers_added_an_adapter_is_refused(tool, tmp_path, llama, layout):  # noqa: F811
    """PEFT's prefix is not in its names: model.add_adapter() puts the factors into the model's own modules."""
    from peft import LoraConfig

    base, model_class = llama(torch.float32)
    checkpoint = tmp_path / "run" / "checkpoint-5"
    checkpoint.mkdir(parents=True)
    model = model_class.from_pretrained(base)
    model.add_adapter(LoraConfig(target_modules=["q_proj"], r=4))
    shutil.copy(base / "config.json", checkpoint)
    WITH_ADAPTER[layout]({name: tensor.detach() for name, tensor in model.state_dict().items()}, checkpoint)

    done = run(tool, "merge", "--input_dir", checkpoint, "--output_dir", tmp_path / "out", code=1)

    assert "an adapter of PEFT still in it" in done.stderr and "lora_A.default" in done.stderr and not (tmp_path / "out").exists()
    run(tool, "inspect", checkpoint, "--hash", code=1)


def test_a_model_that_has_modules_of_such_names_itself_is_a_model(tool, tmp_path):  # noqa: F811
    """Phi-4-multimodal, which is published with two adapters that its code switches."""
    state = {"model.layers.0.q_proj.base_layer.weight": torch.ones(2, 2), "model.layers.0.q_proj.lora_A.vision.weight": torch.ones(1, 2)}
    save_file(state, tmp_path / "model.safetensors")

    assert [t["name"] for t in inspect(tool, tmp_path)["tensors"]] == sorted(state)


def inspect_failure(tool, folder, code=1):  # noqa: F811
    done = run(tool, "inspect", folder, "--json", code=code)
    report = json.loads(done.stdout)
    assert not report["complete"]
    return report["reason"]


def test_the_average_of_adapters_is_that_of_their_merged_models(tool, tmp_path, llama, in_order):  # noqa: F811
    """Mean of what PEFT merges each of three to, in float32, rounded to the model's type; the base's own tensors stay as they are."""
    base, model_class = llama(torch.bfloat16)
    settings = [dict(target_modules=ATTENTION, r=8, lora_alpha=16), dict(target_modules=ALL, r=3, lora_alpha=7, use_rslora=True),
                dict(target_modules=["q_proj"], r=4, modules_to_save=["input_layernorm"])]
    adapters = [lora_adapters.write(tmp_path / "run" / f"checkpoint-{5 * i}", base, model_class, seed=i, **chosen)
                for i, chosen in enumerate(settings, 1)]
    merged = [same_names(lora_adapters.merged_by_peft(adapter, base, model_class), base) for adapter in adapters]

    for weights in (None, [1, 2, 5]):
        shares = weights or [1] * len(merged)
        expected = {name: (sum(share * one[name].double() for share, one in zip(shares, merged, strict=True)) / sum(shares)).to(tensor.dtype)
                    for name, tensor in merged[0].items()}
        flags = [] if weights is None else ["--merge-weights", ",".join(map(str, weights))]
        out = tmp_path / f"mean-{len(flags)}"
        run(tool, "merge", "--merge", "--input_dir", tmp_path / "run", "--output_dir", out, *flags)
        assert_same(load_folder(out), expected)
        assert (out / "config.json").exists()
    in_fp32 = {name: (torch.stack([one[name].float() for one in merged]).mean(0)).to(tensor.dtype) for name, tensor in merged[0].items()}
    assert_same(load_folder(tmp_path / "mean-0"), in_fp32)

    plain = tmp_path / "run" / "checkpoint-20"  # whole weights of the same model: they have an average with adapters, too
    shutil.copytree(base, plain)
    run(tool, "merge", "--merge", "--input_dir", f"{adapters[0]},{plain}", "--output_dir", tmp_path / "mixed", "--model_name_or_class", base)
    assert sorted(load_folder(tmp_path / "mixed")) == sorted(merged[0])


def test_the_average_of_adapters_of_two_bases_is_refused_by_the_tensor(tool, tmp_path):  # noqa: F811
    for number, dtype in ((5, torch.float32), (10, torch.bfloat16)):
        base = tmp_path / f"base-{number}"
        model_class = lora_adapters.llama(base, dtype)
        lora_adapters.write(tmp_path / "run" / f"checkpoint-{number}", base, model_class, target_modules=["q_proj"], r=2)
    done = run(tool, "merge", "--merge", "--input_dir", tmp_path / "run", "--output_dir", tmp_path / "out", code=2)
    assert "is bfloat16, in the first checkpoint float32" in done.stderr and not (tmp_path / "out").exists()
