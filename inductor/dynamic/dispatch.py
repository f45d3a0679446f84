"""Chooses the compiled code for each call of a graph whose sizes or Python numbers vary, and compiles it if necessary.

A `Template` (`template.py`) is a graph compiled once for all sizes that satisfy the assumptions made while compiling. A
call with new sizes uses the first template that accepts them, which plans its memory for them but compiles no kernel;
if none does, another template is compiled. If a graph cannot be compiled for varying sizes, it is compiled for each
combination of sizes and ints. Floats are passed as 0-d tensors where this does not change the result; otherwise each
value is compiled separately as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from ..aot.functionalize import RunsBetween
from ..eager.higher_order import runnable
from ..errors import PASSED, Unsupported
from ..fx_utils.places import reason_of
from ..ir.nodes import dense_order
from ..log.stages import count, show
from ..process.compile_lock import make_once
from ..process.thread_state import restored_on_error
from .numbers import Numbers
from .template import Template

MAX_SIZES = 32  # compilations for one combination of sizes each; after so many, new sizes run uncompiled
MAX_TEMPLATES = 8
MAX_READY = 256  # cached callables for concrete sizes
SPECIAL = 2  # sizes and ints below this are constants of a compilation
INT64 = 1 << 63  # the first integer that kernels cannot take


class Sizes:
    """Where in the inputs to read each symbol's value. `names` gives the symbols names: size0, size1 ...

    An expression, such as `Min(4, u0)`, is a symbol of its own where it cannot be computed from others."""

    def __init__(self, examples: Sequence[Any]) -> None:
        self.places: dict[Any, tuple[int, str, int]] = {}
        for i, x in enumerate(examples):
            if not isinstance(x, torch.Tensor):
                self.places.setdefault(key_of(x), (i, "value", 0))
        symbolic = [
            (n.node.expr, (i, kind, d))
            for kind in ("shape", "stride")
            for i, x in enumerate(examples) if isinstance(x, torch.Tensor)
            for d, n in enumerate(_dims(x, kind)) if isinstance(n, torch.SymInt)
        ]  # fmt: skip
        for expr, place in symbolic:
            if expr.is_Symbol:
                self.places.setdefault(expr, place)
        if symbolic:
            # imported here because it imports sympy, as whatever made these sizes has done
            from .symbols import is_in_terms

            for expr, place in symbolic:
                if not is_in_terms(expr, self.places):
                    self.places[expr] = place
        self.names = {key: f"size{k}" for k, key in enumerate(self.places)}

    def values(self, args: Sequence[Any]) -> dict[str, int]:
        """The values of the symbols in a call, by name."""
        return {self.names[key]: _at(args, *place) for key, place in self.places.items()}

    def hints(self, examples: Sequence[Any]) -> dict[str, int] | None:
        """The values of the symbols in the call for which the graph was captured; None if that is not known."""
        found: dict[str, int] = {}
        for key, name in self.names.items():
            value: Any = _at(examples, *self.places[key])
            if isinstance(value, torch.SymInt):
                value = int(value.node.hint) if value.node.has_hint() else None
            if type(value) is not int:
                return None
            found[name] = value
        return found


def key_of(example: Any) -> Any:
    """The key of a number: the expression of a SymInt, or the value that `Numbers.example` returned."""
    return example.node.expr if isinstance(example, torch.SymInt) else example


def _dims(x: torch.Tensor, kind: str) -> Sequence[int | torch.SymInt]:
    return tuple(x.shape) if kind == "shape" else x.stride()


def _at(args: Sequence[Any], i: int, kind: str, d: int) -> int:
    return args[i] if kind == "value" else args[i].shape[d] if kind == "shape" else args[i].stride(d)


def is_symbolic(inputs: Sequence[Any]) -> bool:
    """Whether an input is a number, or a tensor with symbolic sizes or strides."""
    return any(
        not isinstance(x, torch.Tensor) or any(type(n) is not int for n in (*x.shape, *x.stride())) for x in inputs
    )


def with_strides_of(example: torch.Tensor, x: torch.Tensor, values: Mapping[Any, int]) -> torch.Tensor:
    """`example`, which has symbolic sizes, with its dimensions in the memory order of `x`: an operator may return other
    strides than its fake tensor had. `values` are the values of the symbols. Unsupported if the strides differ and `x`
    is not dense."""
    if not isinstance(example, FakeTensor):
        return example
    # imported here because it imports sympy
    from .symbols import in_terms

    stride = [in_terms(n.node.expr, values) if isinstance(n, torch.SymInt) else n for n in example.stride()]
    if all(n < SPECIAL or a == b for n, a, b in zip(x.shape, stride, x.stride())):
        return example
    order = _order(x)
    if order is None:
        raise Unsupported("an operator whose result has other strides than its fake tensor")
    known: list[Any] = [1] * len(order)
    inner: Any = 1
    for d in reversed(order):
        known[d], inner = inner, inner * example.shape[d]
    with example.fake_mode:
        return torch.empty_strided(example.shape, known, dtype=example.dtype, device=example.device)


def _order(x: torch.Tensor) -> tuple[int, ...] | None:
    """The dimensions of `x` from outermost to innermost; None if `x` is not dense."""
    order = dense_order(x.shape, x.stride())
    return None if order is None else tuple(order)


def symbolic_examples(gm: fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """The inputs with symbolic sizes; torch.compile passes real tensors and keeps symbols in node metadata."""
    captured = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    return [
        known if isinstance(x, torch.Tensor) and isinstance(known, torch.Tensor) else x
        for x, known in zip(inputs, captured, strict=True)
    ]


def without_numbers(gm: fx.GraphModule, args: Sequence[Any]) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """A graph equivalent to `gm` on `args` that takes only tensors: ints become constants in it, floats constants or
    0-d tensors after the other inputs."""
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    if len(tensors) == len(args):
        return gm, tensors
    numbers = Numbers(gm, [i for i, x in enumerate(args) if not isinstance(x, torch.Tensor)])
    fixed, floats = numbers.values(args)
    return numbers.fix(fixed), tensors + _as_tensors(floats, tensors)


def _as_tensors(floats: Sequence[float], others: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Floats as 0-d tensors, on the device of the other inputs."""
    device = others[0].device if others else None
    return [torch.full((), x, dtype=torch.float64, device=device) for x in floats]


