"""Graphs on traceable wrapper subclasses, compiled as graphs on their inner tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from .aot.functionalize import NotFunctional
from .aot.inner import InnerGraph, finishing, forms_of, static_fakes, to_inner
from .compile_lock import make_once
from .errors import PASSED
from .ir.size import Program
from .places import reason_of
from .specialize import MOST_READY, MOST_SIZES, SPECIAL, Sizes, is_symbolic
from .stages import count, show
from .thread_state import restored_on_error
from .whole_import import SYMBOLIC_SHAPES, import_whole
from .wrapper_tensors import flattening

CompileFlat = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
FallBack = Callable[[Exception], Callable[..., Any]]
Call = Callable[[Sequence[Any], Sequence[Any]], Any]  # of the arguments, and of the plain tensors in them


def compile_inference(
    gm: fx.GraphModule, inputs: Sequence[Any], compile_flat: CompileFlat, fall_back: FallBack
) -> Callable[..., Any]:
    """A callable that does what `gm` does on inputs like these, without gradients. `compile_flat(graph, inputs)`
    compiles a graph of plain tensors that returns a tuple. `fall_back(error)` gives what runs sizes that cannot be
    compiled."""
    flatten = flattening(forms_of(inputs))
    if is_symbolic(flatten(inputs)):
        return _ManySizes(gm, inputs, lambda args: static_call(gm, args, compile_flat), fall_back, compile_flat)
    run = static_call(gm, inputs, compile_flat)
    return lambda *args: run(args, flatten(args))


def compile_training(
    gm: fx.GraphModule, inputs: Sequence[Any], train: Callable[[Sequence[Any]], Callable[..., Any]],
    fall_back: FallBack,
) -> Callable[..., Any]:
    """The same for autograd too; `train(inputs)` compiles the graph for the sizes of these inputs."""
    if not is_symbolic(flattening(forms_of(inputs))(inputs)):
        return train(inputs)

    def static(args: Sequence[Any]) -> Call:
        call = train(args)
        return lambda args, flat: call(*args)

    return _ManySizes(gm, inputs, static, fall_back)


def static_call(gm: fx.GraphModule, inputs: Sequence[Any], compile_flat: CompileFlat) -> Call:
    """The graph compiled for the sizes of these inputs."""
    forms = forms_of(inputs)
    flat = flattening(forms)(inputs)
    inner = to_inner(gm, forms, *static_fakes(flat))
    run = without_autocast(lambda: compile_flat(inner.graph, flat))
    finish = finishing(inner.results, inner.structure)
    return lambda args, flat: finish(args, run(*flat))


def without_autocast(compile_flat: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """What `compile_flat` gives, compiled and called without autocast: the casts are in the graph already, and inside
    of `__torch_dispatch__` there are none."""
    if not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")):
        return compile_flat()
    with torch._C._DisableAutocast():
        compiled = compile_flat()

    def call(*args: Any) -> Any:
        with torch._C._DisableAutocast():
            return compiled(*args)

    return call


# ---- graphs of many sizes


class _Traced:
    """A graph traced once for all sizes of which `program` is true. `numbers`: the symbols of the trace by the names of
    their values."""

    def __init__(
        self, inner: InnerGraph, program: Program, run: Callable[..., Any], numbers: Mapping[str, Any]
    ) -> None:
        self.inner, self.program, self.run, self.numbers = inner, program, run, numbers

    def at(self, values: Mapping[str, int]) -> Call:
        """What runs calls of these sizes."""
        known = {symbol: values[name] for name, symbol in self.numbers.items()}

        def number(n: Any) -> int:
            return int(n.node.expr.xreplace(known)) if isinstance(n, torch.SymInt) else n

        run, finish = self.run, finishing(self.inner.results, self.inner.structure, number)
        return lambda args, flat: finish(args, run(*flat))


class _ManySizes:
    """Traces the graph for all sizes that do not change what is traced, else for the sizes of each call."""

    def __init__(
        self, gm: fx.GraphModule, inputs: Sequence[Any], static: Callable[[Sequence[Any]], Call], fall_back: FallBack,
        compile_flat: CompileFlat | None = None,
    ) -> None:
        self.gm, self.static, self.compile_flat, self.fall_back = gm, static, compile_flat, fall_back
        self.forms = forms_of(inputs)
        self.flatten = flattening(self.forms)
        self.examples = self.flatten(inputs)
        self.sizes = Sizes(self.examples)
        self.ready: dict[Any, Call] = {}
        self.traced: dict[Any, list[_Traced]] = {}
        self.compiled = 0  # traces

    def __call__(self, *args: Any) -> Any:
        flat = self.flatten(args)
        key = tuple((x.shape, x.stride()) if isinstance(x, torch.Tensor) else (type(x), x) for x in flat)
        call = self.ready.get(key)
        if call is None:
            call = make_once(id(self), lambda: self.ready.get(key), lambda: self._keep(key, args, flat))
            assert call is not None
        return call(args, flat)

    def _keep(self, key: Any, args: Sequence[Any], flat: Sequence[Any]) -> Call:
        while len(self.ready) >= MOST_READY:
            self.ready.pop(next(iter(self.ready)), None)
        try:
            call = self.ready[key] = self._make(args, flat)
        except PASSED:
            raise
        except Exception as error:
            eager = self.fall_back(error)
            call = self.ready[key] = lambda args, flat: eager(*args)
        return call

    def _make(self, args: Sequence[Any], flat: Sequence[Any]) -> Call:
        floats = tuple(x.hex() for x in flat if isinstance(x, float))
        values = self.sizes.values([0 if isinstance(x, float) else x for x in flat])
        constants = {key: values[name] for key, name in self.sizes.names.items() if values[name] < SPECIAL}
        known = self.traced.setdefault((tuple(constants.items()), floats), [])
        found = next((each for each in known if each.program.serves(values)), None)
        if found is not None:
            return found.at(values)
        self.compiled += 1
        if self.compiled > MOST_SIZES:
            raise NotFunctional(f"more than {MOST_SIZES} sizes of one graph")
        compile_flat = self.compile_flat
        if compile_flat is not None:
            try:
                known.append(restored_on_error(lambda: self._trace(values, constants, flat, compile_flat)))
                return known[-1].at(values)
            except PASSED:
                raise
            except Exception as error:
                self.compile_flat = None
                count("graphs_per_size")
                show("sizes", f"a graph is traced for each size: {reason_of(error)}")
        return restored_on_error(lambda: self.static(args))

    def _trace(
        self, values: Mapping[str, int], constants: Mapping[Any, int], flat: Sequence[Any], compile_flat: CompileFlat
    ) -> _Traced:
        import_whole(SYMBOLIC_SHAPES)
        from .aot.symbols import Symbols, fake_inputs, in_terms  # sympy is loaded by its first use only

        symbols = Symbols()
        varying = {key: name for key, name in self.sizes.names.items() if key not in constants}
        made = symbols.all(varying, values, SPECIAL, {})
        given = made | dict(constants)

        def number(n: Any) -> Any:
            return in_terms(n.node.expr, given) if isinstance(n, torch.SymInt) else n

        forms = [None if form is None else form.at(number) for form in self.forms]
        fakes = fake_inputs(symbols, given, self.examples, flat)
        inner = to_inner(self.gm, forms, fakes, symbols.mode)
        program = symbols.program()
        run = without_autocast(lambda: compile_flat(inner.graph, fakes))
        return _Traced(inner, program, run, {varying[key]: n.node.expr for key, n in made.items()})
