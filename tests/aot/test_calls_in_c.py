"""The autograd node of a compiled graph in C does what it does in Python, without Python code where nothing is special."""

import sys
import threading
import warnings

import pytest
import torch
from torch import fx

import inductor
from inductor.aot import autograd, calls_in_c
from inductor.extension import _C

pytestmark = pytest.mark.skipif(_C is None, reason="the C extension is not built")


def products(x, y):
    return (x * y).sin() * y, x.exp()


def copies(x, y):  # nothing is saved
    return (x + 2.5 * y, x.flip(0))


def of_both(x, y):
    return (x * y).sin() * y, x.exp() / y


FUNCTIONS = [products, copies]


def backward(results, grads=None, **how):
    torch.autograd.backward(results, grads or [torch.full_like(x, 2.0) for x in results], **how)


def once(call, x, y):
    backward(call(x, y))


def retained(call, x, y):
    results = call(x, y)
    backward(results, retain_graph=True)
    backward(results)


def twice(call, x, y):
    results = call(x, y)
    backward(results)
    backward(results)


def one_after_the_other(call, x, y):
    for each in call(x, y):
        backward([each])


def another_layout(call, x, y):
    results = call(x, y)
    grads = [torch.arange(12.0).view(4, 3).t(), torch.ones(()).expand(3, 4)]
    backward(results, grads)


def second_derivative(call, x, y):
    first = torch.autograd.grad(sum(map(torch.sum, call(x, y))), [x, y], create_graph=True)
    if first[0].requires_grad:
        backward([first[0]])


def written(call, x, y):
    results = call(x, y)
    with torch.no_grad():
        y.add_(1)
        results[1].mul_(2)
    backward(results)


def saved_tensor_hooks(call, x, y):
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t.clone(), lambda t: t * 2):
        results = call(x, y)
    backward(results)
    assert len(packed) < 4


def raising_hooks(call, x, y):
    def unpack(t):
        calls.append(1)
        raise RuntimeError("not to be unpacked")

    calls = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        results = call(x, y)
    try:
        backward(results)
    finally:
        assert len(calls) <= 1


def hooks(call, x, y):
    results = call(x, y)
    results[0].register_hook(lambda g: g * 3)
    results[1].register_hook(lambda g: x.register_hook(lambda h: h + 1) and None)
    backward(results)


def anomaly(call, x, y):
    with torch.autograd.detect_anomaly(check_nan=True):
        results = call(x, y)
        backward(results, [torch.full_like(results[0], float("nan")), torch.ones_like(results[1])])


def other_thread(call, x, y):
    results = call(x, y)
    thread = threading.Thread(target=backward, args=(results,))
    thread.start()
    thread.join()


def no_grad(call, x, y):
    with torch.no_grad():
        assert not any(result.requires_grad for result in call(x, y))
    once(call, x, y)


def inference_tensor(call, x, y):
    with torch.inference_mode():
        other = torch.ones(3, 4)
    once(call, x, other)


USES = [once, retained, twice, one_after_the_other, another_layout, second_derivative, written, saved_tensor_hooks,
        raising_hooks, hooks, anomaly, other_thread, no_grad, inference_tensor]  # fmt: skip


def compiled(fn):
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    return inductor.compile_fx(fx.symbolic_trace(fn), [x, y])


def observed(call, use):
    """The gradients after a use, or what it raised."""
    inputs = [torch.randn(3, 4, generator=torch.Generator().manual_seed(i)).requires_grad_() for i in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            use(call, *inputs)
        except RuntimeError as error:
            return type(error), str(error).splitlines()[0]
    return [None if x.grad is None else x.grad.tolist() for x in inputs]


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda x: x.__name__)
@pytest.mark.parametrize("use", USES, ids=lambda x: x.__name__)
def test_in_c_as_in_python(monkeypatch, fn, use):
    in_c = observed(compiled(fn), use)
    monkeypatch.setattr(autograd, "_C", None)
    monkeypatch.setattr(calls_in_c, "_C", None)
    assert in_c == observed(compiled(fn), use)


@pytest.mark.parametrize("fn", [of_both, lambda x, y: (x + 2.5 * y, (x - y).flip(0))])
def test_no_python_code_runs_in_a_call_and_its_backward(fn):
    def note(frame, event, argument):
        if event == "call" and "inductor" in frame.f_globals["__name__"]:
            seen.append(frame.f_code.co_name)

    call, seen = compiled(fn), []
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    sys.setprofile(note)
    try:
        once(call, x, y)
    finally:
        sys.setprofile(None)
    assert seen == []
