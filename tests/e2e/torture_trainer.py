"""A trainer that does what trainers do on their worst days, and keeps account of what it really saved.

    trainer = TortureTrainer(home, run, steps=30, layouts=["fsdp2", "hf"]).start()
    trainer.wait(); score(trainer.events(), sidecar.metrics_lines())

It saves checkpoints with W writer processes that pause in the middle of files, prunes by lmms-engine's rule or by the rotation
of the Hugging Face Trainer (both strict: what they cannot delete, or a name that they do not know, ends the training), rewrites
checkpoints in place with the same and with other weights, leaves saves half done, lets files appear late and out of order as
NFS does, is killed at random moments and goes on. The ledger, one JSON line an event, says what each save held; whoever
measures the run is compared with it. The hashes in it are computed here, from the tensors, by the definition of weights_sha256.

This file is also the program that the class starts: one process that has imported torch forks the trainer, again after each
kill, and the trainer forks its writers."""

import ctypes
import dataclasses
import hashlib
import io
import json
import math
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback

TOKENIZER = {"tokenizer.json": b"{}", "tokenizer_config.json": b"{}", "preprocessor_config.json": b"{}"}
CONFIG = json.dumps({"model_type": "qwen2_5_vl", "architectures": ["X"]}).encode()
LAYOUTS = ("hf", "hf_indexed", "bin", "lora", "fsdp2", "dcp", "deepspeed")
ONE_WRITER = ("hf", "hf_indexed", "bin", "lora")  # rank 0 writes all that is of weights


@dataclasses.dataclass
class Spec:
    run: str
    ledger: str
    scratch: str  # on the run's file system, outside of it
    base: str  # the folder of the model that adapters are of
    steps: int
    layouts: list
    interval: float = 1.0
    world_size: int = 2
    rotation: str = "lmms-engine"  # or "hugging-face"
    limit: int = 2
    pause: float = 0.02  # the longest of a writer, in each file
    late: float = 0.0  # part of the saves whose files appear late and out of order
    again: float = 0.0  # part of the saves that are written once more in place
    half: float = 0.0  # part of the saves that are left half done
    life: list = dataclasses.field(default_factory=list)  # shortest and longest time until the trainer is killed; empty: never
    away: float = 0.0  # how long it takes to come back
    seed: int = 1


class TortureTrainer:
    """Runs the program beside a test. `home`: a folder for its own files, outside of the output directory."""

    def __init__(self, home, run, *, steps, layouts, **settings):
        self.home = pathlib.Path(home)
        self.ledger = self.home / "ledger.jsonl"
        scratch = self.home / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        self.base = self.home / "base"
        write_base(self.base)
        self.spec = Spec(str(run), str(self.ledger), str(scratch), str(self.base), steps, list(layouts), **settings)
        self.process = None

    def arguments(self):
        """What an agent beside it has to be told."""
        return ("--set", f"evaluate.base_model={self.base}") if "lora" in self.spec.layouts else ()

    def start(self, within=()):
        """within: a command that runs another one, in front of it."""
        (self.home / "spec.json").write_text(json.dumps(dataclasses.asdict(self.spec)))
        with open(self.home / "trainer.log", "a") as log:
            self.process = subprocess.Popen([*within, sys.executable, __file__, str(self.home / "spec.json")], stdout=log, stderr=log,
                                            env=dict(os.environ, OMP_NUM_THREADS="1"), start_new_session=True)  # fmt: skip
        return self

    def running(self):
        return self.process.poll() is None

    def wait(self, timeout):
        code = self.process.wait(timeout)
        assert code == 0, f"the trainer ended with {code}:\n{(self.home / 'trainer.log').read_text()[-3000:]}"

    def stop(self):
        if self.process and self.running():
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def events(self):
        return read_ledger(self.ledger)


# ---- the account of what was saved, and the score by it


