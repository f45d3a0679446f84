"""What an exported program assumes about its inputs, as data: readable, checked in each call, saved."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..core.expr import OPS as OPS_OF_NUMBERS
from ..core.expr import Expr, Holds, Number, Tree, leaves
from ..core.files import our_file
from ..core.guard import Guard, TensorMeta
from ..core.same_value import same_value
from ..core.source import SizeSource, Source, StrideSource
from ..errors import UserError
from .capture import place_of, sources_of
from .whole_graph import InputLeaf, WholeGraph


@dataclass(frozen=True)
class Size:
    """The size of a dimension of the `leaf`-th input, or its stride. `method`: "size" or "stride"."""

    leaf: int
    dim: int
    method: str = "size"


@dataclass(frozen=True)
class Value:
    """The `leaf`-th input, a number."""

    leaf: int


# Operators of terms.
OPS: dict[str, Callable[..., Any]] = {**OPS_OF_NUMBERS, "is": operator.is_, "is not": operator.is_not}
Term = Any  # a Size, a Value, a number, or (operator, terms)


@dataclass(frozen=True)
class Condition:
    """A relation between sizes and numbers of the inputs. `text`: as Python source. `why`: the line of the program that
    needs it, "" if it follows from the program as a whole."""

    term: Term
    text: str
    why: str = ""


@dataclass(frozen=True)
class InputSpec:
    """What one flat input must be. kind: "tensor", "number" (one that varies) or "constant".

    name: as Python source. sizes: None where they may vary. strides and requires_grad: only if the program reads such
    of tensors, otherwise None; of the strides, None where they may vary. example: the sizes in the example call, or
    the constant or number. checked: False for a constant or tensor that the program does not read.
    """

    name: str
    kind: str
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    sizes: tuple[int | None, ...] = ()
    strides: tuple[int | None, ...] | None = None
    requires_grad: bool | None = None
    example: Any = None
    checked: bool = True


_OF_LAYOUT = frozenset({"stride", "is_contiguous"})


def input_specs(whole: WholeGraph) -> list[InputSpec]:
    """The specification of each flat input of a call."""
    metas = {place_of(g.source): g.payload for g in whole.guards if g.kind == "TENSOR" and g.source is not None}
    fixed = dict(_fixed(whole.guards))
    return [_spec(leaf, metas.get((leaf.parameter, leaf.path)), fixed, whole.metadata_read) for leaf in whole.leaves]


def _spec(leaf: InputLeaf, meta: TensorMeta | None, fixed: dict[Any, int], reads: frozenset[str]) -> InputSpec:
    value = leaf.example
    if not isinstance(value, torch.Tensor):
        kind = "constant" if leaf.node is None else "number"
        return InputSpec(leaf.name, kind, example=value, checked=leaf.guarded or kind == "number")
    sizes = tuple(value.shape) if meta is None else meta.sizes
    place = leaf.parameter, leaf.path
    sizes = tuple(fixed.get((place, dim)) if size is None else size for dim, size in enumerate(sizes))
    return InputSpec(
        leaf.name, "tensor", value.dtype, value.device, sizes,
        meta.strides if meta is not None and reads & _OF_LAYOUT else None,
        value.requires_grad if "requires_grad" in reads else None, tuple(value.shape), meta is not None,
    )  # fmt: skip


def _fixed(guards: Sequence[Guard]) -> Iterator[tuple[Any, int]]:
    """The sizes that relations fix, by place and dimension."""
    for guard in guards:
        tree = guard.payload
        if guard.kind == "RELATION" and isinstance(tree, Expr) and tree.op == "==":
            size, number = tree.args
            if isinstance(size, SizeSource) and isinstance(number, Number):
                yield (place_of(size.parent), size.dim), number.value


def conditions(whole: WholeGraph, specs: Sequence[InputSpec]) -> list[Condition]:
    """The relations between sizes, strides and numbers that a program assumes. What is said by `specs` is left out, and
    so are relations between strides if the program does not read them: then only layouts of results depend on them."""
    indices = {(leaf.parameter, leaf.path): index for index, leaf in enumerate(whole.leaves)}
    found: dict[str, Condition] = {}
    names = [spec.name for spec in specs]
    for term in _identities(whole, indices):
        found.setdefault(text_of(term, names), Condition(term, text_of(term, names)))
    for guard in whole.guards:
        if guard.kind != "RELATION":
            continue
        tree = guard.payload.tree if isinstance(guard.payload, Holds) else guard.payload
        strided = any(isinstance(leaf, StrideSource) for leaf in leaves(tree))
        if strided and not whole.metadata_read & _OF_LAYOUT:
            continue
        term = _term(tree, indices, specs)
        if isinstance(term, bool | int | float):
            continue
        line = guard.line
        why = "" if line is None or our_file(line.filename) else str(line)
        text = text_of(term, names)
        found.setdefault(text, Condition(term, text, why))
    return list(found.values())


def _identities(whole: WholeGraph, indices: dict[Any, int]) -> Iterator[Term]:
    """Which inputs must be the same tensor, or different ones."""
    for guard in whole.guards:
        if guard.kind not in ("SAME", "DISTINCT"):
            continue
        places = map(place_of, sources_of(guard))
        found = [indices[place] for place in places if place in indices]
        if len(found) == 2:
            yield ("is" if guard.kind == "SAME" else "is not", *map(Value, found))


def _term(tree: Tree, indices: dict[Any, int], specs: Sequence[InputSpec]) -> Term:
    """A tree as a term, with sizes that are fixed as numbers; what has no inputs is computed."""
    if isinstance(tree, Number):
        return tree.value
    if isinstance(tree, Source):
        return _leaf_term(tree, indices, specs)
    args = [_term(arg, indices, specs) for arg in tree.args]
    if all(isinstance(arg, bool | int | float) for arg in args):
        return OPS[tree.op](*args)
    return (tree.op, *args)


def _leaf_term(source: Source, indices: dict[Any, int], specs: Sequence[InputSpec]) -> Term:
    if isinstance(source, SizeSource):
        index = indices.get(place_of(source.parent))
        if index is not None:
            size = specs[index].sizes[source.dim]
            return Size(index, source.dim) if size is None else size
    if isinstance(source, StrideSource) and (index := indices.get(place_of(source.parent))) is not None:
        return Size(index, source.dim, "stride")
    index = indices.get(place_of(source))
    if index is None:
        raise UserError(f"export: the program depends on {source}, which is no input")
    return Value(index) if specs[index].kind == "number" else specs[index].example


def value_of(term: Term, inputs: Sequence[Any]) -> Any:
    """The value of a term for the flat inputs of a call."""
    if isinstance(term, Size):
        return getattr(inputs[term.leaf], term.method)(term.dim)
    if isinstance(term, Value):
        return inputs[term.leaf]
    if isinstance(term, tuple):
        return OPS[term[0]](*(value_of(arg, inputs) for arg in term[1:]))
    return term


_PREFIX = {"neg": "-", "pos": "+", "not": "not "}


def text_of(term: Term, names: Sequence[str], outer: bool = True) -> str:
    """A term as Python source."""
    if isinstance(term, Size):
        return f"{names[term.leaf]}.{term.method}({term.dim})"
    if isinstance(term, Value):
        return names[term.leaf]
    if not isinstance(term, tuple):
        return repr(term)
    op, *args = term
    if op in _PREFIX:
        return f"{_PREFIX[op]}{text_of(args[0], names, False)}"
    if op.isalpha() and op not in ("and", "or", "is"):
        scope = "" if op in ("min", "max", "abs", "int", "float", "bool") else "math."
        return f"{scope}{op}({', '.join(text_of(arg, names) for arg in args)})"
    written = f" {op} ".join(text_of(arg, names, False) for arg in args)
    return written if outer else f"({written})"


def texts(spec: InputSpec) -> list[str]:
    """What an input must be, as Python source that is true for a valid one."""
    if not spec.checked:
        return []
    name = spec.name
    if spec.kind == "constant":
        if spec.example is None or type(spec.example) in (bool, type(Ellipsis)):
            return [f"{name} is {spec.example!r}"]
        if type(spec.example) in (float, complex):  # tells 0.0 from -0.0; NaN is equal to nothing
            return [f"repr({name}) == {repr(spec.example)!r}"]
        return [f"{name} == {_literal(spec.example)}"]
    if spec.kind == "number":
        return [f"type({name}) is {type(spec.example).__name__}"]
    device = f"{name}.device.type == {spec.device.type!r}" if spec.device is not None else "True"
    sizes = [f"{name}.size({dim}) == {size}" for dim, size in enumerate(spec.sizes) if size is not None]
    strides = [f"{name}.stride({dim}) == {n}" for dim, n in enumerate(spec.strides or ()) if n is not None]
    grad = [] if spec.requires_grad is None else [f"{name}.requires_grad is {spec.requires_grad}"]
    return [f"{name}.dtype == {spec.dtype}", device, f"{name}.dim() == {len(spec.sizes)}", *sizes, *strides, *grad]


def _literal(value: Any) -> str:
    return f"torch.{value!r}" if isinstance(value, torch.device) else repr(value)


def check(inputs: Sequence[Any], specs: Sequence[InputSpec], relations: Sequence[Condition]) -> None:
    """UserError for a call that the program was not exported for."""
    for value, spec in zip(inputs, specs, strict=True):
        if spec.checked or spec.kind == "tensor":
            problem = _problem(value, spec)
            if problem is not None:
                raise UserError(f"the exported program requires {problem}")
    for condition in relations:
        if not value_of(condition.term, inputs):
            because = f", needed at {condition.why}" if condition.why else ""
            values = _values(condition, inputs, specs)
            raise UserError(f"the exported program requires {condition.text}{because}" + (values and f"; {values}"))


def _values(condition: Condition, inputs: Sequence[Any], specs: Sequence[InputSpec]) -> str:
    names = [spec.name for spec in specs]
    terms = [term for term in _leaves(condition.term) if type(value_of(term, inputs)) in (int, float, bool)]
    found = {text_of(term, names): value_of(term, inputs) for term in terms}
    return ", ".join(f"{text} is {value}" for text, value in found.items())


def _leaves(term: Term) -> Iterator[Term]:
    if isinstance(term, Size | Value):
        yield term
    elif isinstance(term, tuple):
        for arg in term[1:]:
            yield from _leaves(arg)


def _problem(value: Any, spec: InputSpec) -> str | None:
    """What is wrong with an input; None for a valid one."""
    name = spec.name
    if spec.kind == "number":
        same = type(value) is type(spec.example)
        return None if same else f"{name} to be a {type(spec.example).__name__}, not {value!r}"
    if spec.kind == "constant":
        same = same_value(value, spec.example)
        return None if same else f"{name} == {spec.example!r}, its value when it was exported, not {value!r}"
    if not isinstance(value, torch.Tensor):
        return f"{name} to be a tensor, not {value!r}"
    if not spec.checked:
        return None
    if value.dtype != spec.dtype:
        return f"{name}.dtype == {spec.dtype}, not {value.dtype}"
    if spec.device is not None and value.device.type != spec.device.type:
        return f"{name} on {spec.device}, not on {value.device}"
    if value.dim() != len(spec.sizes):
        return f"{name}.dim() == {len(spec.sizes)}, not {value.dim()}"
    for dim, size in enumerate(spec.sizes):
        if size is not None and value.size(dim) != size:
            return f"{name}.size({dim}) == {size}, not {value.size(dim)}"
    for dim, stride in enumerate(spec.strides or ()):
        if stride is not None and value.stride(dim) != stride:
            return f"{name}.stride({dim}) == {stride}, not {value.stride(dim)}"
    if spec.requires_grad not in (None, value.requires_grad):
        return f"{name}.requires_grad is {spec.requires_grad}, not {value.requires_grad}"
    return None
