"""Checkpoints that are no model by themselves: evaluate.base_model has the configuration, or the adapter's other half."""

import json
import shutil
import subprocess

import pytest

WIDTH = 16
MODULE = "model.layers.0.self_attn.q_proj"


def random(seed, *shape):
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def base(tmp_path):
    """The folder of the model that training started from."""
    from safetensors.torch import save_file

    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    save_file({f"{MODULE}.weight": random(0, WIDTH, WIDTH)}, folder / "model.safetensors")
    return folder


def write_dcp(run, step):
    """What the Hugging Face Trainer under FSDP writes: shards, and no configuration."""
    import torch.distributed.checkpoint as dcp

    folder = run / f"checkpoint-{step}"
    state = {"model": {"a.weight": random(step, 8, 4), "b.weight": random(step + 1, 4)}}
    dcp.save(state, checkpoint_id=folder / "pytorch_model_fsdp_0", no_dist=True)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return folder


def write_adapter(run, step):
    """What PEFT writes, its base being a folder of another machine."""
    from safetensors.torch import save_file

    folder = run / f"checkpoint-{step}"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "base_model_name_or_path": "../started-from", "r": 2, "lora_alpha": 4,
                    "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}))
    save_file({f"base_model.model.{MODULE}.lora_A.weight": random(step, 2, WIDTH),
               f"base_model.model.{MODULE}.lora_B.weight": random(step + 1, WIDTH, 2)}, folder / "adapter_model.safetensors")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return folder


def inspect(sidecar, folder, *arguments):
    return subprocess.run([sidecar.evalcar, "inspect", str(folder), "--hash", "--json", *arguments], capture_output=True, text=True,
                          timeout=60)  # fmt: skip


def hash_of(sidecar, folder, base):
    done = inspect(sidecar, folder, "--model_name_or_class", str(base))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["weights_sha256"]


def start(bench, base, *arguments):
    bench.tell(delay=0.2)
    return bench.sidecar("--set", f"evaluate.base_model={base}", *arguments).start()


@pytest.mark.parametrize("write", [write_dcp, write_adapter])
def test_a_checkpoint_without_its_own_model_outlives_its_deletion_in_mid_evaluation(bench, base, tmp_path, write):
    sidecar = start(bench, base)
    staged = write(tmp_path, 5)
    kept = shutil.copytree(staged, tmp_path / "kept")
    staged.rename(bench.run / staged.name)
    sidecar.wait_for(lambda s: len(bench.heard("generate")) >= 2, what="the evaluation")

    shutil.rmtree(bench.run / staged.name)

    sidecar.wait_for(lambda s: s.states()[5, "regular"][0] in ("published", "failed", "quarantined"), what="the end")
    assert sidecar.states()[5, "regular"] == ("published", "")
    assert sidecar.stop() == 0
    line, = sidecar.metrics_lines()
    assert line["weights_sha256"] == hash_of(sidecar, kept, base)
    assert len(bench.heard("load")) == 1  # and was measured once


@pytest.mark.parametrize("write", [write_dcp, write_adapter])
def test_an_average_of_such_checkpoints_outlives_their_deletion_too(bench, base, tmp_path, write):
    sidecar = start(bench, base, "--set", "evaluate.average_last=2")
    for step in (5, 10):
        write(tmp_path, step).rename(bench.run / f"checkpoint-{step}")
    averaging = "SELECT 1 FROM evaluations WHERE checkpoint_type = 'average' AND state = 'evaluating'"
    sidecar.wait_for(lambda s: s.query(averaging), what="the average")

    for step in (5, 10):
        shutil.rmtree(bench.run / f"checkpoint-{step}")

    ends = ("published", "failed", "quarantined")
    sidecar.wait_for(lambda s: all(state in ends for state, _ in s.states().values()), what="the ends")
    assert set(sidecar.states().values()) == {("published", "")}
    assert sidecar.stop() == 0
    assert {(line["global_step"], line["checkpoint_type"]) for line in sidecar.metrics_lines()} == {
        (5, "regular"), (10, "regular"), (10, "average")}


def test_inspect_says_what_such_a_checkpoint_lacks_until_it_is_given(bench, base, tmp_path):
    sidecar = bench.sidecar()
    dcp, adapter = write_dcp(tmp_path, 5), write_adapter(tmp_path, 10)

    alone = inspect(sidecar, dcp)
    said = json.loads(alone.stdout)
    assert alone.returncode == 0 and said["complete"] and not said["has_config"]  # the weights are all there, and no more
    assert json.loads(alone.stdout)["weights_sha256"] == hash_of(sidecar, dcp, base)

    alone = inspect(sidecar, adapter)
    assert alone.returncode != 0 and json.loads(alone.stdout)["weights_sha256"] is None
    assert len(hash_of(sidecar, adapter, base)) == 64

    wrong = inspect(sidecar, dcp, "--model_name_or_class", str(tmp_path / "nowhere"))
    assert wrong.returncode == 2 and "--model_name_or_class" in wrong.stderr and "nowhere" in wrong.stderr


def test_the_base_model_may_be_an_id_of_the_hub_that_is_on_this_machine(bench, base, tmp_path):
    cached = tmp_path / "hub" / "models--org--base"
    snapshot = cached / "snapshots" / "0123abcd"
    snapshot.parent.mkdir(parents=True)
    base.rename(snapshot)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0123abcd")
    write_adapter(bench.run, 5)
    write_dcp(bench.run, 10)

    sidecar = bench.sidecar("--set", "evaluate.base_model=org/base", environment={"HF_HUB_CACHE": str(tmp_path / "hub")})
    done = subprocess.run([*sidecar.command, "--once"], env=sidecar.environment, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert {line["weights_sha256"] for line in sidecar.metrics_lines()} == {
        hash_of(sidecar, bench.run / f"checkpoint-{step}", snapshot) for step in (5, 10)}
    shutil.rmtree(cached)
    done = subprocess.run([*sidecar.command, "--once"], env=sidecar.environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "evaluate.base_model: org/base: is not on this machine" in done.stderr
    assert "hf download org/base" in done.stderr
