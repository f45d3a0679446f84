"""`whole_graph`: a function or module as one graph, with what a caller needs to run it without pyframe.

`pyframe.export` builds on it, and so can a compiler ahead of time.
"""

from __future__ import annotations

import enum
import keyword
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from inductor.fx_utils.writes import written_statistics
from inductor.modes import graph_module
from inductor.overlap import memory_of

from ..callables import original
from ..core.files import our_file
from ..core.guard import Guard
from ..core.source import (
    AttrSource,
    DictItemSource,
    InstanceDictSource,
    LocalSource,
    SeqItemSource,
    SizeSource,
    Source,
    StrideSource,
)
from ..errors import Unsupported, UserError
from ..module import CompiledModule
from ..signature.parameters import Parameters, bound, signature_of
from ..signature.structure import (
    PLAIN_TYPES,
    Constant,
    Leaf,
    Path,
    Structure,
    flatten,
    leaves_of,
    path_text,
    unflatten,
    with_leaves,
)
from .capture import Program, arguments_in_order, capture, place_of, reads_argument, sources_of
from .dims import marked, marks_of_inputs
from .results import Assignment, Slot
from .state import State


@dataclass
class InputLeaf:
    """One flat input of a call. `name`: as Python source, `batch['mask']`. `parameter` and `path`: where it is in the
    arguments. `example`: its tensor or plain value in the example call. `node`: the name of its placeholder; None for
    a value that is a constant of the graph. `guarded`: whether the program depends on that constant."""

    name: str
    parameter: str
    path: Path
    example: Any
    node: str | None = None
    guarded: bool = False


@dataclass
class GraphInput:
    """One placeholder of the graph. `kind`: "input" (the `leaf`-th flat input of a call), or "parameter", "buffer" or
    "constant" (the tensor `value`). `name`: of an input as in its leaf, otherwise the qualified name. `fake`: its fake
    tensor, or the symbolic number, in the state before the graph runs."""

    kind: str
    name: str
    node: str
    fake: Any
    leaf: int | None = None
    value: torch.Tensor | None = None


@dataclass
class WholeGraph:
    """A function as one graph.

    graph_module: takes the placeholders in `inputs` in this order, and returns a tuple. Its operators are those that
        the program calls, at the level of torch; it writes inputs and buffers in place, as the program does.
    inputs: one for each placeholder: first the flat inputs of the call that are tensors or numbers that vary, in the
        order of the arguments, then parameters, buffers and constants.
    leaves: the flat inputs of a call, including constants, which have no placeholder.
    parameters: `parameters.leaves(args, kwargs)` gives the flat inputs of a call.
    result: `unflatten(result, outputs)` is the program's result for the graph's outputs.
    guards: what the program assumes about its arguments; see `assumptions.conditions`.
    mutated: the names of the inputs and buffers that the graph writes.
    state: all parameters and buffers of the module, used or not, and other tensors that the graph reads, by qualified
        name. A tensor that has several names (tied weights) is there under each.
    fake_mode: the mode of the fake tensors, with the symbols of sizes that vary.
    metadata_read: what the program reads of tensors besides values and sizes: "stride", "requires_grad" and so on.
    dropped: calls for their effect only, such as warnings, that the graph does not contain.
    """

    graph_module: fx.GraphModule
    inputs: list[GraphInput]
    leaves: list[InputLeaf]
    parameters: Parameters
    result: Structure
    guards: list[Guard]
    mutated: list[str]
    state: dict[str, torch.Tensor]
    kinds: dict[str, str]  # of `state`: parameter, buffer or constant
    fake_mode: Any
    name: str
    metadata_read: frozenset[str] = frozenset()
    dropped: list[str] = field(default_factory=list)

    def flat_inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arguments of `graph_module` for a call. Only the structure of `args` and `kwargs` is checked."""
        leaves = self.parameters.leaves(args, kwargs)
        return [leaves[each.leaf] if each.leaf is not None else each.value for each in self.inputs]

    def rebuilt(self, outputs: Sequence[Any]) -> Any:
        """The result of a call for the graph's outputs."""
        return unflatten(self.result, outputs)


