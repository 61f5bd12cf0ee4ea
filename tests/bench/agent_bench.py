"""What the agent costs while it waits, and how soon it notices a checkpoint; beside it, lmms-eval's own evaluation server.

    build/venv/bin/python tests/bench/agent_bench.py [--bin-dir build/dev/bin] [--span 22] [--folders 40]

Both wait with nothing to do for the same time, one after the other: resident memory, CPU time, time until they are ready. The
agent watches an output directory that already holds checkpoints, all of them done (a scripted evaluator gave their results). Then
checkpoints are written beside it as the trainers write them, with a poll interval longer than the whole run, and the time is taken
from their last file until the agent holds its lease. The server is told of checkpoints and does not look, so that figure has no peer.

`beside_a_backlog` and `watch_old` are for test_agent_bench.py: what an evaluation costs the agent where few and where many checkpoints
wait, and what it takes beside thousands of old ones.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve()
SOURCE = HERE.parents[2]
sys.path[:0] = [str(SOURCE / "tests" / "e2e"), str(SOURCE / "tests" / "fixtures")]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid):
    return int(pathlib.Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def idle(pid, span):
    """{"rss": MiB, "cpu": percent of one core} of a process that has nothing to do for `span` seconds."""
    time.sleep(1)
    before = cpu_seconds(pid)
    time.sleep(span)
    return {"rss": resident_mib(pid), "cpu": 100 * (cpu_seconds(pid) - before) / span}


def until_leased(sidecar, step, kinds):
    """Seconds until the agent holds a lease of every kind of this checkpoint, whose last file has just been written."""
    def leased(agent):
        rows = agent.query(f"SELECT checkpoint_type FROM evaluations WHERE step = {step} AND state NOT IN ('found', 'complete')")
        return kinds <= {kind for (kind,) in rows}

    return sidecar.wait_for(leased, timeout=60, what=f"the lease of step {step}")


def measure_agent(bin_dir, scratch, folders, span, repeats):
    """What `idle` gives, and {layout: [seconds until leased]}."""
    import checkpoints
    from harness import Bench

    bench = Bench(bin_dir, scratch)
    bench.run.mkdir()
    for step in range(1, folders + 1):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar = bench.sidecar("--set", "evaluate.keep_resident=false").start()
    try:
        sidecar.wait_for(lambda s: len(s.published()) == folders, what="all results")
        at_rest = idle(sidecar.process.pid, span)
    finally:
        sidecar.stop()

    first = folders + 1
    shards = scratch / "shards"
    checkpoints.make_shards(shards, range(first + 1, first + 2 * repeats, 2))
    seconds = {"Hugging Face": [], "FSDP2 with EMA": []}
    sidecar = bench.sidecar("--set", "watch.poll_interval=600s").start()
    try:
        sidecar.wait_for(lambda s: s.log().count("watching") == 2, what="the second start")
        time.sleep(1)
        for step in range(first, first + 2 * repeats, 2):
            checkpoints.write_hugging_face(bench.run, step)
            seconds["Hugging Face"].append(until_leased(sidecar, step, {"regular"}))
            checkpoints.write_fsdp2(bench.run, step + 1, shards)
            seconds["FSDP2 with EMA"].append(until_leased(sidecar, step + 1, {"regular", "ema"}))
    finally:
        sidecar.stop()
    return at_rest, seconds


def watch_old(bin_dir, folders, span):
    """What the agent takes while it watches so many old checkpoints and has nothing to do, beside lmms-eval's server; printed."""
    import checkpoints
    from harness import Bench

    with tempfile.TemporaryDirectory(prefix="evalcar-bench-") as name:
        bench = Bench(bin_dir, pathlib.Path(name))
        bench.run.mkdir()
        for step in range(1, folders + 1):
            checkpoints.write_hugging_face(bench.run, step)
        sidecar = bench.sidecar("--set", "evaluate.eval_strategy=no").start()
        try:
            sidecar.wait_for(lambda s: s.query("SELECT count(*) FROM evaluations WHERE state = 'skipped'") == [(folders,)],
                             timeout=300, what="a look at each")  # fmt: skip
            agent = idle(sidecar.process.pid, span)
        finally:
            sidecar.stop()
        server, _ = measure_server(pathlib.Path(name), span)
    print(f"idle for {span:g} s, {folders} old checkpoints in the output directory:")
    print(f"  evalcar run       {agent['rss']:7.1f} MiB resident, {agent['cpu']:.3f} % of a core (aim: 0.1 %)")
    print(f"  lmms-eval serve   {server['rss']:7.1f} MiB resident, {server['cpu']:.3f} % of a core")