def read_ledger(path):
    path = pathlib.Path(path)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def note(path, event, **facts):
    """One write of a whole line: a kill leaves none half done."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, (json.dumps({"event": event, **facts}) + "\n").encode())
    os.close(fd)


def expected_points(events):
    """{(step, kind): hash of what its last whole save held}"""
    points = {}
    for event in events:
        if event["event"] == "done":
            points.update({(event["step"], kind): sha256 for kind, sha256 in event["hashes"].items()})
    return points


def score(events, lines, expected_value):
    """How many points are there, once, at the right step, for the right weights: (right, of how many, [what is wrong]).

    A rewritten checkpoint may have a line for each of its contents; the last one counts, no content has two, and whatever is
    published was whole at some time. expected_value(sha256): the number that these weights must have."""
    points = expected_points(events)
    whole = {(e["step"], kind, sha256) for e in events if e["event"] == "done" for kind, sha256 in e["hashes"].items()}
    # A kill between the last file and the note of it leaves a whole checkpoint: measured by its hash, it was one, though no point is
    # expected of it.
    whole |= {(e["step"], kind, sha256) for e in events if e["event"] == "begin" and not e["half"] for kind, sha256 in e["hashes"].items()}
    wrong, by_point = [], {}
    for line in lines:
        key = (line["global_step"], line["checkpoint_type"])
        if (*key, line["weights_sha256"]) not in whole:
            wrong.append(f"{key}: {line['weights_sha256'][:12]} was never saved there")
        by_point.setdefault(key, []).append(line)
    right = 0
    for key, sha256 in points.items():
        of_step = by_point.get(key, [])
        hashes = [line["weights_sha256"] for line in of_step]
        prefix = "eval_ema" if key[1] == "ema" else "eval"
        if not of_step:
            wrong.append(f"{key}: no point")
        elif len(set(hashes)) != len(hashes):
            wrong.append(f"{key}: {len(hashes)} lines of {len(set(hashes))} contents")
        elif hashes[-1] != sha256:
            wrong.append(f"{key}: the last line is of {hashes[-1][:12]}, saved last was {sha256[:12]}")
        elif abs(of_step[-1]["metrics"][f"{prefix}/docvqa_val/anls"] - expected_value(sha256)) > 1e-9:
            wrong.append(f"{key}: the number is not that of its weights")
        else:
            right += 1
    return right, len(points), wrong


def weights_sha256(tensors):
    """Of {name: tensor}, by the definition: one line a tensor, sorted by name."""
    lines = []
    for name in sorted(tensors, key=str.encode):
        tensor = tensors[name].contiguous()
        data = hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
        lines.append(f"{name}\t{str(tensor.dtype).removeprefix('torch.')}\t{','.join(map(str, tensor.shape))}\t{data}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


# ---- what a save consists of, by layout: real files of the real libraries, in the order of the real trainers


def make_tensors(label):
    """Weights that no other label has; the first dimension divides by no usual number of ranks."""
    import torch

    generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(label.encode()).digest()[:7], "big"))
    return {"model.w": torch.randn(11, 8, generator=generator), "model.b": torch.randn(5, generator=generator)}


def saved(state):
    import torch

    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


@dataclasses.dataclass
class Save:
    """ranks: what each writer writes, in its own order, all of them at once; last: by rank 0, after all of that."""
    hashes: dict
    folders: list
    ranks: list
    last: list


def trainer_state(spec, step):
    state = {"global_step": step, "max_steps": 5 * spec.steps, "save_steps": 5, "epoch": step / 50, "log_history": []}
    return "trainer_state.json", json.dumps(state).encode()


def other_ranks(spec):
    return [[(f"rng_state_{rank}.pth", b"rng")] for rank in range(1, spec.world_size)]


def save_hf(spec, step, label):
    """One process writes; trainer_state.json comes last (transformers 5)."""
    from safetensors.torch import save

    tensors = make_tensors(label)
    files = [("config.json", CONFIG), ("model.safetensors", save(tensors, {"format": "pt"})), *TOKENIZER.items(),
             ("optimizer.pt", b"optimizer")]
    return Save({"regular": weights_sha256(tensors)}, [], [files, *other_ranks(spec)], [trainer_state(spec, step)])


def save_hf_indexed(spec, step, label):
    from safetensors.torch import save

    tensors = make_tensors(label)
    shards = {f"model-0000{i}-of-00002.safetensors": name for i, name in enumerate(sorted(tensors), start=1)}
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())},
             "weight_map": {name: shard for shard, name in shards.items()}}
    files = [("config.json", CONFIG)]
    files += [(shard, save({name: tensors[name]}, {"format": "pt"})) for shard, name in shards.items()]
    files += [("model.safetensors.index.json", json.dumps(index).encode()), *TOKENIZER.items(), ("optimizer.pt", b"optimizer")]
    return Save({"regular": weights_sha256(tensors)}, [], [files, *other_ranks(spec)], [trainer_state(spec, step)])


def save_bin(spec, step, label):
    """As save_hf, by a Trainer with save_safetensors=False."""
    tensors = make_tensors(label)
    files = [("config.json", CONFIG), ("pytorch_model.bin", saved(tensors)), *TOKENIZER.items(), ("optimizer.pt", b"optimizer")]
    return Save({"regular": weights_sha256(tensors)}, [], [files, *other_ranks(spec)], [trainer_state(spec, step)])


def write_base(folder):
    """A model for adapters, without torch: the test makes it, and the agent is started before the trainer."""
    dice = random.Random("base")
    tensors = {"model.b": [5], "model.w.weight": [11, 8]}
    header, data = {}, b""
    for name, shape in tensors.items():
        values = [dice.uniform(-1, 1) for _ in range(math.prod(shape))]
        packed = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    for name, content in {"config.json": CONFIG, **TOKENIZER}.items():
        (folder / name).write_bytes(content)


def save_lora(spec, step, label):
    """PEFT's adapter by the Hugging Face Trainer: adapter_config.json behind its tensors. Its entries are small whole numbers, so that
    B·A is exact in any order, and the merged weights have the bits of W + s·B·A."""
    import torch
    from safetensors.torch import load_file, save

    generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(label.encode()).digest()[:7], "big"))
    a = torch.randint(-9, 10, (2, 8), generator=generator).float()
    b = torch.randint(-9, 10, (11, 2), generator=generator).float()
    base = load_file(f"{spec.base}/model.safetensors")
    merged = {**base, "model.w.weight": base["model.w.weight"] + 2.0 * (b @ a)}
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": spec.base, "r": 2, "lora_alpha": 4,
              "target_modules": ["w"], "bias": "none", "fan_in_fan_out": False, "use_rslora": False, "use_dora": False,
              "modules_to_save": None, "rank_pattern": {}, "alpha_pattern": {}}  # fmt: skip
    names = {"base_model.model.model.w.lora_A.weight": a, "base_model.model.model.w.lora_B.weight": b}
    files = [("README.md", b"---"), ("adapter_model.safetensors", save(names, {"format": "pt"})),
             ("adapter_config.json", json.dumps(config).encode()), *TOKENIZER.items(), ("optimizer.pt", b"optimizer")]
    return Save({"regular": weights_sha256(merged)}, [], [files, *other_ranks(spec)], [trainer_state(spec, step)])


def save_deepspeed(spec, step, label):
    """ZeRO stage 3 by the Hugging Face Trainer: each parameter flat, padded and cut, fp32; `latest` is no mark, trainer_state.json is.
    As DeepSpeed writes it, but for its objects around the tensors (test_torture.py has DeepSpeed itself read it)."""
    import collections

    import torch

    world, folder = spec.world_size, f"global_step{step}"
    tensors = make_tensors(label)
    shapes = collections.OrderedDict((name, whole.shape) for name, whole in tensors.items())

    def cut(whole, rank):
        size = -(-whole.numel() // world)
        return torch.cat([whole.flatten(), torch.zeros(size * world - whole.numel())])[rank * size:(rank + 1) * size]

    ranks = []
    for rank in range(world):
        flat = torch.cat([cut(whole, rank) for whole in tensors.values()])
        model = {"module": {}, "buffer_names": [], "param_shapes": [shapes], "shared_params": {}, "frozen_param_shapes": None,
                 "frozen_param_fragments": None, "ds_version": "0.19.8"}  # fmt: skip
        optimizer = {"optimizer_state_dict": {"zero_stage": 3, "partition_count": world, "fp32_flat_groups": [flat]}}
        ranks.append([(f"{folder}/zero_pp_rank_{rank}_mp_rank_00_model_states.pt", saved(model)),
                      (f"{folder}/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", saved(optimizer))])  # fmt: skip
    ranks[0] = [("config.json", CONFIG), *TOKENIZER.items(), *ranks[0], ("latest", folder.encode()), ("zero_to_fp32.py", b"#")]
    return Save({"regular": weights_sha256(tensors)}, [folder], ranks, [trainer_state(spec, step)])


_meshes = {}


def meshes_of(world_size):
    """Of each rank its mesh, as the trainer makes it; one process plays the ranks over torch's fake process group."""
    import torch.distributed as dist
    from fsdp2_checkpoints import _training_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if world_size not in _meshes:
        _meshes[world_size] = []
        for rank in range(world_size):
            dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
            _meshes[world_size].append(_training_mesh(world_size, None))
            dist.destroy_process_group()
    return _meshes[world_size]


