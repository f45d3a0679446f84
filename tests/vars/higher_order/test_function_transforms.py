"""torch.func, checkpoints, autograd.Function and modes in a traced program."""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)
from util import same

import pyframe
from pyframe.metrics import counters

X = torch.arange(12.0).reshape(3, 4) / 10
NET = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
SCALE = {"value": 3.0}


def agree(fn: Callable[..., Any], *args: Any, breaks: int | None = 0, backend: str = "eager") -> None:
    """A miss and a hit give eager's results and gradients."""
    pyframe.reset()
    compiled = pyframe.compile(fn, backend=backend)
    want, wanted = run(fn, args)
    for turn in ("miss", "hit"):
        got, grads = run(compiled, args)
        if backend == "eager":
            assert same(want, got), f"{turn}: eager {want}, captured {got}"
            assert same(wanted, grads), f"{turn}: gradients {wanted}, captured {grads}"
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(grads, wanted)
    if breaks is not None:
        assert sum(counters["graph_breaks"].values()) == breaks, counters["graph_breaks"]


def run(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Any]:
    args = copy.deepcopy(args)
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    leaves += [p for a in args if isinstance(a, nn.Module) for p in a.parameters()]
    out = fn(*args)
    found = out if isinstance(out, tuple) else (out,)
    total = sum((o.sum() for o in found if isinstance(o, torch.Tensor) and o.requires_grad), torch.zeros(()))
    grads = torch.autograd.grad(total, leaves, allow_unused=True) if leaves and total.requires_grad else ()
    return out, grads


# ---- torch.func ----
def per_example(net, x):
    return vmap(lambda row: net(row).sum())(x)


def per_example_gradients(net, x):
    return vmap(grad(lambda row: net(row).sum()))(x)


def gradients_of_weights(net, x):
    weights = {name: p.detach() for name, p in net.named_parameters()}

    def loss(weights, row):
        return functional_call(net, weights, (row,)).sum()

    return vmap(grad(loss), in_dims=(None, 0))(weights, x)


def other_dims(net, x):
    a = vmap(torch.dot, in_dims=(1, 1))(x, x)
    b = vmap(lambda u, v: (u * v, {"k": u + v.sum()}), in_dims=(0, None), out_dims=1)(x, x[0])
    return a, b


def gradient_and_value(net, x):
    def loss(x, y):
        return (x * y).sum() * SCALE["value"], (x + y, [y])

    (gx, gy), (value, (aux, rest)) = grad_and_value(loss, argnums=(0, 1), has_aux=True)(x, x + 1)
    only, aux_only = grad(loss, has_aux=True)(x, x)
    return gx, gy, value, aux, rest, only, aux_only


def nested_gradients(net, x):
    return grad(lambda y: grad(lambda z: (z**3).sum())(y).sum())(x)


def nested_batches(net, x):
    return vmap(vmap(lambda a, b: a * b, in_dims=(0, None)), in_dims=(None, 0))(x[0], x[:, 0])


def random_per_example(net, x):
    return vmap(lambda row: row * 2 + x.mean(), randomness="different")(x)


TRANSFORMS = [
    per_example, per_example_gradients, gradients_of_weights, other_dims, gradient_and_value, nested_gradients,
    nested_batches, random_per_example,
]  # fmt: skip


@pytest.mark.parametrize("fn", TRANSFORMS, ids=lambda fn: fn.__name__)
def test_transforms_are_one_graph(fn):
    agree(fn, NET, X)


@pytest.mark.parametrize("fn", [per_example_gradients, gradient_and_value], ids=lambda fn: fn.__name__)
def test_transforms_compile(fn):
    agree(fn, NET, X, backend="inductor", breaks=None)


def test_a_value_read_by_a_transformed_function_is_guarded():
    compiled = pyframe.compile(gradient_and_value, backend="eager")
    first = compiled(NET, X)
    SCALE["value"] = 5.0
    try:
        torch.testing.assert_close(compiled(NET, X)[0], first[0] / 3 * 5)
    finally:
        SCALE["value"] = 3.0


def reverse(net, x):
    out, back = vjp(lambda y: y.sin() * SCALE["value"], x)
    found, back_of_two, aux = vjp(lambda a, b: ({"s": (a * b).sum(), "p": a + b}, a * 3), x, x + 1, has_aux=True)
    return out, back(torch.ones_like(x)), back(x)[0], found, back_of_two({"s": torch.tensor(2.0), "p": x}), aux


