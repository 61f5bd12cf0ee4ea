"""Two processes train together (DDP over gloo): the first one logs, both decide alike, and both come to an end."""

import json
import subprocess
import sys

import training
from harness import HERE
from training import results_in


def test_two_ranks_log_once_and_decide_alike(bench, tmp_path):
    scores = {2: 0.3, 4: 0.9, 6: 0.5, 8: 0.4, 10: 0.2}
    bench.tell(values_of_steps=scores)
    sidecar = bench.sidecar().start()
    other, memory, told = tmp_path / "other", tmp_path / "memory", tmp_path / "told"
    program = training.__file__.replace("training.py", "ranks_program.py")
    environment = dict(sidecar.environment, EVALCAR=bench.evalcar, EVALCAR_EVALUATOR=str(HERE / "fake_evaluator.py"), OMP_NUM_THREADS="1")

    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--standalone", program, str(bench.run),
                           str(other), str(memory), str(told)], env=environment, capture_output=True, text=True, timeout=600)  # fmt: skip

    assert done.returncode == 0, done.stderr[-4000:]
    assert sidecar.stop() == 0
    first, second = (json.loads((tmp_path / f"told.{rank}").read_text()) for rank in (0, 1))
    for part in ("best", "snapshots"):  # all but what was logged
        logged, nothing = first[part].pop("logged"), second[part].pop("logged")
        assert (first[part].pop("alone"), second[part].pop("alone")) == (logged, [])
        assert first[part] == second[part]
        assert nothing == []
        run = bench.run if part == "best" else other
        assert logged == sorted(row["global_step"] for row in results_in(run))
    assert done.stderr.count("AsksAll: no results are handed to it: of several ranks on_log would be called on the first one alone") == 2
    assert first["best"]["step"] == 10  # by the scores up to step 8, which the first rank had when step 10 was saved
    assert first["best"]["saves"] == [2, 4, 6, 8, 10]
    assert first["best"]["best"] == 4
    assert (first["snapshots"]["step"], first["snapshots"]["saves"]) == (6, [2, 6])
    assert sorted(row["global_step"] for row in results_in(other)) == [2, 4, 6]
    assert list(memory.iterdir()) == []
    assert first["best"]["place"] == str(bench.run / "checkpoint-4")  # retention spared it: nothing else was kept
    best = training.LlamaForCausalLM.from_pretrained(first["best"]["place"]).state_dict()
    assert first["best"]["weights"] == {name: value.double().sum().item() for name, value in best.items()}