def whole_graph(
    function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, dynamic: Any = None
) -> WholeGraph:
    """`function`, an nn.Module or any callable, as one graph for calls like `function(*args, **kwargs)`.

    The function is traced, not run: its arguments and its state stay as they are. dynamic: which sizes and ints vary,
    see `dims.marks_of_inputs`; marks that the tensors already have (`mark_dynamic`) count, too. Raises Unsupported,
    with the user's line, if the function is not one graph or has side effects that a graph cannot have, and UserError
    for invalid arguments.
    """
    target = plain_target(function)
    signature = signature_of(target)
    arguments = bound(signature, args, kwargs or {})
    by_keyword = frozenset(name for name in kwargs or () if name in arguments)
    leaves: list[InputLeaf] = []
    given = {name: _structure(name, value, leaves) for name, value in arguments.items()}
    parameters = Parameters(signature, given, by_keyword)
    state = State(target)
    originals = [leaf.example for leaf in leaves]
    _separate(leaves, state, among_inputs=True)
    program = _captured(target, parameters, leaves, dynamic)
    if _differ_in(program, leaves, originals):
        for leaf, example in zip(leaves, originals, strict=True):
            leaf.example = example
        _separate(leaves, state, among_inputs=False)
        program = _captured(target, parameters, leaves, dynamic)
    return _Assembly(program, leaves, parameters, state, _name_of(target)).whole()


def plain_target(function: Any) -> Any:
    """What a compiled function or module was made of; other callables as they are. UserError for what is none."""
    target = original(function)
    target = target._pyframe_original if isinstance(target, CompiledModule) else target
    if not callable(target):
        raise UserError(f"a function or an nn.Module is needed, not {function!r}")
    return target


def _captured(target: Any, parameters: Parameters, leaves: list[InputLeaf], dynamic: Any) -> Program:
    """The program of the call with the examples in `leaves`."""
    values = [leaf.example for leaf in leaves]
    arguments = {name: unflatten(structure, values) for name, structure in parameters.given.items()}
    ordered = arguments_in_order(arguments, parameters.signature)
    marks = marks_of_inputs(dynamic, parameters.given, values)
    with marked(values, marks):
        index_of = {name: index for index, name in enumerate(ordered)}
        numbers = {i for i, mark in marks.items() if not isinstance(mark, dict)}
        varying = {each for i in numbers for each in _sources(leaves[i], index_of[leaves[i].parameter])}
        program = capture(target, parameters.signature, ordered, parameters.by_keyword, varying)
        while again := _values_assumed(program) - varying:
            varying |= again
            program = capture(target, parameters.signature, ordered, parameters.by_keyword, varying)
    return program


def _differ_in(program: Program, leaves: list[InputLeaf], originals: list[Any]) -> bool:
    """Whether the program depends on two inputs being different objects that are one in the example call."""
    places = {(leaf.parameter, leaf.path): original for leaf, original in zip(leaves, originals, strict=True)}
    for guard in program.guards:
        if guard.kind == "DISTINCT":
            found = [places[place] for source in guard.payload if (place := place_of(source)) in places]
            if len(found) > len({id(each) for each in found}):
                return True
    return False


def _values_assumed(program: Program) -> set[Source]:
    """The buffers whose value a program assumes, although it writes them."""
    nodes = program.graph_module.graph.find_nodes(op="placeholder")
    found = zip(program.sources, program.originals, nodes, strict=True)
    assigned = [each.before for each in program.result.assignments]
    written = {
        source for source, tensor, node in found if tensor is not None and (
            any(tensor is each for each in assigned) or node.meta["val"]._version > 0
        )
    }  # fmt: skip
    return {g.source for g in program.guards if g.kind == "PREDICATE" and g.source in written}


def _name_of(target: Any) -> str:
    name = getattr(target, "__name__", None)
    return name if isinstance(name, str) else type(target).__name__


