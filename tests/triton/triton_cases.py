"""Kernels at sizes with tails, long rows and odd strides, by name; run by worker_triton.py."""

from contextlib import ExitStack
from unittest import mock

import kernel_programs
import torch
import torch.nn.functional as F
import triton_support
from kernel_programs import DTYPES, SPECIAL, UNARY
from triton_support import Runner, check

from inductor.codegen.triton import heuristics
from inductor.codegen.triton.gpu import Gpu

CASES = {}


def case(fn):
    CASES[fn.__name__] = fn
    return fn


def cases(**each):
    """One case a keyword: the function with these arguments."""

    def register(fn):
        for name, args in each.items():
            CASES[f"{fn.__name__}[{name}]"] = lambda args=args: fn(*args)
        return fn

    return register


@cases(even=(4, 16), tails=(3, 37), many=(64, 768), tiny=(2, 5))
def layernorm_holds_rows(rows, cols):
    check(lambda x, w, b: F.layer_norm(x, (cols,), w, b), torch.randn(rows, cols), torch.randn(cols), torch.randn(cols),
          kinds=["persistent"])


@case
def the_sign_of_zero_is_kept():
    def reciprocals(x, d, i):
        return 1 / -x, x / -0.0, 1 / (x * -0.0), 1 / (x + -0.0), 1 / -d, d / -0.0, -i

    x = torch.tensor([0.0, -0.0, 2.0, -2.0])
    check(reciprocals, x, x.double(), torch.tensor([1, 0, -3]))


def with_limits(**limits):
    """The heuristics with other numbers, or another GPU, so that small tensors take the way of large ones."""

    def decorate(fn):
        def call(*args):
            with ExitStack() as stack:
                for name, value in limits.items():
                    owner = triton_support if name == "GPU" else heuristics
                    stack.enter_context(mock.patch.object(owner, name, value))
                fn(*args)

        call.__name__ = fn.__name__
        return call

    return decorate


SHORT = dict(PERSISTENT_ROW=64, PERSISTENT_COLUMN=8, BLOCK_ROW=128, BLOCK_COLUMNS=16)
SHARED = dict(SHORT, SPLIT_MIN_WORK=0, GPU=Gpu(4), SHARED_STEPS=2)
ROWS = dict(row=((5, 700), 1), odd=((5, 701), 1), column=((100, 19), 0), middle=((3, 70, 5), 1), all=((700,), 0),
            block=((2, 512), 1))


@cases(**ROWS)
@with_limits(**SHORT)
def softmax_loops_twice(shape, dim):
    runner = check(lambda x: x.softmax(dim), torch.randn(shape), rtol=2e-6, atol=1e-7, kinds=["looped"])
    assert runner.source.kernels[0].text.count("for start in") == 2


@cases(**ROWS)
@with_limits(**SHARED)
def softmax_with_shared_rows(shape, dim):
    check(lambda x: x.softmax(dim), torch.randn(shape), rtol=2e-6, atol=1e-7, kinds=["shared", "shared"])


@cases(**ROWS)
@with_limits(**SHARED)
def layernorm_with_shared_rows(shape, dim):
    def fn(x):
        var, mean = torch.var_mean(x, dim, keepdim=True)
        return (x - mean) * torch.rsqrt(var + 1e-5), var, mean

    check(fn, torch.randn(shape), kinds=["shared"] * 3)


@cases(**ROWS)
@with_limits(**SHORT)
def softmax_of_infinities(shape, dim):
    x = torch.randn(shape)
    flat = x.view(-1)
    flat[5], flat[7], flat[-1] = -torch.inf, torch.inf, torch.nan
    flat[shape[-1] + 1 : shape[-1] + 9] = -torch.inf
    check(lambda x: (x.softmax(dim), x.log_softmax(dim)), x)
    check(lambda x: x.softmax(dim), torch.full(shape, -torch.inf))


@cases(eight=(704, 8), four=(700, 4), one=(701, 1))
@with_limits(**SHORT)
def a_thread_takes_the_exponentials_of_adjacent_halves_together(length, together):
    x = (torch.randn(5, length) * 4).half()
    x[1, 5], x[2, 100:], x[3] = -torch.inf, -torch.inf, -torch.inf
    runner = check(lambda x: x.float().softmax(-1), x, kinds=["looped"])
    assert (f"RBLOCK // {together}]" in runner.source.kernels[0].text) == (together > 1)


