"""`evalcar init --systemd`: the drop-in of a unit, made from its configuration."""

import os
import pwd
import re
import subprocess

import pytest


def init(bin_dir, *words, **options):
    return subprocess.run([bin_dir / "evalcar", "init", *map(str, words)], capture_output=True, text=True, timeout=60, check=False, **options)


def configuration(folder, **keys):
    path = folder / "my-run.toml"
    path.write_text("".join(f"{name.replace('__', '.')} = {value}\n" for name, value in keys.items()))
    return path


def test_the_drop_in_names_owner_and_writable_folders(bin_dir, tmp_path):
    outputs = [tmp_path / name for name in ("plain", 'with "quotes" and 100 %')]
    for output in outputs:
        output.mkdir()
    names = ", ".join('"' + str(output).replace('"', '\\"') + '"' for output in outputs)

    done = init(bin_dir, "--systemd", "--config", configuration(tmp_path, watch__output_dir=f"[{names}]"))

    assert done.returncode == 0, done.stderr
    assert f"User={pwd.getpwuid(os.geteuid()).pw_name}\n" in done.stdout
    written = str(outputs[1]).replace('"', '\\"').replace("%", "%%")
    assert f'ReadWritePaths="-{outputs[0]}" "-{written}"\n' in done.stdout
    assert f'RequiresMountsFor="{outputs[0]}" "{written}"\n' in done.stdout


def test_the_drop_in_goes_into_the_units_folder_and_replaces_an_older_one(bin_dir, tmp_path):
    (tmp_path / "out").mkdir()
    config = configuration(tmp_path, watch__output_dir=f'"{tmp_path}/out"', publish__dir=f'"{tmp_path}/results/deep"')
    for _ in range(2):
        done = init(bin_dir, "--systemd", tmp_path / "units", "--config", config)
        assert done.returncode == 0, done.stderr

    path = tmp_path / "units/evalcar@my-run.service.d/10-evalcar.conf"
    assert str(path) in done.stdout and "enable --now evalcar@my-run" in done.stdout
    # What does not exist yet can be made: the folder above it is writable.
    assert f'ReadWritePaths="-{tmp_path}" "-{tmp_path}/out"\n' in path.read_text()
    assert path.stat().st_mode & 0o444 == 0o444


def test_the_drop_in_carries_the_limits_of_the_configuration_and_none_by_default(bin_dir, tmp_path):
    (tmp_path / "out").mkdir()
    output = {"watch__output_dir": f'"{tmp_path}/out"'}
    done = init(bin_dir, "--systemd", "--config", configuration(tmp_path, **output))
    assert done.returncode == 0 and not re.search("Weight|Memory|Slice", done.stdout)

    limits = {"limits__cpu_weight": 20, "limits__io_weight": 30, "limits__memory_max": '"64GiB"'}
    done = init(bin_dir, "--systemd", "--config", configuration(tmp_path, **output, **limits))
    assert done.returncode == 0, done.stderr
    service = done.stdout.split("[Service]\n")[1].splitlines()
    assert {"Slice=-.slice", "CPUWeight=20", "IOWeight=30", "MemoryHigh=infinity", f"MemoryMax={64 << 30}"} <= set(service)


def test_a_weight_that_an_older_version_wrote_is_named_when_it_goes_into_the_drop_in(bin_dir, tmp_path):
    (tmp_path / "out").mkdir()
    config = configuration(tmp_path, watch__output_dir=f'"{tmp_path}/out"', limits__cpu_weight=100, limits__io_weight=20)

    done = init(bin_dir, "--systemd", "--config", config)

    assert done.returncode == 0 and "CPUWeight=100\n" in done.stdout
    (line,) = done.stderr.splitlines()
    assert f"{config}:2: limits.cpu_weight = 100" in line and "leave the line out" in line


@pytest.mark.parametrize("of_a_unit", [False, True])
def test_limits_have_no_effect_outside_of_a_unit_and_only_there_that_is_said(bin_dir, tmp_path, of_a_unit):
    config = configuration(tmp_path, watch__output_dir=f'"{tmp_path}/out"', evaluate__tasks='["docvqa_val"]', limits__cpu_weight=20)
    pid = "$$" if of_a_unit else "1"  # as a child of a unit's process inherits it
    command = f'SYSTEMD_EXEC_PID={pid} exec "{bin_dir}/evalcar" run --once --config "{config}"'

    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)

    assert ("limits.cpu_weight = 20 has no effect but" in done.stderr) != of_a_unit, done.stderr


def test_the_drop_in_names_every_place_that_the_agent_writes_to(bin_dir, tmp_path):
    (tmp_path / "out").mkdir()
    config = configuration(tmp_path, watch__output_dir=f'"{tmp_path}/out"', watch__snapshot_dir=f'"{tmp_path}/snapshots"',
                           server__unix_socket=f'"{tmp_path}/socket/evalcar.sock"')  # fmt: skip
    for name in ("snapshots", "socket"):
        (tmp_path / name).mkdir()

    done = init(bin_dir, "--systemd", "--config", config)

    assert f'ReadWritePaths="-{tmp_path}/out" "-{tmp_path}/snapshots" "-{tmp_path}/socket"\n' in done.stdout, done.stderr


def test_what_lies_below_dev_needs_no_word_and_may_be_gone_after_a_boot(bin_dir, tmp_path):
    (tmp_path / "out").mkdir()
    config = configuration(tmp_path, watch__output_dir=f'"{tmp_path}/out"', watch__snapshot_dir='"/dev/shm/evalcar-none"')

    done = init(bin_dir, "--systemd", "--config", config)

    assert f'ReadWritePaths="-{tmp_path}/out"\n' in done.stdout, done.stderr


def test_where_our_folder_lies_beside_the_checkpoints_both_are_writable_as_one(bin_dir, tmp_path):
    """accelerate's own naming. A unit's paths are mounts of their own: no hard link leads from one to another."""
    checkpoint = tmp_path / "project" / "checkpoints" / "checkpoint_0"
    checkpoint.mkdir(parents=True)
    (checkpoint / "random_states_0.pkl").touch()
    config = configuration(tmp_path, watch__output_dir=f'"{checkpoint.parent}"', watch__pattern='"checkpoint_{step}"')

    done = init(bin_dir, "--systemd", "--config", config)

    assert f'ReadWritePaths="-{tmp_path}/project"\n' in done.stdout, done.stderr


@pytest.mark.parametrize("words, said", [
    (["--systemd"], "--config"),
    (["--systemd", "--config", "none.toml"], "none.toml"),
    (["--systemd", "--config", "empty.toml"], "watch.output_dir"),
    (["--systemd", "--config", "my run.toml"], "my run"),
    (["--systemd", "--config", "relative.toml"], "not an absolute path"),
])  # fmt: skip
def test_a_drop_in_that_cannot_be_made_says_why(bin_dir, tmp_path, words, said):
    (tmp_path / "empty.toml").write_text("")
    (tmp_path / "relative.toml").write_text('[watch]\noutput_dir = "runs/a"\n')
    (tmp_path / "my run.toml").write_text(f'[watch]\noutput_dir = "{tmp_path}"\n')

    done = init(bin_dir, *words, cwd=tmp_path)

    assert done.returncode == 2 and said in done.stderr and done.stdout == ""


def test_init_without_it_writes_the_configuration_as_before(bin_dir, tmp_path):
    done = init(bin_dir, tmp_path / "evalcar.toml", "--output-dir", "/data/run1")

    assert done.returncode == 0 and 'output_dir = "/data/run1"' in (tmp_path / "evalcar.toml").read_text()