def shard_of(whole, mesh, rank, world_size):
    """The DTensor of one rank, padded in its storage as FSDP2 pads it."""
    import torch
    from torch.distributed.tensor import DTensor, Shard

    chunk = -(-whole.shape[0] // world_size)
    mine = whole[rank * chunk:(rank + 1) * chunk]
    local = torch.zeros([chunk, *whole.shape[1:]], dtype=whole.dtype)[:mine.shape[0]]
    local.copy_(mine)
    return DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=whole.shape, stride=whole.stride())


def save_fsdp2(spec, step, label):
    """lmms-engine's fsdp2_trainer: all ranks in parallel, then rank 0 the processor and config.json."""
    import collections

    world = spec.world_size
    kinds = {"regular": "pytorch_model_fsdp_0", "ema": "pytorch_ema_model_fsdp_0"}
    tensors = {kind: make_tensors(f"{label} {kind}") for kind in kinds}
    ranks = []
    for rank, mesh in enumerate(meshes_of(world)):
        files = []
        for kind, folder in kinds.items():
            shards = {name: shard_of(whole, mesh, rank, world) for name, whole in tensors[kind].items()}
            files.append((f"{folder}/model_world_size_{world}_rank_{rank}.pt", saved(collections.OrderedDict(shards))))
        for name in ("optimizer", "extra_state", "dataloader_state"):
            files.append((f"{name}/{name}_world_size_{world}_rank_{rank}.pt", saved({"step": step})))
        ranks.append(files)
    return Save({kind: weights_sha256(t) for kind, t in tensors.items()},
                [*kinds.values(), "optimizer", "extra_state", "dataloader_state"], ranks, [*TOKENIZER.items(), ("config.json", CONFIG)])


