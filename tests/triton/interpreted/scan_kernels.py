"""Running sums, products and extremes on a GPU are kernels, together with what comes before and after them."""

import pytest
import torch
from fake_gpu import on_gpu
from op_samples import lowered
from triton_support import Runner

from inductor.codegen.triton import heuristics, work
from inductor.ir.buffer import ExternKernel
from inductor.ir.interp import run_graph
from inductor.runtime.triton_build import build_all

NAN, INF = float("nan"), float("inf")
LENGTHS = [2, 7, 64, 1000, 20000]  # the last is longer than a row that one program holds
# The same across rows of memory. As many programs share the last as share any; a kernel joins the totals of ten rows.
COLUMN_LENGTHS = [2, 7, 64, 1000, 8200]


def prepared(gm):
    gm.graph.eliminate_dead_code()
    return on_gpu(gm)


def scanned(fn, *args, externs=0, kernels=None):
    """Runs `fn` as kernels, twice, and compares with eager. `kernels`: how many there are."""
    runner = Runner(fn, *args, graph=lowered(fn, *args, prepare=prepared))
    want = fn(*args)
    want = list(want) if isinstance(want, (tuple, list)) else [want]
    got, again = [x.clone() for x in runner.run(*args)], runner.run(*args)
    for a, b, e in zip(got, again, want):
        tolerance = 2e-2 if e.dtype.itemsize == 2 and e.is_floating_point() else 1e-4 if e.is_floating_point() else 0
        torch.testing.assert_close(a, e, rtol=tolerance, atol=tolerance, equal_nan=True)
        assert torch.equal(a.view(torch.uint8) if a.dim() else a, b.view(torch.uint8) if b.dim() else b)
        assert a.stride() == e.stride()
    for a, e in zip(run_graph(runner.graph, args), want):  # the loop IR itself
        torch.testing.assert_close(a, e, rtol=2e-2, atol=2e-2, equal_nan=True)
    found = sum(isinstance(node, ExternKernel) for node in runner.graph.buffers)
    assert found == externs
    if kernels is not None:
        assert len(runner.steps) - found == kernels
    return runner


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_sums_of_rows(length, dtype):
    scanned(lambda x: x.cumsum(-1), torch.randn(3, length).to(dtype) / 16, kernels=1)


@pytest.mark.parametrize("length", COLUMN_LENGTHS)
def test_sums_across_rows(length):
    scanned(lambda x: x.cumsum(1), torch.randn(2, length, 5), kernels=1)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool])
def test_integers_are_summed_as_int64(dtype):
    x = torch.randint(0, 2 if dtype == torch.bool else 100, (3, 70)).to(dtype)
    scanned(lambda x: (x.cumsum(1), x.cumprod(0)), x, kernels=2)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.float64, torch.bfloat16])
def test_results_of_a_given_dtype(dtype):
    x = torch.randint(-100, 100, (3, 70))
    scanned(lambda x: x.cumsum(1, dtype=dtype) > 3, x, kernels=1)


def test_a_sum_is_rounded_to_its_dtype_only_in_the_end():
    scanned(lambda x: x.cumsum(0, dtype=torch.float32), torch.full((3000, 1), 0.1).bfloat16(), kernels=1)


@pytest.mark.parametrize("length", LENGTHS)
def test_products_and_log_sum_exp(length):
    x = 1 + torch.randn(3, length) / length
    scanned(lambda x: (x.cumprod(-1), x.logcumsumexp(-1)), x, kernels=1)


def test_log_sum_exp_of_infinities():
    x = torch.tensor([[-INF, -INF, 0, INF, 1, NAN, 2], [-INF, 1, -INF, 2, -INF, 3, INF], [INF, INF, -INF, 1, INF, 2, -INF]])
    scanned(lambda x: x.logcumsumexp(-1), x)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_extremes(length, dtype):
    x = torch.randint(0, 20, (3, length)).to(dtype)
    scanned(lambda x: (*x.cummax(-1), *x.cummin(-1)), x, kernels=1)


