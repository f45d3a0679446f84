"""Captures a function as one graph whose inputs are the tensors and numbers among its arguments, and the tensors that
it reads beside them, which become constants."""

from __future__ import annotations

import contextlib
import itertools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx, nn

from inductor.dynamic.dispatch import SPECIAL
from inductor.eager.higher_order import runnable
from inductor.package.errors import PackageError
from inductor.subclasses.wrapper_tensors import is_wrapper

from .. import _C
from ..callables import original
from ..core.effects import Effect
from ..core.expr import Expr, Number
from ..core.guard import Guard
from ..core.source import LocalSource, SeqItemSource, SizeSource, Source, StrideSource
from ..driver import FrameCompiler
from ..emit.output import TraceResult
from ..emit.replay import distinct
from ..interp.trace import Trace
from ..module import CompiledModule
from ..options import make_options
from ..vars.numbers.dynamic import MARKS, Mark
from ..vars.numbers.shapes import SympyHolds
from ..vars.protocol.const import ConstVar
from . import signature

Dims = Mapping[int | str, int | Sequence[int]]
_NUMBERS = (int, float)
_count = itertools.count()


@dataclass
class Capture:
    """`graph` takes first the leaves of the arguments that it uses, in the order of `leaves`, then `constants`.

    `arguments` and `results`: their arrangement, see `signature`. `examples`: the graph's inputs as fake tensors and
    symbolic ints, `inputs`: the real ones. `names` are those of the constants. `conditions`: what must hold of sizes,
    as nested lists of an operator and its operands: ints, ["size", leaf, dimension], ["stride", leaf, dimension] and
    ["value", leaf].
    """

    graph: fx.GraphModule
    arguments: dict[str, Any]
    results: dict[str, Any]
    leaves: list[int]
    examples: list[Any]
    inputs: list[Any]
    constants: list[torch.Tensor]
    names: list[str]
    conditions: list[Any] = field(default_factory=list)


def capture(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], dynamic: bool | Dims) -> Capture:
    """Call `f` once, without gradients, and capture it. `dynamic`: True if all sizes and ints may vary, or which
    dimensions of which arguments, by position or name. PackageError if the call does more than compute results, or if
    these are not what a package can hold; `errors.Unsupported` if it is not one graph."""
    _C.bind_torch()
    f = original(f)
    f = f._pyframe_original if isinstance(f, CompiledModule) else f
    leaves: list[Any] = []

    def leaf(value: Any, where: str) -> dict[str, Any]:
        leaves.append(value)
        if isinstance(value, torch.Tensor):
            _check_tensor(value, where)
            return {"tensor": len(leaves) - 1, "name": where}
        if type(value) is int and dynamic is True:
            return {"int": len(leaves) - 1, "name": where}
        return {**signature.constant(value, where), "name": where}

    arguments = {
        "args": [signature.describe(x, f"args[{i}]", leaf) for i, x in enumerate(args)],
        "kwargs": [[name, signature.describe(x, name, leaf)] for name, x in kwargs.items()],
    }
    _refuse_twice(leaves)
    flat = _flat(f, args, kwargs)
    dims = {} if isinstance(dynamic, bool) else dynamic
    value, recorder = _recorded(flat, leaves, args, kwargs, dims, dynamic is True)
    if recorder.more:  # attributes may have been set to what they are now: then another call changes nothing
        value, recorder = _recorded(flat, leaves, args, kwargs, dims, dynamic is True)
    return _Finish(f, leaves, arguments, recorder, dynamic is not False).run(value)


def _recorded(
    flat: types.FunctionType, leaves: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any], dims: Dims,
    dynamic: bool,
) -> tuple[Any, _Recorder]:
    """The result of a call that is captured, and its recorder."""
    recorder = _Recorder(dynamic)
    recorder.always.add(flat.__code__)
    with torch.no_grad(), _marked(args, kwargs, dims):
        return _C.CompiledFunction(flat, recorder)(*leaves), recorder


