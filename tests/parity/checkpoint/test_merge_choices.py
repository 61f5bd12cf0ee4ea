"""Which checkpoint, folder and output `evalcar merge` means, what it doubts, and what of a hostile name reaches the terminal."""

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import time

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_checkpoints import run, tool  # noqa: F401  (tool: a fixture)

SHARDS, EMA_SHARDS = "pytorch_model_fsdp_0", "pytorch_ema_model_fsdp_0"
HOUR = 3600


def write(folder, value=1.0, ranks=1, kinds=(SHARDS,)):
    for kind in kinds:
        (folder / kind).mkdir(parents=True)
        for rank in range(ranks):
            torch.save({"w": torch.full((4,), value)}, folder / kind / f"model_world_size_{ranks}_rank_{rank}.pt")
    (folder / "config.json").write_text(json.dumps({"architectures": ["BaseForTest"]}))
    return folder


def value(folder):
    return load_file(folder / "model.safetensors")["w"][0].item()


def test_means_of_both_kinds_lie_beside_each_other(tool, tmp_path):  # noqa: F811
    for step in (1, 3):
        write(tmp_path / f"checkpoint-{step}", float(step), kinds=(SHARDS,))
        write(tmp_path / "ema", 10.0 * step, kinds=(EMA_SHARDS,))
        (tmp_path / "ema" / EMA_SHARDS).rename(tmp_path / f"checkpoint-{step}" / EMA_SHARDS)
        (tmp_path / "ema" / "config.json").unlink()
        (tmp_path / "ema").rmdir()

    for options in ([], ["--weights", "ema"], ["--merge"], ["--merge", "--weights", "ema"]):
        run(tool, "merge", "--input_dir", tmp_path, *options)

    merged = tmp_path / "_evalcar" / "merged" / "3"
    assert {each.name: value(each) for each in merged.iterdir()} == {"regular": 3, "ema": 30, "average": 2, "average_ema": 20}


def test_checkpoints_that_are_left_out_are_named(tool, tmp_path):  # noqa: F811
    for step in (1, 2, 3, 4):
        write(tmp_path / f"checkpoint-{step}", float(step), ranks=2)
    (tmp_path / "checkpoint-2" / SHARDS / "model_world_size_2_rank_1.pt").unlink()
    shutil.rmtree(tmp_path / "checkpoint-4" / SHARDS)

    mean = run(tool, "merge", "--input_dir", tmp_path, "--merge")
    newest = run(tool, "merge", "--input_dir", tmp_path)

    merged = tmp_path / "_evalcar" / "merged" / "3"
    assert (value(merged / "average"), value(merged / "regular")) == (2, 3)
    said = [line for line in mean.stderr.splitlines() if "left out" in line]
    assert len(said) == 2 and "checkpoint-4: " in said[0] and said[1].endswith(f"checkpoint-2/{SHARDS}/model_world_size_2_rank_1.pt: is missing")
    assert [line for line in newest.stderr.splitlines() if "left out" in line] == said[:1]


def test_weights_in_the_run_folder_itself_do_not_stand_before_its_checkpoints(tool, tmp_path):  # noqa: F811
    """The training's last save_model() writes there. Without checkpoints beside them they are a checkpoint of no step."""
    model = tmp_path / "run"
    model.mkdir()
    save_file({"w": torch.full((4,), 9.0)}, model / "model.safetensors")
    (model / "config.json").write_text("{}")

    alone = run(tool, "merge", "--input_dir", model)
    for step in (1, 3):
        write(model / f"checkpoint-{step}", float(step))
    beside = run(tool, "merge", "--input_dir", model, "--type", "fsdp2")

    assert value(tmp_path / "_evalcar" / "merged" / "run" / "regular") == 9 and "left out" not in alone.stderr
    assert value(model / "_evalcar" / "merged" / "3" / "regular") == 3
    assert f"left out: the weights in {model} itself" in beside.stderr
    assert sorted(path.name for path in model.iterdir()) == ["_evalcar", "checkpoint-1", "checkpoint-3", "config.json", "model.safetensors"]


