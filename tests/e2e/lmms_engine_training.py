"""lmms-engine's own training on the CPU, by its own command line: `torchrun lmms_engine_training.py config_yaml=FILE`, gloo between
the ranks. The package is made for CUDA devices; what is replaced for their absence is below, whole, and nothing of it is in the
training loop, the saving, the retention or the evaluation backend."""

import runpy

import torch
import torch.distributed as dist
import transformers


def run_without_a_gpu():
    import lmms_engine.parallel.process_group_manager as groups

    # The device of the ranks: asked of CUDA wherever the package places a tensor, named "cuda" where it makes its meshes.
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.get_device_name = lambda *_: "CPU"
    autocast = torch.autocast
    torch.autocast = lambda device_type, **options: autocast("cpu", **options)
    make_mesh = groups.init_device_mesh
    groups.init_device_mesh = lambda _device, *arguments, **options: make_mesh("cpu", *arguments, **options)
    # gloo has no mean: the sum, divided.
    reduce = dist.all_reduce

    def all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
        if op != dist.ReduceOp.AVG:
            return reduce(tensor, op, group, async_op)
        reduce(tensor, dist.ReduceOp.SUM, group)
        tensor.div_(dist.get_world_size(group))

    dist.all_reduce = all_reduce
    # transformers 5.17 (the package asks for one below 5.9) no longer has this argument.
    transformers.TrainingArguments.warmup_ratio = 0.0


if __name__ == "__main__":
    run_without_a_gpu()
    runpy.run_module("lmms_engine.launch.cli", run_name="__main__", alter_sys=True)
