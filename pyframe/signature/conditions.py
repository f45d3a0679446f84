"""What an exported or packaged program requires of its inputs, as data: readable, checked in each call, saved."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..core.expr import OPS as OPS_OF_NUMBERS
from ..core.same_value import same_value
from ..errors import UserError


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
        scope = "" if op in ("min", "max", "abs", "int", "float", "bool", "round") else "math."
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
    """UserError for a call that the program was not made for."""
    for value, spec in zip(inputs, specs, strict=True):
        if spec.checked or spec.kind == "tensor":
            problem = _problem(value, spec)
            if problem is not None:
                raise UserError(f"the program requires {problem}")
    for condition in relations:
        if not value_of(condition.term, inputs):
            because = f", needed at {condition.why}" if condition.why else ""
            values = _values(condition, inputs, specs)
            raise UserError(f"the program requires {condition.text}{because}" + (values and f"; {values}"))


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
        return None if same else f"{name} == {spec.example!r}, its value in the example, not {value!r}"
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
