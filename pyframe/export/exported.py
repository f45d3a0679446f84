"""`Exported`: a function or module as one program, and how it is made of a whole graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from inductor.eager.transforms import GradAndValue, Vmapped
from inductor.modes import graph_module

from ..errors import UserError
from ..signature.conditions import Condition, InputSpec, check
from ..signature.parameters import Parameters
from ..signature.structure import Structure, unflatten
from . import assumptions
from .comparison import Comparison, compare
from .printing import program_text
from .targets import short_name, unnamed
from .whole_graph import WholeGraph, whole_graph


class Exported:
    """A program that `pyframe.export` made; called like the function that it was made of.

    graph_module: the graph, an nn.Module whose parameters, buffers and constants are attributes with their qualified
        names. It takes the inputs that are tensors or numbers that vary, and returns a tuple.
    inputs: what each flat input of a call must be. conditions: relations between their sizes, and numbers. Both are
        checked in each call, which raises UserError if one does not hold.
    parameters: how the arguments of a call become flat inputs. result: the structure of the result, whose leaves are
        the graph's outputs.
    mutated: the names of the inputs and buffers that a call writes in place.
    constants: parameters, buffers and other tensors by name, shared with the module that was exported, and functions
        that only this process has. kinds: for each name "parameter", "buffer", "constant" or "function".
    function: what `check` compares with; None for a program that was loaded, until it is set.
    dropped: calls for their effect only, such as warnings, that the program does not make.

    `str()` of it is a Python program.
    """

    def __init__(
        self, *, name: str, graph_module: fx.GraphModule, inputs: list[InputSpec], conditions: list[Condition],
        parameters: Parameters, result: Structure, mutated: list[str], constants: dict[str, Any],
        kinds: dict[str, str], function: Callable[..., Any] | None = None, dropped: Sequence[str] = (),
    ) -> None:
        self.name, self.graph_module, self.inputs, self.conditions = name, graph_module, inputs, conditions
        self.parameters, self.result, self.mutated = parameters, result, mutated
        self.constants, self.kinds = constants, kinds
        self.function, self.dropped = function, list(dropped)
        self.shares_state = function is not None
        for node in graph_module.graph.nodes:
            if isinstance(node.target, Vmapped | GradAndValue):
                node.target.label = node.target.label or node.name
        for target in unnamed(graph_module):
            self.constants[f"function {short_name(target)}"] = target
            self.kinds[f"function {short_name(target)}"] = "function"
        self._passed = [index for index, spec in enumerate(inputs) if spec.kind != "constant"]

    @staticmethod
    def of(whole: WholeGraph, function: Callable[..., Any] | None) -> Exported:
        """The program of a whole graph."""
        specs = assumptions.input_specs(whole)
        return Exported(
            name=whole.name, graph_module=with_attributes(whole), inputs=specs,
            conditions=assumptions.conditions(whole, specs), parameters=whole.parameters, result=whole.result,
            mutated=whole.mutated, constants=whole.state, kinds=whole.kinds, function=function, dropped=whole.dropped,
        )  # fmt: skip

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return unflatten(self.result, self.graph_module(*self.flat_inputs(args, kwargs)))

    def flat_inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arguments of `graph_module` for a call. UserError if the program was not exported for this call."""
        leaves = self.parameters.leaves(args, kwargs)
        check(leaves, self.inputs, self.conditions)
        return [leaves[index] for index in self._passed]

    def __str__(self) -> str:
        return program_text(self)

    def __repr__(self) -> str:
        return f"<Exported {self.name}: {len(self.graph_module.graph.nodes)} nodes, {len(self.constants)} constants>"

    def check(self, *args: Any, **kwargs: Any) -> Comparison:
        """Run the program and `function`, each on copies of these arguments and from the same state, and compare the
        results and what both wrote. The state is then as before."""
        if self.function is None:
            raise UserError("a loaded program has nothing to compare with; set `function` to what was exported")
        return compare(self, self.function, args, kwargs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program with its constants to one file, which `load` reads. UserError if an operator or a class of
        it cannot be saved."""
        from .files import save  # imported only where it is used

        save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], classes: Iterable[type] = ()) -> Exported:
        """The program in a file that `save` wrote. classes: of containers in arguments and results, if their modules
        are not imported. UserError for a file that is damaged, or of another version of the format."""
        from .files import load  # imported only where it is used

        return load(path, classes)

    def to_exported_program(self) -> Any:
        """The same as a `torch.export.ExportedProgram`, which is made by torch.export."""
        from .torch_export import to_exported_program  # imports torch.export

        return to_exported_program(self)

    @staticmethod
    def from_exported_program(program: Any) -> Exported:
        """The program of a `torch.export.ExportedProgram`."""
        from .torch_export import from_exported_program  # imports torch.export

        return from_exported_program(program)


def export(function: Callable[..., Any]) -> Callable[..., Exported]:
    """`export(f)(*args, dynamic=None, **kwargs)` traces `f`, a function or nn.Module, as one program for such calls. It
    does not run the call.

    dynamic: which sizes and ints vary. None: those marked with `mark_dynamic`; True: all that the program does not
    fix; or an entry for each argument, in order or by name: for a tensor a dict or sequence of dimensions, each None
    (fixed), True (varies), "auto" (varies unless the program fixes it), `(least, most)` or a torch.export.Dim; for an
    int the same; for a container its parts. Sizes that vary are at least 2.

    Raises Unsupported, with the user's line and the reason, if `f` is not one graph, and UserError for arguments that a
    program cannot have, or if the program fixes a size that must vary. An argument of `f` named `dynamic` can only be
    passed by position.
    """

    def run(*args: Any, dynamic: Any = None, **kwargs: Any) -> Exported:
        return Exported.of(whole_graph(function, args, kwargs, dynamic), function)

    return run


def with_attributes(whole: WholeGraph) -> fx.GraphModule:
    """The graph with parameters, buffers and constants as attributes instead of placeholders."""
    old = whole.graph_module
    names = {each.node: each.name for each in whole.inputs if each.kind != "input"}
    graph, mapped = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in old.graph.nodes:
        if node.op == "placeholder" and node.name in names:
            continue
        if node.op == "output":
            break
        for each in node.all_input_nodes:
            if each not in mapped:
                mapped[each] = _read(graph, names[each.name], each)
        mapped[node] = graph.node_copy(node, lambda each: mapped[each])
    (output,) = old.graph.find_nodes(op="output")
    for each in output.all_input_nodes:
        if each not in mapped:
            mapped[each] = _read(graph, names[each.name], each)
    graph.output(fx.node.map_arg(output.args[0], lambda each: mapped[each]))
    root = nn.Module()
    for name, child in old.named_children():
        setattr(root, name, child)
    attach(root, whole.state, whole.kinds)
    module = graph_module(root, graph, getattr(old, "settings", ()))
    attach(module, whole.state, whole.kinds)
    return module


def _read(graph: fx.Graph, name: str, placeholder: fx.Node) -> fx.Node:
    node = graph.create_node("get_attr", name, name=placeholder.name)
    node.meta.update(placeholder.meta)
    return node


def attach(root: nn.Module, tensors: Mapping[str, torch.Tensor], kinds: Mapping[str, str]) -> None:
    """Make tensors attributes of a module and of modules within it: those of the kind "buffer" are in its state_dict,
    and of the kind "constant" are not. Functions are left out."""
    for name, tensor in tensors.items():
        if kinds[name] == "function":
            continue
        *path, last = name.split(".")
        owner = root
        for part in path:
            child = owner._modules.get(part)
            if child is None:
                child = nn.Module()
                owner.add_module(part, child)
            owner = child
        for held in (vars(owner), owner._parameters, owner._buffers):
            held.pop(last, None)
        if kinds[name] == "parameter" and isinstance(tensor, nn.Parameter):
            owner.register_parameter(last, tensor)
        else:
            owner.register_buffer(last, tensor, persistent=kinds[name] == "buffer")
