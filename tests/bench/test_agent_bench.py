"""`./dev bench` runs the comparison; it prints and asserts nothing."""

import agent_bench
import pytest


@pytest.mark.full
def test_waiting_beside_lmms_evals_server(bin_dir, figures_printed_by):
    figures_printed_by(agent_bench.main, ["--bin-dir", str(bin_dir)])


@pytest.mark.full
def test_watching_1000_old_checkpoints_beside_lmms_evals_server(bin_dir, figures_printed_by):
    figures_printed_by(agent_bench.watch_old, bin_dir, 1000, 240)


@pytest.mark.full
def test_an_evaluation_beside_300_and_beside_3000_that_wait(bin_dir, figures_printed_by):
    figures_printed_by(agent_bench.beside_a_backlog, bin_dir, 300, 3000)
