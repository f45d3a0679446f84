"""Traces a graph on traceable wrapper subclasses into an ATen graph on their inner tensors.

The trace runs the classes' `__torch_dispatch__` on instances around fake tensors, so the operators that it calls are
recorded and become part of the compiled graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from ..aot.calls import python_kernels
from ..aot.fake import fake_mode, make_fx
from ..aot.functionalize import GraphRun, NotFunctional, attributes_of, refuse_fixed_offsets, storage_of
from ..aot.results import Constant, Input
from ..fx_utils.places import blame
from ..process.import_stubs import stub_torch_compiler
from .wrapper_tensors import Form, built, flattening, is_wrapper


@dataclass(frozen=True)
class Part:
    """A result built from the next flat results: one plain tensor, or an instance of this form."""

    form: Form | None


Result = Part | Input | Constant


@dataclass(frozen=True)
class InnerGraph:
    """`graph(*flat inputs)` returns a tuple of flat results. `forms`: the forms of the inputs, None for plain tensors
    and numbers. `results`: how each result of the captured graph is obtained; `structure`: their pytree. `written`: the
    numbers of the inputs, among the wrapper instances, to which the graph writes."""

    graph: torch.fx.GraphModule
    forms: tuple[Form | None, ...]
    results: tuple[Result, ...]
    structure: pytree.TreeSpec
    written: tuple[int, ...]


def holds_wrappers(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether instances of wrapper subclasses are inputs of a graph or are created in it."""
    if any(map(is_wrapper, inputs)):
        return True
    return any(is_wrapper(node.meta.get("val", node.meta.get("example_value"))) for node in gm.graph.nodes)


def forms_of(inputs: Sequence[Any]) -> tuple[Form | None, ...]:
    """The forms of a graph's inputs. NotFunctional if an inner tensor requires a gradient itself."""
    forms = tuple(Form.of(x) if is_wrapper(x) else None for x in inputs)
    for x, form in zip(inputs, forms):
        if form is not None and any(part.requires_grad for part in flattening([form])([x])):
            raise NotFunctional("an inner tensor of a subclass requires a gradient itself")
    return forms


def to_inner(gm: torch.fx.GraphModule, forms: Sequence[Form | None], fakes: Sequence[Any], mode: Any) -> InnerGraph:
    """Trace `gm` on instances of these forms around the fake tensors `fakes` of this mode. NotFunctional if a graph on
    the inner tensors cannot do the same."""
    trace = _Trace(gm, forms)
    graph = traced(trace, fakes, mode, gm)
    return InnerGraph(graph, tuple(forms), tuple(trace.results), trace.structure, _written(graph, forms))


def _written(gm: torch.fx.GraphModule, forms: Sequence[Form | None]) -> tuple[int, ...]:
    """The wrapper instances to whose inner tensors the graph writes, by number."""
    owners = [i for i, form in enumerate(forms) for _ in range(1 if form is None else form.count())]
    places = gm.graph.find_nodes(op="placeholder")
    memory = {storage_of(node.meta.get("val")): owner for node, owner in zip(places, owners)}
    found: set[int] = set()
    for node in gm.graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        for argument, given in zip(node.target._schema.arguments, node.args):
            if argument.alias_info is not None and argument.alias_info.is_write:
                values = [x.meta.get("val") for x in pytree.tree_leaves(given) if isinstance(x, torch.fx.Node)]
                found |= {memory[storage_of(x)] for x in values if storage_of(x) in memory}
    return tuple(sorted(i for i in found if forms[i] is not None))


def traced(
    trace: Callable[..., Any], fakes: Sequence[Any], mode: Any, gm: torch.fx.GraphModule
) -> torch.fx.GraphModule:
    """Trace a function of plain tensors into an ATen graph."""
    if any(is_wrapper(x) for _, x in attributes_of(gm)):
        raise NotFunctional("a subclass among the parameters of the graph's own module")
    with fake_trace(mode):
        graph = make_fx(trace, decomposition_table={})(*fakes)
    refuse_fixed_offsets(graph)
    graph.meta.update({key: value for key, value in gm.meta.items() if key != "compile_report"})
    return graph