@pytest.mark.parametrize("name, tensor, why", [("w", torch.ones(2, dtype=torch.complex128), "safetensors has no dtype for complex128"),
                                               ("__metadata__", torch.ones(2), "the safetensors format keeps for something else")])
def test_a_dry_run_refuses_what_the_merge_refuses(tool, tmp_path, name, tensor, why):  # noqa: F811
    (tmp_path / "checkpoint-1").mkdir()
    torch.save({name: tensor}, tmp_path / "checkpoint-1" / "pytorch_model.bin")

    for options in (["--dry-run"], []):
        assert why in run(tool, "merge", "--input_dir", tmp_path, *options, code=1).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]


def test_a_step_that_contradicts_the_checkpoint_is_a_usage_error(tool, tmp_path):  # noqa: F811
    folder = write(tmp_path / "checkpoint-1")
    done = run(tool, "merge", "--input_dir", folder, "--step", 3, "--output_dir", tmp_path / "out", code=2)
    assert "--step 3" in done.stderr and "of step 1" in done.stderr
    assert not (tmp_path / "out").exists()
    run(tool, "merge", "--input_dir", folder, "--step", 1, "--output_dir", tmp_path / "out")

    folder.rename(tmp_path / "final")
    done = run(tool, "merge", "--input_dir", tmp_path / "final", "--step", 3, "--output_dir", tmp_path / "other", code=2)
    assert "a step that it does not tell" in done.stderr


def test_a_folder_named_like_a_class_is_a_folder(tool, tmp_path):  # noqa: F811
    write(tmp_path / "checkpoint-1")
    (tmp_path / "BaseForTest").mkdir()
    (tmp_path / "BaseForTest" / "config.json").write_text("{}")
    (tmp_path / "BaseForTest" / "tokenizer.json").write_text('{"of": "the base"}')

    for name, has_tokenizer in (("BaseForTest", True), ("OtherForTest", False)):
        done = subprocess.run([tool, "merge", "--input_dir", "checkpoint-1", "--model_name_or_class", name, "--output_dir", name + "-out"],
                              cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / (name + "-out") / "tokenizer.json").exists() == has_tokenizer


def test_no_name_out_of_a_checkpoint_rules_the_terminal(tool, tmp_path):  # noqa: F811
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for name in (b"shard-1-model-\x1b[31mHI\n.safetensors", b"shard-2-model-\xff\xc2\x9b.safetensors"):
        with open(os.fsencode(folder) + b"/" + name, "wb") as file:
            file.write(b"short")
        for command in (["inspect", folder], ["merge", "--input_dir", folder, "--output_dir", tmp_path / "out"]):
            done = subprocess.run([tool, *command], capture_output=True, timeout=60)
            assert done.returncode != 0
            for text in (done.stdout, done.stderr):
                assert b"\x1b" not in text and b"\xff" not in text and b"\xc2\x9b" not in text
                assert b"HI\n" not in text
            assert b"\\x1b[31mHI\\n" in done.stderr or b"\\xff\\xc2\\x9b" in done.stderr
        os.unlink(os.fsencode(folder) + b"/" + name)


def date(folder, seconds_ago):
    for path in folder.rglob("*_rank_*.pt"):
        rank = int(path.stem.rsplit("_", 1)[1])
        when = path.stat().st_mtime - seconds_ago[rank]
        os.utime(path, (when, when))


@pytest.mark.parametrize("seconds_ago, others, doubt", [([0, 100], False, False), ([2 * HOUR, 0], False, True), ([2 * HOUR, 0], True, True)])
def test_shards_that_were_written_far_apart_are_doubted(tool, tmp_path, seconds_ago, others, doubt):  # noqa: F811
    folder = write(tmp_path / "checkpoint-5", ranks=2)
    if others:
        for name in ("optimizer", "dataloader_state"):
            (folder / name).mkdir()
            for rank in range(2):
                torch.save({}, folder / name / f"{name}_world_size_2_rank_{rank}.pt")
    date(folder, seconds_ago)

    merged = run(tool, "merge", "--input_dir", folder, "--output_dir", tmp_path / "out")
    inspected = run(tool, "inspect", folder, "--json")

    late, early = (folder / SHARDS / f"model_world_size_2_rank_{rank}.pt" for rank in (1, 0))
    text = f"{late} was written 120 minutes after the rank of {early} had written everything: the weights may be of two saves"
    found = json.loads(inspected.stdout)["warnings"]
    assert [each.replace(" 119 ", " 120 ") for each in found] == ([text] if doubt else [])
    for done in (merged, inspected):
        assert ("may be of two saves" in done.stderr) == doubt