def _structure(parameter: str, value: Any, leaves: list[InputLeaf]) -> Structure:
    """The structure of an argument, whose leaves are appended."""

    def leaf(found: Any, path: Path) -> Structure:
        name = parameter + path_text(path)
        if not isinstance(found, torch.Tensor) and type(found) not in PLAIN_TYPES:
            raise UserError(
                f"export: {name} is a {type(found).__qualname__}; an exported program takes tensors, numbers and other "
                "constants, in containers, dataclasses and classes registered with torch.utils._pytree"
            )
        leaves.append(InputLeaf(name, parameter, path, found))
        return Leaf(len(leaves) - 1)

    return flatten(value, leaf)


def _separate(leaves: list[InputLeaf], state: State, among_inputs: bool) -> None:
    """Replace an example that is also a parameter of the module and, `among_inputs`, one that is passed twice by a
    copy: a call may pass different tensors."""
    seen = {id(tensor) for tensor in state.tensors()}
    for leaf in leaves:
        if isinstance(leaf.example, torch.Tensor):
            if id(leaf.example) in seen:
                attributes = vars(leaf.example)
                with torch.no_grad():
                    copied = leaf.example.detach().clone().requires_grad_(leaf.example.requires_grad)
                vars(copied).update(attributes)
                leaf.example = copied
            if among_inputs:
                seen.add(id(leaf.example))


def _sources(leaf: InputLeaf, index: int) -> Iterator[Source]:
    """The sources that a trace may have for a part of an argument, the `index`-th local."""
    found: list[Source] = [LocalSource(leaf.parameter, index)]
    for kind, key in leaf.path:
        if kind == "attr":
            found = [each for base in found for each in (
                AttrSource(base, key), DictItemSource(InstanceDictSource(base), key)
            )]  # fmt: skip
        else:
            found = [each for base in found for each in (
                *([SeqItemSource(base, key)] if type(key) is int else []), DictItemSource(base, key)
            )]  # fmt: skip
    yield from found


