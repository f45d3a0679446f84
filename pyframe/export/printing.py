"""Graphs as Python programs: functions with torch's operators as their statements.

`function_text` prints one graph with the graphs that its operators take; `program_text` a whole exported program, with
its signature, its conditions and the structure of its result.
"""

from __future__ import annotations

import keyword
import operator
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ..core.files import short_name
from ..signature.conditions import text_of, texts
from ..signature.parameters import ABSENT
from ..signature.structure import Constant, Leaf, Node, Structure, object_of
from . import targets

if TYPE_CHECKING:
    from .exported import Exported

_INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.matmul: "@", operator.and_: "&", operator.or_: "|",
    operator.xor: "^", operator.lshift: "<<", operator.rshift: ">>", operator.eq: "==", operator.ne: "!=",
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
}  # fmt: skip
_RESERVED = frozenset({"torch", "operator", "math", "constants", "inductor", "pyframe", "pytree", "check_inputs"})


class Namer:
    """The names of a function's variables, and the modules that its text needs."""

    def __init__(self) -> None:
        self.imports: set[str] = {"torch"}
        self.functions: list[str] = []  # texts of functions for graphs that operators take
        self._taken: set[str] = set(_RESERVED)

    def fresh(self, wanted: str) -> str:
        """An identifier that no function has."""
        name, count = wanted, 0
        while name in self._taken or keyword.iskeyword(name):
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name


class FunctionPrinter:
    """Prints the nodes of one graph. `constants`: the source of each tensor that a `get_attr` node reads, by target."""

    def __init__(self, module: fx.GraphModule, namer: Namer, constants: Mapping[str, str]) -> None:
        self.module, self.namer, self.constants = module, namer, constants
        self.names: dict[fx.Node, str] = {}
        self._last = self._last_uses()

    def _last_uses(self) -> dict[fx.Node, list[fx.Node]]:
        """For each node the values that nothing after it uses."""
        seen: set[fx.Node] = set()
        found: dict[fx.Node, list[fx.Node]] = {}
        for node in reversed(self.module.graph.nodes):
            last = [each for each in dict.fromkeys(node.all_input_nodes) if each not in seen]
            seen.update(last)
            found[node] = [each for each in last if each.op in ("call_function", "call_method")]
        return found

    def name(self, node: fx.Node) -> str:
        found = self.names.get(node)
        if found is None:
            wanted = node.name if node.name not in _RESERVED else f"{node.name}_"
            found = self.names[node] = f"{wanted}_" if keyword.iskeyword(wanted) else wanted
        return found

    def lines(self) -> list[str]:
        """The statements of all nodes but placeholders and the output, with the user's lines as comments."""
        out: list[str] = []
        place = ""
        for node in self.module.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            statement = self.statement(node)
            if statement is None:
                continue
            now = _place(node)
            if now and now != place:
                out.append(f"# {now}")
                place = now
            freed = [self.name(each) for each in self._last[node]]
            out.append(statement + (f"; del {', '.join(freed)}" if freed else ""))
        return out

    def statement(self, node: fx.Node) -> str | None:
        """The statement of a node; None if what it computes is written where it is used."""
        if node.op == "get_attr":
            return self._attribute(node)
        call = self.call(node)
        return f"{self.name(node)} = {call}" if node.users else call

    def _attribute(self, node: fx.Node) -> str | None:
        source = self.constants.get(str(node.target))
        if source is not None:
            return f"{self.name(node)} = {source}" if node.users else None
        child = self.module.get_submodule(str(node.target))
        assert isinstance(child, fx.GraphModule)
        self.names[node] = name = self.namer.fresh(str(node.target).replace(".", "_"))
        self.namer.functions.append(function_text(child, name, self.namer))
        return None

    def call(self, node: fx.Node) -> str:
        """The expression that a node computes."""
        args = [self.value(each) for each in node.args]
        kwargs = [f"{name}={self.value(each)}" for name, each in node.kwargs.items()]
        if node.op == "call_method":
            return f"{args[0]}.{node.target}({', '.join([*args[1:], *kwargs])})"
        if node.target in _INFIX and len(args) == 2:
            return f"{args[0]} {_INFIX[node.target]} {args[1]}"
        if node.target is operator.getitem and not isinstance(node.args[1], tuple):
            return f"{args[0]}[{args[1]}]"
        if node.target is getattr and str(node.args[1]).isidentifier():
            return f"{args[0]}.{node.args[1]}"
        name = targets.printed(node.target)
        if module := targets.import_of(name):
            self.namer.imports.add(module)
        return f"{name.removeprefix('builtins.')}({', '.join([*args, *kwargs])})"

    def value(self, value: Any) -> str:
        """An argument as Python source."""
        if isinstance(value, fx.Node):
            return self.name(value)
        if isinstance(value, torch.Size):
            return f"torch.Size([{', '.join(map(self.value, value))}])"
        if isinstance(value, tuple):
            return f"({', '.join(map(self.value, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{self.value(key)}: {self.value(each)}' for key, each in value.items())}}}"
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.value, (value.start, value.stop, value.step)))})"
        return literal(value)