def save_dcp(spec, step, label):
    """Shards of torch.distributed.checkpoint, .metadata behind them (accelerate's SHARDED_STATE_DICT), configuration beside."""
    import torch.distributed.checkpoint as dcp

    tensors = make_tensors(label)
    scratch = pathlib.Path(spec.scratch) / "dcp"
    shutil.rmtree(scratch, ignore_errors=True)
    writer = dcp.FileSystemWriter(scratch, thread_count=spec.world_size, sync_files=False)
    dcp.save({"model": tensors}, storage_writer=writer, no_dist=True)
    folder = "pytorch_model_fsdp_0"
    data = sorted(path.name for path in scratch.glob("*.distcp"))
    ranks = [[(f"{folder}/{name}", (scratch / name).read_bytes()) for name in data[rank::spec.world_size]] for rank in range(spec.world_size)]
    metadata = (f"{folder}/.metadata", (scratch / ".metadata").read_bytes())
    ranks[0] = [("config.json", CONFIG), *TOKENIZER.items(), *ranks[0]]
    return Save({"regular": weights_sha256(tensors)}, [folder], ranks, [metadata, trainer_state(spec, step)])


# ---- writing


def write_in_place(path, data, dice, pause):
    """Under the final name from the first byte on, with a pause somewhere in the middle."""
    if path.name == ".metadata":  # DCP's own way
        temporary = path.with_name(".metadata.tmp")
        temporary.write_bytes(data)
        path.unlink(missing_ok=True)
        time.sleep(dice.uniform(0, pause))
        temporary.rename(path)
        return
    cut = dice.randrange(len(data) + 1)
    with open(path, "wb", buffering=0) as file:
        file.write(data[:cut])
        time.sleep(dice.uniform(0, pause))
        file.write(data[cut:])