def forward(net, x):
    one = jvp(torch.sin, (x,), (torch.ones_like(x),))
    two = jvp(lambda a, b: (a * b).sin() + x, (x, x + 1), (torch.ones_like(x), x))
    return one, two, jvp(lambda p: (p["a"] * p["b"], p["a"]), ({"a": x, "b": x + 1},), ({"a": x, "b": x},), has_aux=True)


def jacobians(net, x):
    return (
        jacrev(torch.sin)(x[0]), jacfwd(lambda a, b: (a * b, a.sum()))(x[0], x[1]),
        jacrev(lambda a, b: ({"k": a * b}, b), argnums=1, has_aux=True)(x[0], x[1]),
        jacrev(lambda a: a.cos() * a, chunk_size=2)(x[0]),
    )  # fmt: skip


def jacobian_of_several(net, x):
    return jacfwd(lambda a, b: (a * b, a.sum()), argnums=(0, 1))(x[0], x[1])


def second_derivatives(net, x):
    return hessian(lambda y: (y**3).sum())(x[0]), jacrev(jacfwd(torch.sin))(x[0]), vmap(jacrev(torch.sin))(x)


JACOBIAN = jacrev(lambda y: y.cos() * y)


def made_outside(net, x):
    return JACOBIAN(x[0]) + 1


def with_numbers(net, x):
    size, factor = x.shape[0], 3
    return grad(lambda a, n: (a**n).sum() * size)(x, factor), vjp(lambda a: a * factor, x)[1](x)


def of_modules(net, x):
    return jacrev(net)(x[0]), vjp(net, x)[1](torch.ones(3, 1))


DERIVATIVES = [
    reverse, forward, jacobians, jacobian_of_several, second_derivatives, made_outside, with_numbers, of_modules,
]  # fmt: skip


@pytest.mark.parametrize("fn", DERIVATIVES, ids=lambda fn: fn.__name__)
def test_derivatives_are_one_graph(fn):
    if fn is jacobian_of_several and _jacfwd_reads_tensors():
        pytest.skip("jacfwd of this torch reads offsets of several arguments from a tensor, which fake tensors have not")
    agree(fn, NET, X)


def _jacfwd_reads_tensors() -> bool:
    with FakeTensorMode():
        x = torch.ones(2)
        try:
            jacfwd(torch.mul, argnums=(0, 1))(x, x)
        except DataDependentOutputException:
            return True
    return False


@pytest.mark.parametrize("fn", DERIVATIVES, ids=lambda fn: fn.__name__)
def test_derivatives_compile(fn):
    agree(fn, NET, X, backend="inductor", breaks=None)


def pullback_is_given(x):
    return vjp(torch.sin, x)


def pullback_outlives_a_break(x):
    out, back = vjp(torch.sin, x)
    pyframe.graph_break()
    return out, back(x)[0] + 1


def test_a_pullback_leaves_the_graph():
    pyframe.reset()
    out, back = pyframe.compile(pullback_is_given, backend="eager")(X)
    assert torch.equal(out, X.sin()) and torch.equal(back(X)[0], X.cos() * X)
    agree(pullback_outlives_a_break, X, breaks=None)


# ---- autograd inside ----
def gradient_inside(x, w):
    loss = ((x * w) ** 2).sum()
    (found,) = torch.autograd.grad(loss, [w])
    return found * 2, loss.detach()


def gradient_that_is_recorded(x, w):
    (found,) = torch.autograd.grad(((x * w) ** 3).sum(), w, create_graph=True)
    return (found * found).sum()


def gradient_of_what_was_given(x, w):
    return torch.autograd.grad(w.sum(), x, allow_unused=True)


def backward_inside(x, w):
    loss = (x * w).sum()
    loss.backward()
    return w.grad * 2


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("fn", [gradient_inside, gradient_that_is_recorded], ids=lambda fn: fn.__name__)
def test_autograd_grad_is_in_the_graph(fn, backend):
    agree(fn, X, X.cos().requires_grad_(), backend=backend)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_autograd_outside_of_the_graph(backend):
    agree(backward_inside, X, X.cos().requires_grad_(), backend=backend, breaks=None)
    agree(gradient_of_what_was_given, X.clone().requires_grad_(), X.cos().requires_grad_(), breaks=None)


