"""Values of half precision that stay in float32 within a kernel: what jumps (comparisons, positions of extremes, rounding
to whole numbers, casts that the program asks for) sees them rounded to their dtype, as every other reader does."""

import pytest
import torch

import pyframe

HALVES = [torch.bfloat16, torch.float16]


def two_dimensional(dtype):
    torch.manual_seed(0)
    return torch.randn(40, 65).to(dtype), (torch.randn(65) * 3).to(dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_what_jumps_sees_rounded_values(dtype):
    """One multiplication and one addition: eager rounds twice, a kernel once, so numbers near a jump may go either way
    by one unit; no result of a jump may differ from that of the rounded values that the same kernel returns."""
    x, y = two_dimensional(dtype)

    def with_value(x, y):
        z = x * 1.01 + y
        return z, jumps_of(z, y)

    def jumps_of(z, y):
        return (
            z == z.amax(1, keepdim=True), z > z.roll(1, 0), z.argmax(1), z.argmin(0), z.max(1).indices, z.floor(),
            z.to(torch.int64), z.remainder(0.25), z.fmod(0.5), z // 0.125, z >= y, z.clamp(-0.5, 0.5) == z, z.isinf(),
            z.to(torch.float64), z.float() - z.double(),
        )  # fmt: skip

    value, found = pyframe.compile(with_value)(x, y)
    for k, (got, want) in enumerate(zip(found, jumps_of(value, y))):
        assert torch.equal(got, want), k


@pytest.mark.parametrize("dtype", HALVES)
def test_one_operation_before_the_jump(dtype):
    """Where eager too rounds once, results are equal."""
    x, _ = two_dimensional(dtype)

    def fn(x):
        z = x * 1.01
        return z.argmax(1), z.floor(), (z == z.amax(0)), z.to(torch.int32), z.remainder(0.25), z > x, (x * 3e4).isinf()

    for got, want in zip(pyframe.compile(fn)(x), fn(x)):
        assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", HALVES)
def test_casts_round(dtype):
    """The part of a float32 that half precision does not hold."""
    x = torch.randn(100)

    def fn(x):
        high = x.to(dtype).float()
        return high, x - high, (x - high).to(dtype)

    for got, want in zip(pyframe.compile(fn)(x), fn(x)):
        assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["amin", "amax"])
def test_gradients_of_extremes(name, dtype):
    """The backward asks which elements equal the saved extreme: at least one does."""

    def fn(x):
        return getattr((x * 1.01).exp().sub(1.1), name)(0)

    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(65, 7).to(dtype).requires_grad_()
        y = pyframe.compile(fn)(x)
        (grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
        assert grad.isfinite().all()
        assert ((grad != 0).sum(0) >= 1).all()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["eq", "lt", "ge", "fmod", "remainder", "floor_divide"])
def test_numbers_beyond_half_precision_are_converted_first(name, dtype):
    """2049 is 2048 in either dtype, as an element of an integer tensor and on the CPU as a number."""
    x, whole = torch.tensor([2048.0, 2064.0, 7.0], dtype=dtype), torch.tensor([2049, 2049, 7])

    def fn(x, whole):
        op = getattr(torch, name)
        return op(x, whole), op(x + 16, whole), op(x, 2049), op(x, whole[0]), op(whole[1:], x[1:])

    for got, want in zip(pyframe.compile(fn)(x, whole), fn(x, whole)):
        assert got.dtype == want.dtype and torch.equal(got, want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(2, 3), (5, 39)])
def test_moving_elements_keeps_the_sign_of_nan(dtype, shape):
    def signs(x):
        return x.tril(0).signbit(), torch.cat([x, x.flip(0)]), torch.where(x > 0, x, x)

    nan = float("nan")
    x = torch.tensor([nan, -nan, 1.5, -0.0, -nan]).repeat(shape[0] * shape[1])[: shape[0] * shape[1]].reshape(shape)
    x = (x.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16) if dtype == torch.bfloat16 else x.half()
    assert x.isnan().any() and (x.isnan() & x.signbit()).any() and (x.isnan() & ~x.signbit()).any()
    for want, got in zip(signs(x), pyframe.compile(signs)(x)):
        assert torch.equal(got.signbit(), want.signbit())
