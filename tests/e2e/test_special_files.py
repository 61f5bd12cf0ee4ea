"""A file of the weights that is none: a FIFO, a device, a folder, a link that leads out of the checkpoint. `evalcar inspect` refuses each at once
and by name, in every layout, and nothing outside is read."""

import os
import subprocess

import pytest
from one_save import LAYOUTS, OneSave


def link_out(path, outside):
    path.rename(outside)  # whole: only its place is wrong
    path.symlink_to(outside)


KINDS = {
    "fifo": lambda path, outside: (path.unlink(), os.mkfifo(path)),
    "device": lambda path, outside: (path.unlink(), os.mknod(path, 0o20666, os.makedev(1, 5))),  # /dev/zero
    "folder": lambda path, outside: (path.unlink(), path.mkdir()),
    "link out": link_out,
    "dangling link": lambda path, outside: (path.unlink(), path.symlink_to(outside)),
    "link to itself": lambda path, outside: (path.unlink(), path.symlink_to(path.name)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_no_file_of_the_checkpoint_is_refused(bin_dir, tmp_path, layout):
    save = OneSave(tmp_path, layout)
    regular = [name for name in save.weights if not name.startswith("pytorch_ema")]  # what `inspect` looks at
    # Weights can be read without a configuration, and a folder of that name is none.
    cases = [(name, kind) for name in regular for kind in KINDS if (name, kind) != ("config.json", "folder")]
    for number, (name, kind) in enumerate(cases):
        folder = tmp_path / str(number) / "checkpoint-5"
        save.write(folder)
        try:
            KINDS[kind](folder / name, tmp_path / f"outside-{number}")
        except PermissionError:
            assert kind == "device"
            continue
        done = subprocess.run(save.inspect(bin_dir, folder, "--hash"), capture_output=True, text=True, timeout=20)
        said = done.stdout + done.stderr
        assert done.returncode in (1, 3), (name, kind, said)
        assert name.rpartition("/")[2] in said, (name, kind, said)