@contextlib.contextmanager
def fake_trace(mode: FakeTensorMode) -> Iterator[None]:
    """The modes for tracing a graph on fake tensors."""
    with (
        stub_torch_compiler, mode, python_kernels(mode), torch._C.DisableTorchFunctionSubclass(),
        torch.fx.traceback.preserve_node_meta(),
    ):  # fmt: skip
        yield


def static_fakes(flat: Sequence[Any]) -> tuple[list[Any], FakeTensorMode]:
    """Fake tensors of these sizes, to which a trace may write, and their mode."""
    mode, found = fake_mode(), []
    with stub_torch_compiler, torch.no_grad():
        for x in flat:
            if not isinstance(x, torch.Tensor):
                found.append(x)
                continue
            with mode:
                found.append(torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device))
    return found, mode


class NodeRun(GraphRun):
    """Runs a captured graph. Writes are not checked here, but when the inner graph is compiled."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        super().__init__(gm, {})

    def run_node(self, n: torch.fx.Node) -> Any:
        try:
            return torch.fx.Interpreter.run_node(self, n)
        except Exception as error:
            blame(error, n)
            raise


class _Trace:
    """The function that make_fx traces: flat inputs -> flat results. Sets `results` and `structure`."""

    structure: pytree.TreeSpec

    def __init__(self, gm: torch.fx.GraphModule, forms: Sequence[Form | None]) -> None:
        self.gm, self.forms = gm, forms
        self.results: list[Result] = []

    def __call__(self, *flat: Any) -> tuple[Any, ...]:
        args = built(flat, self.forms)
        leaves, self.structure = pytree.tree_flatten(NodeRun(self.gm).run(*args))
        check_inputs(args, self.forms, flat)
        self.results, found = taken_apart(leaves, args)
        return tuple(found)


def check_inputs(args: Sequence[Any], forms: Sequence[Form | None], flat: Sequence[Any]) -> None:
    """NotFunctional if the graph replaces inner tensors of an input or changes its metadata or layout."""
    for x, form in zip(args, forms):
        if form is not None and (not form.fits(x) or tuple(x.shape) != form.size or x.stride() != form.stride):
            raise NotFunctional(f"the metadata of a {form.cls.__qualname__} is changed in place")
    if any(a is not b for a, b in zip(flattening(forms)(args), flat, strict=True)):
        raise NotFunctional("the inner tensors of an input are replaced")


def taken_apart(leaves: Sequence[Any], args: Sequence[Any]) -> tuple[list[Result], list[Any]]:
    """How each result of a graph is obtained, and the plain tensors in the results."""
    results: list[Result] = []
    found: list[Any] = []
    for leaf in leaves:
        index = next((i for i, x in enumerate(args) if leaf is x), None)
        if not isinstance(leaf, torch.Tensor):
            if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
                raise NotFunctional("a result is a number that depends on sizes")
            results.append(Constant(leaf))
        elif index is not None:
            results.append(Input(index))
        else:
            form = Form.of(leaf) if is_wrapper(leaf) else None
            parts = [leaf] if form is None else flattening([form])([leaf])
            if form is not None and any(part.requires_grad for part in parts):
                raise NotFunctional("an inner tensor of a subclass requires a gradient itself")
            results.append(Part(form))
            found += parts
    return results, found


def finishing(
    results: Sequence[Result], structure: pytree.TreeSpec, number: Callable[[Any], Any] = lambda n: n,
    written: Sequence[int] = (),
) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    """A function that builds the results of a call from its arguments and flat results. `number` replaces a symbolic
    size by its current value. `written`: the instances among the arguments whose inner tensors are written; their
    version counters are incremented."""
    results = [Part(x.form.at(number)) if isinstance(x, Part) and x.form is not None else x for x in results]

    def finish(args: Sequence[Any], flat: Sequence[Any]) -> Any:
        for i in written:
            if not args[i].is_inference():
                torch.autograd.graph.increment_version(args[i])
        given = iter(flat)
        leaves: list[Any] = []
        for result in results:
            match result:
                case Part(form):
                    leaves.append(next(given) if form is None else form.build(given))
                case Input(index):
                    leaves.append(args[index])
                case Constant(value):
                    leaves.append(value)
        return pytree.tree_unflatten(leaves, structure)

    return finish
