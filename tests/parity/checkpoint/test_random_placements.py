"""Random meshes, placements, shapes and contents, written by torch's own DTensor and FSDP2 and merged, against full_tensor().

A case is one tensor; the cases of one mesh share a checkpoint, which costs one process group."""

import random

import pytest
from fixtures import fsdp2_checkpoints
from test_checkpoints import check_merge, tool  # noqa: F401  (tool: a fixture)

MESHES = [[2, 2], [1, 2, 2], [4], [2, 1, 2], [3], [2, 3], [3, 2], [8], [2, 2, 2], [4, 2]]
SIZES = [0, 1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 33]
FLOATS = ["float32", "float64", "float16", "bfloat16"]
DTYPES = [*FLOATS, "int64", "int32", "int8", "uint8"]  # what gloo gathers
FILLS = ["random", "random", "random", "equal", "zero"]


def random_case(source, name, mesh):
    """One tensor of 0 to 3 dimensions. Equal and zero contents: a merge that looks at values would take shards for replicas."""
    rank = source.choice([0, 1, 1, 2, 2, 2, 3, 3])
    case = {"name": name, "shape": [source.choice(SIZES) for _ in range(rank)], "dtype": source.choice(DTYPES), "fill": source.choice(FILLS)}
    if len(mesh) > 1 and rank > 0 and source.random() < 0.4:
        case["shape"] = [max(size, 1) for size in case["shape"]]
        dim = source.randrange(rank)
        # full_tensor() of torch 2.11 waits for ever where tensor parallelism along another dimension than 0 leaves a rank with nothing.
        while dim > 0 and -(-case["shape"][dim] // mesh[-1]) * (mesh[-1] - 1) >= case["shape"][dim]:
            case["shape"][dim] += 1
        return {**case, "dtype": source.choice(FLOATS), "tensor_parallel_dim": dim}
    case["placements"] = ["R" if rank == 0 or source.random() < 0.25 else f"S{source.randrange(rank)}" for _ in mesh]
    return case


@pytest.mark.parametrize("seed, cases", [(0, 30), (1, 30), *(pytest.param(seed, 100, marks=pytest.mark.full) for seed in range(2, 22))])
def test_random_placements_merge_to_the_full_tensor(tool, tmp_path, seed, cases):  # noqa: F811
    source = random.Random(seed)
    mesh = MESHES[seed % len(MESHES)]
    world_size = 1
    for size in mesh:
        world_size *= size
    folder = tmp_path / "checkpoint-5"

    expected = fsdp2_checkpoints.write_tensors(folder, world_size=world_size, mesh=mesh,
                                               tensors=[random_case(source, f"t{i}", mesh) for i in range(cases)])

    check_merge(tool, folder, expected, tmp_path / "out")
