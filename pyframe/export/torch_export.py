"""Conversion to and from `torch.export.ExportedProgram`. Imports torch.export, and with it torch's compiler."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
import torch.export
from torch import fx, nn
from torch.export.graph_signature import (
    ConstantArgument,
    CustomObjArgument,
    InputKind,
    OutputKind,
    SymIntArgument,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from inductor.modes import graph_module
from inductor.overlap import memory_of

from ..errors import UserError
from ..signature.conditions import Condition, InputSpec, Size, text_of
from ..signature.parameters import Parameters
from ..signature.structure import Constant, Leaf, Node, Structure, flatten, path_text, unflatten
from .exported import Exported, attach

# ---- to torch.export


def to_exported_program(exported: Exported) -> Any:
    """See `Exported.to_exported_program`. The sizes that vary become dimensions of torch.export, which chooses their
    ranges and may fix them. Dataclasses among arguments and results are registered with torch.export. UserError if an
    input has no example, because it is on a device that is not there."""
    for structure in (*exported.parameters.given.values(), exported.result):
        _register(structure)
    program = _Program(exported)
    leaves = [_example(spec) for spec in exported.inputs]
    dims = [_dims(spec) for spec in exported.inputs]
    parameters = exported.parameters
    arguments = {name: unflatten(structure, leaves) for name, structure in parameters.given.items()}
    shapes = {name: _shapes(structure, dims) for name, structure in parameters.given.items()}
    args, kwargs = _as_call(parameters, arguments)
    fixed = all(each is None for each in dims)
    return torch.export.export(program, args, kwargs, dynamic_shapes=None if fixed else shapes, strict=False)


def _register(structure: Structure) -> None:
    """Make the dataclasses in a structure known to torch.export. UserError for objects of other classes."""
    if not isinstance(structure, Node):
        return
    if structure.kind == "object" and structure.cls not in pytree.SUPPORTED_NODES:
        raise UserError(
            f"to_exported_program(): a result is a {structure.cls}, which torch.export does not know; register it with "
            "torch.utils._pytree.register_pytree_node"
        )
    if structure.kind == "dataclass" and structure.cls not in pytree.SUPPORTED_NODES:
        torch.export.register_dataclass(structure.cls)  # type: ignore[arg-type, unused-ignore]
    for child in structure.children:
        _register(child)


class _Program(nn.Module):
    """A module with the parameters and buffers of a program under their names, and with the signature of the exported
    function."""

    def __init__(self, exported: Exported) -> None:
        super().__init__()
        for name, child in exported.graph_module.named_children():
            self.add_module(name, child)
        attach(self, exported.constants, exported.kinds)
        self._exported = exported
        self._run = type(exported.graph_module).forward
        given = [each for each in exported.parameters.signature.parameters.values() if each.name in
                 exported.parameters.given]  # fmt: skip
        plain = [each.replace(default=inspect.Parameter.empty) for each in given]
        self.forward = _with_signature(self._call, inspect.Signature(plain))

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        exported = self._exported
        leaves = exported.parameters.leaves(args, kwargs)
        passed = [leaf for leaf, spec in zip(leaves, exported.inputs, strict=True) if spec.kind != "constant"]
        return unflatten(exported.result, self._run(self, *passed))


def _with_signature(call: Any, signature: inspect.Signature) -> Any:
    def forward(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    return forward


def _example(spec: InputSpec) -> Any:
    """A value of the kind of an input."""
    if spec.kind != "tensor":
        return spec.example
    return torch.zeros(spec.example, dtype=spec.dtype, device=spec.device)


def _dims(spec: InputSpec) -> Any:
    """What torch.export takes for the dimensions of an input: which of them vary."""
    if spec.kind == "number":
        return torch.export.Dim.DYNAMIC
    if spec.kind != "tensor" or None not in spec.sizes:
        return None
    return {dim: torch.export.Dim.AUTO for dim, size in enumerate(spec.sizes) if size is None}


def _shapes(structure: Structure, dims: list[Any]) -> Any:
    return unflatten(structure, dims)


def _as_call(parameters: Parameters, arguments: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and the keyword arguments of a call with these arguments, by parameter."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, value in arguments.items():
        kind = parameters.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            args += value
        elif kind is inspect.Parameter.VAR_KEYWORD:
            kwargs |= value
        elif kind is inspect.Parameter.KEYWORD_ONLY or name in parameters.by_keyword:
            kwargs[name] = value
        else:
            args.append(value)
    return tuple(args), kwargs


# ---- from torch.export


def from_exported_program(program: Any) -> Exported:
    """See `Exported.from_exported_program`. UserError for a program with tokens or objects that are no tensors."""
    if not isinstance(program, torch.export.ExportedProgram):
        raise UserError(f"from_exported_program() needs a torch.export.ExportedProgram, got {program!r}")
    return _Conversion(program).exported()


class _Conversion:
    """Converts one program: lifted parameters become attributes, and what is written at the end is written in place."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.constants: dict[str, torch.Tensor] = {}
        self.kinds: dict[str, str] = {}
        self.graph = fx.Graph()
        self.map: dict[fx.Node, fx.Node] = {}
        self.values: list[Any] = []  # of the flat inputs: a FakeTensor, a SymInt or a constant
        self.nodes: list[fx.Node | None] = []
        self.mutated: list[str] = []

    def exported(self) -> Exported:
        program = self.program
        old = program.graph_module
        placeholders = list(old.graph.find_nodes(op="placeholder"))
        for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
            self._input(node, spec)
        flat: list[Structure] = [Leaf(index) for index in range(len(self.values))]
        args, kwargs = pytree.tree_unflatten(flat, program.call_spec.in_spec)
        parameters = self._parameters(args, kwargs)
        names = self._names(parameters)
        for node in old.graph.nodes:
            if node.op not in ("placeholder", "output"):
                self.map[node] = self.graph.node_copy(node, lambda each: self.map[each])
        result = self._outputs(names)
        root = nn.Module()
        for name, child in old.named_children():
            if isinstance(child, fx.GraphModule):
                setattr(root, name, child)
        attach(root, self.constants, self.kinds)
        module = graph_module(root, self.graph)
        attach(module, self.constants, self.kinds)
        flat_inputs = zip(names, self.values, self.nodes, strict=True)
        inputs = [self._spec(name, value, node) for name, value, node in flat_inputs]
        return Exported(
            name="program", graph_module=module, inputs=inputs, conditions=list(self._conditions(names)),
            parameters=parameters, result=result, mutated=self.mutated, constants=self.constants, kinds=self.kinds,
        )  # fmt: skip

    def _input(self, node: fx.Node, spec: Any) -> None:
        kinds = {
            InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer", InputKind.CONSTANT_TENSOR: "constant",
        }  # fmt: skip
        if spec.kind is InputKind.USER_INPUT:
            constant = isinstance(spec.arg, ConstantArgument)
            self.values.append(spec.arg.value if constant else node.meta["val"])
            made = self.graph.placeholder(node.name) if not constant else None
            if made is not None:
                made.meta.update(node.meta)
                self.map[node] = made
            self.nodes.append(made)
            return
        if spec.kind not in kinds or isinstance(spec.arg, CustomObjArgument):
            raise UserError(f"from_exported_program(): the input {spec.arg} is a {spec.kind.name}")
        name = spec.target
        held = self.program.state_dict if name in self.program.state_dict else self.program.constants
        self.constants[name] = held[name]
        persistent = spec.kind is not InputKind.BUFFER or spec.persistent is not False
        self.kinds[name] = kinds[spec.kind] if persistent else "constant"
        self.map[node] = made = self.graph.create_node("get_attr", name, name=node.name)
        made.meta.update(node.meta)

    def _parameters(self, args: Any, kwargs: Any) -> Parameters:
        signature = inspect.Signature([
            inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
            inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
        ])  # fmt: skip
        given = {"args": flatten(tuple(args), lambda leaf, _: leaf), "kwargs": flatten(kwargs, lambda leaf, _: leaf)}
        return Parameters(signature, {name: each for name, each in given.items() if each.children}, frozenset())  # type: ignore[union-attr]

    def _names(self, parameters: Parameters) -> list[str]:
        """The names of the flat inputs as Python source."""
        names = [""] * len(self.values)
        for parameter, structure in parameters.given.items():

            def note(leaf: Any, path: Any, parameter: str = parameter) -> Structure:
                names[leaf.index] = parameter + path_text(path)
                return Constant(None)

            flatten(unflatten(structure, [Leaf(index) for index in range(len(names))]), note)
        return names

    def _outputs(self, names: list[str]) -> Structure:
        (output,) = self.program.graph_module.graph.find_nodes(op="output")
        results: list[fx.Node] = []
        flat: list[Structure] = []
        writes: list[tuple[fx.Node, fx.Node]] = []
        reads = {str(node.target): node for node in self.graph.find_nodes(op="get_attr")}
        inputs = {node.name: node for node in self.nodes if node is not None}
        for node, spec in zip(output.args[0], self.program.graph_signature.output_specs, strict=True):
            if spec.kind is OutputKind.USER_OUTPUT:
                if isinstance(spec.arg, ConstantArgument):
                    flat.append(Constant(spec.arg.value))
                else:
                    assert isinstance(spec.arg, TensorArgument | SymIntArgument) or isinstance(node, fx.Node)
                    results.append(self.map[node])
                    flat.append(Leaf(len(results) - 1))
            elif spec.kind is OutputKind.BUFFER_MUTATION:
                writes.append((reads[spec.target], self.map[node]))
                self.mutated.append(spec.target)
            elif spec.kind is OutputKind.USER_INPUT_MUTATION:
                written = inputs[spec.target]
                writes.append((written, self.map[node]))
                self.mutated.append(names[self.nodes.index(written)])
            else:
                raise UserError(f"from_exported_program(): the output {spec.arg} is a {spec.kind.name}")
        self._note_written(names)
        for target, value in writes:
            self.graph.call_function(torch.ops.aten.copy_.default, (target, value))
        self.graph.output(tuple(results))
        value = pytree.tree_unflatten(flat, self.program.call_spec.out_spec)
        return flatten(value, lambda leaf, _: leaf)

    def _note_written(self, names: list[str]) -> None:
        """Note the inputs and buffers that operators of the graph write in place."""
        owners = {memory_of(node.meta["val"]): name for node, name in self._owners(names)}
        for node in self.graph.nodes:
            if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
                continue
            for argument, value in zip(node.target._schema.arguments, node.args, strict=False):
                written = argument.alias_info is not None and argument.alias_info.is_write
                fake = value.meta.get("val") if written and isinstance(value, fx.Node) else None
                name = owners.get(memory_of(fake)) if isinstance(fake, torch.Tensor) else None
                if name is not None and name not in self.mutated:
                    self.mutated.append(name)

    def _owners(self, names: list[str]) -> Iterator[tuple[fx.Node, str]]:
        """The nodes of tensors that exist before a call, with their names."""
        known = {node: name for node, name in zip(self.nodes, names, strict=True) if node is not None}
        known |= {node: str(node.target) for node in self.graph.find_nodes(op="get_attr")}
        yield from (each for each in known.items() if isinstance(each[0].meta.get("val"), torch.Tensor))

    # ---- conditions
    def _spec(self, name: str, value: Any, node: fx.Node | None) -> InputSpec:
        if isinstance(value, torch.Tensor):
            sizes = tuple(size if isinstance(size, int) else None for size in value.shape)
            example = tuple(_hint(size) for size in value.shape)
            return InputSpec(name, "tensor", value.dtype, value.device, sizes, example=example)
        if node is not None:
            return InputSpec(name, "number", example=_hint(value))
        return InputSpec(name, "constant", example=value)

    def _conditions(self, names: list[str]) -> Iterator[Condition]:
        """The ranges of sizes that vary, and that sizes with the same symbol are equal."""
        first: dict[Any, Size] = {}
        for leaf, value in enumerate(self.values):
            for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                symbol = None if isinstance(size, int) else size.node.expr
                limits = self.program.range_constraints.get(symbol)
                if symbol is None or limits is None:
                    continue
                place = Size(leaf, dim)
                if symbol in first:
                    terms: list[Any] = [("==", place, first[symbol])]
                else:
                    first[symbol] = place
                    terms = [(op, place, int(limit)) for op, limit in ((">=", limits.lower), ("<=", limits.upper))
                             if limit.is_Integer]  # fmt: skip
                yield from (Condition(term, text_of(term, names)) for term in terms)


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint)