class Backlog:
    """A sidecar beside so many checkpoints that wait, and what it takes of a processor for each that is measured."""

    def __init__(self, bench, waiting):
        import checkpoints

        self.bench, self.waiting, self.spent, self.done = bench, waiting, 0.0, 0
        bench.tell(samples=1)
        for step in range(1, waiting + 1):
            checkpoints.write_hugging_face(bench.run, step)
        self.sidecar = bench.sidecar().start()
        self.sidecar.wait_for(lambda _: self.lines() >= 3, timeout=60 + waiting, what="the first results")
        self.pause()

    def lines(self):
        log = self.bench.run / "_evalcar" / "metrics.jsonl"
        return log.read_bytes().count(b"\n") if log.exists() else 0

    def pause(self):
        os.kill(self.sidecar.process.pid, signal.SIGSTOP)

    def measure(self, evaluations):
        """So many more; nobody else's agent runs meanwhile."""
        before, lines = cpu_seconds(self.sidecar.process.pid), self.lines()
        os.kill(self.sidecar.process.pid, signal.SIGCONT)
        self.sidecar.wait_for(lambda _: self.lines() >= lines + evaluations, timeout=60 + evaluations, what="results")
        self.pause()
        self.spent += cpu_seconds(self.sidecar.process.pid) - before
        self.done += self.lines() - lines

    def milliseconds(self):
        return 1000 * self.spent / self.done


def beside_a_backlog(bin_dir, few, many, evaluations=60, rounds=3):
    """What an evaluation takes of a processor where few and where many checkpoints wait, by turns; printed, with the ratio. The
    scripted evaluator answers one document at once: all that is left is the agent's own work."""
    from harness import Bench

    with tempfile.TemporaryDirectory(prefix="evalcar-bench-") as name, contextlib.ExitStack() as running:
        sides = []
        for waiting in (few, many):
            home = pathlib.Path(name) / str(waiting)
            home.mkdir()
            sides.append(Backlog(running.enter_context(Bench(bin_dir, home)), waiting))
        for _ in range(rounds):
            for side in sides:
                side.measure(evaluations)
    print(f"an evaluation of one document, {rounds} rounds of {evaluations}, the agent's own time on a processor:")
    for side in sides:
        print(f"  beside {side.waiting:6d} that wait {side.milliseconds():7.1f} ms")
    print(f"  ratio {sides[1].milliseconds() / sides[0].milliseconds():.2f} at {many / few:.1f} times the backlog")


def measure_server(scratch, span):
    """What `idle` gives for lmms-eval's server, and the seconds until it answers /health."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = time.perf_counter()
    with open(scratch / "server.log", "w") as log:
        server = subprocess.Popen([sys.executable, "-m", "lmms_eval", "serve", "--host", "127.0.0.1", "--port", str(port)], stdout=log, stderr=log)
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).read()
                break
            except OSError:
                assert server.poll() is None and time.perf_counter() - start < 300, (scratch / "server.log").read_text()[-2000:]
                time.sleep(0.05)
        ready = time.perf_counter() - start
        return idle(server.pid, span), ready
    finally:
        server.terminate()
        server.wait()


def start_seconds(*command):
    times = []
    for _ in range(20):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin-dir", type=pathlib.Path, default=SOURCE / "build" / "dev" / "bin")
    parser.add_argument("--span", type=float, default=22, help="seconds of waiting; longer than two poll intervals")
    parser.add_argument("--folders", type=int, default=40, help="checkpoints that are there already")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="evalcar-bench-") as name:
        agent, seconds = measure_agent(args.bin_dir, pathlib.Path(name), args.folders, args.span, args.repeats)
        server, ready = measure_server(pathlib.Path(name), args.span)
    version = start_seconds(str(args.bin_dir / "evalcar"), "--version")
    python = start_seconds("/usr/bin/python3", "-c", "pass")
    print(f"idle for {args.span:g} s, {args.folders} evaluated checkpoints in the output directory:")
    print(f"  evalcar run       {agent['rss']:7.1f} MiB resident, {agent['cpu']:.3f} % of a core (aims: 20 MiB, 0.1 %)")
    print(f"  lmms-eval serve   {server['rss']:7.1f} MiB resident, {server['cpu']:.3f} % of a core; {ready:.1f} s until it answers")
    print(f"  ratio of memory {agent['rss'] / server['rss']:.3f}")
    for layout, each in seconds.items():
        print(f"  {layout}: leased {statistics.median(each):.3f} s after its last file, at most {max(each):.3f} s (aim: 1 s)")
    print(f"  evalcar --version {1000 * version:.1f} ms (aim: 20 ms), python3 -c pass {1000 * python:.1f} ms: ratio {version / python:.2f}")


if __name__ == "__main__":
    main()
