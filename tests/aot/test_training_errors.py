"""Bad input under training: an error of eager's type, as clear a message, and nothing broken after it."""

import os

import forked_python
import pytest
import torch
import torch.nn.functional as F
from torch import fx

import inductor
import pyframe


def leaf(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def compiled(fn, *inputs):
    gm = fx.symbolic_trace(fn)
    call = inductor.compile_fx(gm, inputs, options={"strict": True})
    assert gm.meta["compile_report"].fallback is None
    return call


def both(fn, inputs, act):
    """The errors that `act(call, *inputs)` ends in, eager's first."""
    errors = []
    for call in (fn, compiled(fn, *inputs)):
        with pytest.raises(Exception) as error:
            act(call, *[x.detach().clone().requires_grad_(x.requires_grad) for x in inputs])
        errors.append(error.value)
    assert type(errors[0]) is type(errors[1]), errors
    return map(str, errors)


def body(x, w):
    return F.gelu(x @ w) @ w


def test_backward_twice():
    def act(call, x, w):
        loss = call(x, w).sum()
        loss.backward()
        loss.backward()

    eager, ours = both(body, [leaf(3, 4), leaf(4, 4)], act)
    assert ours == eager and "a second time" in ours


@pytest.mark.parametrize("which", [0, 1])
def test_a_saved_tensor_written_before_the_backward(which):
    def act(call, *inputs):
        loss = call(*inputs).sum()
        with torch.no_grad():
            inputs[which].add_(1)
        loss.backward()

    eager, ours = both(body, [leaf(3, 4), leaf(4, 4)], act)
    message = "modified by an inplace operation: [torch.FloatTensor ["
    assert message in eager and message in ours and "is at version 1; expected version 0 instead" in ours


def write_of_no_elements(x):
    x[:0].copy_(x[:1])


@pytest.mark.parametrize("write", [torch.Tensor.zero_, write_of_no_elements])
@pytest.mark.parametrize("fn", [lambda x: F.hardtanh(x), lambda x: F.leaky_relu(x, 0.1), lambda x: x.amax(0)])
def test_an_input_written_of_which_the_backward_keeps_a_mask(fn, write):
    """Eager saves the input, no leaf, and raises; the compiled backward gives the gradient at the values of the
    forward."""
    x = leaf(3, 4)
    (expected,) = torch.autograd.grad(fn(x).sum(), x)
    for call in (fn, compiled(fn, x * 1)):
        given = x * 1
        loss = call(given).sum()
        write(given.detach())
        if call is fn:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        else:
            torch.testing.assert_close(torch.autograd.grad(loss, x), (expected,))


def test_a_write_of_no_elements_within_the_graph():
    """The same, where autograd records the write, so that the graph is split before it."""

    def fn(x):
        y = F.hardtanh(x)
        x[:0].copy_(x[:1])
        return y

    x = leaf(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        fn(x * 1).sum().backward()
    call = inductor.compile_fx(fx.symbolic_trace(fn), [x * 1], options={"strict": True})
    (gradient,) = torch.autograd.grad(call(x * 1).sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(F.hardtanh(x).sum(), x)[0])


def test_a_result_written_before_the_backward():
    def act(call, x, w):
        y = call(x, w)
        y.sum().backward(retain_graph=True)
        y.detach().mul_(2)
        y.sum().backward()

    eager, ours = both(lambda x, w: (x @ w).exp(), [leaf(3, 4), leaf(4, 4)], act)
    assert "is at version 1; expected version 0" in eager and "is at version 1; expected version 0" in ours


class Quotient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = 1 / x
        ctx.save_for_backward(x, y)
        return y, x + 1

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return h * y + x


@pytest.mark.parametrize("fn", [
    lambda x: ((y := x * 2), y.sin() + x.cos()), lambda x: ((y := x + 1), y.sin() * x),
    lambda x: ((y := x.exp()), y.view(-1).square().sum() + x.sin().sum()), Quotient.apply,
])  # fmt: skip
def test_a_written_result_that_the_backward_could_compute_from_an_input(fn):
    """Autograd saved the result, and the input as well."""
    for call in (fn, pyframe.compile(fn, options={"strict": True})):
        y, z = call(leaf(3, 4))
        y.detach().mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()
        y, z = call(leaf(3, 4))
        z.sum().backward()


def test_a_gradient_of_another_shape():
    eager, ours = both(body, [leaf(3, 4), leaf(4, 4)], lambda call, x, w: call(x, w).backward(torch.ones(2, 4)))
    assert ours == eager


def test_backward_of_more_than_one_number():
    eager, ours = both(body, [leaf(3, 4), leaf(4, 4)], lambda call, x, w: call(x, w).backward())
    assert ours == eager


def test_an_input_written_that_is_a_leaf():
    def writes(x, w):
        x.mul_(2)
        return x * w

    inputs = [leaf(3), leaf(3)]
    gm = fx.symbolic_trace(writes)
    with pytest.warns(UserWarning, match="a leaf Variable that requires grad"):
        call = inductor.compile_fx(gm, inputs)
    for fn in (writes, call):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            fn(*inputs)


@pytest.mark.parametrize("x, w", [("cpu", "meta"), ("meta", "cpu")])
def test_tensors_of_different_devices(x, w):
    inputs = [torch.randn(3, 4, device=d, requires_grad=True) for d in (x, w)]
    fn = lambda x, w: (x + 1) * w
    with pytest.raises(Exception) as eager:
        fn(*inputs)
    with pytest.warns(UserWarning, match="device"):
        call = inductor.compile_fx(fx.symbolic_trace(fn), inputs)
    with pytest.raises(type(eager.value)) as ours:
        call(*inputs)
    assert str(ours.value).startswith(str(eager.value)) and "raised by mul" in str(ours.value)


def test_an_index_out_of_range():
    def act(call, table, ids):
        call(table, ids).sum().backward()

    fn = lambda table, ids: F.embedding(ids, table).sin()
    table, ids = leaf(5, 4), torch.tensor([1, 7])
    call = compiled(fn, table, torch.tensor([1, 2]))
    with pytest.raises(IndexError, match="out of range"):
        act(fn, table, ids)
    with pytest.raises(IndexError, match="out of range"):
        act(call, table, ids)
    act(call, table, torch.tensor([1, 2]))  # the next call works


def test_a_class_that_does_not_exist():
    fn = lambda logits, targets: F.cross_entropy(logits, targets)
    logits, good, bad = leaf(3, 4), torch.tensor([0, 3, -100]), torch.tensor([0, 4, 1])
    call = compiled(fn, logits, good)
    for f in (fn, call):
        with pytest.raises(IndexError, match="out of (range|bounds)"):
            f(logits, bad)
    torch.testing.assert_close(*(torch.autograd.grad(f(logits, good), logits) for f in (fn, call)))


PROGRAM = """
import torch, inductor
from torch import fx
fn = lambda x, w: (x @ w).tanh()
x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
inductor.compile_fx(fx.symbolic_trace(fn), [x, w], options={"strict": True})(x, w).sum().backward()
print(x.grad is not None, torch.cuda.is_available())
messages = []
for call in (fn, inductor.compile_fx(fx.symbolic_trace(fn), [x, w])):
    try:
        call(x.cuda(), w)
    except Exception as error:
        messages.append((type(error), str(error)))
print(messages[0] == messages[1] and len(messages) == 2)
"""


def test_no_device_is_visible():
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = forked_python.run(PROGRAM, environment=env)
    assert done.stdout.split() == ["True", "False", "True"], (done.stdout, done.stderr)


def _returns_sum(x):
    return x + 1, (x + 1).exp()


@pytest.mark.parametrize("fn", [lambda x: x + 1, lambda x: x * 2, lambda x: x.view(3, 1) - x, _returns_sum])
@pytest.mark.filterwarnings("ignore:inductor. a backward after some saved tensors")
def test_backward_passes_that_do_not_retain_the_graph(fn):
    """A second one raises an error if it needs saved tensors that the first one freed."""

    def outcomes(run):
        x = torch.ones(3, requires_grad=True)
        results = run(x)
        for k in (0, 0, -1, -1, 0):
            try:
                (results[k] if isinstance(results, tuple) else results).sum().backward()
            except RuntimeError as error:
                assert "second time" in str(error)
                yield "error"
            else:
                yield [f"{n:.4f}" for n in x.grad.tolist()]

    assert list(outcomes(pyframe.compile(fn))) == list(outcomes(fn))


def test_an_index_out_of_range_has_no_context():
    """The graph runs again with ATen after the kernel that found the index, outside of the handler for that."""

    def lookup(x, index):
        return x.exp().index_select(0, index)

    x = leaf(3, 2)
    call = compiled(lookup, x, torch.tensor([0, 2]))
    with pytest.raises((IndexError, RuntimeError)) as error:
        call(x, torch.tensor([0, 3]))
    assert error.value.__context__ is None
