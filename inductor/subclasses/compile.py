"""Compiles graphs on traceable wrapper subclasses as graphs on their inner tensors, for fixed and for varying sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from ..aot.functionalize import NotFunctional
from ..autocast import is_autocast_enabled, without_autocast
from ..dynamic.dispatch import MAX_READY, MAX_SIZES, SPECIAL, Sizes, is_symbolic
from ..errors import PASSED
from ..fallback import check_expected
from ..fx_utils.places import reason_of
from ..ir.size import Program
from ..log.stages import count, show
from ..modes import graph_module
from ..process.compile_lock import make_once
from ..process.thread_state import restored_on_error
from .functionalize import InnerGraph, finishing, forms_of, static_fakes, to_inner
from .wrapper_tensors import flattening

CompileFlat = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
Static = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
FallBack = Callable[[Exception], Callable[..., Any]]
Call = Callable[[Sequence[Any], Sequence[Any]], Any]  # takes the arguments, and the plain tensors in them


def compile_inference(
    gm: fx.GraphModule, inputs: Sequence[Any], compile_flat: CompileFlat, fall_back: FallBack
) -> Callable[..., Any]:
    """A callable that does what `gm` does on inputs like these, without gradients. `compile_flat(graph, inputs)`
    compiles a graph of plain tensors that returns a tuple. `fall_back(error)` returns a callable for sizes that cannot
    be compiled."""

    def static(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return _static(gm, inputs, compile_flat)

    if is_symbolic(flattening(forms_of(inputs))(inputs)):
        return _ManySizes(gm, inputs, static, fall_back, compile_flat)
    return static(gm, inputs)


def compile_training(
    gm: fx.GraphModule, inputs: Sequence[Any], train: Static, fall_back: FallBack
) -> Callable[..., Any]:
    """Like `compile_inference`, with autograd support; `train(gm, inputs)` compiles for these sizes."""
    if is_symbolic(flattening(forms_of(inputs))(inputs)):
        return _ManySizes(gm, inputs, train, fall_back)
    return train(gm, inputs)


def _static(gm: fx.GraphModule, inputs: Sequence[Any], compile_flat: CompileFlat) -> Callable[..., Any]:
    """Compile the graph for the sizes of these inputs."""
    forms = forms_of(inputs)
    flatten = flattening(forms)
    inner = to_inner(gm, forms, *static_fakes(flatten(inputs)))
    run = _compiled_without_autocast(lambda: compile_flat(inner.graph, flatten(inputs)))
    finish = finishing(inner.results, inner.structure, written=inner.written)
    return lambda *args: finish(args, run(*flatten(args)))


def without_gradients(gm: fx.GraphModule, inputs: Sequence[Any], compile_flat: CompileFlat) -> Callable[..., Any]:
    """Compile a graph for the sizes of these inputs, if gradients are enabled but no result requires one."""
    with torch.no_grad():
        compiled = _static(gm, inputs, compile_flat)

    def call(*args: Any) -> Any:
        with torch.no_grad():
            return compiled(*args)

    return call


def _with_numbers(gm: fx.GraphModule, numbers: Mapping[int, Any]) -> fx.GraphModule:
    """The graph with some arguments, by position, replaced by constants; the other arguments remain."""
    if not numbers:
        return gm
    graph = fx.Graph()
    env: dict[fx.Node, Any] = {}
    for place, node in enumerate(gm.graph.nodes):  # placeholders come first
        env[node] = numbers[place] if place in numbers else graph.node_copy(node, env.__getitem__)
    return graph_module(gm, graph, getattr(gm, "settings", ()))


def _compiled_without_autocast(compile_flat: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """The result of `compile_flat`, compiled and called without autocast: the casts are in the graph already, and
    `__torch_dispatch__` runs without autocast."""
    return without_autocast(without_autocast(compile_flat)()) if is_autocast_enabled() else compile_flat()


# ---- graphs of many sizes


class _Traced:
    """A graph traced once for all sizes that satisfy `program`. `numbers`: the trace's symbols by name."""

    def __init__(
        self, inner: InnerGraph, program: Program, run: Callable[..., Any], numbers: Mapping[str, Any]
    ) -> None:
        self.inner, self.program, self.run, self.numbers = inner, program, run, numbers

    def at(self, values: Mapping[str, int]) -> Call:
        """The callable for calls with these sizes."""
        known = {symbol: values[name] for name, symbol in self.numbers.items()}

        def number(n: Any) -> int:
            return int(n.node.expr.xreplace(known)) if isinstance(n, torch.SymInt) else n

        run, finish = self.run, finishing(self.inner.results, self.inner.structure, number, self.inner.written)
        return lambda args, flat: finish(args, run(*flat))


