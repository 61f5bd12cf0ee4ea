"""A merge beside a running trainer: nothing that the trainer would count, parse, resume from or die of; and nothing when it is
interrupted."""

import os
import re
import resource
import signal
import subprocess
import time

import pytest
import torch
from safetensors.torch import save_file
from test_checkpoints import run, tool  # noqa: F401  (tool: a fixture)
from test_merge_choices import write as write_shards


def write(folder, size=4):
    folder.mkdir(parents=True)
    save_file({f"w{i}": torch.randn(size, size) for i in range(3)}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    return folder


def test_accelerates_numbered_checkpoints_stay_alone_in_their_folder(tool, tmp_path):  # noqa: F811
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

    project = tmp_path / "project"
    trainer = Accelerator(cpu=True, project_config=ProjectConfiguration(str(project), automatic_checkpoint_naming=True, total_limit=2))
    model = trainer.prepare(torch.nn.Linear(3, 3))
    for _ in range(3):
        trainer.save_state()
    checkpoints = project / "checkpoints"
    names = sorted(os.listdir(checkpoints))
    assert names == ["checkpoint_1", "checkpoint_2"]

    run(tool, "merge", "--input_dir", checkpoints / "checkpoint_2")
    for name in ("merged", "checkpoint_9", "merged2", "_evalcar/x"):
        done = run(tool, "merge", "--input_dir", checkpoints / "checkpoint_2", "--output_dir", checkpoints / name, code=2)
        assert "accelerate" in done.stderr and "choose" in done.stderr

    assert sorted(os.listdir(checkpoints)) == names
    assert list(project.glob("_evalcar/merged/**/model.safetensors"))
    trainer.save_state()  # dies of a name without a number
    trainer.load_state()
    assert model is not None


@pytest.mark.parametrize("name", ["step-9", "merged-step-9", "step-9-merged", "x/step-7", "checkpoint-9"])
def test_no_name_beside_torchtitans_steps_is_one_of_them(tool, tmp_path, name):  # noqa: F811
    folder = write(tmp_path / "titan" / "step-5")
    output = tmp_path / "titan" / name
    expected = 2 if name != "x/step-7" else 0  # it lists its own folder only
    assert (re.search(r"step-(\d+)", name.split("/")[0]) is not None) == (expected == 2 and name != "checkpoint-9")

    done = run(tool, "merge", "--input_dir", folder, "--output_dir", output, code=expected)

    assert expected == 0 or "choose" in done.stderr
    assert output.exists() == (expected == 0)


def test_a_step_in_the_name_is_no_matter_elsewhere(tool, tmp_path):  # noqa: F811
    folder = write(tmp_path / "run" / "checkpoint-5")
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "run" / "merged-step-5")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, "no reader", "file size"])
def test_an_interrupted_merge_leaves_nothing(tool, tmp_path, how):  # noqa: F811
    source = write(tmp_path / "run" / "checkpoint-5", size=3000)
    before = sorted(tmp_path.rglob("*"))
    reader, writer = os.pipe()
    limit = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, resource.RLIM_INFINITY))) if how == "file size" else None
    merge = subprocess.Popen([str(tool), "merge", "--input_dir", str(source), "--dtype", "float16"], stdout=writer, stderr=writer, preexec_fn=limit)  # fmt: skip
    os.close(writer)
    if how == "no reader":
        os.close(reader)
        while not list(tmp_path.glob("run/_evalcar/merged/5/.evalcar*")) and merge.poll() is None:
            time.sleep(0.001)
        merge.send_signal(signal.SIGSTOP)
        time.sleep(1.3)  # then it tells of its progress, to nobody
        merge.send_signal(signal.SIGCONT)
        assert merge.wait(120) in (0, 1, 3, -signal.SIGPIPE)  # the last: once all was done
        assert not list(tmp_path.glob("run/_evalcar/merged/5/.evalcar*"))
        return
    while how != "file size" and not list(tmp_path.glob("run/_evalcar/merged/5/.evalcar*")) and merge.poll() is None:
        time.sleep(0.001)
    if how != "file size":
        merge.send_signal(how)
    code = merge.wait(120)
    os.close(reader)
    assert not list(tmp_path.rglob(".evalcar*"))
    if code != 0:  # it may have been done before the signal came
        assert sorted(tmp_path.rglob("*")) == before
    assert how != "file size" or code == 1


