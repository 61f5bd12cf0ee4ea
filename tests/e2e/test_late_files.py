"""Small files that come after a checkpoint is complete: a callback behind the save writes them, or somebody who forgot them."""

import os
import shutil

import checkpoints
import pytest
from harness import hash_of


def lease(bench, name):
    folder = bench.run / "_evalcar" / "leases" / name
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("moment", ["quarantined", "measured", "being measured"])
def test_the_newest_files_of_a_checkpoint_are_those_that_are_measured_with(bench, moment):
    folder = checkpoints.write_hugging_face(bench.run, 5)
    if moment == "quarantined":
        bench.tell(error={"kind": "checkpoint", "message": "no chat template", "retryable": False})
    if moment == "being measured":
        bench.tell(delay=600)
    sidecar = bench.sidecar("--set", "watch.poll_interval=1s", "--set", "watch.settle_time=1s").start()
    state = {"quarantined": "quarantined", "measured": "published", "being measured": "evaluating"}[moment]
    sidecar.wait_for(lambda s: s.states().get((5, "regular"), ("",))[0] == state, what=state)
    assert "chat_template.jinja" not in lease(bench, "5-1-regular")

    bench.tell(at_sample={"doc": 3, "do": "wait", "until": str(bench.home / "go")})
    (folder / "chat_template.jinja").write_text("{{ messages }}")

    # Its weights are known, but what they are asked with is another: the scripted evaluator says nothing of that.
    sidecar.wait_for(lambda s: s.query("SELECT max(generation) FROM checkpoint") == [(2,)], what="the second generation")
    if moment != "measured":
        sidecar.wait_for(lambda s: "chat_template.jinja" in lease(bench, "5-2-regular"), what="the lease of all files")
    (bench.home / "go").touch()
    ends = [("superseded" if moment == "measured" else "published",)]
    sidecar.wait_for(lambda s: s.query("SELECT state FROM evaluations WHERE generation = 2") == ends, what="its end", timeout=60)
    assert sidecar.stop() == 0
    (line,) = sidecar.metrics_lines()
    assert (line["global_step"], line["weights_sha256"]) == (5, hash_of(bench.evalcar, folder, "regular"))


def test_a_copy_that_keeps_times_is_measured_with_all_of_its_files(bench):
    """cp -a, rsync -a, or mv out of another file system: trainer_state.json, which a trainer writes last, may be one of the first."""
    made = checkpoints.write_hugging_face(bench.home / "elsewhere", 5)
    (made / "generation_config.json").write_text("{}")
    for file in made.iterdir():
        os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns - 3_600_000_000_000))
    sidecar = bench.sidecar("--set", "watch.poll_interval=1s", "--set", "watch.settle_time=6s").start()
    copied = bench.run / "checkpoint-5"
    copied.mkdir()
    for file in made.iterdir():
        if file.name != "generation_config.json":
            shutil.copy2(file, copied)

    sidecar.wait_for(lambda s: (5, "regular") in s.states(), what="its row")
    sidecar.wait_for(lambda s: "a copy that has kept its time" in s.states()[5, "regular"][1], what="that it is a copy")
    shutil.copy2(made / "generation_config.json", copied)

    sidecar.wait_for(lambda s: (5, "regular") in s.published(), timeout=60, what="its result")
    assert sidecar.stop() == 0
    assert sidecar.query("SELECT max(generation) FROM checkpoint") == [(1,)]
    (line,) = sidecar.metrics_lines()
    assert line["weights_sha256"] == hash_of(bench.evalcar, copied, "regular")
