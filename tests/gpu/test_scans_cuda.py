"""Running sums, sorted rows and greatest elements on a GPU: values, order of equal elements, results of a second call."""

import pytest
import torch

import pyframe

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytest.importorskip("triton")

SCANS = {
    "sum": lambda x: x.cumsum(-1), "sum of columns": lambda x: x.cumsum(0), "product": lambda x: (1 + x / 9999).cumprod(-1),
    "signs": lambda x: torch.where(x > 0, 1.0, -1.0).to(x.dtype).cumprod(-1),
    "log sum exp": lambda x: x.logcumsumexp(-1), "greatest": lambda x: x.cummax(-1), "least": lambda x: x.cummin(0),
    "from the end": lambda x: x.flip(-1).cumsum(-1).flip(-1), "of probabilities": lambda x: x.softmax(-1).cumsum(-1) * 2,
}  # fmt: skip
SORTS = {
    "sort": lambda x: x.sort(dim=-1, stable=True), "sort of columns": lambda x: x.sort(dim=0, stable=True, descending=True),
    "kth": lambda x: x.kthvalue(3)[0], "median": lambda x: x.median(0)[0], "median without NaN": lambda x: x.nanmedian(-1)[0],
    "topk": lambda x: x.topk(3)[0], "least": lambda x: x.topk(2, largest=False)[0],
}  # fmt: skip


def both(fn, x):
    """Results of eager, of float64 and of two compiled calls."""
    compiled = pyframe.compile(fn, fullgraph=True)
    results = [fn(x), fn(x.double() if x.is_floating_point() else x), compiled(x), compiled(x)]
    return zip(*[list(r) if isinstance(r, tuple) else [r] for r in results])


def rounding(name, x):
    """How far two scans of float64 numbers `x` may be apart if they add in another order: each of n additions errs by at
    most one unit of the sum of magnitudes. Factors and probabilities are about 1 or less."""
    dim = 0 if "columns" in name else -1
    return x.size(dim) * torch.finfo(x.dtype).eps * x.abs().sum(dim).max().clamp(min=1.0)


@pytest.mark.parametrize("size", [(64, 1000), (7, 20000), (3000, 33), (5, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", SCANS)
def test_scans(name, dtype, size):
    x = torch.randn(size, device="cuda", dtype=dtype)
    for eager, exact, got, again in both(SCANS[name], x):
        assert torch.equal(got, again) and got.stride() == eager.stride() and got.dtype == eager.dtype
        if got.is_floating_point():
            if dtype == torch.float64:  # the reference is eager's result, which errs as much as ours
                allowed = rounding(name, x)
            else:
                allowed = 3 * (eager - exact).abs().max() + 2 * torch.finfo(dtype).eps * exact.abs().max()
            assert (got - exact).abs().max() <= allowed
        else:
            assert torch.equal(got, eager)


@pytest.mark.parametrize("size", [(1, 3_000_001), (3, 100_000), (40_000, 70), (8192, 1024)])
@pytest.mark.parametrize("name", ["sum", "sum of columns", "signs", "log sum exp", "from the end", "of probabilities"])
def test_rows_that_programs_share(name, size):
    """Results are those of every other call, whatever order programs run in."""
    x = torch.randn(size, device="cuda") / 16
    compiled = pyframe.compile(SCANS[name], fullgraph=True)
    exact, got = SCANS[name](x.double()), compiled(x)
    allowed = 4096 * torch.finfo(torch.float32).eps * exact.abs().max().clamp(min=1)  # less than a chunk adds
    assert (got - exact).abs().max() <= allowed
    for _ in range(5):
        assert torch.equal(compiled(x), got)


@pytest.mark.parametrize("size", [(64, 1000), (7, 4096), (300, 33), (5, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8])
@pytest.mark.parametrize("name", SORTS)
def test_sorts(name, dtype, size):
    if "NaN" in name and not dtype.is_floating_point:
        pytest.skip("no NaN")
    x = torch.randint(0, 50, size, device="cuda").to(dtype)
    if dtype.is_floating_point:
        x[1, 2], x[2, 1], x[3] = float("nan"), -0.0, float("-inf")
    for eager, _, got, again in both(SORTS[name], x):
        torch.testing.assert_close(got, eager, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(got, again, rtol=0, atol=0, equal_nan=True)
        assert got.stride() == eager.stride()


@pytest.mark.parametrize("k", [1, 2, 8])
def test_routing_of_a_mixture_of_experts(k):
    def routed(x):
        values, positions = x.softmax(-1).topk(k)
        return values / values.sum(-1, keepdim=True), positions

    x = torch.randn(4096, 64, device="cuda")
    (values, positions), (want, expected) = pyframe.compile(routed, fullgraph=True)(x), routed(x)
    torch.testing.assert_close(values, want)
    assert torch.equal(positions, expected)