def literal(value: Any) -> str:
    """A constant as Python source."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float('{value}')"
    if isinstance(value, torch.device):
        return f"torch.{value!r}"
    return "..." if value is Ellipsis else repr(value)


def _place(node: fx.Node) -> str:
    """The user's line of a node: `model.py:12 in forward: y = self.linear(x)`."""
    lines = [line.strip() for line in node.meta.get("stack_trace", "").splitlines()]
    places = [index for index, line in enumerate(lines) if line.startswith('File "')]
    if not places:
        return ""
    found = re.match(r'File "(.*)", line (\d+), in (.*)', lines[places[-1]])
    if found is None:
        return ""
    quoted = lines[places[-1] + 1 :]
    return f"{short_name(found[1])}:{found[2]} in {found[3]}" + (f": {quoted[0]}" if quoted else "")


def function_text(module: fx.GraphModule, name: str, namer: Namer) -> str:
    """A graph as a function of its placeholders. Functions for graphs within it are added to `namer.functions`."""
    printer = FunctionPrinter(module, namer, {})
    inputs = [printer.name(node) for node in module.graph.find_nodes(op="placeholder")]
    lines = printer.lines()
    (output,) = module.graph.find_nodes(op="output")
    return _function(name, inputs, [*lines, f"return {printer.value(output.args[0])}"])


def _function(name: str, parameters: Sequence[str], lines: Sequence[str]) -> str:
    return "\n".join([f"def {name}({', '.join(parameters)}):", *(f"    {line}" for line in lines)])


def graph_text(module: fx.GraphModule, name: str) -> tuple[str, dict[str, Any]]:
    """A graph as a Python program with the function `name(constants, *inputs)`, and the constants."""
    namer = Namer()
    reads = dict.fromkeys(str(node.target) for node in module.graph.find_nodes(op="get_attr"))
    constants = {each: operator.attrgetter(each)(module) for each in reads}
    constants = {each: value for each, value in constants.items() if not isinstance(value, fx.GraphModule)}
    printer = FunctionPrinter(module, namer, {each: f"constants[{each!r}]" for each in constants})
    constants |= {f"function {targets.short_name(each)}": each for each in targets.unnamed(module)}
    inputs = [printer.name(node) for node in module.graph.find_nodes(op="placeholder")]
    lines = printer.lines()
    (output,) = module.graph.find_nodes(op="output")
    function = _function(name, ["constants", *inputs], [*lines, f"return {printer.value(output.args[0])}"])
    imports = "\n".join(f"import {each}" for each in sorted(namer.imports))
    return "\n\n\n".join([imports, *namer.functions, function]) + "\n", constants


# ---- whole programs


def program_text(exported: Exported) -> str:
    """An exported program as Python source with two functions: `check_inputs(...)`, which raises ValueError for
    arguments that do not fit, and `program(constants, ...)`, where `constants` is `exported.constants`."""
    namer = Namer()
    module = exported.graph_module
    reads = {str(node.target) for node in module.graph.find_nodes(op="get_attr")}
    constants = {name: f"constants[{name!r}]" for name in reads if name in exported.constants}
    printer = FunctionPrinter(module, namer, constants)
    unpacked = []
    tensors = [spec for spec in exported.inputs if spec.kind != "constant"]
    for node, spec in zip(module.graph.find_nodes(op="placeholder"), tensors, strict=True):
        if printer.name(node) != _printed(spec.name) and node.users:
            unpacked.append(f"{printer.name(node)} = {_printed(spec.name)}")
    lines = printer.lines()
    (output,) = module.graph.find_nodes(op="output")
    results = [printer.value(each) for each in output.args[0]]
    classes: dict[str, Any] = {}
    returned = _result(exported.result, results, classes)
    parameters = _parameters(exported)
    body = _function("program", ["constants", *parameters], [*unpacked, *lines, f"return {returned}"])
    checks = _function("check_inputs", parameters, _checks(exported))
    imports = [f"import {name}" for name in sorted(namer.imports - {"torch"} | {"torch"})]
    imports += [f"from {cls.__module__} import {name.partition('.')[0]}" for name, cls in classes.items()]
    parts = ["\n".join([*_head(exported), *imports]), checks, *namer.functions, body]
    return "\n\n\n".join(parts) + "\n"


