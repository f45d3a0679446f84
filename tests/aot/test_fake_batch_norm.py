"""Batch normalisation and other norms on fake tensors: sizes and dtypes of all results are those of the kernels, and
compiled calls of the operators run as one graph."""

import contextlib
from unittest import mock

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import pyframe
from inductor.aot.fake_layout import mend_layouts

aten = torch.ops.aten
OPERATORS = {
    "native_batch_norm": (aten.native_batch_norm, True),
    "_native_batch_norm_legit": (aten._native_batch_norm_legit, True),
    "_native_batch_norm_legit_functional": (aten._native_batch_norm_legit_functional, True),
    "_batch_norm_with_update": (aten._batch_norm_with_update, False),
    "_batch_norm_with_update_functional": (aten._batch_norm_with_update_functional, False),
    "_batch_norm_no_update": (aten._batch_norm_no_update, False),
}
DTYPES = [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)]


def described(results):
    return [(x.shape, x.dtype) for x in results]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype, parameters", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_fake_results(name, dtype, parameters, training):
    mend_layouts()
    operator, takes_training = OPERATORS[name]
    args = [torch.randn(2, 3, 4, dtype=dtype), *(torch.rand(3, dtype=parameters) for _ in range(4))]
    rest = (training, 0.1, 1e-5) if takes_training else (0.1, 1e-5)
    with FakeTensorMode() as mode:
        fake = operator(*map(mode.from_tensor, args), *rest)
    assert described(fake) == described(operator(*args, *rest))


@pytest.mark.parametrize("dtype, parameters", DTYPES)
@pytest.mark.parametrize("name", ["native_layer_norm", "native_group_norm"])
def test_fake_statistics_of_other_norms(name, dtype, parameters):
    mend_layouts()
    x, weight = torch.randn(2, 4, 6, dtype=dtype), torch.rand(6 if name == "native_layer_norm" else 4, dtype=parameters)
    rest = (1e-5,) if name == "native_layer_norm" else (2, 4, 6, 2, 1e-5)
    shape = ([6],) if name == "native_layer_norm" else ()
    operator = getattr(torch, name)
    with FakeTensorMode() as mode:
        fake = operator(mode.from_tensor(x), *shape, mode.from_tensor(weight), mode.from_tensor(weight), *rest)
    assert described(fake) == described(operator(x, *shape, weight, weight, *rest))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype, parameters", DTYPES)
def test_compiled(dtype, parameters, training):
    def fn(x, weight, bias, mean, variance):
        return torch._native_batch_norm_legit(x, weight, bias, mean, variance, training, 0.1, 1e-5)

    args = [torch.randn(2, 3, 4, dtype=dtype), *(torch.rand(3, dtype=parameters) for _ in range(4))]
    copies = [x.clone() for x in args]
    want, got = fn(*args), pyframe.compile(fn, fullgraph=True, options={"strict": True})(*copies)
    assert described(got) == described(want)
    torch.testing.assert_close([*got, *copies], [*want, *args])


@contextlib.contextmanager
def counted():
    """A list of the operators that fake tensors compute within the block, with those that torch makes them of."""
    operators, plain = [], FakeTensorMode.dispatch

    def dispatch(self, func, *args):
        operators.append(func)
        return plain(self, func, *args)

    with mock.patch.object(FakeTensorMode, "dispatch", dispatch):
        yield operators


def in_format(shape, memory_format=torch.contiguous_format):
    return torch.randn(shape).contiguous(memory_format=memory_format)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    "x",
    [
        in_format((2, 3, 4, 5)), in_format((2, 3, 4, 5), torch.channels_last), in_format((2, 3)),
        in_format((2, 3, 2, 4, 5), torch.channels_last_3d), in_format((2, 4, 3)).transpose(1, 2),
        in_format((1, 3, 1, 1)), in_format((4, 6))[:, ::2], in_format((0, 3, 4)),
    ],
    ids=lambda x: f"{tuple(x.shape)}, {x.stride()}",
)  # fmt: skip
def test_given_statistics(x, affine):
    """With given statistics few operators run on fake tensors, and the results are laid out as those of the kernel."""
    mend_layouts()
    weight, mean = torch.rand(3) if affine else None, torch.rand(3)

    def fn(x, weight, mean):
        return torch.native_batch_norm(x, weight, weight, mean, mean, False, 0.1, 1e-5)

    with FakeTensorMode() as mode:
        args = [each if each is None else mode.from_tensor(each) for each in (x, weight, mean)]
        with counted() as operators:
            fake = fn(*args)
    want = fn(x, weight, mean)
    assert described(fake) == described(want)
    assert [each.stride() for each in fake] == [each.stride() for each in want]
    assert len(operators) < (8 if x.numel() else 80)


@pytest.mark.parametrize("length", [1, 4])
def test_statistics_of_another_length(length):
    mend_layouts()
    with FakeTensorMode() as mode, pytest.raises(RuntimeError):
        x, mean = mode.from_tensor(torch.randn(2, 3, 4)), mode.from_tensor(torch.rand(length))
        torch.nn.functional.batch_norm(x, mean, mean)
