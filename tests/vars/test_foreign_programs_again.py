"""More programs after tests of torch's own tracer that broke the graph, or differed from eager, here once."""

from __future__ import annotations

import dataclasses
import sys
import typing
from typing import Any

import pytest
import torch
from torch._higher_order_ops import InvokeQuant
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.strict_mode import strict_mode
from torch._higher_order_ops.wrap import (
    wrap,
    wrap_activation_checkpoint,
    wrap_with_autocast,
    wrap_with_set_grad_enabled,
)
from util import alike

import pyframe
from pyframe.metrics import counters

X = torch.tensor([2.0, 0.5])


def compiled(fn: Any, **settings: Any) -> Any:
    return pyframe.compile(fn, backend="eager", fullgraph=True, **settings)


# ---- id() ----
class Place:
    pass


def test_id_in_arithmetic_and_compared_with_numbers() -> None:
    place, table = Place(), {"a": 1}

    def known(x, number):
        if number == id(x):
            return x + 1
        if id(place) == number or id(Place) == number:
            return x + 2
        return x + 3 if id(table) - number == 0 else x + 4

    run = compiled(known)
    y = X.clone()
    for x, number in ((X, id(X)), (X, id(y)), (y, id(y)), (y, id(X)), (X, id(place)), (X, id(Place)), (X, id(table))):
        alike(run(x, number), known(x, number))


def test_id_of_another_object_is_another_capture() -> None:
    def halved(x, cls):
        return x + id(cls) // 2 % 1000

    run = compiled(halved)
    for cls in (Place, int, Place):
        alike(run(X, cls), halved(X, cls))


def test_id_of_a_new_object_has_no_number() -> None:
    def compare(x):
        new = Place()
        return x + 1, id(new) == 3

    alike(pyframe.compile(compare, backend="eager")(X), compare(X))
    assert counters["graph_breaks"]["unsupported-object"] == 1


# ---- bool() ----
def test_bool_of_a_tensor_is_a_number_of_the_graph() -> None:
    def positive(x):
        found = bool(x.sum() > 0)
        return x + found, found, bool(x[0]), bool(x.int().sum().item()), bool(x.sum().item())

    run = compiled(positive)
    for x in (X, -X, torch.zeros(2)):
        alike(run(x), positive(x))


def test_bool_of_a_tensor_decides_a_branch_or_a_loop() -> None:
    def branch(x):
        x = x + 1
        return x * 2 if bool(x.sum() > 0) else x * 3

    def loop(x):
        count = 0
        while not bool(x.sum() > 10):
            x, count = x + 1, count + 1
        return x, count

    for fn in (branch, loop):
        run = pyframe.compile(fn, backend="eager")
        for x in (X, -4 * X, X + 6):
            alike(run(x), fn(x))


def test_bool_of_several_elements_raises() -> None:
    with pytest.raises(RuntimeError, match="ambiguous"):
        pyframe.compile(lambda x: bool(x), backend="eager")(X)


# ---- struct sequences of torch ----
def test_return_types_made_by_the_program() -> None:
    def make(x):
        found = torch.return_types.max([x, x + 1])
        errors = []
        for items in ((x,), 3):
            try:
                torch.return_types.max(items)
            except TypeError as error:
                errors.append(str(error))
        return found, found.values + found.indices, torch.return_types.topk((x, None)).values, errors

    got, want = compiled(make)(X), make(X)
    assert type(got[0]) is torch.return_types.max
    alike(tuple(got[0]), tuple(want[0]))
    alike(got[1:], want[1:])


def test_trees_with_return_types() -> None:
    def double(x):
        return torch.utils._pytree.tree_map(lambda y: y * 2, {"a": torch.return_types.max((x, x))})

    got = compiled(double)(X)["a"]
    assert type(got) is torch.return_types.max
    alike(tuple(got), (2 * X, 2 * X))


# ---- compile() in a captured function ----
def test_compile_called_in_a_captured_function() -> None:
    def double(x, by=2):
        return x * by

    class Layer(torch.nn.Module):
        def forward(self, x):
            return x + 1

    def outer(x):
        made = pyframe.compile(double, backend="eager")
        decorated = pyframe.compile(backend="eager")(double)
        return made, made(x) + decorated(x, 3) + pyframe.compile(Layer(), backend="eager")(x)

    made, result = compiled(outer)(X)
    alike(result, 5 * X + X + 1)
    alike(made(X), 2 * X)
    assert made.__wrapped__ is double