def fork(work):
    """The pid of a child that does this and ends, and that never outlives its parent."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        work()
        code = 0
    finally:
        os._exit(code)


def in_parallel(works):
    """Each in a process of its own; one that fails is an error here."""
    children = [fork(work) for work in works]
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    if failed:
        raise RuntimeError(f"{len(failed)} writers failed")


def write_save(spec, folder, save, dice, late):
    for name in ["", *save.folders]:
        (folder / name).mkdir(exist_ok=True)
    seeds = [dice.random() for _ in save.ranks]
    if not late:
        def rank_work(files, seed):
            own = random.Random(seed)
            for name, data in files:
                write_in_place(folder / name, data, own, spec.pause)

        in_parallel([lambda f=files, s=seed: rank_work(f, s) for files, seed in zip(save.ranks, seeds)])
        for name, data in save.last:
            write_in_place(folder / name, data, dice, spec.pause)
        return
    # Written in the right order elsewhere, seen here in another one: a client that caches names.
    staged = []
    for number, (name, data) in enumerate([file for files in save.ranks for file in files] + save.last):
        path = pathlib.Path(spec.scratch) / f"late-{number}"
        path.write_bytes(data)
        staged.append((path, folder / name))
    dice.shuffle(staged)

    def show(files, seed):
        own = random.Random(seed)
        for path, target in files:
            time.sleep(own.uniform(0, spec.pause))
            path.rename(target)

    in_parallel([lambda f=staged[rank::len(seeds)], s=seed: show(f, s) for rank, seed in enumerate(seeds)])


# ---- retention: as the trainers have it, and what it deletes must be what they would have deleted without anybody beside them


def step_of(name):
    return int(name.split("-")[1])  # lmms-engine's own line: raises at a name that it does not know


def to_prune_lmms_engine(run, limit):
    names = sorted((name for name in os.listdir(run) if name.startswith("checkpoint")), key=step_of)
    return names[:-limit]


def to_prune_hugging_face(run, limit):
    """transformers 4.53 to 5: by mtime; by number only where all were made within a second."""
    folders = [(path.stat().st_mtime, path.name) for path in run.glob("checkpoint-*") if path.is_dir()]
    folders.sort()
    if len(folders) > 1 and folders[-1][0] - folders[0][0] < 1.0:
        folders.sort(key=lambda entry: step_of(entry[1]))
    return [name for _, name in folders[:-limit]]


def left_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def prune(spec, newest):
    run = pathlib.Path(spec.run)
    choose = to_prune_lmms_engine if spec.rotation == "lmms-engine" else to_prune_hugging_face
    there = sorted(name for name in os.listdir(run) if name.startswith("checkpoint"))
    chosen = choose(run, spec.limit)
    mine = sorted(there, key=step_of)
    if chosen != mine[:-spec.limit] or mine[-1] != f"checkpoint-{newest}" or any(step_of(name) % 5 for name in there):
        raise RuntimeError(f"retention would remove {chosen} of {there} after step {newest}")
    if set(os.listdir(run)) - set(there) > {"_evalcar"}:
        raise RuntimeError(f"strange names in the output directory: {os.listdir(run)}")
    note(spec.ledger, "removing", names=chosen)
    for name in chosen:
        try:
            shutil.rmtree(run / name)  # strict, as in lmms-engine
        except OSError as error:
            raise RuntimeError(f"retention failed, and left {left_of(run / name)}") from error
        if (run / name).exists():
            raise RuntimeError(f"{name} is back after it was removed")
    note(spec.ledger, "removed", names=chosen)


# ---- training


def save_once(spec, number, dice, *, half=False, late=False, twin=False):
    """One save of a step. `twin`: with the weights that it had before."""
    step = 5 * (number + 1)
    before = [event for event in read_ledger(spec.ledger) if event["event"] == "begin" and event["step"] == step]
    generation = len(before) + 1
    content = before[-1]["content"] if twin and before else generation
    layout = spec.layouts[number % len(spec.layouts)]
    save = globals()[f"save_{layout}"](spec, step, f"{spec.seed} {step} {content}")
    facts = {"step": step, "number": number, "generation": generation, "content": content, "layout": layout}
    note(spec.ledger, "begin", hashes=save.hashes, half=half, **facts)
    if half:
        save.ranks[-1] = []
        save.ranks[0] = save.ranks[0][:max(1, dice.randrange(len(save.ranks[0])))]
        if len(save.ranks) > 1 and layout in ONE_WRITER:
            save.ranks[0] = save.ranks[0][:1]
        save.last = []
    write_save(spec, pathlib.Path(spec.run) / f"checkpoint-{step}", save, dice, late)
    note(spec.ledger, "half" if half else "done", hashes=save.hashes, **facts)


def take_up(spec):
    """After a kill: the number of the save to go on with."""
    number = 0
    removing = []
    for event in read_ledger(spec.ledger):
        if event["event"] == "begin":
            number = event["number"]
        elif event["event"] in ("done", "half"):
            number = event["number"] + 1
        elif event["event"] == "removing":
            removing = event["names"]
        elif event["event"] == "removed":
            removing = []
    for name in removing:  # a half deleted checkpoint looks newer than it is to a rotation by mtime
        shutil.rmtree(pathlib.Path(spec.run) / name, ignore_errors=True)
    return number


def train(spec, life):
    try:
        train_on(spec, life)
    except Exception as error:
        note(spec.ledger, "error", message=repr(error))
        traceback.print_exc()
        raise


def train_on(spec, life):
    dice = random.Random(f"{spec.seed} {life}")
    for number in range(take_up(spec), spec.steps):
        begun = time.monotonic()
        final = number == spec.steps - 1
        # What is left half done is overtaken by the next one, and must not be all that retention leaves.
        half = not final and dice.random() < spec.half
        save_once(spec, number, dice, half=half, late=dice.random() < spec.late)
        prune(spec, 5 * (number + 1))
        if not half and dice.random() < spec.again:
            time.sleep(dice.uniform(0, spec.interval))
            save_once(spec, number, dice, twin=dice.random() < 0.5)
        time.sleep(max(0.0, spec.interval - (time.monotonic() - begun)))
    note(spec.ledger, "end")


def main():
    spec = Spec(**json.loads(pathlib.Path(sys.argv[1]).read_text()))
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fixtures"))
    for layout in spec.layouts:  # whatever has to be imported, once
        globals()[f"save_{layout}"](spec, 0, "warm")
    dice = random.Random(spec.seed)
    for life in range(1000):
        child = fork(lambda life=life: train(spec, life))
        end = time.monotonic() + dice.uniform(*spec.life) if spec.life else None
        while True:
            pid, status = os.waitpid(child, 0 if end is None else os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                break
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)  # its writers go with it
        os.waitpid(child, 0)
        note(spec.ledger, "killed")
        time.sleep(spec.away)
    return 1


if __name__ == "__main__":
    sys.exit(main())