class _ManySizes:
    """Traces the graph once for all sizes that do not change the trace; if that fails, for the sizes of each call.
    Floats are constants, because `__torch_dispatch__` may do anything with them."""

    def __init__(
        self, gm: fx.GraphModule, inputs: Sequence[Any], static: Static, fall_back: FallBack,
        compile_flat: CompileFlat | None = None,
    ) -> None:
        self.gm, self.static, self.compile_flat, self.fall_back = gm, static, compile_flat, fall_back
        self.varying = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor | torch.SymInt) or type(x) is int]
        self.fixed = [i for i in range(len(inputs)) if i not in self.varying]
        examples = [inputs[i] for i in self.varying]
        self.forms = forms_of(examples)
        self.flatten = flattening(self.forms)
        self.examples = self.flatten(examples)
        self.sizes = Sizes(self.examples)
        self.ready: dict[Any, Call] = {}
        self.traced: dict[Any, list[_Traced]] = {}
        self.compiled = 0  # number of traces

    def __call__(self, *args: Any) -> Any:
        given = [args[i] for i in self.varying]
        flat = self.flatten(given)
        fixed = [args[i] for i in self.fixed]
        key = (
            *((x.shape, x.stride()) if isinstance(x, torch.Tensor) else x for x in flat),
            *(x.hex() if isinstance(x, float) else (type(x), x) for x in fixed),
        )
        call = self.ready.get(key)
        if call is None:
            call = make_once(id(self), lambda: self.ready.get(key), lambda: self._keep(key, args))
        return call(given, flat)

    def _keep(self, key: Any, args: Sequence[Any]) -> Call:
        while len(self.ready) >= MAX_READY:
            self.ready.pop(next(iter(self.ready)), None)
        fixed = _with_numbers(self.gm, {i: args[i] for i in self.fixed})
        try:
            call = self.ready[key] = self._make(fixed, [args[i] for i in self.varying], key[len(self.examples) :])
        except PASSED:
            raise
        except Exception as error:
            eager = self.fall_back(error)
            numbers = {i: args[i] for i in self.fixed}
            places = [(i, self.varying.index(i) if i in self.varying else None) for i in range(len(args))]
            call = self.ready[key] = lambda given, flat: eager(
                *(numbers[i] if at is None else given[at] for i, at in places)
            )
        return call

    def _make(self, gm: fx.GraphModule, given: Sequence[Any], fixed: Any) -> Call:
        flat = self.flatten(given)
        values = self.sizes.values(flat)
        constants = {key: values[name] for key, name in self.sizes.names.items() if values[name] < SPECIAL}
        known = self.traced.setdefault((tuple(constants.items()), fixed), [])
        found = next((each for each in known if each.program.serves(values)), None)
        if found is not None:
            return found.at(values)
        self.compiled += 1
        if self.compiled > MAX_SIZES:
            raise NotFunctional(f"more than {MAX_SIZES} sizes and numbers of one graph")
        compile_flat = self.compile_flat
        if compile_flat is not None:
            try:
                known.append(restored_on_error(lambda: self._trace(gm, values, constants, flat, compile_flat)))
                return known[-1].at(values)
            except PASSED:
                raise
            except Exception as error:
                check_expected(error)
                self.compile_flat = None
                count("graphs_per_size")
                show("sizes", f"a graph is traced for each size: {reason_of(error)}")
        tensors = [i for i, x in enumerate(given) if isinstance(x, torch.Tensor)]
        of_size = _with_numbers(gm, {i: x for i, x in enumerate(given) if i not in tensors})
        run = restored_on_error(lambda: self.static(of_size, [given[i] for i in tensors]))
        return lambda given, flat: run(*[given[i] for i in tensors])

    def _trace(
        self, gm: fx.GraphModule, values: Mapping[str, int], constants: Mapping[Any, int], flat: Sequence[Any],
        compile_flat: CompileFlat,
    ) -> _Traced:
        from ..dynamic.symbols import Symbols, fake_inputs, in_terms  # imported here because it imports sympy

        symbols = Symbols()
        varying = {key: name for key, name in self.sizes.names.items() if key not in constants}
        by_name = symbols.all(varying, values, SPECIAL, {})
        given = by_name | dict(constants)

        def number(n: Any) -> Any:
            return in_terms(n.node.expr, given) if isinstance(n, torch.SymInt) else n

        forms = [None if form is None else form.at(number) for form in self.forms]
        fakes = fake_inputs(symbols, given, self.examples, flat)
        inner = to_inner(gm, forms, fakes, symbols.mode)
        program = symbols.program()
        run = _compiled_without_autocast(lambda: compile_flat(inner.graph, fakes))
        return _Traced(inner, program, run, {varying[key]: n.node.expr for key, n in by_name.items()})