def test_compile_under_a_dispatch_mode() -> None:
    class Doubles(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return torch.ops.aten.mul.Tensor(args[0], args[1])

    with Doubles():
        result = pyframe.compile(lambda x: torch.add(x, x), backend="eager")(X)
    alike(result, X * X)


# ---- text ----
def test_interned_text_and_names_of_types() -> None:
    def names(x, text):
        return x + 1, sys.intern("a" + text), torch.typename(x), torch.typename(typing.Any), torch.typename(Place)

    alike(compiled(names)(X, "b"), names(X, "b"))


# ---- operators that call functions ----
def test_operators_that_call_a_function() -> None:
    layer = torch.nn.Linear(2, 2)

    def called(x, y):
        kept = []

        def add(x, y=3, *, z=None):
            kept.append(x + 1)
            return (x * 2) + y if z is None else {"z": z, "x": x}

        inner = wrap(lambda x: wrap(lambda x: x + y, x), x)
        return inner, wrap(add, x), wrap(add, x, y=y, z=4), wrap(layer, x), kept

    alike(compiled(called)(X, X + 1), called(X, X + 1))


def test_operators_that_call_a_function_under_a_setting() -> None:
    def called(x):
        quantized = InvokeQuant(codegen_low_precision=False)(lambda x, y: (x * y,), x, x)
        hinted = hints_wrapper(lambda x: x * 3, (x,), {}, hints={"outer": True})
        halves = wrap_with_autocast("cpu", torch.bfloat16, True, None, lambda x: x.outer(x) @ x, x)
        return quantized, hinted, halves, wrap_with_set_grad_enabled(False, lambda x: x * 2, x)

    x = X.clone().requires_grad_()
    got, want = compiled(called)(x), called(x)
    alike(got, want)
    assert [t.requires_grad for t in got[1:]] == [t.requires_grad for t in want[1:]] == [True, True, False]
    alike(compiled(lambda x: strict_mode(lambda x: (x.sin(),), (x,)))(X), (X.sin(),))


def test_wrapped_checkpoint() -> None:
    """torch runs it in its compiler only."""
    x = X.clone().requires_grad_()
    compiled(lambda x: wrap_activation_checkpoint(lambda x: x.sin(), x, use_reentrant=False))(x).sum().backward()
    alike(x.grad, X.cos())


def test_breaks_in_functions_that_torch_does_not_read() -> None:
    @torch._dynamo.nonstrict_trace
    def double(x):
        torch._dynamo.graph_break()
        return x * 2

    def called(x):
        return double(x) + 1

    alike(compiled(called)(X), called(X))


def test_vmap_over_dimensions_that_arguments_lack() -> None:
    for run in (lambda x: torch.vmap(torch.sin, in_dims=2)(x), lambda x: torch.vmap(torch.add)(x, x[:1])):
        with pytest.raises(ValueError, match="vmap"):
            pyframe.compile(run, backend="eager")(X)


# ---- out= ----
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_out_tensors_of_another_dtype(backend: str) -> None:
    def fill(x, n, out, number, counts):
        filled = torch.add(x, n, alpha=2, out=out), torch.eq(x, 2, out=x.clone()), torch.add(2, 3, out=number)
        torch.arange(4, out=counts)
        return filled, filled[0] is out, filled[0] + number, torch.mul(other=n, input=x, out=x.clone().half())

    def arguments():
        return X.clone(), torch.tensor([1, 2]), torch.zeros(2).double(), torch.zeros(()), torch.zeros(4).double()

    given, expected = arguments(), arguments()
    run = pyframe.compile(fill, backend=backend, fullgraph=True)
    alike(run(*given), fill(*expected))
    alike(given, expected)


def test_out_tensors_that_eager_refuses_or_adds_in() -> None:
    double, ints = torch.zeros(()).double(), torch.zeros(2, dtype=torch.int32)
    pyframe.compile(lambda x, out: torch.sum(x, 0, out=out), backend="eager")(torch.tensor([1e8, 1.0, 1.0]), double)
    assert double.item() == torch.sum(torch.tensor([1e8, 1.0, 1.0]), 0, out=torch.zeros(()).double()).item()
    for x, out in ((X, ints), (X.clone().requires_grad_(), torch.zeros(2).double())):
        with pytest.raises(RuntimeError):
            pyframe.compile(lambda x, out: torch.add(x, x, out=out), backend="eager")(x, out)


def test_random_numbers_in_an_out_tensor_of_another_dtype() -> None:
    def draw(out):
        return torch.randint(17, (5,), out=out)

    torch.manual_seed(0)
    want = draw(torch.zeros(5, dtype=torch.int32))
    torch.manual_seed(0)
    alike(compiled(draw)(torch.zeros(5, dtype=torch.int32)), want)


# ---- torch.Size ----
def test_sizes_of_objects_with_an_index() -> None:
    class Five:
        def __index__(self):
            return 5

    def sizes(x, n):
        errors = []
        for items in ([2.0], ["a"], [torch.tensor(2.0)], [None]):
            try:
                torch.Size(items)
            except TypeError as error:
                errors.append(str(error))
        found = torch.Size([torch.tensor(x.shape[0]), 4])
        known = {torch.Size([2, 4]): "found"}
        return x.new_zeros(torch.Size([n, 2])), found, known.get(found), torch.Size([Five(), True, x.shape[0]]), errors

    for n in (3, 5):
        alike(compiled(sizes)(X, torch.tensor(n)), sizes(X, torch.tensor(n)))


# ---- subclasses of Parameter ----
class Quantized(torch.nn.Parameter):
    def __new__(cls, data, requires_grad=False, kind=None):
        return torch.Tensor._make_subclass(cls, data, requires_grad)

    def __init__(self, *args, kind=None, **kwargs):
        self.kind = kind

    def plain(self):
        return torch.Tensor._make_subclass(torch.Tensor, self, self.requires_grad)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        kind = next((arg.kind for arg in args if isinstance(arg, cls)), None)
        if isinstance(result, tuple | list):
            return type(result)([cls(item, kind=kind) for item in result])
        return cls(result, kind=kind) if isinstance(result, torch.Tensor) else result


def test_parameters_of_a_class_whose_functions_keep_attributes() -> None:
    def scaled(x):
        y = x * 2
        y = y + y.kind
        return y.plain() * 3, x.unbind(0)[0].kind, type(y)

    alike(compiled(scaled)(Quantized(torch.ones(2), kind=42)), scaled(Quantized(torch.ones(2), kind=42)))


# ---- functions allowed in the graph ----
@dataclasses.dataclass(frozen=True)
class Scale:
    x: torch.Tensor
    by: int = 2
    more: list[int] = dataclasses.field(default_factory=lambda: [5], kw_only=True)


@torch.compiler.allow_in_graph
def scaled(scale, extra):
    assert type(scale) is Scale
    return scale.x * scale.by + scale.more[0] + extra


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_frozen_dataclasses_as_arguments_of_nodes(backend: str) -> None:
    def call(x, given):
        return scaled(Scale(x + 1), 1), scaled(Scale(x, 4, more=[6]), x), scaled(given, 2)

    run = pyframe.compile(call, backend=backend, fullgraph=True)
    for by in (2, 3):
        x = X.clone().requires_grad_()
        alike(run(x, Scale(x, by)), call(x, Scale(x, by)))
        torch.cat(run(x, Scale(x, by))).sum().backward()
        alike(x.grad, torch.full((2,), 2.0 + 5 + by))


# ---- numbers of the graph in tensors ----
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_tensors_of_sizes_of_data(backend: str) -> None:
    def made(x):
        n = x.nonzero().squeeze(-1).numel()
        nested = torch.tensor([[n, 1], [2, n + 1]]), torch.tensor([(n, x.sum()), (2.5, 1)], dtype=torch.float64)
        return torch.tensor(n), torch.tensor([n, 0.5]), torch.as_tensor(n), torch.as_tensor([0, n]), *nested

    run = pyframe.compile(made, backend=backend, fullgraph=True)
    for x in (torch.tensor([1, 0, 0, 5]), torch.tensor([0, 1, 2])):
        alike(run(x), made(x))


def test_new_tensor_of_sizes_of_data() -> None:
    def counts(x):
        n = x.nonzero().squeeze(-1).numel()
        lists = x.new_tensor([n]), x.new_tensor([[n, n + 1], [n * x.shape[0], 2]])
        return *lists, x.new_tensor([n, 1], dtype=torch.float64), x.new_tensor(n), x.new_tensor([1, 2])

    for x in (torch.tensor([1, 0, 0, 5]), torch.tensor([0.0, 1.0, 2.0])):
        alike(compiled(counts)(x), counts(x))