def test_a_comma_in_a_path_is_part_of_it(tool, tmp_path):  # noqa: F811
    write(tmp_path / "lr=1,bs=8" / "checkpoint-5")
    write(tmp_path / "lr=1,bs=8" / "checkpoint-6")
    run(tool, "merge", "--input_dir", tmp_path / "lr=1,bs=8", "--output_dir", tmp_path / "one")
    two = f"{tmp_path}/lr=1,bs=8/checkpoint-5,{tmp_path}/lr=1,bs=8/checkpoint-6"
    done = run(tool, "merge", "--input_dir", two, "--output_dir", tmp_path / "two", code=2)
    assert "no such folder" in done.stderr  # a separator, where nothing lies there by the whole name


def test_commas_separate_what_is_not_there_by_the_whole_name(tool, tmp_path):  # noqa: F811
    for step in (5, 6):
        write(tmp_path / "run" / f"checkpoint-{step}")
    both = f"{tmp_path}/run/checkpoint-5,{tmp_path}/run/checkpoint-6"
    run(tool, "merge", "--input_dir", both, "--output_dir", tmp_path / "mean", "--merge")
    run(tool, "merge", "--input_dir", f"{tmp_path}/run/checkpoint-5", f"{tmp_path}/run/checkpoint-6", "--output_dir", tmp_path / "mean2", "--merge")


def test_no_folder_is_looked_into_that_a_link_leads_to(tool, tmp_path):  # noqa: F811
    """A link out of the checkpoint is not followed, not even to see whether the writer is done."""
    folder = write_shards(tmp_path / "run" / "checkpoint-5")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "dataloader_state_world_size_1_rank_0.pt").write_bytes(b"x")
    (folder / "dataloader_state").symlink_to(outside)
    if subprocess.run(["strace", "-V"], capture_output=True, check=False).returncode != 0:
        pytest.skip("strace is not installed")
    log = tmp_path / "log"
    done = subprocess.run(["strace", "-f", "-o", str(log), "-e", "trace=openat", str(tool), "inspect", str(folder)], capture_output=True, check=False)
    if not log.exists() or not log.read_text():
        pytest.skip(f"strace cannot trace here: {done.stderr}")
    assert "dataloader_state_world_size" not in log.read_text()


def write_numbered(run, *, by_accelerate):
    folder = write(run / "checkpoint_3")
    if by_accelerate:
        (folder / "random_states_0.pkl").write_bytes(b"")
    return folder


@pytest.mark.parametrize(("name", "by_accelerate", "home"), [
    ("checkpoints", False, "_evalcar"), ("runs", True, "_evalcar"), ("runs", False, "runs/_evalcar"),
])  # fmt: skip
def test_a_merge_goes_where_the_agent_keeps_its_folder(tool, tmp_path, name, by_accelerate, home):  # noqa: F811
    """Numbers alone do not make a folder accelerate's: another program may name its checkpoints so."""
    folder = write_numbered(tmp_path / name, by_accelerate=by_accelerate)
    run(tool, "merge", "--input_dir", tmp_path / name)
    assert (tmp_path / home / "merged" / "3" / "regular" / "model.safetensors").exists()
    allowed = name == "runs" and not by_accelerate
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / name / "out", code=0 if allowed else 2)


def test_a_folder_that_the_agent_signed_is_found_whatever_the_names_are(tool, tmp_path):  # noqa: F811
    folder = write(tmp_path / "project" / "checkpoints" / "checkpoint-5")
    (tmp_path / "project" / "_evalcar").mkdir()
    (tmp_path / "project" / "_evalcar" / "watched").write_text("checkpoints\n")
    run(tool, "merge", "--input_dir", folder)
    assert list((tmp_path / "project" / "_evalcar").glob("merged/5/regular/model.safetensors"))
    assert os.listdir(tmp_path / "project" / "checkpoints") == ["checkpoint-5"]


@pytest.mark.parametrize(("mark", "content"), [("run_id", "0123456789abcdef" * 2 + "\n"), ("watched", "others\n")])
def test_no_merge_goes_into_the_folder_of_another_training(tool, tmp_path, mark, content):  # noqa: F811
    folder = write_numbered(tmp_path / "checkpoints", by_accelerate=True)
    (tmp_path / "_evalcar").mkdir()
    (tmp_path / "_evalcar" / mark).write_text(content)

    done = run(tool, "merge", "--input_dir", folder, code=2)

    assert "which is that of" in done.stderr and "--output_dir" in done.stderr
    assert os.listdir(tmp_path / "_evalcar") == [mark]
    run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "elsewhere")