class DynamicShapeDispatcher:
    """Calls the code compiled for the sizes and numbers of each call, and compiles for new combinations of them.

    `compile_sizes` compiles a template; its second argument names the varying symbols. If it fails, `check(error)` may
    raise; otherwise the graph is compiled by `compile_static(gm, tensors)` for each combination of sizes.
    `in_pieces(found)` returns a callable for a graph that has to be split at some nodes.
    """

    def __init__(
        self, gm: fx.GraphModule, compile_static: Callable[..., Callable[..., Any]], examples: Sequence[Any] = (),
        compile_sizes: Callable[..., Template] | None = None, check: Callable[[Exception], None] = lambda error: None,
        in_pieces: Callable[[RunsBetween], Callable[..., Any]] | None = None,
    ) -> None:
        self.gm, self.compile_static, self.compile_sizes = gm, compile_static, compile_sizes
        self.examples, self.check, self.in_pieces = list(examples), check, in_pieces
        self.whole: Callable[..., Any] | None = None  # if set, runs every call
        self.ready: dict[Any, Callable[..., Any]] = {}
        self.templates: dict[Any, list[Template]] = {}
        self.compiled = 0  # compilations for one combination of sizes each
        self.apart: str | None = None  # why the graph is compiled per combination of sizes
        self.numbers: Numbers | None = None
        self.sizes: Sizes | None = None
        self.first_call: Callable[..., Any] | None = None  # runs the first call of each combination, if set

    def __call__(self, *args: Any) -> Any:
        if self.whole is not None:
            return self.whole(*args)
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        shapes = tuple((x.shape, x.stride()) for x in tensors)
        fixed: list[Any] = []
        if len(tensors) == len(args):
            key: Any = shapes
        else:
            if self.numbers is None:
                places = [i for i, x in enumerate(args) if not isinstance(x, torch.Tensor)]
                self.numbers = Numbers(self.gm, places)
            fixed, floats = self.numbers.values(args)
            key = shapes, tuple(x.hex() if type(x) is float else (type(x), x) for x in fixed)
            tensors += _as_tensors(floats, tensors)
        call = self.ready.get(key)
        if call is None:
            call = make_once(id(self), lambda: self.ready.get(key), lambda: self._make(key, args, tensors, fixed))
            if call is not None and self.first_call is not None:
                return self.first_call(*args)
        if self.whole is not None:
            return self.whole(*args)
        return runnable(self.gm).forward(*args) if call is None else call(*tensors)

    def _make(
        self, key: Any, args: Sequence[Any], tensors: list[torch.Tensor], fixed: list[Any]
    ) -> Callable[..., Any] | None:
        """Compile for new sizes and numbers, and cache the callable; None if the graph must run uncompiled."""
        if any(type(x) is int and not -INT64 <= x < INT64 for x in fixed):  # most operators of ATen raise an error then
            return None
        call = self._of_sizes(args, tensors, fixed)
        if call is None and self.whole is None:
            call = self._static(tensors, fixed)
        if call is not None:
            while len(self.ready) >= MAX_READY:
                self.ready.pop(next(iter(self.ready)), None)
            self.ready[key] = call
        return call

    def _static(self, tensors: list[torch.Tensor], fixed: list[Any]) -> Callable[..., Any] | None:
        """Compile for just these sizes and ints; None once MAX_SIZES combinations are compiled."""
        if self.compiled >= MAX_SIZES:
            return None
        self.compiled += 1
        static = self.gm if self.numbers is None else self.numbers.fix(fixed)
        call = self.compile_static(static, tensors)
        self._report(static)
        return call

    def _report(self, compiled: fx.GraphModule) -> None:
        report = compiled.meta.get("compile_report")
        if report is not None:
            report.apart = self.apart
            self.gm.meta["compile_report"] = report

    def _of_sizes(
        self, args: Sequence[Any], tensors: list[torch.Tensor], fixed: list[Any]
    ) -> Callable[..., Any] | None:
        """The callable of a template, compiled now if there is none; None if the graph cannot be compiled this way."""
        if self.compile_sizes is None:
            return None
        examples, inputs = self._varying(tensors, fixed)
        if self.sizes is None:
            self.sizes = Sizes(examples)
        values = self.sizes.values(inputs)
        by_key = {key: values[name] for key, name in self.sizes.names.items()}
        try:
            restrided = [with_strides_of(example, x, by_key) for example, x in zip(examples, inputs, strict=True)]
        except Unsupported as error:
            self._give_up_sizes(error)
            return None
        orders = tuple(None if new is example else _order(x) for new, example, x in zip(restrided, examples, inputs))
        varying = {key: name for key, name in self.sizes.names.items() if values[name] >= SPECIAL}
        constants = {key: values[name] for key, name in self.sizes.names.items() if key not in varying}
        fixed = [int if type(x) is int else x for x in fixed]
        pattern = tuple(constants.items()), tuple(x.hex() if type(x) is float else x for x in fixed), orders
        known = self.templates.setdefault(pattern, [])
        template = next((t for t in known if t.serves(values)), None)
        if template is None:
            if sum(map(len, self.templates.values())) >= MAX_TEMPLATES:
                return None
            gm = self.gm if self.numbers is None else self.numbers.fix(fixed)
            make = functools.partial(self._compiled, gm, varying, constants, restrided, inputs)
            try:
                template = None if known or any(orders) else self._as_captured(make, values, examples)
                template = template or make(values)
            except PASSED:
                raise
            except Exception as error:
                if isinstance(error, RunsBetween) and self.in_pieces is not None:
                    self._cut(error)
                else:
                    self._give_up_sizes(error)
                return None
            self._report(gm)
            known.insert(0, template)
            show("sizes", f"compiled for all sizes that satisfy: {template.program}")
        try:
            call, ints = template.at(values), [x for x in inputs if type(x) is int]
        except PASSED:
            raise
        except Exception as error:
            self._give_up_sizes(error)
            return None
        return (lambda *given: call(*given, *ints)) if ints else call

    def _compiled(
        self, gm: fx.GraphModule, varying: Mapping[Any, str], constants: Mapping[Any, int], examples: Sequence[Any],
        inputs: Sequence[Any], values: Mapping[str, int],
    ) -> Template:
        assert self.compile_sizes is not None
        make = functools.partial(self.compile_sizes, gm, varying, values, constants, examples, inputs)
        return restored_on_error(make)

    def _as_captured(
        self, make: Callable[..., Template], values: Mapping[str, int], examples: Sequence[Any]
    ) -> Template | None:
        """The template for the sizes that the graph was captured with, if they are others than those of its first call
        here: a process that captured it has put it into the disk cache. None if it does not serve these values."""
        assert self.sizes is not None
        hints = self.sizes.hints(examples)
        if hints is None or hints == values:
            return None
        if any(hints[name] != n and min(hints[name], n) < SPECIAL for name, n in values.items()):
            return None
        template = make(hints)
        return template if template.serves(values) else None

    def _cut(self, found: RunsBetween) -> None:
        """From now on, run the graph in subgraphs, each compiled for varying sizes."""
        assert self.in_pieces is not None
        try:
            self.whole = self.in_pieces(found)
        except Unsupported as error:
            self._give_up_sizes(error)

    def _give_up_sizes(self, error: Exception) -> None:
        """From now on, compile the graph for each combination of sizes."""
        self.check(error)
        self.compile_sizes = None
        self.apart = reason_of(error)
        count("graphs_per_size")
        show("sizes", f"a graph is compiled for each size: {self.apart}")

    def _varying(self, tensors: list[torch.Tensor], fixed: list[Any]) -> tuple[list[Any], list[Any]]:
        """The examples and the inputs of the graph with its ints passed as inputs."""
        examples: list[Any] = [x for x in self.examples if isinstance(x, torch.Tensor)]
        examples += tensors[len(examples) :]  # floats, as tensors
        ints = [(k, x) for k, x in enumerate(fixed) if type(x) is int]
        if self.numbers is not None:
            examples += [self.numbers.example(k, self.examples) for k, _ in ints]
        return examples, [*tensors, *(x for _, x in ints)]