def reduce_every_way(shape, dim):
    x = torch.rand(shape) + 0.5
    check(lambda x, p: (x.sum(dim), x.amax(dim), x.amin(dim), p.prod(dim), (x > 1.49).any(dim), (x > 0.5).all(dim)),
          x, 1 + (x - 1) * 1e-3, rtol=1e-4)
    ties = torch.randint(-5, 6, shape).float()
    check(lambda t: (t.argmax(dim), t.argmin(dim), t.amax(dim)), ties)
    ties.view(-1)[3] = torch.nan
    check(lambda t: (t.argmax(dim), t.argmin(dim), t.amax(dim), t.amin(dim)), ties)
    check(lambda t: (t.argmax(dim), t.argmin(dim)), torch.full(shape, -torch.inf))
    check(lambda t: (t.argmax(dim), t.argmin(dim), t.sum(dim), t.amin(dim)), torch.randint(-5, 6, shape))
    check(lambda t: (t.int().amax(dim), t.double().sum(dim), t.double().amin(dim)), torch.randint(-5, 6, shape))


@cases(**ROWS)
def reductions_held(shape, dim):
    reduce_every_way(shape, dim)


@cases(**ROWS)
@with_limits(**SHORT)
def reductions_in_loops(shape, dim):
    reduce_every_way(shape, dim)


@cases(**ROWS)
@with_limits(**SHARED)
def reductions_of_shared_rows(shape, dim):
    reduce_every_way(shape, dim)


def positions_against_the_order_of_memory():
    ties = torch.randint(-3, 4, (60, 40)).float()
    for t in (ties, ties.masked_fill(ties == 3, torch.nan), torch.full((60, 40), -torch.inf)):
        check(lambda t: (t.t().argmax(), t.t().argmin(), (t.t() * 2).argmax()), t)


@case
def transposed_positions_held():
    positions_against_the_order_of_memory()


@case
@with_limits(**SHORT)
def transposed_positions_in_loops():
    positions_against_the_order_of_memory()


@case
@with_limits(**SHARED)
def transposed_positions_of_shared_rows():
    positions_against_the_order_of_memory()


@case
def real_sizes_of_sums():
    check(lambda x: x.sum(), torch.rand(300_003), rtol=1e-6, kinds=["shared"])
    check(lambda x: x.sum(0), torch.rand(4100, 70), rtol=1e-5, kinds=["shared"])
    check(lambda x: x.amax(1), torch.rand(3, 70000), kinds=["shared"])
    check(lambda x: x.amax(1), torch.rand(3, 20000), kinds=["looped"])


@cases(plain=(torch.float32,), half=(torch.bfloat16,))
def cross_entropy_reads_once(dtype):
    runner = check(kernel_programs.cross_entropy, torch.randn(7, 20000).to(dtype), torch.randint(0, 20000, (7,)), rtol=1e-4)
    assert sum(k.text.count("for start in") for k in runner.source.kernels) == 1


@case
def rms_norm_in_half_precision():
    x, w = torch.randn(37, 768).bfloat16(), torch.randn(768).bfloat16()
    check(lambda x, w: x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w, x, w, kinds=["persistent"])


@case
def transposed_access_takes_tiles():
    x, y = torch.randn(137, 53), torch.randn(53, 137)
    check(lambda x, y: x.t() + y, x, y, kinds=["tiled"])
    check(lambda x: x.permute(0, 2, 3, 1).contiguous(), torch.randn(3, 19, 7, 9), kinds=["tiled"])
    check(lambda x: x.permute(2, 1, 0).contiguous() * 2, torch.randn(19, 3, 33), kinds=["tiled"])
    check(lambda x: x.view(6, 35, 7).permute(2, 0, 1).reshape(7, 210) * 2, torch.randn(1470))
    i = torch.arange(37)[None] % 5 + torch.arange(53)[:, None]
    check(lambda x, y, i: torch.where(i > 20, x.t() + y, i.float()), torch.randn(37, 53), torch.randn(53, 37), i)


