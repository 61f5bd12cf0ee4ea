"""Complete or not, from structure alone: whichever file of a save ends at whichever byte, `evalcar inspect` takes it for incomplete. It is never
complete before its last byte, and not damaged: it may still grow. Of each layout, as its trainer's libraries write it."""

import json
import subprocess

import pytest
from one_save import LAYOUTS, OneSave

UNREADABLE, INCOMPLETE = 1, 3


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.full), 97])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_that_ends_at_any_byte_is_incomplete(bin_dir, tmp_path, layout, step, record_property):
    save, folder = OneSave(tmp_path, layout), tmp_path / "checkpoint-5"
    save.write(folder)

    def look():
        """({kind: whether it is complete}, exit code, what was said)"""
        done = subprocess.run(save.inspect(bin_dir, folder), capture_output=True, text=True, timeout=60)
        told = {kind["checkpoint_type"]: kind["state"] for kind in (json.loads(done.stdout)["kinds"] if done.stdout else [])}
        return {kind: told.get(kind) == "complete" for kind in save.kinds}, done.returncode, done.stdout + done.stderr

    complete, code, said = look()
    assert code == 0 and all(complete.values()), said
    cuts = 0
    for name in save.weights:
        data = save.files[name]
        # In the folder of one kind, or of all of them.
        of = {"pytorch_ema_model_fsdp_0": ["ema"], "pytorch_model_fsdp_0": ["regular"]}.get(name.partition("/")[0], save.kinds)
        for size in sorted({*range(0, len(data), step), len(data) - 1}):
            (folder / name).write_bytes(data[:size])
            complete, code, said = look()
            assert complete == {kind: kind not in of for kind in save.kinds}, (name, size, said)
            codes = [0] if complete["regular"] else [INCOMPLETE]
            if name.endswith("/.metadata"):  # torch renames it into place: nobody sees it grow, and a part of it is damaged
                codes.append(UNREADABLE)
            assert code in codes, (name, size, said)
            cuts += 1
        (folder / name).write_bytes(data)
    assert look()[1] == 0
    record_property("cuts", cuts)