def test_slow_ranks_whose_other_files_overlap_are_not_doubted(tool, tmp_path):  # noqa: F811
    """A copy of the whole checkpoint: first all weights, file by file, then the rest."""
    folder = write(tmp_path / "checkpoint-5", ranks=2)
    (folder / "dataloader_state").mkdir()
    for rank in range(2):
        torch.save({}, folder / "dataloader_state" / f"dataloader_state_world_size_2_rank_{rank}.pt")
    date(folder / SHARDS, [2 * HOUR, HOUR])

    assert json.loads(run(tool, "inspect", folder, "--json").stdout)["warnings"] == []



def test_a_dcp_save_without_collectives_is_doubted_by_its_ranks_times(tool, saves, tmp_path):  # noqa: F811
    shutil.copytree(saves / "alone", tmp_path / "checkpoint-5")
    (tmp_path / "checkpoint-5" / "config.json").write_text("{}")
    assert json.loads(run(tool, "inspect", tmp_path / "checkpoint-5", "--json").stdout)["warnings"] == []

    for path in (tmp_path / "checkpoint-5").glob("__0*"):
        os.utime(path, (path.stat().st_mtime - HOUR, path.stat().st_mtime - HOUR))

    [warning] = json.loads(run(tool, "inspect", tmp_path / "checkpoint-5", "--json").stdout)["warnings"]
    assert "__0_0.distcp had written everything" in warning


def write_large(folder):
    """A GiB of zeros that take no place on the disk."""
    folder.mkdir(parents=True)
    elements = 1 << 28
    header = json.dumps({"w": {"dtype": "F32", "shape": [elements], "data_offsets": [0, 4 * elements]}}).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 4 * elements)
    (folder / "config.json").write_text(json.dumps({"architectures": ["BaseForTest"]}))
    return folder


def wait_for_staging(process, run_folder):
    while process.poll() is None and not list(run_folder.glob("_evalcar/merged/7/.evalcar-merge-*")):
        time.sleep(0.001)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_an_interrupted_merge_leaves_nothing(tool, tmp_path, name):  # noqa: F811
    run_folder = tmp_path / "run"
    folder = write_large(run_folder / "checkpoint-7")
    command = [str(tool), "merge", "--input_dir", str(run_folder), "--dtype", "bfloat16"]

    for _ in range(20):  # a merge may be done before this process gets to see it
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            wait_for_staging(process, run_folder)
            process.send_signal(getattr(signal, name))
            _, error = process.communicate(timeout=60)
        if process.returncode != 0:
            break
        shutil.rmtree(run_folder / "_evalcar")
    assert process.returncode == (-9 if name == "SIGKILL" else 1), error

    if name == "SIGKILL":  # nobody could: the next merge to that place does, and what runs there meanwhile is not its business
        merged = run_folder / "_evalcar" / "merged" / "7"
        (left,) = merged.iterdir()
        elsewhere = merged / (left.name[:-8] + "0" * 8)
        elsewhere.mkdir()
        (folder / "model.safetensors").unlink()
        save_file({"w": torch.ones(4)}, folder / "model.safetensors")
        run(tool, "merge", "--input_dir", run_folder)
        assert sorted(each.name for each in merged.iterdir()) == sorted([elsewhere.name, "regular"])
    else:
        assert sorted(each.name for each in run_folder.iterdir()) == ["checkpoint-7"]


def test_a_merge_shows_on_a_terminal_how_far_it_is(tool, tmp_path):  # noqa: F811
    write_large(tmp_path / "run" / "checkpoint-7")
    terminal, side = os.openpty()
    command = [str(tool), "merge", "--input_dir", str(tmp_path / "run"), "--dtype", "bfloat16"]

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=side) as process:
        os.close(side)
        wait_for_staging(process, tmp_path / "run")
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.1)  # short work has no bar
        process.send_signal(signal.SIGCONT)
        shown = b""
        while b"left" not in shown:
            shown += os.read(terminal, 1000)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, 1)
    os.close(terminal)

    assert re.search(rb"\r\x1b\[Kmerge \[#*-*\] +\d+ %  \d\.\d of 0\.5 GB, \d+\.\d\d GB/s, \d+ s left", shown), shown