def ensembles(net, x):
    weights, buffers = stack_module_state([net, net])
    return vmap(lambda w, b, row: functional_call(net, (w, b), (row,)), in_dims=(0, 0, None))(weights, buffers, x)


def leaks_from_inside(net, x):
    kept = []

    def fn(row):
        kept.append(row.sum().detach() * 0)
        return row * 2

    return vmap(fn)(x), len(kept)


def changes_outside(net, x):
    seen = {}

    def fn(y):
        seen["shape"] = y.shape
        net.calls = 1
        return y.sum()

    return grad(fn)(x), seen, net.calls


def raises_inside(net, x):
    def fn(row):
        if row.dim() == 1:
            raise ValueError("one dimension")
        return row

    try:
        return vmap(fn)(x)
    except ValueError as error:
        return x + len(str(error))


BROKEN = [ensembles, leaks_from_inside, changes_outside, raises_inside]


@pytest.mark.parametrize("fn", BROKEN, ids=lambda fn: fn.__name__)
def test_other_transforms_are_right(fn):
    agree(fn, NET, X, breaks=None)


# ---- checkpoints ----
def checkpointed(net, x):
    y = checkpoint(net, x, use_reentrant=False)
    return checkpoint(lambda a, b: a * b, y, x, use_reentrant=False)


def segments(net, x):
    return checkpoint_sequential(net, 2, x, use_reentrant=False)


def reentrant(net, x):
    return checkpoint(net, x, use_reentrant=True)


def breaking(net, x):
    def body(x):
        y = net(x) * x
        print(end="")
        return y.sin()

    return checkpoint(body, x, use_reentrant=False) * 2


def test_checkpoint_of_a_function_that_breaks():
    """What the function saves must be what it saves again when the backward runs it in eager."""
    agree(breaking, NET, X, breaks=None, backend="inductor")


def test_checkpoints():
    agree(checkpointed, NET, X)
    agree(segments, NET, X)
    compiled = pyframe.compile(reentrant, backend="eager")
    for recorded in (False, True):
        x = X.clone().requires_grad_(recorded)
        assert compiled(NET, x).requires_grad == reentrant(NET, x).requires_grad == recorded


# ---- autograd.Function ----
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, y=None):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor * SCALE["value"] if y is None else x * factor + y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.factor + x * 0 + ctx.needs_input_grad[0], None, None


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class Split(torch.autograd.Function):
    @staticmethod
    def forward(x, n):
        return x[:n] * 1, x[n:] * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.n = inputs[1]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, a, b):
        return torch.cat([a * 5, torch.zeros(3 - ctx.n, a.shape[1])]), None


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return -g


class Reversed(Same):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx, g):
        return g


CALLS = []


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        CALLS.append(1)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def scaled(x):
    return Scaled.apply(x, 2.0) + Scaled.apply(x, 3.0, x)


def straight_through(x):
    return Rounded.apply(x.sin() * 3) * x


def split(x):
    a, b = Split.apply(x, 2)
    return a * 2, b, b.requires_grad


def given_back(x):
    y = Same.apply(x)
    return y, y is x


def reversed_gradient(x):
    return Reversed.apply(x * 2) * x


def in_place(x):
    return InPlace.apply(x * 2) + 1


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("fn", [scaled, straight_through, split, given_back, reversed_gradient], ids=lambda f: f.__name__)
def test_autograd_functions_are_one_graph(fn, recorded):
    alias = recorded and fn in (given_back, reversed_gradient)
    agree(fn, X.clone().requires_grad_(recorded), breaks=None if alias else 0)
    agree(fn, X.clone().requires_grad_(recorded), backend="inductor", breaks=None)


def test_an_autograd_function_that_works_in_place():
    agree(in_place, X.clone().requires_grad_(), breaks=None)
    agree(in_place, X, breaks=None)


def test_an_autograd_function_with_effects():
    compiled = pyframe.compile(lambda x: Counting.apply(x), backend="eager")
    for recorded in (True, False):
        x = X.clone().requires_grad_(recorded)
        CALLS.clear()
        for turn in range(3):
            torch.testing.assert_close(compiled(x), x * 2)
            assert len(CALLS) == turn + 1


def test_a_value_read_by_an_autograd_function_is_guarded():
    compiled = pyframe.compile(scaled, backend="inductor")
    x = X.clone().requires_grad_()
    for value in (3.0, 4.0, 3.0):
        SCALE["value"] = value
        torch.testing.assert_close(compiled(x), scaled(x))