def test_one_scan_finds_the_extremes_and_their_positions():
    runner = scanned(lambda x: tuple(x.cummax(-1)), torch.randn(4, 64), kernels=1)
    assert [k.text.count("tl.associative_scan") for k in runner.source.kernels] == [1]


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("length", [50, 20000])
def test_extremes_with_nan_and_infinities(name, length):
    x = torch.tensor([-INF, 1, NAN, 2, INF, 0.0])[torch.randint(0, 6, (5, length))]
    x[0, : length // 2] = -INF
    x[1, : length // 2] = INF
    x[2] = torch.where(x[2].isnan(), 0, x[2])
    scanned(lambda x: tuple(getattr(x, name)(-1)), x, kernels=1)


@pytest.mark.parametrize("length", [100, 20000])
def test_what_comes_before_and_after_is_in_the_same_kernel(length):
    x, m, y = torch.randn(3, length), torch.rand(3, length) > 0.5, torch.randn(3, length)
    scanned(lambda x, m, y: (x * m).cumsum(-1) + y, x, m, y, kernels=1)
    scanned(lambda x: torch.where(x > 0, x, 0.0).cumsum(-1).relu(), x, kernels=1)
    scanned(lambda x: x.softmax(-1).cumsum(-1), x, kernels=1)
    scanned(lambda x: x.cumsum(-1).softmax(-1), x, kernels=1)
    scanned(lambda x: x.cumsum(-1).cumsum(-1), x / length, kernels=1)


def test_the_position_of_an_extreme_after_a_scan():
    scanned(lambda x: (x.cumsum(-1).argmax(-1), x.cumsum(-1)), torch.randn(3, 20000))


@pytest.mark.parametrize("dim, length", [(0, n) for n in COLUMN_LENGTHS] + [(1, n) for n in LENGTHS])
def test_a_sum_from_the_end_is_one_kernel(length, dim):
    x = torch.randn(3, length) if dim else torch.randn(length, 3)
    scanned(lambda x: (x * 2).flip(dim).cumsum(dim).flip(dim) + 1, x, kernels=1)


def test_sums_from_both_ends():
    scanned(lambda x: (x.cumsum(-1), x.flip(-1).cumsum(-1).flip(-1)), torch.randn(3, 20000))


def test_a_sum_from_the_end_with_the_position_of_an_extreme():
    x = torch.randint(0, 3, (3, 20000)).float()
    scanned(lambda x: (x.flip(-1).cumsum(-1).flip(-1), x.argmax(-1)), x)


def test_a_result_that_is_reversed_along_another_dimension():
    scanned(lambda x: x.cumsum(1).flip(0), torch.randn(4, 30))
    scanned(lambda x: x.cumsum(1).flip(0, 1), torch.randn(4, 30))


def test_layouts_of_inputs():
    scanned(lambda x: x.cumsum(0), torch.randn(6, 5, 4).permute(2, 0, 1), kernels=1)
    scanned(lambda x: x.cumsum(2), torch.randn(6, 5, 40)[:, ::2].permute(1, 0, 2))
    scanned(lambda x: x.cumsum(1), torch.randn(3, 1).expand(3, 50))


def test_sums_of_a_number():
    scanned(lambda x: torch.ones(3, 50).cumsum(1) * x, torch.randn(3, 1))


def test_the_gradient_of_a_sum_is_one_kernel():
    def gradient(x, g):
        y = x.detach().requires_grad_()
        return torch.autograd.grad((y * 2).cumsum(-1), y, g)[0]

    scanned(gradient, torch.randn(3, 500), torch.randn(3, 500), kernels=1)


@pytest.mark.parametrize("size, dim", [((), 0), ((1,), 0), ((4, 1), 1), ((4, 1), -1)])
def test_one_element(size, dim):
    scanned(lambda x: (x.cumsum(dim), x.cumprod(dim), x.logcumsumexp(dim), *x.cummax(dim), *x.cummin(dim)), torch.randn(size))


@pytest.mark.parametrize("x", [torch.randn(0), torch.randn(3, 0)], ids=["empty", "empty rows"])
def test_calls_of_aten(x):
    scanned(lambda x: x.cumsum(-1), x, externs=1, kernels=0)


def test_positions_of_extremes_of_one_long_row_are_a_call_of_aten():
    scanned(lambda x: tuple(x.cummax(-1)), torch.randn(1 << 15), externs=1, kernels=0)


# ---- rows that several programs share


@pytest.fixture(params=["passed on", "each joins", "joined first"])
def chunks(request, monkeypatch):
    """Small blocks, so that programs share short rows. They pass totals on in one kernel, or read them in a second one,
    with a kernel that joins the totals or without. The number of launches."""
    small = {"PERSISTENT_ROW": 64, "PERSISTENT_COLUMN": 8, "SCAN_ROW": 128, "SCAN_COLUMN_BYTES": 64,
             "SCAN_SHARED_STEPS_OF_WARPS": 4, "JOIN_SCANS": 0 if request.param == "joined first" else 1 << 62,
             "CHAIN_ROW": 128, "CHAIN_WAVES": 0}  # fmt: skip
    for name, value in small.items():
        monkeypatch.setattr(heuristics, name, value)
    if request.param == "passed on":
        return 1
    monkeypatch.setattr(work, "MOST_KEPT", 0)
    return 2


def shared(fn, *args, launches, dim=-1, **options):
    runner = scanned(fn, *args, **options)
    kinds = [k.name.split("_")[0] for k in runner.source.kernels]
    across = args[0].dim() > 1 and args[0].stride(dim) != 1  # these have a kernel for each pass
    assert kinds == (["shared"] * 2 if launches > 1 or across else ["chained"]), kinds
    return runner.source.kernels


@pytest.mark.parametrize("shape", [(1, 640), (1, 5000), (3, 1111), (300, 5), (203, 37), (600, 1)])
@pytest.mark.parametrize("kind", ["cumsum", "cumprod", "logcumsumexp", "from the end"])
def test_chunks(chunks, shape, kind):
    dim = 0 if shape[0] > shape[1] else 1
    x = torch.randn(shape) / 9
    programs = {
        "cumsum": lambda x: x.cumsum(dim), "cumprod": lambda x: (1 + x / 999).cumprod(dim),
        "logcumsumexp": lambda x: x.logcumsumexp(dim),
        "from the end": lambda x: x.flip(dim).cumsum(dim).flip(dim) + x,
    }  # fmt: skip
    shared(programs[kind], x, launches=chunks, dim=dim, kernels=1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int8, torch.bool])
def test_chunks_of_dtypes(chunks, dtype):
    x = torch.randint(0, 2, (2, 1000)).to(dtype)
    shared(lambda x: x.cumsum(-1), x, launches=chunks)
    shared(lambda x: x.t().cumsum(0), x, launches=chunks, dim=0)  # the result is stored across the rows that are read


def test_kernels_of_chunks_compile(chunks):
    kernels = shared(lambda x: x.cumsum(0), torch.randn(403, 70), launches=chunks, dim=0)
    kernels += shared(lambda x: x.logcumsumexp(-1), torch.randn(1, 5000), launches=chunks)
    assert all(cubin.data for cubin in build_all(kernels, 90))


def test_integers_of_chunks_wrap_around(chunks):
    shared(lambda x: x.cumsum(-1, dtype=torch.int8), torch.randint(-100, 100, (1000,)), launches=chunks)


def test_infinities_and_nan_in_chunks(chunks):
    x = torch.tensor([-INF, 1.0, 2.0])[torch.randint(0, 3, (4, 1000))]
    x[0, :600] = -INF
    x[1, 500:] = INF
    x[2, 700] = NAN
    shared(lambda x: x.logcumsumexp(-1), x, launches=chunks)


def test_passes_before_and_after_scans_of_chunks(chunks):
    x = torch.randn(2, 1000)
    rows = [
        (lambda x: x.softmax(-1).cumsum(-1) * 2), (lambda x: x.cumsum(-1).softmax(-1)),
        (lambda x: x.cumsum(-1).cumsum(-1) / 9), (lambda x: (x.cumsum(-1).argmax(-1), x.cumsum(-1))),
        (lambda x: (x.cumsum(-1), x.flip(-1).cumsum(-1).flip(-1))),
    ]  # fmt: skip
    for fn in rows:
        runner = scanned(fn, x)
        assert {k.name.split("_")[0] for k in runner.source.kernels} <= {"shared", "chained"}


def test_totals_that_are_passed_on_are_cleared_for_the_next_call(chunks):
    """Each call finds the half of the memory clear that it uses."""
    x = torch.randn(3, 5000)
    runner = scanned(lambda x: x.cumsum(-1), x)
    first = runner.run(x)[0].clone()
    for memory in runner.kept.values():
        head, halves = memory[:16], memory[16:].view(2, -1)
        for call in range(4, 9):
            assert torch.equal(runner.run(x)[0], first)
            assert halves[call % 2].eq(0).all() != halves[1 - call % 2].eq(0).all()
            assert head.count_nonzero() == (call % 2)
    assert bool(runner.kept) == (chunks == 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_several_scans_of_one_kernel_pass_on_their_totals(chunks, dtype):
    x = torch.randint(-9, 9, (2, 3000)).to(dtype)
    shared(lambda x: (x.cumsum(-1), (x * 2 + 1).cumsum(-1)), x, launches=chunks, kernels=1)


@pytest.mark.parametrize("width", [1, 17, 60, 300, 1e4])
def test_log_sum_exp_of_numbers_far_apart(chunks, width):
    x = torch.linspace(-width, width, 2000)[torch.randperm(2000)].view(2, 1000)
    shared(lambda x: x.logcumsumexp(-1), x, launches=chunks)
    scanned(lambda x: x.sort(-1).values.logcumsumexp(-1), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_errors_are_not_greater_than_three_times_those_of_eager(dtype):
    torch.manual_seed(0)
    x = torch.randn(8, 20000).to(dtype)
    (got,) = Runner(lambda x: x.cumsum(-1), x, graph=lowered(lambda x: x.cumsum(-1), x, prepare=prepared)).run(x)
    exact = x.double().cumsum(-1)
    one_by_one = torch.zeros(8, dtype=torch.float32)  # sums in float32, from the first element to the last
    worst = 0.0
    for k in range(x.shape[1]):
        one_by_one = one_by_one + x[:, k].float()
        worst = max(worst, (one_by_one.to(dtype).double() - exact[:, k]).abs().max().item())
    assert (got.double() - exact).abs().max().item() <= 3 * worst
