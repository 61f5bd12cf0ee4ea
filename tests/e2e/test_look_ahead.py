"""The next checkpoint's weights are named to the evaluator while the present one is evaluated (evaluate.prefetch), with a
scripted evaluator."""

import checkpoints
import pytest
from harness import check_published_once, hash_of


def hold(bench):
    """The first evaluation stands still at its second document, until the file that is returned is there."""
    goes_on = bench.home / "goes-on"
    bench.tell(at_sample={"doc": 1, "do": "wait", "until": str(goes_on), "once": str(bench.home / "stands")})
    return goes_on


def loaded(bench):
    """Names of the leases that were loaded."""
    return [line.split()[1].rsplit("/", 1)[1] for line in bench.heard("load ")]


def read_ahead(bench):
    return [line.split()[1] for line in bench.heard("prefetch")]


def check_all(bench, sidecar, folders):
    sidecar.wait_for(lambda s: len(s.published()) == len(folders), what="all results")
    assert sidecar.stop() == 0
    check_published_once(sidecar, {(step, "regular"): hash_of(bench.evalcar, folder, "regular") for step, folder in folders.items()})


@pytest.mark.parametrize("policy, order", [("every", (5, 10, 15)), ("newest-first", (15, 10, 5))])
def test_each_checkpoint_but_the_first_is_read_ahead_and_found_there(bench, policy, order):
    folders = {step: checkpoints.write_hugging_face(bench.run, step) for step in sorted(order)}
    goes_on = hold(bench)
    sidecar = bench.sidecar("--set", f"evaluate.policy={policy}").start()
    sidecar.wait_for(lambda s: read_ahead(bench), what="what is next")
    assert loaded(bench) == [f"{order[0]}-1-regular"]
    assert read_ahead(bench) == [f"{order[1]}-1-regular"]
    bench.tell(delay=0.2)  # each of the others lasts longer than a turn
    goes_on.touch()
    check_all(bench, sidecar, folders)

    names = [f"{step}-1-regular" for step in order]
    assert (loaded(bench), read_ahead(bench)) == (names, names[1:])
    loads = [line for line in sidecar.log().splitlines() if " tensors, " in line]
    assert ["(read ahead)" in line for line in loads] == [False, True, True], loads


def test_a_newer_checkpoint_takes_the_place_of_what_was_read_ahead(bench):
    folders = {step: checkpoints.write_hugging_face(bench.run, step) for step in (5, 10)}
    goes_on = hold(bench)
    sidecar = bench.sidecar().start()
    sidecar.wait_for(lambda s: read_ahead(bench) == ["5-1-regular"], what="what is next")
    folders[15] = checkpoints.write_hugging_face(bench.run, 15)
    sidecar.wait_for(lambda s: read_ahead(bench) == ["5-1-regular", "15-1-regular"], what="the newer one")
    goes_on.touch()
    check_all(bench, sidecar, folders)
    assert loaded(bench) == ["10-1-regular", "15-1-regular", "5-1-regular"]


def test_nothing_is_read_ahead_where_it_is_not_wanted(bench):
    folders = {step: checkpoints.write_hugging_face(bench.run, step) for step in (5, 10)}
    bench.tell(delay=0.3)
    sidecar = bench.sidecar("--set", "evaluate.prefetch=false").start()
    check_all(bench, sidecar, folders)
    assert len(loaded(bench)) == 2 and read_ahead(bench) == []
    assert "(read ahead)" not in sidecar.log()