def in_a_mount_namespace(*commands):
    """A shell that may mount; skipped where the machine allows none."""
    probe = subprocess.run(["unshare", "-rm", "true"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip("no user namespace may mount here")
    return subprocess.run(["unshare", "-rm", "sh", "-ec", " && ".join(commands)], capture_output=True, text=True, timeout=300)


def test_an_empty_output_folder_that_is_a_mount_point_is_filled(tool, tmp_path):  # noqa: F811
    """A volume of a container: a disk of its own, or a folder of the same disk (its device tells nothing)."""
    source = write(tmp_path / "run" / "checkpoint-5", 7.0)
    disk, volume = tmp_path / "disk", tmp_path / "volume"
    disk.mkdir(), volume.mkdir()
    merge = f"{tool} merge --input_dir {source} --output_dir {volume}"
    done = in_a_mount_namespace(f"mount --bind {disk} {volume}", merge)
    assert done.returncode == 0, done.stderr
    assert value(disk) == 7 and sorted(os.listdir(disk)) == ["config.json", "model.safetensors"]
    assert sorted(os.listdir(tmp_path)) == ["disk", "run", "volume"] and os.listdir(volume) == []

    copy = tmp_path / "copy"
    done = in_a_mount_namespace(f"mount -t tmpfs tmpfs {volume}", merge, f"cp -a {volume} {copy}")
    assert done.returncode == 0, done.stderr
    assert value(copy) == 7 and sorted(os.listdir(copy)) == ["config.json", "model.safetensors"]

    done = in_a_mount_namespace(f"mount -t tmpfs -o size=1m tmpfs {volume}", f"{merge} || exit 10$?")  # its own free space counts
    assert done.returncode == 101 and "MiB free" in done.stderr and "give an --output_dir on another disk" in done.stderr, done.stderr


def test_a_run_without_ema_says_so(tool, tmp_path):  # noqa: F811
    write(tmp_path / "checkpoint-5")
    done = run(tool, "merge", "--input_dir", tmp_path, "--weights", "ema", code=3)
    assert "none of its 1 checkpoints holds EMA weights" in done.stderr


def test_checkpoints_of_two_dtypes_are_not_averaged_and_the_way_out_works(tool, tmp_path):  # noqa: F811
    for step, dtype in ((1, torch.float32), (2, torch.bfloat16)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        save_file({"w": torch.full((4,), float(step), dtype=dtype)}, folder / "model.safetensors")
        (folder / "config.json").write_text("{}")
    done = run(tool, "merge", "--input_dir", tmp_path, "--merge", code=2)
    assert "is bfloat16, in the first checkpoint float32" in done.stderr and "evalcar merge --dtype float32" in done.stderr

    for step in (1, 2):
        run(tool, "merge", "--input_dir", tmp_path / f"checkpoint-{step}", "--dtype", "float32", "--output_dir", tmp_path / f"f{step}")
    run(tool, "merge", "--input_dir", f"{tmp_path}/f1,{tmp_path}/f2", "--merge", "--output_dir", tmp_path / "mean")
    assert value(tmp_path / "mean") == 1.5


def test_wrong_merge_weights_are_told_with_their_flag(tool, tmp_path):  # noqa: F811
    for step in (1, 2):
        write(tmp_path / f"checkpoint-{step}")
    for weights, said in (("1,-2", "--merge-weights: -2.0: expected a positive"), ("1,2,3", "--merge-weights: 3 weights are given for 2")):
        done = run(tool, "merge", "--input_dir", tmp_path, "--merge", f"--merge-weights={weights}", code=2)
        assert said in done.stderr, done.stderr


def test_weights_of_a_mean_count_beside_each_other_however_large_or_small(tool, tmp_path):  # noqa: F811
    for step, content in ((1, [0.1, -3.0]), (2, [0.7, 1e30])):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        save_file({"w": torch.tensor(content)}, folder / "model.safetensors")
        (folder / "config.json").write_text("{}")
    merged = {}
    for name, weights in (("plain", "1,3"), ("huge", f"{2.0**1021!r},{3 * 2.0**1021!r}"), ("tiny", f"{2.0**-1060!r},{3 * 2.0**-1060!r}"),
                          ("nan", "nan,1"), ("inf", "inf,1")):  # fmt: skip
        output = tmp_path / name
        done = run(tool, "merge", "--input_dir", tmp_path, "--merge", f"--merge-weights={weights}", "--output_dir", output,
                   code=0 if name not in ("nan", "inf") else 2)  # fmt: skip
        if done.returncode:
            assert f"--merge-weights: {name}: expected a positive" in done.stderr
        else:
            merged[name] = load_file(output / "model.safetensors")["w"]
    wanted = (torch.tensor([0.1, -3.0]).double() + 3 * torch.tensor([0.7, 1e30]).double()) / 4
    assert torch.equal(merged["plain"], wanted.float())
    assert torch.equal(merged["huge"], merged["plain"]) and torch.equal(merged["tiny"], merged["plain"])


def test_the_folder_that_one_stands_in_is_filled_and_not_replaced(tool, tmp_path):  # noqa: F811
    write(tmp_path / "checkpoint-5")
    here = tmp_path / "here"
    here.mkdir()
    inode = here.stat().st_ino
    subprocess.run([tool, "merge", "--input_dir", tmp_path, "--output_dir", "."], cwd=here, check=True, capture_output=True)
    assert here.stat().st_ino == inode and value(here) == 1.0
    assert not [name for name in os.listdir(here) if name.startswith(".")]


@pytest.mark.parametrize("name", ["o" * 240, "o" * 255])
def test_an_output_may_have_any_name_that_a_folder_can_have(tool, tmp_path, name):  # noqa: F811
    write(tmp_path / "checkpoint-5")
    run(tool, "merge", "--input_dir", tmp_path, "--output_dir", tmp_path / name)
    assert value(tmp_path / name) == 1.0 and sorted(os.listdir(tmp_path)) == ["checkpoint-5", name]


def test_a_run_of_verl_is_no_checkpoint_of_deepspeed(tool, tmp_path):  # noqa: F811
    (tmp_path / "global_step_100").mkdir()
    write(tmp_path / "checkpoint-5")
    run(tool, "merge", "--input_dir", tmp_path, "--output_dir", tmp_path / "merged")
    assert value(tmp_path / "merged") == 1.0


@pytest.mark.parametrize("step", ["-1", "99999999999999999999", "1.5"])
def test_a_step_that_no_checkpoint_can_have_is_refused(tool, tmp_path, step):  # noqa: F811
    write(tmp_path / "checkpoint-5")
    done = run(tool, "merge", "--input_dir", tmp_path, f"--step={step}", code=2)
    assert "--step" in done.stderr and step in done.stderr


@pytest.mark.parametrize("text", ["[]", "7", '{"a":1}x', '{"a":nope}', "\\xff"])
def test_a_configuration_that_no_writing_can_mend_is_damaged(tool, tmp_path, text):  # noqa: F811
    (write(tmp_path / "checkpoint-5") / "config.json").write_text(text)
    done = run(tool, "merge", "--input_dir", tmp_path, code=1)
    assert "config.json" in done.stderr and "still being written" not in done.stderr


@pytest.mark.parametrize("text", ["", '{"a": {"b": 1}', '{"a": "}'])
def test_a_configuration_that_is_being_written_is_waited_for(tool, tmp_path, text):  # noqa: F811
    (write(tmp_path / "checkpoint-5") / "config.json").write_text(text)
    run(tool, "merge", "--input_dir", tmp_path, code=3)


def test_a_step_that_name_and_trainer_tell_differently_is_told(tool, tmp_path):  # noqa: F811
    folder = write(tmp_path / "checkpoint-500")
    (folder / "trainer_state.json").write_text('{"global_step": 499}')
    done = run(tool, "merge", "--input_dir", tmp_path)
    assert "is of step 500 by its name, but of step 499 by its trainer_state.json" in done.stderr