def _check_tensor(x: torch.Tensor, where: str) -> None:
    if x.layout is not torch.strided or is_wrapper(x) or type(x) not in (torch.Tensor, nn.Parameter):
        raise PackageError(f"{where} is not a plain tensor: {type(x).__qualname__}, {x.layout}")


def _refuse_twice(leaves: Sequence[Any]) -> None:
    seen = [id(x) for x in leaves if isinstance(x, torch.Tensor)]
    if len(set(seen)) < len(seen):
        raise PackageError("a tensor is given twice: as calls may give two, give two (the other one a clone)")


def _flat(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> types.FunctionType:
    """A function of the leaves that calls `f` with the arguments that they are leaves of."""
    numbers = itertools.count()
    classes: dict[str, Any] = {"_f": f}

    def text(value: Any) -> str:
        if type(value) in (tuple, list):
            items = "".join(text(x) + ", " for x in value)
            return f"({items})" if type(value) is tuple else f"[{items}]"
        if type(value) is dict:
            return "{" + ", ".join(f"{key!r}: {text(x)}" for key, x in value.items()) + "}"
        fields = _fields(value)
        if fields is None:
            return f"leaves[{next(numbers)}]"
        name = f"_class{len(classes)}"
        classes[name] = type(value)
        return f"{name}(" + ", ".join(f"{key}={text(x)}" for key, x in fields.items()) + ")"

    given = [*map(text, args), *(f"**{{{name!r}: {text(x)}}}" for name, x in kwargs.items())]
    source = f"def packaged(*leaves):\n    return _f({', '.join(given)})\n"
    exec(compile(source, f"<packaged {next(_count)}>", "exec"), classes)
    made: types.FunctionType = classes["packaged"]
    return made


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of a container with a class of its own; None for a leaf."""
    kinds: list[Any] = []
    found = signature.describe(value, "", lambda x, where: kinds.append(x) or {})  # type: ignore[func-returns-value]
    if "fields" not in found:
        return None
    return {name: value[name] if isinstance(value, dict) else getattr(value, name) for name, _ in found["fields"]}


@contextlib.contextmanager
def _marked(args: Sequence[Any], kwargs: Mapping[str, Any], dynamic: Dims) -> Iterator[None]:
    """The dimensions that `dynamic` names are marked as varying, and no others, while the block runs."""
    wanted: list[tuple[torch.Tensor, dict[int, Mark]]] = []
    for name, dims in dynamic.items():
        known: Any = args if isinstance(name, int) else kwargs
        try:
            x = known[name]
        except (IndexError, KeyError):
            raise PackageError(f"dynamic names {name!r}, which is no argument of the call") from None
        if not isinstance(x, torch.Tensor):
            raise PackageError(f"dynamic names {name!r}, which is not a tensor; dynamic=True is for all arguments")
        numbers = [dims] if isinstance(dims, int) else list(dims)
        for dim in numbers:
            if not -x.dim() <= dim < x.dim():
                raise PackageError(f"dynamic names dimension {dim} of {name!r}, which has {x.dim()}")
            if x.shape[dim] < SPECIAL:
                raise PackageError(
                    f"dynamic names dimension {dim} of {name!r}, whose size is {x.shape[dim]}: give an example of "
                    f"{SPECIAL} or more"
                )
        wanted.append((x, {dim % x.dim(): Mark("dynamic") for dim in numbers}))
    before = [(x, getattr(x, MARKS, None)) for x, _ in wanted]
    try:
        for x, new in wanted:
            setattr(x, MARKS, new)
        yield
    finally:
        for x, old in before:
            delattr(x, MARKS) if old is None else setattr(x, MARKS, old)


class _Recorder(FrameCompiler):
    """Captures with a backend that runs the graph by ATen, and keeps what a package needs of the capture."""

    def __init__(self, dynamic: bool) -> None:
        options = make_options(True, True if dynamic else None, None, {})
        options = replace(options, float_inputs=False)  # floats are constants of a package
        super().__init__(self._run, options, "package")
        self.graph: fx.GraphModule | None = None
        self.examples: list[Any] = []
        self.outputs: tuple[Any, ...] = ()
        self.sources: list[Source] = []
        self.originals: dict[Source, torch.Tensor] = {}
        self.relations: list[Any] = []
        self.more = ""  # what the frame does beside returning results

    def _run(self, gm: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        self.graph, self.examples = gm, list(examples)
        run = runnable(gm).forward

        def call(*inputs: Any) -> Any:
            self.outputs = tuple(run(*inputs))
            return self.outputs

        return call

    _run.takes_fake_tensors = True  # type: ignore[attr-defined]

    def _finish(self, func: types.FunctionType, result: TraceResult, trace: Trace, state: Any, captures: int) -> Any:
        effects = [f"{each.kind} of {each.target} at {each.line}" for each in distinct(trace.effects) if _changes(each)]
        entry = super()._finish(func, result, trace, state, captures)
        inputs = trace.graph.inputs
        self.sources, self.originals = list(inputs.sources), dict(inputs.originals)
        self.relations = [g for g in result.guards if g.kind == "RELATION" or _is_relation_without_tree(g)]
        self.more = "it changes objects that existed before: " + "; ".join(effects) if effects else ""
        if trace.draws:
            self.more = "it draws random numbers in Python"
        return entry


class _Finish:
    """Relates the graph to the arguments and results of the call that was captured."""

    def __init__(
        self, f: Any, leaves: list[Any], arguments: dict[str, Any], recorder: _Recorder, dynamic: bool
    ) -> None:
        self.f, self.leaves, self.arguments, self.recorder, self.dynamic = f, leaves, arguments, recorder, dynamic

    def run(self, value: Any) -> Capture:
        recorder, gm = self.recorder, self.recorder.graph
        if recorder.more:
            raise PackageError(f"the function does more than compute its results: {recorder.more}")
        if gm is None:
            raise PackageError("the function computes nothing")
        self._read_sizes(gm)
        given, other = self._inputs(gm.graph.find_nodes(op="placeholder"))
        order = [*given, *other]
        _reorder(gm, order)
        examples, sources = [recorder.examples[k] for k in order], [recorder.sources[k] for k in order]
        leaves = [_leaf_of(source) for source in sources[: len(given)]]
        constants = [recorder.originals[source] for source in sources[len(given) :]]
        self.used, self.constants = leaves, constants
        names = self._names(sources[len(given) :], constants)
        for node in self._argument_nodes():
            number = node.get("tensor")
            if number is not None and number not in leaves:
                node["unused"] = node.pop("tensor")
        results = signature.describe(value, "the result", self._result)
        conditions = [_condition(guard) for guard in recorder.relations]
        inputs = [self.leaves[k] for k in leaves if k is not None]
        return Capture(
            gm, self.arguments, results, [k for k in leaves if k is not None], examples, [*inputs, *constants],
            constants, names, conditions,
        )

    def _read_sizes(self, gm: fx.GraphModule) -> None:
        """Let the graph read the sizes that are inputs of it from the tensors that have them."""
        sources, nodes = self.recorder.sources, gm.graph.find_nodes(op="placeholder")
        first = next(node for node in gm.graph.nodes if node.op != "placeholder")
        for source, node in zip(sources, nodes, strict=True):
            if isinstance(source, SizeSource | StrideSource) and source.parent in sources:
                tensor = nodes[sources.index(source.parent)]
                method = "size" if isinstance(source, SizeSource) else "stride"
                with gm.graph.inserting_before(first):
                    read = gm.graph.call_method(method, (tensor, source.dim))
                read.meta = dict(node.meta)
                node.replace_all_uses_with(read)

    def _argument_nodes(self) -> Iterator[dict[str, Any]]:
        for node in (*self.arguments["args"], *(node for _, node in self.arguments["kwargs"])):
            yield from signature.leaf_nodes(node)

    def _inputs(self, nodes: Sequence[fx.Node]) -> tuple[list[int], list[int]]:
        """The places of the graph's inputs that are leaves, and of the others; without those that nothing reads."""
        given, other = [], []
        for k, (source, node) in enumerate(zip(self.recorder.sources, nodes, strict=True)):
            leaf = _leaf_of(source)
            if not node.users:
                continue
            if leaf is not None:
                given.append(k)
            elif source in self.recorder.originals:
                other.append(k)
            else:
                raise PackageError(f"the function reads {source}, a number that varies and is no argument")
        return given, other

    def _names(self, sources: Sequence[Source], constants: Sequence[torch.Tensor]) -> list[str]:
        known: dict[int, str] = {}
        module = self.f if isinstance(self.f, nn.Module) else getattr(self.f, "__self__", None)
        if isinstance(module, nn.Module):
            known = {id(x): name for name, x in (*module.named_parameters(), *module.named_buffers())}
        return [known.get(id(x), source.name) for source, x in zip(sources, constants, strict=True)]

    def _result(self, value: Any, where: str) -> dict[str, Any]:
        if isinstance(value, torch.Tensor):
            places = {"result": self.recorder.outputs, "argument": self.leaves, "fixed": self.constants}
            for kind, known in places.items():
                found = next((k for k, x in enumerate(known) if x is value), None)
                if found is not None:
                    return {kind: found}
            raise PackageError(f"{where} is a tensor that the graph does not compute")
        if self.dynamic and type(value) in _NUMBERS:
            raise PackageError(f"{where} is a number, which may depend on the sizes that vary: return a tensor")
        return signature.constant(value, where)


def _changes(effect: Effect) -> bool:
    """Whether an effect leaves something other than it was: the assignment of the constant that an attribute has does
    not."""
    if effect.kind != "ATTR":
        return True
    value = effect.target.written(effect.detail)
    if not isinstance(value, ConstVar) or value.varies:
        return True
    before = vars(effect.target.value).get(effect.detail, _MISSING) if hasattr(effect.target, "value") else _MISSING
    return type(before) is not type(value.value) or before != value.value


_MISSING = object()


def _is_relation_without_tree(guard: Guard) -> bool:
    return guard.kind == "PREDICATE" and isinstance(guard.payload[0], SympyHolds)


def _leaf_of(source: Source) -> int | None:
    """The number of the leaf that is this source."""
    if isinstance(source, SeqItemSource) and isinstance(source.base, LocalSource) and source.base.local == "leaves":
        return int(source.index)
    return None


def _reorder(gm: fx.GraphModule, order: Sequence[int]) -> None:
    """Put the inputs of a graph in this order, without those that are not in it, which nothing reads."""
    nodes = gm.graph.find_nodes(op="placeholder")
    ordered = [nodes[k] for k in order]
    for node in set(nodes).difference(ordered):
        gm.graph.erase_node(node)
    for before, node in itertools.pairwise(ordered):
        before.append(node)
    gm.recompile()


def _condition(guard: Guard) -> Any:
    if guard.kind == "PREDICATE":
        raise PackageError(f"a condition on sizes that a package cannot hold: {guard.payload[2]}")
    return _tree(guard.payload)


def _tree(tree: Any) -> Any:
    if isinstance(tree, Number):
        if type(tree.value) not in (int, bool):
            raise PackageError(f"a condition on sizes with the number {tree.value!r}")
        return int(tree.value)
    if isinstance(tree, Expr):
        return [tree.op, *map(_tree, tree.args)]
    if isinstance(tree, SizeSource | StrideSource):
        leaf = _leaf_of(tree.base) if tree.base is not None else None
        if leaf is not None:
            return ["size" if isinstance(tree, SizeSource) else "stride", leaf, tree.dim]
    leaf = _leaf_of(tree)
    if leaf is None:
        raise PackageError(f"a condition on {tree}, which is no argument")
    return ["value", leaf]
