"""The two sides of engine_bench.py: transformers in a process of its own that stays, and the engine through engine_probe.

As a program (`engine_sides.py FOLDER THREADS`) it loads FOLDER/checkpoint in float32, then answers each line {"batch": N}, maybe with
"count" (the first so many requests alone) or "once", with {"answers", "seconds"}.
Greedy answers: longest prompt first, left-padded, sdpa, one generate() a batch; the same picture of two questions is encoded twice, as
lmms-eval's wrappers do.
Given tokens, as lm-eval's HFLM: each context + choice a row of its own, longest first, right-padded, log_softmax over all positions.
"once": each context one row, as its logits_cache (0.4.2 on) does where all choices are one token.
"""

import json
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1] / "fixtures"))


class Peer:
    """A peer's process: `program` as this file describes itself. In a `with` it ends in the end."""

    def __init__(self, folder, threads, program=HERE):
        self.process = subprocess.Popen([sys.executable, str(program), str(folder), str(threads)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)  # fmt: skip
        self.program = program
        self.read()  # it is ready

    def read(self):
        line = self.process.stdout.readline()
        assert line, f"{self.program.name} ended with {self.process.wait()}"
        return json.loads(line)

    def run(self, batch, **how):
        """(answers, seconds)"""
        self.process.stdin.write(json.dumps({"batch": batch, **how}) + "\n")
        self.process.stdin.flush()
        told = self.read()
        return told["answers"], told["seconds"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(60)


def run_engine(folder, bin_dir, threads):
    """(answers, seconds) of the second of two runs over resident weights; answers as the peer's."""
    import engine_cases as cases

    scene = json.loads((folder / "scene.json").read_text())
    pictures = cases.Pictures(folder)
    pictures.entries = scene["pictures"]
    run = {"folder": str(folder / "checkpoint"), "requests": scene["requests"], "repeat": 2}
    (result,) = cases.run_probe(bin_dir, folder, [run], pictures, threads=threads, **scene["options"])["runs"]
    assert "error" not in result, result
    return [a["scores"] if "scores" in a else a["tokens"] for a in result["answers"]], result["seconds"][-1]


def same(ours, theirs, rounding=5e-6):
    """Tokens are equal; log-likelihoods are those of float32 sums in another order, and the tokens and the best choice equal. `rounding`:
    what that makes of a likelihood; more in a deeper model."""
    if not ours or not isinstance(ours[0], list):
        return ours == theirs
    close = all(abs(a[0] - b[0]) <= 1e-4 + rounding * abs(b[0]) and a[1:] == b[1:] for a, b in zip(ours, theirs, strict=True))
    best = [max(range(len(scores)), key=lambda i: scores[i][0]) for scores in (ours, theirs)]  # noqa: B023: called at once
    return close and best[0] == best[1]


# ---- from here on: inside of the peer's process ----


def ends(tokens, stops):
    return tokens[: next((i for i, token in enumerate(tokens) if token in stops), len(tokens))]


def generate(model, scene, arrays, batch):
    import engine_cases as cases

    requests, ids, answers = scene["requests"], scene["ids"], {}
    order = sorted(range(len(requests)), key=lambda i: -len(requests[i]["tokens"]))
    for first in range(0, len(order), batch):
        chosen = order[first : first + batch]
        stops = requests[chosen[0]].get("stop_ids", [])
        pictures = [[arrays[j] for j in requests[i].get("images", [])] for i in chosen]
        inputs = cases.batch_inputs(ids, [requests[i]["tokens"] for i in chosen], pictures, model.device)
        out = model.generate(**inputs, do_sample=False, max_new_tokens=scene["steps"], eos_token_id=stops or None, pad_token_id=ids["<|endoftext|>"])
        rows = out[:, inputs["input_ids"].shape[1] :].tolist()
        answers.update((i, ends(row, set(stops))) for i, row in zip(chosen, rows, strict=True))
    return [answers[i] for i in range(len(requests))]


def score(model, scene, batch, once=False):
    import torch

    rows = []  # (request, choices that are read from it, tokens)
    for i, request in enumerate(scene["requests"]):
        many = request["continuations"]
        groups = [(range(len(many)), request["tokens"])] if once else [([c], (request["tokens"] + many[c])[:-1]) for c in range(len(many))]
        rows += [(i, chosen, tokens) for chosen, tokens in groups]
    rows.sort(key=lambda row: -len(row[2]))
    answers = [[None] * len(request["continuations"]) for request in scene["requests"]]
    for first in range(0, len(rows), batch):
        chosen = rows[first : first + batch]
        inputs = torch.zeros(len(chosen), max(len(tokens) for _, _, tokens in chosen), dtype=torch.long)
        for row, (_, _, tokens) in enumerate(chosen):
            inputs[row, : len(tokens)] = torch.tensor(tokens)
        scores = torch.log_softmax(model(inputs.to(model.device)).logits.float(), -1)
        for row, (i, which, tokens) in enumerate(chosen):
            for c in which:
                targets = torch.tensor(scene["requests"][i]["continuations"][c], device=scores.device)
                own = scores[row, len(tokens) - len(targets) : len(tokens)]
                likely = own.gather(1, targets[:, None]).sum().item()
                answers[i][c] = [likely, len(targets), bool((own.argmax(-1) == targets).all())]
    return answers


def serve(folder, threads):
    import numpy as np
    import torch
    import transformers

    torch.set_num_threads(threads)
    scene = json.loads((folder / "scene.json").read_text())
    factory = transformers.Qwen2_5_VLForConditionalGeneration if scene["pixels"] else transformers.AutoModelForCausalLM
    model = factory.from_pretrained(folder / "checkpoint", dtype=torch.float32).eval()
    arrays = [np.fromfile(e["rgb"], np.uint8).reshape(e["height"], e["width"], 3) for e in scene["pictures"]]
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        asked = {**scene, "requests": scene["requests"][: told.get("count")]}
        start = time.perf_counter()
        with torch.inference_mode():
            if scene["steps"]:
                answers = generate(model, asked, arrays, told["batch"])
            else:
                answers = score(model, asked, told["batch"], told.get("once", False))
        print(json.dumps({"answers": answers, "seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    serve(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
