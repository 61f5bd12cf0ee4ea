"""The values of `evalcar merge --merge`, against exact rational arithmetic and torch."""

from fractions import Fraction

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_checkpoints import run, tool  # noqa: F401  (tool: a fixture)

# Bits of precision, exponent of the smallest normal number, and the bits' type.
FORMATS = {torch.bfloat16: (8, -126, torch.int16), torch.float16: (11, -14, torch.int16), torch.float32: (24, -126, torch.int32)}


def write(folder, tensors):
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text("{}")
    return folder


def mean_of(tool, tmp_path, members, *arguments):  # noqa: F811
    folders = [write(tmp_path / f"checkpoint-{step}", tensors) for step, tensors in enumerate(members)]
    run(tool, "merge", "--input_dir", *folders, "--merge", "--output_dir", tmp_path / "out", *arguments)
    return load_file(tmp_path / "out" / "model.safetensors")


def nearest(value, dtype):
    """The number of `dtype` next to a rational one, ties to even, as a double (which holds it exactly)."""
    precision, smallest, _ = FORMATS[dtype]
    if value == 0:
        return 0.0
    exponent = smallest
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - precision + 1)
    rounded = round(value / unit) * unit  # Fraction's round: half to even
    return float(rounded)


def near_ties(dtype):
    """float32 values at, just above and just below the middle between two neighbours of `dtype`, both signs, subnormals too."""
    precision, smallest, _ = FORMATS[dtype]
    random = torch.Generator().manual_seed(3)
    whole = torch.randint(2 ** (precision - 1), 2**precision, (600,), generator=random, dtype=torch.float64)
    scale = 2.0 ** torch.randint(smallest - precision - 2 if dtype == torch.float16 else -30, 5, (600,), generator=random,
                                 dtype=torch.float64)
    middle = ((whole + 0.5) * scale).float()
    middle = middle * torch.tensor([1.0, -1.0]).repeat(300)
    away = torch.nextafter(middle, middle * 2)
    return torch.stack([middle, away, torch.nextafter(middle, middle * 0), middle]), middle


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("count", [2, 3])
def test_a_mean_is_the_nearest_number_to_the_exact_one(tool, tmp_path, dtype, count):  # noqa: F811
    values, middle = near_ties(dtype)
    members = [values[0], values[1], values[2]][:count] if count == 3 else [values[0], values[1]]
    tensors = [{"ties": each.clone(), "other": each.roll(k) * (1 + k)} for k, each in enumerate(members)]

    merged = mean_of(tool, tmp_path, tensors, "--dtype", str(dtype).removeprefix("torch."))

    for name, mean in merged.items():
        assert mean.dtype == dtype
        columns = zip(*(tensor[name].tolist() for tensor in tensors))
        expected = torch.tensor([nearest(sum(map(Fraction, each)) / count, dtype) for each in columns], dtype=torch.float64)
        assert torch.equal(mean.double(), expected), name


def test_the_mean_of_float32_is_the_nearest_float32(tool, tmp_path):  # noqa: F811
    random = torch.Generator().manual_seed(5)
    tensors = [{"w": torch.randn(3000, generator=random)} for _ in range(3)]

    merged = mean_of(tool, tmp_path, tensors)

    columns = zip(*(tensor["w"].tolist() for tensor in tensors))
    expected = [nearest(sum(map(Fraction, each)) / 3, torch.float32) for each in columns]
    assert torch.equal(merged["w"].double(), torch.tensor(expected, dtype=torch.float64))


def test_the_mean_of_zeros_has_their_sign(tool, tmp_path):  # noqa: F811
    zeros = [torch.tensor([-0.0, -0.0, 0.0]), torch.tensor([-0.0, 0.0, 0.0])]

    dtypes = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
    merged = mean_of(tool, tmp_path, [{str(dtype): each.to(dtype) for dtype in dtypes} for each in zeros])

    for mean in merged.values():
        assert torch.signbit(mean).tolist() == [True, False, False]
        assert not mean.any()


def test_a_mean_keeps_infinities_and_nan_and_overflows_where_the_exact_one_does(tool, tmp_path):  # noqa: F811
    large = torch.finfo(torch.float32).max
    first = torch.tensor([float("inf"), float("inf"), float("nan"), large, 65519.0, 65520.0, 1e-45, -1e-45])
    second = torch.tensor([1.0, -float("inf"), 1.0, large, 65519.996, 65520.0, 0.0, 0.0])

    merged = mean_of(tool, tmp_path, [{"w": first}, {"w": second}], "--dtype", "float16")

    expected = torch.tensor([float("inf"), float("nan"), float("nan"), float("inf"), 65504.0, float("inf"), 0.0, -0.0]).half()
    assert torch.equal(merged["w"].isnan(), expected.isnan())
    assert torch.equal(merged["w"].nan_to_num(), expected.nan_to_num())
    assert torch.equal(torch.signbit(merged["w"][6:]), torch.signbit(expected[6:]))


def test_the_mean_of_complex_numbers_is_theirs(tool, tmp_path):  # noqa: F811
    random = torch.Generator().manual_seed(7)
    tensors = [{"w": torch.randn(5, 3, generator=random, dtype=torch.complex64), "n": torch.tensor([k])} for k in range(3)]

    merged = mean_of(tool, tmp_path, tensors, "--dtype", "bfloat16", "--merge-weights", "1", "2", "4")

    weighted = sum(w * each["w"].to(torch.complex128) for w, each in zip((1, 2, 4), tensors)) / 7
    assert torch.equal(merged["w"], weighted.to(torch.complex64))
    assert merged["n"].tolist() == [2]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e8m0fnu], ids=str)
def test_float8_is_merged_but_refused_in_an_average(tool, tmp_path, dtype):  # noqa: F811
    """Its values mean nothing without their scales: the mean of products is not the product of means."""
    folders = [write(tmp_path / f"checkpoint-{k}", {"w": torch.full((4,), float(k)).to(dtype)}) for k in (1, 2)]

    done = run(tool, "merge", "--input_dir", *folders, "--merge", "--output_dir", tmp_path / "out", code=1)
    run(tool, "merge", "--input_dir", folders[1], "--output_dir", tmp_path / "one")

    assert f'"w" is {str(dtype).removeprefix("torch.")}' in done.stderr and "averaged" in done.stderr
    assert not (tmp_path / "out").exists()
    assert load_file(tmp_path / "one" / "model.safetensors")["w"].view(torch.uint8).equal(
        torch.full((4,), 2.0).to(dtype).view(torch.uint8))
