"""Complete or not, from structure alone: whichever file of a save ends at whichever byte, `evalcar inspect` takes it for incomplete. It is never
complete before its last byte, and not damaged: it may still grow. Of each layout, as its trainer's libraries write it."""

import json
import subprocess

import pytest
import torture_trainer

# Not of the weights; and trainer_state.json, by which the agent knows that a save has ended.
OTHERS = ("tokenizer", "preprocessor_config", "optimizer", "extra_state", "dataloader_state", "rng_state", "README", "zero_to_fp32", "trainer_state")
UNREADABLE, INCOMPLETE = 1, 3


def kinds(bin_dir, folder, base):
    """({kind: whether it is complete}, exit code, what was said)"""
    command = [bin_dir / "evalcar", "inspect", folder, "--json", "--model_name_or_class", base]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    told = json.loads(done.stdout)["kinds"] if done.stdout else []
    return {kind["checkpoint_type"]: kind["state"] == "complete" for kind in told}, done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.full), 97])
@pytest.mark.parametrize("layout", torture_trainer.LAYOUTS)
def test_a_file_that_ends_at_any_byte_is_incomplete(bin_dir, tmp_path, layout, step, record_property):
    base, folder = tmp_path / "base", tmp_path / "checkpoint-5"
    torture_trainer.write_base(base)
    spec = torture_trainer.Spec(str(tmp_path), "", str(tmp_path), str(base), 5, [layout])
    save = getattr(torture_trainer, f"save_{layout}")(spec, 5, "a label")
    files = dict([file for rank in save.ranks for file in rank] + save.last)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    whole, code, said = kinds(bin_dir, folder, base)
    whole = {kind: is_complete for kind, is_complete in whole.items() if kind in save.hashes}
    assert code == 0 and whole == dict.fromkeys(save.hashes, True), said

    cuts = 0
    for name, data in files.items():
        if name.rpartition("/")[2].startswith(OTHERS) or name.startswith(OTHERS):
            continue
        # In the folder of one kind, or of all of them.
        of = {"pytorch_ema_model_fsdp_0": ["ema"], "pytorch_model_fsdp_0": ["regular"]}.get(name.partition("/")[0], list(whole))
        for size in sorted({*range(0, len(data), step), len(data) - 1}):
            (folder / name).write_bytes(data[:size])
            found, code, said = kinds(bin_dir, folder, base)
            expected = {kind: kind not in of for kind in whole}
            assert {kind: found.get(kind, False) for kind in whole} == expected, (name, size, said)
            codes = [0] if expected["regular"] else [INCOMPLETE]
            if name.endswith("/.metadata"):  # torch renames it into place: nobody sees it grow, and a part of it is damaged
                codes.append(UNREADABLE)
            assert code in codes, (name, size, said)
            cuts += 1
        (folder / name).write_bytes(data)
    assert kinds(bin_dir, folder, base)[1] == 0
    record_property("cuts", cuts)
