"""A file of the weights that is none: a FIFO, a device, a folder, a link that leads out of the checkpoint. `evalcar inspect` refuses each at once
and by name, in every layout, and nothing outside is read."""

import os
import subprocess

import pytest
import torture_trainer

OTHERS = ("tokenizer", "preprocessor_config", "optimizer", "extra_state", "dataloader_state", "rng_state", "README", "zero_to_fp32", "trainer_state")


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


@pytest.mark.parametrize("layout", torture_trainer.LAYOUTS)
def test_what_is_no_file_of_the_checkpoint_is_refused(bin_dir, tmp_path, layout):
    base = tmp_path / "base"
    torture_trainer.write_base(base)
    spec = torture_trainer.Spec(str(tmp_path), "", str(tmp_path), str(base), 5, [layout])
    save = getattr(torture_trainer, f"save_{layout}")(spec, 5, "a label")
    files = dict([file for rank in save.ranks for file in rank] + save.last)
    names = [name for name in files if not name.rpartition("/")[2].startswith(OTHERS) and not name.startswith((*OTHERS, "pytorch_ema"))]
    for name in names:
        for number, (kind, change) in enumerate(KINDS.items()):
            if (name, kind) == ("config.json", "folder"):  # weights can be read without a configuration: this is none
                continue
            folder = tmp_path / f"{names.index(name)}-{number}" / "checkpoint-5"
            for each, data in files.items():
                (folder / each).parent.mkdir(parents=True, exist_ok=True)
                (folder / each).write_bytes(data)
            try:
                change(folder / name, tmp_path / f"outside-{names.index(name)}-{number}")
            except PermissionError:
                assert kind == "device"
                continue
            command = [bin_dir / "evalcar", "inspect", folder, "--hash", "--json", "--model_name_or_class", base]
            done = subprocess.run(command, capture_output=True, text=True, timeout=20)
            said = done.stdout + done.stderr
            assert done.returncode in (1, 3), (name, kind, said)
            assert name.rpartition("/")[2] in said, (name, kind, said)
