"""The graph under construction and the graphs around it.

A function that an operator takes (the branches of `cond`, what `torch.func` transforms) is traced into a nested graph.
Values of outer graphs that it reads become arguments of the nested graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from inductor.log.progress import advance
from inductor.modes import Setting, graph_module

from ..core.files import our_file
from ..core.guard import UserLine
from ..core.source import AttrSource, DictItemSource, ModuleAttrSource, SeqItemSource, Source, StepSource
from ..vars.protocol.base import Var
from ..vars.torch_objects.nnmodule import NNModuleVar
from ..vars.torch_objects.tensor import TensorVar
from ..vars.tracer import TracedFrame, Tracer

_REGISTRIES = ("_modules", "__dict__")  # where nn.Module keeps its submodules


class GraphStack:
    """`current`: the graph that gets new nodes. `outermost`: the captured graph itself."""

    def __init__(self, tx: Tracer) -> None:
        self._tx = tx
        self.current = self.outermost = fx.Graph()
        self._outer: list[fx.Graph] = []  # the graphs around the current one, outermost first
        self._lifted: list[dict[fx.Node, Var]] = []  # per nested graph: placeholder -> value of an outer graph
        self._transforms = 0  # how many of the nested graphs torch.func transforms
        self._lines: dict[UserLine, str] = {}  # as traces of nodes quote them
        self._modules: dict[fx.Graph, torch.nn.Module] = {}  # holds the subgraphs that nodes of each graph take

    @property
    def is_nested(self) -> bool:
        """Whether the current graph is nested: an argument of an operator."""
        return bool(self._outer)

    @property
    def in_transform(self) -> bool:
        """Whether the function being traced is one that torch.func transforms."""
        return self._transforms > 0

    def under_construction(self) -> list[fx.Graph]:
        """The current graph and those around it."""
        return [self.current, *self._outer]

    def annotate(self, node: fx.Node) -> fx.Node:
        """Record in a node which lines of the program it comes from."""
        text, modules = self.place()
        node.meta["stack_trace"] = text or "".join(map(self._quoted, self._tx.whole_stack()))
        if modules:
            node.meta["nn_module_stack"] = modules
        advance()
        return node

    def place(self) -> tuple[str, dict[str, tuple[str, type]]]:
        """What nodes record of the instruction being traced: the lines of all frames, and the modules of which they run
        methods, by path."""
        frames = self._tx.frames
        if not frames:
            return "", {}
        around, modules = self._around(len(frames) - 1)
        return around + self._own_line(frames[-1]), {**modules, **_module_of(frames[-1])}

    def _around(self, depth: int) -> tuple[str, dict[str, tuple[str, type]]]:
        """What nodes record of the frames around the frame at this depth, which is running: all of these are at a call
        until it ends or yields."""
        frames = self._tx.frames
        if not depth:
            return "", {}
        frame = frames[depth]
        if frame.around is None:
            outer = frames[depth - 1]
            text, modules = self._around(depth - 1)
            frame.around = text + self._own_line(outer), {**modules, **_module_of(outer)}
        return frame.around

    def _own_line(self, frame: TracedFrame) -> str:
        return "" if our_file(frame.file) else self._quoted(frame.user_line())

    def _quoted(self, line: UserLine) -> str:
        text = self._lines.get(line)
        if text is None:
            text = self._lines[line] = _trace_line(line)
        return text

    def enter(self, transform: bool = True) -> fx.Graph:
        """Begin a nested graph. `transform`: it is for a function that torch.func transforms, whose tensor values
        cannot be read."""
        self._outer.append(self.current)
        self._lifted.append({})
        self._transforms += transform
        self.current = fx.Graph()
        return self.current

    def leave(self, nested: fx.Graph, transform: bool = True) -> tuple[fx.GraphModule, list[Var]]:
        """Finish the nested graph, which has an output node. Returns it with the outer values that must be passed after
        its arguments."""
        assert self.current is nested
        lifted = self._lifted.pop()
        places = list(nested.find_nodes(op="placeholder"))
        self.current = self._outer.pop()
        self._transforms -= transform
        nested.lint()
        ordered = sorted(lifted.items(), key=lambda pair: places.index(pair[0]))
        return self.module(nested), [var for _, var in ordered]

    def argument(self, example: Any) -> fx.Node:
        """Add an argument to the nested graph. `example`: its fake tensor or symbolic number."""
        node = self.current.placeholder(f"arg{len(self.current.nodes)}")
        node.meta["val"] = example
        return node

    def tensor_argument(self, fake: torch.Tensor) -> TensorVar:
        """A tensor argument of the nested graph."""
        return TensorVar(self.argument(fake), fake)

    def node_of(self, var: TensorVar) -> fx.Node:
        """The node of a tensor in the current graph. In a nested graph, an outer tensor becomes an argument."""
        return var.node if var.node.graph is self.current else self.lift(var.node, var, var.fake)

    def lift(self, node: fx.Node, var: Var, value: Any) -> fx.Node:
        """The argument of the nested graph for an outer value."""
        if node.graph not in self._outer:
            what = "a value created inside a transformed function and used outside of it"
            return self._tx.graph_break("unsupported-object", what)
        for inside, known in self._lifted[-1].items():
            if known is var:
                return inside
        last = self.current.find_nodes(op="placeholder")
        with self.current.inserting_after(last[-1]) if last else self.current.inserting_before():
            inside = self.current.placeholder(f"lifted{len(self._lifted[-1])}")
        inside.meta["val"] = value
        if isinstance(value, torch.Tensor):
            inside.meta["version"] = value._version
        self._lifted[-1][inside] = var
        return inside

    def lifted_fakes(self) -> list[torch.Tensor]:
        """The outer tensors that the nested graph has read so far."""
        return [var.fake for var in self._lifted[-1].values() if isinstance(var, TensorVar)]

    def changes_lifted(self) -> bool:
        """Whether the nested graph writes to an outer tensor."""
        lifted = self._lifted[-1].items()
        return any(isinstance(v, TensorVar) and v.fake._version != node.meta["version"] for node, v in lifted)

    def attach(self, name: str, gm: fx.GraphModule) -> fx.Node:
        """Store a graph as a submodule and return the `get_attr` node that passes it to operators."""
        root = self._modules.setdefault(self.current, torch.nn.Module())
        number = sum(other.startswith(f"{name}_") for other, _ in root.named_children())
        setattr(root, f"{name}_{number}", gm)
        return self.annotate(self.current.get_attr(f"{name}_{number}"))

    def module(self, graph: fx.Graph, settings: Sequence[Setting] = ()) -> fx.GraphModule:
        """The module of a finished graph, with the graphs that its nodes take."""
        return graph_module(self._modules.pop(graph, torch.nn.Module()), graph, settings)

    def release(self) -> None:
        """Free the nodes of graphs that no GraphModule owns: they form reference cycles."""
        for graph in self.under_construction():
            if graph.owning_module is None:
                for node in (*graph.nodes, graph._root):
                    node._update_args_kwargs((), {})
                    node._prev = node._next = None
                vars(graph).clear()
        vars(self).clear()


def _trace_line(line: UserLine) -> str:
    quoted = f"    {line.quoted}\n" if line.quoted else ""
    return f'  File "{line.filename}", line {line.lineno}, in {line.function}\n{quoted}'


def _module_of(frame: TracedFrame) -> dict[str, tuple[str, type]]:
    """The path and the class of the nn.Module of which a frame runs a method, by path; nothing for other frames."""
    code = frame.code
    var = frame.locals.get(code.co_varnames[0]) if code.co_argcount else None
    if not isinstance(var, NNModuleVar) or var.source is None:
        return {}
    path = module_path(var.source)
    return {path: (path, var.cls)}


def module_path(source: Source) -> str:
    """The path of a module that exists before the frame, as `named_modules` gives it: "layers.0.act", relative to the
    root of `source`. "" for the root itself."""
    parts: list[str] = []
    step: Source = source
    while isinstance(step, StepSource):
        if isinstance(step, AttrSource | ModuleAttrSource):
            parts.append(step.attr)
        elif isinstance(step, DictItemSource) and step.key not in _REGISTRIES:
            parts.append(str(step.key))
        elif isinstance(step, SeqItemSource):
            parts.append(str(step.index))
        step = step.parent
    return ".".join(reversed([part for part in parts if part not in _REGISTRIES]))