@case
def reductions_across_strides():
    x = torch.randn(9, 33, 17)
    check(lambda x: (x.sum((0, 2)), x.amax((0, 1)), x.transpose(0, 2).sum(1)), x)
    check(lambda x, y: (x.t() * y).sum(1), torch.randn(41, 23), torch.randn(23, 41))
    check(lambda x: (x.view(9, 3, 11, 17).sum((1, 3)), x.permute(2, 0, 1).softmax(-1)), x)


@cases(single=(torch.float32,), double=(torch.float64,))
def unary_on_special_values(dtype):
    x = torch.cat([torch.randn(1003) * 3, SPECIAL]).to(dtype)
    x = torch.where(x.abs() < 1e29, x, x.sign() * 0.5) if dtype == torch.float64 else x
    for name in UNARY:
        y = x[:1003] if name in ("sin", "cos") else x
        check(getattr(torch.ops.aten, name), y, rtol=3e-6, atol=2e-7)


@cases(single=(torch.float32,), double=(torch.float64,))
def binary_on_special_values(dtype):
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, -7.0, 1e30, -1e30, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    x, y = values.repeat_interleave(len(values)), values.repeat(len(values))
    names = "floor_divide remainder fmod atan2 pow maximum minimum fmax fmin hypot copysign div eq lt"
    for name in names.split():
        check(getattr(torch, name), x, y, rtol=3e-6, atol=2e-7)
    check(lambda x, y: torch.copysign(torch.ones(()), x // y), x, y, rtol=0, atol=0)


@cases(bfloat16=(torch.bfloat16,), float16=(torch.float16,))
def half_precision_is_rounded_right(dtype):
    """Within a unit in the last place of the exact result, also where a shorter polynomial serves."""
    x = torch.cat([torch.linspace(-6, 6, 4001), SPECIAL]).to(dtype)
    for fn in (torch.special.ndtr, torch.exp, torch.sigmoid, F.gelu, lambda x: x.softmax(0)):
        part = x if fn is not F.gelu else x[:4001]
        got, want = Runner(fn, part).run(part)[0].double(), fn(part.double()).to(dtype).double()
        unit = torch.finfo(dtype).eps * want.abs().clamp(min=1e-4)
        assert bool(((got - want).abs() <= unit)[want.isfinite()].all())
        assert torch.equal(got[~want.isfinite()].nan_to_num(), want[~want.isfinite()].nan_to_num())


@case
def copies_between_dtypes_are_exact():
    args = [torch.randint(0, 2 if d == torch.bool else 100, (517,)).to(d) for d in DTYPES]
    check(lambda *xs: [y for x in xs for y in (x.float() * 1, x.float().to(x.dtype), x.long(), x.bool())], *args, rtol=0, atol=0)


@case
def integers_wrap():
    for x in (torch.arange(256, dtype=torch.uint8), torch.arange(-128, 128, dtype=torch.int8)):
        check(lambda x: (x + x, x * x, -x, x // 7, x % 7), x, rtol=0, atol=0)
    x = torch.arange(-50, 50)
    check(lambda x: (x // 7, x % 7, torch.fmod(x, 7), torch.div(x, 7, rounding_mode="trunc"), x // -7, x % -7, x.abs(), x.sign()), x)
    check(lambda x: (x // 0.7, x % 0.7, torch.fmod(x, 0.7), torch.div(x, 0.7, rounding_mode="trunc")), x.float())


@case
def masked_pieces():
    kernel_programs.masked_pieces(check)


@case
def embedding_reads_rows():
    kernel_programs.embedding_reads_rows(check)


@cases(above=(50,), below=(-51,))
def an_index_out_of_bounds_is_an_error(bad):
    table, ids = torch.randn(50, 24), torch.tensor([3, bad, 7])
    reads = (
        (lambda w, i: w[i] * 2, ids),
        (lambda w, i: w[i, i % 24] * 2, torch.tensor([bad] * 40)),
        (lambda w, i: w[:1][i].sum(0), ids * 0 + bad),  # the element does not depend on the index
    )
    for fn, at in reads:
        try:
            Runner(fn, table, at).run(table, at)
        except IndexError:
            continue
        raise AssertionError("no error")
    check(lambda w, i: w[:1][i] + 1, table, torch.tensor([0, -1, 0]))
    # where a mask hides it, it is none
    check(lambda w, i: F.pad(w[i], (0, 0, 1, 0)) + 1, table, torch.tensor([3, 4]))


@case
def nothing_to_reduce():
    check(lambda x: (x.sum(1), x.prod(1), x.any(1), x.sum(0), x + 1), torch.randn(5, 0))


@case
def a_dimension_of_one_is_not_reduced_further():
    check(lambda x: (x.sum(2), (x * 2).sum(1), x.argmax(1), x.any(1)), torch.randn(8, 1, 100))
    check(lambda x: (x.sum(1), x.argmax(1), x.amax(1), x.any(1)), torch.randn(8, 1))


@case
def writes_into_an_input():
    def fn(x, y):
        s = (x * y).sum(1)
        torch.ops.aten.copy_(x, x + s[:, None])
        torch.ops.aten.copy_(y, y * 2)
        return [s]

    mine = [torch.randn(9, 300), torch.randn(9, 300)]
    theirs = [x.clone() for x in mine]
    got, want = Runner(fn, *mine).run(*mine), fn(*theirs)
    for a, e in zip([*got, *mine], [*want, *theirs]):
        torch.testing.assert_close(a, e)


@case
def equal_kernels_are_one():
    runner = check(lambda x, y: (x.sin(), y.sin()), torch.randn(64), torch.randn(64))
    assert len(runner.source.kernels) == 1


@case
def indices_of_64_bits_where_the_buffer_is_huge():
    big = torch.empty_strided((2**31 + 9,), (1,), dtype=torch.int8, device="meta")
    runner = Runner(lambda x: x + 1, big)
    assert "to(tl.int64)" in runner.source.texts()[0]
    rows = torch.empty_strided((3, 2**31 // 2), (2**31 // 2, 1), dtype=torch.int8, device="meta")
    assert "to(tl.int64)" in Runner(lambda x: x.amax(1), rows).source.texts()[0]
    assert "to(tl.int64)" not in Runner(lambda x: x[:, :9] + 1, torch.empty(99, 9)).source.texts()[0]


@case
def what_jumps_sees_rounded_values():
    def fn(x):
        z = x * 1.01
        return z.argmax(1), z == z.amax(1, keepdim=True), z.floor(), z.to(torch.int32), z > x, (z.remainder(0.25) * 64).int()

    check(fn, torch.randn(8, 300).half())  # the interpreter cuts bfloat16 off


@cases(several=())
@with_limits(**SHARED)
def kernels_that_are_equal_but_for_sizes_are_one():
    """Means and sums of columns of several widths and heights: rows that programs share, constants that are floats,
    bounds of masks, and factors in addresses."""

    def fn(*args):
        out = []
        for x, y in zip(args[::2], args[1::2]):
            n = x.shape[0]
            out += [x.mean(0) * (n / (n - 1)), (x * y).sum(0), x / (1 + x.abs().sum(0))]
        return out

    shapes = [(300, 40), (304, 40), (600, 36), (308, 44), (301, 37)]
    args = [t for n, m in shapes for t in (torch.randn(n, m), torch.randn(m))]
    runner = check(fn, *args, rtol=1e-5, atol=1e-4)
    left = runner.source.kernels
    # a width of 37 differs from the others in how many neighbours a thread may load at once
    assert len(left) < len(runner.places)
    assert any(kernel.sizes and "bitcast=True" in kernel.text for kernel in left)
    assert any("(4 * size" in kernel.text for kernel in left)


@cases(several=())
@with_limits(**SHORT)
def numbers_of_which_the_meaning_depends_stay_in_the_kernel():
    """Divisors of indices, powers of 2, and integers that are added to or compared with values."""

    def fn(a, b, c, d):
        return a.view(6, 5).t() + 1, b.view(6, 7).t() + 1, c * 3 + 130, d * 5 + 120, (c > 3).to(torch.int8), (d > 5).to(torch.int8)

    args = torch.randn(30), torch.randn(42), torch.arange(-9, 31).to(torch.int8), torch.arange(-9, 31).to(torch.int8)
    check(fn, *args)
