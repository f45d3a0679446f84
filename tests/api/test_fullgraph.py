"""With `fullgraph=True` a call gives one graph or raises: a whole frame that would run eagerly is an error, too."""

import builtins
import warnings

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import pyframe
from pyframe.errors import Unsupported

X = torch.arange(6.0).reshape(2, 3)


def f(x):
    return x.sin() * 2


def generator(x):
    yield x.sin()


async def coroutine(x):
    return x.sin()


async def async_generator(x):
    yield x.sin()


class GeneratorModule(torch.nn.Module):
    def forward(self, x):
        yield x.sin()


class Seen(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "target", [generator, coroutine, async_generator, GeneratorModule()], ids=lambda target: type(target).__name__
)
def test_a_frame_that_suspends_is_an_error(target):
    with pytest.raises(Unsupported):
        pyframe.compile(target, backend="eager", fullgraph=True)(X)


def test_a_generator_is_reported_by_explain():
    assert "generator" in str(pyframe.explain(generator, backend="eager")(X))


def test_a_generator_function_without_fullgraph_runs_eagerly():
    (got,) = pyframe.compile(generator, backend="eager")(X)
    torch.testing.assert_close(got, X.sin())


def test_generators_within_a_function_are_captured():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm

    got = pyframe.compile(lambda x: sum(generator(x)), backend=backend, fullgraph=True)(X)
    torch.testing.assert_close(got, X.sin())
    assert len(graphs) == 1


def under_dispatch_mode(fn):
    with Seen():
        return fn(X)


def under_dual_level(fn):
    with forward_ad.dual_level():
        return fn(forward_ad.make_dual(X, X))


@pytest.mark.parametrize("captured_before", [False, True])
@pytest.mark.parametrize("call", [
    lambda fn: torch.vmap(fn)(X),
    lambda fn: torch.func.grad(lambda x: fn(x).sum())(X),
    under_dual_level,
    under_dispatch_mode,
    lambda fn: torch.jit.trace(fn, X, check_trace=False),
], ids=["vmap", "grad", "dual_level", "dispatch_mode", "jit_trace"])  # fmt: skip
def test_a_call_that_something_around_it_observes_is_an_error(call, captured_before):
    compiled = pyframe.compile(f, backend="eager", fullgraph=True)
    if captured_before:
        compiled(X)
    with warnings.catch_warnings(), pytest.raises(Unsupported, match=r"f \(.*fullgraph"):
        warnings.simplefilter("ignore")  # torch.jit.trace is deprecated
        call(compiled)
    torch.testing.assert_close(compiled(X), f(X))


def test_transforms_inside_of_the_compiled_function_are_captured():
    compiled = pyframe.compile(f, backend="eager", fullgraph=True)
    outer = pyframe.compile(lambda x: torch.vmap(compiled)(x), backend="eager", fullgraph=True)
    torch.testing.assert_close(outer(X), f(X))


class Computing(torch.Tensor):
    """A subclass whose operators give the result of `compute`."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls.compute(X)


def test_a_call_by_torch_dispatch_of_a_subclass_warns_once(monkeypatch):
    compiled = pyframe.compile(f, backend="eager", fullgraph=True)
    monkeypatch.setattr(Computing, "compute", staticmethod(compiled), raising=False)
    subclass = torch.Tensor._make_subclass(Computing, X)
    with pytest.warns(UserWarning, match="f .* runs eagerly despite fullgraph"):
        torch.testing.assert_close(subclass.exp(), f(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(subclass.exp(), f(X))


def test_replaced_builtins_are_an_error(monkeypatch):
    compiled = pyframe.compile(f, backend="eager", fullgraph=True)
    compiled(X)
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "isinstance", lambda x, kinds, original=isinstance: original(x, kinds))
        with pytest.raises(Unsupported, match="replaced"):
            pyframe.compile(f, backend="eager", fullgraph=True, isolate_recompiles=True)(X)
    torch.testing.assert_close(compiled(X), f(X))
