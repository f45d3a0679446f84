"""Writes at positions given by index tensors, into inputs on a GPU: each is a store of a kernel, and the inputs and results
afterwards are those of eager."""

# ruff: noqa: E402
import copy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tools.fuzz_graphs import fake_cuda

fake_cuda.install()

import pytest
import torch
from in_place_programs import PROGRAMS, arguments, layouts, masked
from recorded_plans import PLANS

import pyframe
from inductor.runtime.plan_spec import Extern, Launch


def compared(fn, *args, **options):
    """Compares results and inputs with those of eager; the numbers of calls of ATen and of kernels."""
    PLANS.clear()
    expected, given = copy.deepcopy(args), copy.deepcopy(args)
    with torch.no_grad():
        want, got = fn(*expected), pyframe.compile(fn, options=options or {"strict": True})(*given)
    tolerance = 3e-2 if args[0].dtype.itemsize == 2 else 1e-5
    torch.testing.assert_close((got, given), (want, expected), rtol=tolerance, atol=tolerance)
    steps = [step for spec in PLANS for step in spec.steps]
    return sum(isinstance(s, Extern) for s in steps), sum(isinstance(s, Launch) for s in steps)


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def cache(dtype=torch.float32):
    return torch.randn(2, 3, 10, 8).to(dtype), torch.randn(2, 3, 2, 8).to(dtype), torch.tensor([7, 2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cache_is_written_by_the_kernel_that_rotates_the_keys(dtype):
    def fn(c, k, pos, cos, sin):
        c.index_copy_(2, pos, rotated(k, cos, sin))

    assert compared(fn, *cache(dtype), torch.randn(2, 8).to(dtype), torch.randn(2, 8).to(dtype)) == (0, 1)


def test_keys_and_values_are_written_by_one_kernel():
    def fn(c, k, pos, d, v):
        c.index_copy_(2, pos, k * 2)
        d[:, :, pos] = v + k

    c, k, pos = cache()
    assert compared(fn, c, k, pos, c.clone(), k.clone()) == (0, 1)


def test_a_sum_over_a_row_is_written_by_its_kernel():
    def fn(c, x, pos):
        c[pos] = x.sum(-1)

    assert compared(fn, torch.randn(9), torch.randn(4, 300), torch.tensor([3, 0, -1, 5])) == (0, 1)


def test_ways_of_indexing():
    c, k, pos = cache()

    def apart(c, k, pos):
        c[pos, :, pos + 1] = k[:, :, 0]

    def several(c, k, pos):
        c[:, pos, -pos - 1] = k[:, 0]

    def broadcast(c, k, pos):
        c[pos[:, None], pos] = k[0, 0, 0, 0]

    def part_of_the_source(c, k, pos):
        c.scatter_(2, pos.view(1, 1, 2, 1).expand(1, 2, 2, 5), k)

    def number(c, k, pos):
        c.scatter_(3, pos.view(1, 1, 1, 2).expand(2, 3, 4, 2), 2.5)
        c.index_fill_(1, -pos - 1, 3)

    small = torch.tensor([1, 0])
    assert compared(apart, c, k, small) == (0, 1)
    assert compared(several, c, k, small) == (0, 1)
    assert compared(broadcast, c, k, small) == (0, 1)
    assert compared(part_of_the_source, c, k, pos) == (1, 0)  # by ATen: it looks at all of the source
    assert compared(number, c, k, small) == (0, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_dtypes(dtype):
    c, k, pos = cache()
    assert compared(lambda c, k, pos: c.index_copy_(2, pos, k), (c * 9).to(dtype), (k * 9).to(dtype), pos) == (0, 1)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool])
def test_dtypes_of_integers(dtype):
    c, k, pos = cache()
    compared(lambda c, k, pos: c.index_copy_(2, pos, k), (c * 9).to(dtype), (k * 9).to(dtype), pos)


def test_a_value_that_reads_what_is_written_is_computed_before():
    def moved(c, k, pos):
        c[:, :, pos] = c[:, :, pos + 1] * 2

    def exchanged(c, k, pos):
        c[:, :, pos] = c[:, :, pos.flip(0)]

    def positions_are_written(c, k, pos):
        pos[pos - 2] = pos + 1

    assert compared(moved, *cache()) == (0, 2)
    assert compared(exchanged, *cache()) == (0, 2)
    assert compared(positions_are_written, *cache()[:2], torch.tensor([3, 2, 4])) == (0, 2)


def test_reads_before_and_after_a_write_see_what_was_there():
    def fn(c, k, pos):
        old = c[:, :, pos] * 2
        c[:, :, pos] = k
        new = c[:, :, pos] * 3
        c[:, :, pos] = k + 1
        return old, new, c[:, :, pos]

    compared(fn, *cache())


def test_reads_at_another_index_of_the_same_name_are_not_fused():
    def fn(c, k, pos, at):
        c[pos] = k
        return c[at] + 1

    c, k = torch.randn(10, 16), torch.randn(2, 16)
    assert compared(fn, c, k, torch.tensor([7, 2]), torch.tensor([2, 7])) == (0, 2)


def test_several_writes_happen_in_order():
    def fn(c, k, pos):
        c.index_copy_(2, pos, k)
        c.index_copy_(2, pos[:1], k[:, :, 1:] + 1)
        c[:, :, 2:4] = k

    assert compared(fn, *cache()) == (0, 3)


def test_sums_are_atomic_additions():
    def along(c, k, pos):
        c.index_add_(2, pos, k * 2)

    def elements(c, k, pos):
        c.scatter_add_(2, pos.view(1, 1, 2, 1).expand(2, 3, 2, 8) // 9, k.exp())

    c, k, pos = cache()
    assert compared(along, c, k, torch.tensor([7, 7])) == (0, 1)
    assert compared(elements, c, k, pos) == (0, 1)
    assert compared(along, c.double(), k.double(), torch.tensor([7, 7])) == (0, 1)
    assert compared(along, c.bfloat16(), k.bfloat16(), pos) == (1, 1)  # by ATen, of a product that a kernel computes


def test_a_new_tensor_is_a_copy_that_is_written_to():
    def put(c, k, pos):
        new = (c + 1).index_put((pos[:, None], pos), k[:, :2, :1] * 2)
        return new * 2, c + 2

    def chain(c, k, pos):
        new = c.index_copy(2, pos, k).index_add(2, pos, c[:, :, pos]).scatter(2, pos.view(1, 1, 2, 1), 7.0)
        return new, new.transpose(1, 2).scatter_add(1, pos.view(1, 2, 1, 1), k.transpose(1, 2)[:1, :, :1, :1]).sum(-1)

    def sums_of_groups(x, at):
        total = torch.zeros_like(x[:4]).index_add(0, at, x)
        count = torch.zeros_like(total[:, 0]).scatter_add(0, at, torch.ones_like(x[:, 0]))
        return total / count.clamp(min=1)[:, None]

    c, k, pos = cache()
    assert compared(put, c, k, torch.tensor([1, 0])) == (0, 3)
    assert compared(chain, c, k, pos)[0] == 0
    assert compared(chain, c.transpose(1, 3).contiguous().transpose(1, 3), k, pos)[0] == 0
    assert compared(sums_of_groups, torch.randn(30, 7), torch.randint(4, (30,)))[0] == 0


def test_a_gradient_is_summed_by_atomic_additions():
    def fn(x, at):
        return (x.exp().gather(1, at) * 2).sin() + x.index_select(1, at[0])

    x, at = torch.randn(3, 9), torch.randint(9, (3, 5))
    grads = []
    for call in (fn, pyframe.compile(fn, options={"strict": True})):
        leaf = x.clone().requires_grad_()
        grads.append(torch.autograd.grad(call(leaf, at).cos().sum(), leaf))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("bad", [10, -11, 2**40])
@pytest.mark.parametrize("way", ["index_put", "index_copy", "scatter"])
def test_an_index_out_of_bounds_is_an_error_and_writes_nothing(bad, way):
    def fn(c, k, pos):
        if way == "index_put":
            c[:, pos] = k
        elif way == "index_copy":
            c.index_copy_(1, pos, k)
        else:
            c.scatter_(1, pos.expand(3, 2), k)

    c, k = torch.zeros(3, 10), torch.ones(3, 2)
    compiled = pyframe.compile(fn)
    compiled(c.clone(), k, torch.tensor([2, 3]))
    with pytest.raises((IndexError, RuntimeError)):
        compiled(c, k, torch.tensor([2, bad]))
    assert c.nonzero().tolist() in ([], [[0, 2], [1, 2], [2, 2]])


@pytest.mark.parametrize("way", ["index_copy", "scatter"])
def test_negative_indices_are_out_of_bounds_where_eager_has_none(way):
    def fn(c, k, pos):
        c.index_copy_(1, pos, k) if way == "index_copy" else c.scatter_(1, pos.expand(3, 2), k)

    c, k = torch.zeros(3, 10), torch.ones(3, 2)
    with pytest.raises((IndexError, RuntimeError)):
        pyframe.compile(fn)(c, k, torch.tensor([2, -1]))
    assert not c[:, 3:].any()


def test_what_aten_does():
    def fn(c, k, pos):
        c.index_copy_(2, pos, k)

    c, k, pos = cache()
    assert compared(fn, c[:, :, :1].contiguous(), k[:, :, :1], torch.tensor([0])) == (1, 0)  # a dimension of size 1
    torch.use_deterministic_algorithms(True)
    try:
        assert compared(fn, c, k, pos) == (1, 0)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p is not masked], ids=lambda f: f.__name__)
def test_programs(program):
    for args in layouts(arguments()):
        compared(program, *args, strict=False)  # as if on a GPU, a constant is on the CPU: not every graph compiles