class _Assembly:
    """Makes a `WholeGraph` of a captured program: a new graph with all inputs in their order."""

    def __init__(
        self, program: Program, leaves: list[InputLeaf], parameters: Parameters, state: State, name: str
    ) -> None:
        self.program, self.leaves, self.parameters, self.state, self.name = program, leaves, parameters, state, name
        self.graph = fx.Graph()
        self.inputs: list[GraphInput] = []
        self.nodes: dict[int, fx.Node] = {}  # by id of an example or of a tensor of the state
        self.old = program.graph_module.graph
        self.map: dict[fx.Node, fx.Node] = {}

    def whole(self) -> WholeGraph:
        self._guard_constants()
        old = list(self.old.find_nodes(op="placeholder"))
        numbers = self._placeholders(old)
        for node, (parent, method, dim) in numbers.items():
            self.map[node] = made = self.graph.call_method(method, (parent, dim))
            made.meta.update(node.meta)
        entered = self._enter_autocast()
        outputs = list(self.graph.graph_copy(self.old, self.map) or ())  # type: ignore[arg-type]
        for node in reversed(entered):
            self.graph.call_function(torch.amp.autocast_mode._exit_autocast, (node,))
        for node in self.graph.nodes:
            _forget_our_lines(node)
        result = self._result(outputs)
        mutated = self._mutated()
        kept = self._assign(outputs, mutated)
        used = list(dict.fromkeys(leaf.index for leaf in leaves_of(result)))
        result = with_leaves(result, lambda leaf: Leaf(used.index(leaf.index)))
        self.graph.output(tuple(kept[index] for index in used))
        self.graph.lint()
        before = self.program.graph_module
        module = graph_module(before, self.graph, getattr(before, "settings", ()))
        guards = [guard for guard in self.program.guards if any(map(reads_argument, sources_of(guard)))]
        return WholeGraph(
            module, self.inputs, self.leaves, self.parameters, result, guards, mutated, self.state.named,
            self.state.kinds, self.program.fake_mode, self.name, self.program.metadata_read,
            self.program.result.dropped,
        )  # fmt: skip

    # ---- inputs ----
    def _guard_constants(self) -> None:
        """Note which constants among the arguments the program depends on."""
        places = {(leaf.parameter, leaf.path): leaf for leaf in self.leaves}
        for guard in self.program.guards:
            for source in sources_of(guard):
                leaf = places.get(place_of(source) or ("", ()))
                if leaf is not None and not isinstance(leaf.example, torch.Tensor):
                    leaf.guarded = True

    def _placeholders(self, old: list[fx.Node]) -> dict[fx.Node, tuple[fx.Node, str, int]]:
        """Add the placeholders, and map those of the captured graph to them. Returns those that are sizes or strides of
        inputs: the node of the input, the method, and the dimension."""
        program = self.program
        known = dict(zip(program.sources, zip(old, program.examples, program.originals, strict=True), strict=True))
        tensors = {id(tensor): (node, fake) for node, fake, tensor in known.values() if tensor is not None}
        numbers = {place_of(source): (node, fake) for source, (node, fake, tensor) in known.items() if tensor is None}
        for index, leaf in enumerate(self.leaves):
            is_tensor = isinstance(leaf.example, torch.Tensor)
            found = tensors.get(id(leaf.example)) if is_tensor else numbers.get((leaf.parameter, leaf.path))
            if found is None and not is_tensor:
                continue
            node, fake = found if found is not None else (None, self._fake(leaf.example))
            made = self._add("input", leaf.name, leaf.name, fake, index)
            leaf.node = made.name
            self.nodes.setdefault(id(leaf.example), made)
            if node is not None and node not in self.map:
                self._replace(node, made)
        sizes = {}
        for source, (node, fake, tensor) in known.items():
            if node in self.map:
                continue
            if tensor is not None:
                self._replace(node, self._of_state(tensor, source, fake))
            elif isinstance(source, SizeSource | StrideSource):
                sizes[node] = (source, "size" if isinstance(source, SizeSource) else "stride", source.dim)
            else:
                raise Unsupported(f"export: {source} varies between calls and is no argument")
        by_source = {source: node for source, (node, _, _) in known.items()}
        return {node: (self._parent(source, by_source), method, dim) for node, (source, method, dim) in sizes.items()}

    def _parent(self, source: Any, by_source: Mapping[Source, fx.Node]) -> fx.Node:
        node = by_source.get(source.parent)
        if node is not None:
            return self.map[node]
        place = place_of(source.parent)
        leaf = next((leaf for leaf in self.leaves if (leaf.parameter, leaf.path) == place), None)
        if leaf is None or leaf.node is None:
            raise Unsupported(f"export: {source} varies between calls and is no size of an argument")
        return self.nodes[id(leaf.example)]

    def _replace(self, node: fx.Node, made: fx.Node) -> None:
        self.map[node] = made
        made.meta.update(node.meta)

    def _add(
        self, kind: str, name: str, label: str, fake: Any, leaf: int | None = None, value: torch.Tensor | None = None
    ) -> fx.Node:
        """A placeholder after the others."""
        previous = self.inputs[-1].node if self.inputs else None
        last = next((each for each in self.graph.nodes if each.name == previous), None)
        with self.graph.inserting_after(last) if last is not None else self.graph.inserting_before():
            node = self.graph.placeholder(identifier(label))
        node.meta["val"] = fake
        self.inputs.append(GraphInput(kind, name, node.name, fake, leaf, value))
        return node

    def _fake(self, tensor: torch.Tensor) -> Any:
        return self.program.fake_mode.from_tensor(tensor, static_shapes=True)

    def _of_state(self, tensor: torch.Tensor, source: Source | None, fake: Any = None) -> fx.Node:
        """The placeholder of a parameter, buffer or other tensor that is no argument."""
        node = self.nodes.get(id(tensor))
        if node is None:
            kind, name = self.state.name_of(tensor, source)
            fake = self._fake(tensor) if fake is None else fake
            node = self.nodes[id(tensor)] = self._add(kind, name, f"{kind[0]}_{name}", fake, value=tensor)
        return node

    def _enter_autocast(self) -> list[fx.Node]:
        """Make the autocast in which the example call is made a part of the program."""
        enabled = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
        cached = torch.is_autocast_cache_enabled()
        return [
            self.graph.call_function(
                torch.amp.autocast_mode._enter_autocast, (kind, torch.get_autocast_dtype(kind), True, cached)
            )
            for kind in enabled
        ]

    # ---- results ----
    def _result(self, outputs: list[Any]) -> Structure:
        """The structure of the result. Tensors that are no results of the graph are appended to `outputs`."""

        def leaf(found: Any, path: Path) -> Structure:
            if isinstance(found, Slot):
                return Leaf(found.index)
            if isinstance(found, torch.Tensor):
                outputs.append(self._of_state(found, None))
                return Leaf(len(outputs) - 1)
            if type(found) in PLAIN_TYPES or isinstance(found, type | types.FunctionType | enum.Enum):
                return Constant(found)
            raise Unsupported(
                f"export: the result{path_text(path)} is a {type(found).__qualname__}; a result consists of tensors, "
                "numbers and constants in containers, dataclasses and classes registered with torch.utils._pytree"
            )

        return flatten(self.program.result.value, leaf, objects=True)

    def _mutated(self) -> list[str]:
        """The names of the inputs that the graph writes in place."""
        named = {node.name: node for node in self.graph.find_nodes(op="placeholder")}
        statistics = {node for each in self.graph.nodes for node in written_statistics(each)}
        found = []
        for each in self.inputs:
            node = named[each.node]
            fake = node.meta["val"]
            counted = isinstance(fake, torch.Tensor) and not fake.is_inference() and fake._version > 0
            found += [each.name] if counted or node in statistics else []
        return found

    def _assign(self, outputs: list[Any], mutated: list[str]) -> list[Any]:
        """Write what the program assigns to buffers, and return the outputs. An output that shares memory with such a
        buffer is copied before."""
        assignments = self.program.result.assignments
        pairs = [(self._of_state(each.before, None), outputs[each.output], each) for each in assignments]
        written = {memory_of(buffer.meta["val"]) for buffer, _, _ in pairs}
        kept = [self._copied(node, written) if pairs else node for node in outputs]
        for buffer, value, each in pairs:
            _check_assigned(each, buffer.meta["val"], value.meta["val"])
            plain = self.graph.call_method("detach", (value,))
            copied = self.graph.call_method("copy_", (buffer, plain))
            plain.meta.update(value.meta)
            copied.meta.update(buffer.meta)
            name = next(found.name for found in self.inputs if found.node == buffer.name)
            mutated += [name] if name not in mutated else []
        return kept

    def _copied(self, node: Any, written: set[int]) -> Any:
        fake = node.meta.get("val") if isinstance(node, fx.Node) else None
        if not isinstance(fake, torch.Tensor) or memory_of(fake) not in written:
            return node
        made = self.graph.call_method("clone", (node,))
        made.meta.update(node.meta)
        return made


def _forget_our_lines(node: fx.Node) -> None:
    """Remove the line of the frame that calls the exported function, which is not the user's."""
    trace = node.meta.get("stack_trace")
    if trace and our_file(trace.partition('"')[2].partition('"')[0]):
        del node.meta["stack_trace"]


def _check_assigned(assignment: Assignment, before: torch.Tensor, value: torch.Tensor) -> None:
    """A buffer keeps its size, dtype and device, so that it can be written in place."""
    if (before.shape, before.dtype, before.device) != (value.shape, value.dtype, value.device):
        at = f"\n  at {assignment.line}" if assignment.line else ""
        raise Unsupported(
            f"export: the program assigns a {value.dtype} of size {tuple(value.shape)} to the buffer "
            f"{assignment.name!r}, a {before.dtype} of size {tuple(before.shape)}; both must be alike{at}"
        )


def identifier(text: str) -> str:
    """A Python identifier like `text`, in lower case."""
    name = re.sub(r"\W+", "_", text).strip("_").lower() or "value"
    if keyword.iskeyword(name) or name in ("self", "torch"):
        return f"{name}_"
    return f"_{name}" if name[0].isdigit() else name
