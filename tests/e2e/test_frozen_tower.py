"""What a vision tower made of pictures serves the checkpoints that have the same tower, through the evaluator and the agent."""

import json
import re
import shutil

import checkpoints
import numpy as np
import pytest
import small_models
from evaluator import Evaluator
from fixtures import data_sets
from safetensors import numpy as safetensors

TASKS = ["docvqa_val", "mmmu_val"]
ROOM = ("--encoded-pictures-bytes", str(1 << 30))


@pytest.fixture(scope="module")
def scene(tmp_path_factory, bin_dir, cache_dir):
    """([a checkpoint, one with another language model under the same tower], their data)"""
    if not (bin_dir / "evalcar-evaluator").exists():
        pytest.skip("evalcar-evaluator is not built (EVALCAR_EVALUATOR=OFF)")
    root = tmp_path_factory.mktemp("frozen")
    small_models.write_model(root / "a", small_models.SmallModel(seed=5, layers=2), cache_dir=cache_dir)
    shutil.copytree(root / "a", root / "b")
    tensors = safetensors.load_file(root / "b/model.safetensors")
    for name in tensors:
        if "visual." not in name and tensors[name].ndim == 2:
            tensors[name] = np.roll(tensors[name], 1, axis=0)
    safetensors.save_file(tensors, root / "b/model.safetensors", metadata={"format": "pt"})
    return [root / "a", root / "b"], data_sets.write_all(root / "data", 6, 1, 6)


def scored(bin_dir, folders, data, log, *arguments):
    """The lines of each checkpoint, with the names of their small pictures, from one new process."""
    found = []
    with open(log, "ab") as stream, Evaluator(bin_dir, *arguments, log=stream) as evaluator:
        for job, folder in enumerate(folders):
            evaluator.load(folder, job=str(job))
            evaluator.evaluate(data, TASKS, job=str(job))
            evaluator.wait_for("result")
            found.append([(message["task"], message["line"], message.get("pictures")) for message in evaluator.heard
                          if message["type"] == "scored" and message["id"] == str(job)])  # fmt: skip
        evaluator.say("bye")
    return found


def test_the_next_checkpoint_takes_every_picture_says_so_and_scores_as_it_does_alone(bin_dir, scene, tmp_path):
    folders, data = scene
    small = tmp_path / "small"
    shown = ["--sample-pictures", str(small), "--sample-pictures-bytes", str(1 << 30)]
    alone = [scored(bin_dir, [folder], data, tmp_path / "plain.log", *shown)[0] for folder in folders]
    shutil.rmtree(small)

    together = scored(bin_dir, [*folders, folders[0]], data, tmp_path / "log", *ROOM, *shown)

    assert together == [*alone, alone[0]] and alone[0] != alone[1]
    assert "encoded" not in (tmp_path / "plain.log").read_text()
    told = re.findall(r"^pictures: (\d+) of (\d+) taken as the same vision tower had encoded them before$", (tmp_path / "log").read_text(), re.M)
    assert len(told) == 2 and all(taken == every and int(every) > 6 for taken, every in told)


@pytest.mark.parametrize("size, passed", [(None, 16 << 30), ("1GiB", 1 << 30), ("0", None)])
def test_the_agent_says_how_much_memory_they_may_take(bench, size, passed):
    bench.tell(log_arguments=True)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar = bench.sidecar(*(["--set", f"limits.encoded_pictures={size}"] if size else []))

    assert sidecar.once() == 0, sidecar.log()

    arguments = json.loads(bench.heard("arguments")[0].split(" ", 1)[1])
    told = dict(zip(arguments, arguments[1:]))
    assert told.get("--encoded-pictures-bytes") == (str(passed) if passed else None)