# ---- modes ----
def grad_modes(x):
    with torch.no_grad():
        a = x * 2
    with torch.enable_grad():
        b = x * 2
    with torch.set_grad_enabled(x.dim() > 5):
        c = x * 2
    return a.requires_grad, b.requires_grad, c.requires_grad, a + b.detach() + c


@torch.inference_mode()
def inferred(x):
    return x * 2


def profiled(x):
    with torch.profiler.record_function("range"), torch.autograd.profiler.record_function("other"):
        y = x + 1
    return y * 2


def test_modes():
    agree(grad_modes, X.clone().requires_grad_())
    agree(profiled, X)
    pyframe.reset()
    got = pyframe.compile(inferred, backend="eager")(X)
    assert got.is_inference() and torch.equal(got, X * 2)


# ---- questions about being compiled ----
def asks(x, library):
    return x + 1, (
        torch.compiler.is_compiling(), torch.compiler.is_dynamo_compiling(), library.is_torchdynamo_compiling(),
        torch.jit.is_tracing(), torch.jit.is_scripting(), torch._utils.is_compiling(), torch.compiler.is_exporting(),
    )  # fmt: skip


def test_answers_about_being_compiled():
    import transformers.utils as library

    pyframe.reset()
    got = pyframe.compile(asks, backend="eager")(X, library)[1]
    assert got == (True, True, True, False, False, True, False)
    assert asks(X, library)[1] == (False,) * 7


# ---- overriding torch ----
class Tagged(torch.Tensor):
    pass


def doubled(x):
    return x * 2, type(x * 2).__name__


def test_subclasses_and_modes_are_right():
    compiled = pyframe.compile(doubled, backend="eager")
    out, name = compiled(X.as_subclass(Tagged))
    assert type(out) is Tagged and name == "Tagged" and torch.equal(out.as_subclass(torch.Tensor), X * 2)

    class Halves(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out / 2 if func is torch.sin else out

    def fn(x):
        with Halves():
            return torch.sin(x) + 1

    agree(fn, X, breaks=None)
    compiled = pyframe.compile(lambda x: torch.sin(x) + 1, backend="eager")
    compiled(X)
    with Halves():
        torch.testing.assert_close(compiled(X), torch.Tensor.sin(X) / 2 + 1)


def _policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(
    "context_fn",
    [
        functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default]),
        lambda: create_selective_checkpoint_contexts(_policy),
        lambda: (contextlib.nullcontext(), contextlib.nullcontext()),
    ],
)
def test_selective_checkpoint(context_fn, backend):
    w = torch.randn(4, 4, requires_grad=True)

    def loss(x):
        return checkpoint(lambda y: (y @ w).sigmoid().sin(), x, use_reentrant=False, context_fn=context_fn).sum()

    x = torch.randn(3, 4, requires_grad=True)
    found = torch.autograd.grad(pyframe.compile(loss, fullgraph=True, backend=backend)(x), (x, w))
    torch.testing.assert_close(found, torch.autograd.grad(loss(x), (x, w)))


@pytest.mark.parametrize("debug", [False, True])
def test_checkpoint_with_debug(debug):
    def loss(x):
        return checkpoint(lambda y: y.sigmoid().sin(), x, use_reentrant=False, debug=debug).sum()

    x = torch.randn(3, 4, requires_grad=True)
    found = torch.autograd.grad(pyframe.compile(loss, fullgraph=True, backend="eager")(x), x)
    torch.testing.assert_close(found, torch.autograd.grad(loss(x), x))