def _printed(name: str) -> str:
    """The name of an input in printed programs, where some names of parameters have another meaning."""
    root = re.split(r"\W", name)[0]
    return f"{root}_{name.removeprefix(root)}" if root in _RESERVED else name


def _head(exported: Exported) -> list[str]:
    tensors = {name: each for name, each in exported.constants.items() if isinstance(each, torch.Tensor)}
    named = [(name, exported.kinds[name], tensor) for name, tensor in tensors.items()]
    lines = [f"# {exported.name}, exported by pyframe. `constants` of `program` are:"]
    lines += [f"#   {name}: {kind}, {tensor.dtype}, {tuple(tensor.shape)}" for name, kind, tensor in named]
    return lines if named else [f"# {exported.name}, exported by pyframe. It has no constants."]


def _parameters(exported: Exported) -> list[str]:
    """The parameters of the exported function, as in its `def`."""
    out: list[str] = []
    kinds = [each.kind for each in exported.parameters.signature.parameters.values()]
    for each in exported.parameters.signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and "*" not in out and each.VAR_POSITIONAL not in kinds:
            out.append("*")
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        default = "None" if each.default is ABSENT else literal(each.default)
        out.append(f"{stars}{_printed(each.name)}" + ("" if each.default is each.empty else f"={default}"))
    only = [index for index, kind in enumerate(kinds) if kind.name == "POSITIONAL_ONLY"]
    return [*out[: len(only)], "/", *out[len(only) :]] if only else out


def _checks(exported: Exported) -> list[str]:
    """The statements of `check_inputs`."""
    specs = [replace(spec, name=_printed(spec.name)) for spec in exported.inputs]
    found = [(text, "") for spec in specs for text in texts(spec)]
    found += [(text_of(each.term, [spec.name for spec in specs]), each.why) for each in exported.conditions]
    out = []
    for condition, why in found:
        line = " ".join(why.splitlines())
        out += [f"if not ({condition}):" + (f"  # {line}" if line else ""), f"    raise ValueError({condition!r})"]
    return out or ["pass"]


def _result(structure: Structure, results: Sequence[str], classes: dict[str, Any]) -> str:
    """The result as Python source."""
    if isinstance(structure, Leaf):
        return results[structure.index]
    if isinstance(structure, Constant):
        return _constant(structure.value, classes)
    children = [_result(each, results, classes) for each in structure.children]
    return _container(structure, children, classes)


def _constant(value: Any, classes: dict[str, Any]) -> str:
    """A constant, or what pytree keeps of a container, as Python source. Classes and functions in it are noted."""
    if isinstance(value, type | types.FunctionType):
        classes[value.__qualname__] = value
        return value.__qualname__
    if type(value) is list:
        return f"[{', '.join(_constant(each, classes) for each in value)}]"
    if type(value) is tuple:
        return f"({''.join(f'{_constant(each, classes)}, ' for each in value)})"
    if type(value) is dict:
        items = [f"{_constant(key, classes)}: {_constant(each, classes)}" for key, each in value.items()]
        return f"{{{', '.join(items)}}}"
    return literal(value)


def _container(node: Node, children: list[str], classes: dict[str, Any]) -> str:
    listed = ", ".join(children)
    if node.kind == "list":
        return f"[{listed}]"
    if node.kind == "tuple":
        return f"({listed}{',' if len(children) == 1 else ''})"
    if node.kind == "size":
        return f"torch.Size([{listed}])"
    if node.kind in ("dict", "OrderedDict"):
        items = ", ".join(f"{key!r}: {child}" for key, child in zip(node.keys, children, strict=True))
        if node.kind == "dict":
            return f"{{{items}}}"
        return f"__import__('collections').OrderedDict({{{items}}})"
    assert node.cls is not None
    name = node.cls.__qualname__
    classes[name] = node.cls
    if node.kind == "namedtuple":
        return f"{name}({listed})"
    if node.kind == "dataclass":
        return f"{name}({', '.join(f'{key}={child}' for key, child in zip(node.keys, children, strict=True))})"
    if node.kind == "object":
        items = ", ".join(f"{key!r}: {child}" for key, child in zip(node.keys, children, strict=True))
        classes["object_of"] = object_of
        return f"object_of({name}, {{{items}}})"
    context = _constant(node.context, classes)
    return f"torch.utils._pytree.SUPPORTED_NODES[{name}].unflatten_fn([{listed}], {context})"