@pytest.mark.parametrize("options", [{"debug": True}, {"context_fn": lambda: None}], ids=lambda options: list(options)[0])
def test_options_that_a_reentrant_checkpoint_refuses(options):
    def run(x):
        return checkpoint(torch.sin, x, use_reentrant=True, **options)

    with pytest.raises(ValueError, match="debug"):
        pyframe.compile(run, backend="eager")(torch.ones(3, requires_grad=True))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_reentrant_checkpoints_are_captured(backend):
    torch.manual_seed(0)
    net = nn.Linear(3, 3)

    def two(x, scale, y):
        return torch.sin(net(x)) * scale, x * y

    def run(x, y):
        a, b = checkpoint(two, x, 2.0, y, use_reentrant=True)
        return checkpoint(net, a, use_reentrant=True) * b

    gradients = []
    for fn in (run, pyframe.compile(run, backend=backend, fullgraph=True)):
        net.zero_grad()
        x, y = torch.ones(2, 3).requires_grad_(), torch.full((2, 3), 0.5)
        fn(x, y).sum().backward()
        gradients.append([x.grad, y.grad, net.weight.grad, net.bias.grad])
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize(
    "run",
    [
        lambda net, x: checkpoint(net, x.detach(), use_reentrant=True),  # nothing is recorded
        lambda net, x: checkpoint(lambda pair: net(pair[0]), (x, x), use_reentrant=True),  # nor through containers
        lambda net, x: checkpoint(lambda x: (net(x), torch.ones(3)), x, use_reentrant=True)[1],
        lambda net, x: checkpoint(lambda x: x, x, use_reentrant=True),
    ],
)
def test_reentrant_checkpoints_that_record_something_else(run):
    net, x = nn.Linear(3, 3), torch.ones(2, 3).requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got, expected = pyframe.compile(run, backend="eager")(net, x), run(net, x)
    assert got.requires_grad == expected.requires_grad
    torch.testing.assert_close(got, expected)


class OtherRules(torch.autograd.Function):
    """Its rules for vmap, jvp and backward differ from what its forward computes, so that results show which ran."""

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 7

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * ctx.saved_tensors[0] * 5

    @staticmethod
    def vmap(info, in_dims, x):
        return x * 100, in_dims[0]


class GeneratedRule(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, power):
        return x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0] * 10, None


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: vmap(OtherRules.apply)(x),
        lambda x: jvp(OtherRules.apply, (x,), (x,)),
        lambda x: jacfwd(lambda y: OtherRules.apply(y).sum())(x[0]),
        lambda x: vjp(OtherRules.apply, x)[1](x)[0] + x,
        lambda x: vmap(grad(lambda y: OtherRules.apply(y).sum()))(x),
        lambda x: vmap(lambda y: GeneratedRule.apply(y, 3))(x),
        lambda x: vmap(jacrev(lambda y: GeneratedRule.apply(y, 3)))(x),
    ],
)
def test_rules_of_autograd_functions_under_transforms(fn, recorded, backend):
    seen = []
    for run in (fn, pyframe.compile(fn, backend=backend)):
        x = X.clone().requires_grad_(recorded)
        results = run(x)
        results = results if isinstance(results, tuple) else (results,)
        found = [result for result in results if result.requires_grad]
        gradients = torch.autograd.grad([r.sum() for r in found], x) if found else ()
        seen.append((len(found), [r.detach() for r in results], gradients))
    torch.testing.assert_close(seen[1], seen[0])


class Amplified(OtherRules):
    @staticmethod
    def vmap(info, in_dims, x):
        return x * gain, in_dims[0]


gain = 2.0


def test_a_rule_for_vmap_reads_a_variable_that_changes():
    global gain
    seen = []
    for run in (fn := lambda x: vmap(Amplified.apply)(x), pyframe.compile(fn)):
        results = []
        for gain in (2.0, 3.0, 3.0):  # noqa: B007  read by the rule
            results.append(run(X))
        seen.append(results)
    torch.testing.assert_close(seen[1], seen[0])


def test_autograd_functions_without_a_rule_for_vmap():
    class WithoutRule(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

    with pytest.raises(RuntimeError, match="vmap support"):
        pyframe.compile(lambda x: vmap(WithoutRule.apply)(x), backend="eager")(X)


@pytest.mark.parametrize("aux", [lambda x: 3, lambda x: None, lambda x: {"a": x * 2, "b": "s"}, lambda x: (x, 1.5)])
@pytest.mark.parametrize("transform", [
    lambda f, x: vjp(f, x, has_aux=True)[2], lambda f, x: jvp(f, (x,), (x,), has_aux=True),
    lambda f, x: jacrev(f, has_aux=True)(x), lambda f, x: jacfwd(f, has_aux=True)(x),
    lambda f, x: grad(lambda y: (f(y)[0].sum(), f(y)[1]), has_aux=True)(x),
])  # fmt: skip
def test_an_auxiliary_output_that_is_no_tensor(transform, aux):
    def program(x):
        return transform(lambda y: (y.sin(), aux(y)), x)

    for call in (program, pyframe.compile(program, backend="eager")):
        with pytest.raises(RuntimeError, match="Expected tensors, got unsupported type"):
            call(torch.ones(3))
