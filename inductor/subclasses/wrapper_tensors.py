"""Takes traceable wrapper subclasses apart into plain tensors, and rebuilds them.

These classes of tensors hold other tensors, run operators on them in `__torch_dispatch__`, and define with
`__tensor_flatten__` and `__tensor_unflatten__` how they are taken apart and rebuilt. A `Form` describes an instance
apart from the values of its inner tensors: the class, the names of the inner tensors, the context, the sizes and
strides of the outer tensor, and the forms of inner tensors that are wrappers themselves.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import Unsupported

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def is_wrapper_class(cls: type) -> bool:
    """Whether a class is a traceable wrapper subclass whose `__torch_dispatch__` is written in Python."""
    if cls in _PLAIN or not issubclass(cls, torch.Tensor):
        return False
    return _has_the_methods(cls)


def _has_the_methods(cls: type) -> bool:
    dispatch = _raw(cls, "__torch_dispatch__")
    own = isinstance(dispatch, classmethod | staticmethod) and isinstance(dispatch.__func__, types.FunctionType)
    flatten = isinstance(_raw(cls, "__tensor_flatten__"), types.FunctionType)
    unflatten = getattr(_raw(cls, "__tensor_unflatten__"), "__func__", None)
    return own and flatten and isinstance(unflatten, types.FunctionType)


def _raw(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def is_wrapper(x: Any) -> bool:
    """Whether `x` is an instance of a traceable wrapper subclass."""
    return isinstance(x, torch.Tensor) and is_wrapper_class(type(x))


def is_jagged(x: torch.Tensor) -> bool:
    """Whether `x` is a nested tensor of torch with the layout `jagged`: a wrapper whose ragged size is a nested int."""
    return x.layout is torch.jagged and x.is_nested and is_wrapper(x)


class NoForm(Unsupported):
    """A wrapper instance that cannot be taken apart into tensors and rebuilt."""


@dataclass(frozen=True, eq=False)
class Context:
    """What `__tensor_flatten__` says of an instance besides its inner tensors. `own`: the context that it returns;
    `objects`: the attributes that it names and that are no tensors, such as the device mesh of a DTensor."""

    own: Any
    objects: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"{self.own!r}, {dict(self.objects)!r}" if self.objects else repr(self.own)


def parts_of(x: Any) -> tuple[tuple[str, ...], Context]:
    """The names of the inner tensors, and the context. NoForm if `__tensor_flatten__` is not usable."""
    try:
        found = x.__tensor_flatten__()
    except Exception as error:  # user code, which may raise anything
        raise NoForm(f"{type(x).__qualname__}.__tensor_flatten__: {error}") from error
    if not isinstance(found, tuple | list) or len(found) != 2:  # noqa: PLR2004
        raise NoForm(f"{type(x).__qualname__}.__tensor_flatten__ returns no pair")
    names, own = found
    if not all(isinstance(name, str) and hasattr(x, name) for name in names):
        raise NoForm(f"{type(x).__qualname__}.__tensor_flatten__ names an attribute that does not exist")
    values = {name: getattr(x, name) for name in names}
    tensors = tuple(name for name, value in values.items() if isinstance(value, torch.Tensor))
    return tensors, Context(own, {name: value for name, value in values.items() if name not in tensors})


def rebuilt(cls: type, parts: Mapping[str, Any], context: Context, size: Any, stride: Any) -> Any:
    """An instance of a wrapper subclass around inner tensors, as its `__tensor_unflatten__` builds it."""
    return cls.__tensor_unflatten__({**parts, **context.objects}, context.own, size, stride)  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class Form:
    """Describes a wrapper instance. `inner`: forms by name, None if plain. Sizes and strides may be symbolic."""

    cls: type
    context: Context
    inner: Mapping[str, Form | None]
    size: tuple[Any, ...]
    stride: tuple[Any, ...]

    @staticmethod
    def of(x: torch.Tensor) -> Form:
        """The form of a wrapper instance. NoForm if it has none."""
        names, context = parts_of(x)
        inner = {name: Form.of(part) if is_wrapper(part := getattr(x, name)) else None for name in names}
        return Form(type(x), context, inner, x.shape, x.stride())

    def take(self, x: Any, found: list[Any]) -> None:
        """Append the plain tensors in `x`, which has this form, to `found`."""
        for name, form in self.inner.items():
            part = getattr(x, name)
            if form is None:
                found.append(part)
            else:
                form.take(part, found)

    def count(self) -> int:
        """The number of plain tensors in an instance."""
        return sum(1 if form is None else form.count() for form in self.inner.values())

    def build(self, given: Iterator[Any]) -> Any:
        """Build a tensor of this form around the next tensors of `given`."""
        parts = {name: next(given) if form is None else form.build(given) for name, form in self.inner.items()}
        return rebuilt(self.cls, parts, self.context, self.size, self.stride)

    def at(self, number: Callable[[Any], Any]) -> Form:
        """This form with each size and stride n replaced by `number(n)`."""
        inner = {name: None if form is None else form.at(number) for name, form in self.inner.items()}
        size, stride = torch.Size([number(n) for n in self.size]), tuple(map(number, self.stride))
        return Form(self.cls, self.context, inner, size, stride)

    def fits(self, x: Any) -> bool:
        """Whether a tensor has this form; sizes are not compared."""
        if type(x) is not self.cls:
            return False
        names, context = parts_of(x)
        if names != tuple(self.inner) or not same_context(context, self.context):
            return False
        for name, form in self.inner.items():
            part = getattr(x, name)
            if is_wrapper(part) if form is None else not form.fits(part):
                return False
        return True


def same_context(a: Context, b: Context) -> bool:
    """Whether two contexts are equal; False if they cannot be compared."""
    if a.objects.keys() != b.objects.keys() or not _equal(a.own, b.own):
        return False
    return all(_equal(value, b.objects[name]) for name, value in a.objects.items())


def _equal(a: Any, b: Any) -> bool:
    try:
        return a is b or (type(a) is type(b) and bool(a == b))
    except (TypeError, ValueError, RuntimeError):
        return False


def tangent_like(x: torch.Tensor) -> torch.Tensor:
    """A tensor of the form that gradients of the wrapper instance `x` have, as its class says: of a DTensor whose parts
    are still to be summed, gradients are whole."""
    detached = x.detach()
    convert = getattr(detached, "__coerce_tangent_metadata__", None)
    return detached if convert is None else convert()


def as_tangent(x: Any, form: Form | None) -> Any:
    """A tangent converted to a form, as its class can convert it; what does not fit then is returned as it is.

    Sizes are those of the form. The methods are torch's protocol for gradients whose metadata the forward could not
    know: placements of a DTensor, results of collectives that are not awaited yet.
    """
    if not is_wrapper(x):
        return x
    convert = getattr(x, "__coerce_same_metadata_as_tangent__", None)
    if form is None:
        plain = None if convert is None else convert(None, torch.Tensor)
        return x if plain is None else plain
    if type(x) is not form.cls:
        return x
    if not form.fits(x) and convert is not None:
        converted = convert(form.context.own)
        x = x if converted is None else converted
    if x.stride() != form.stride:
        x = x.contiguous()
    names, context = parts_of(x)
    if names != tuple(form.inner):
        return x
    parts = {name: getattr(x, name) for name in names}
    converted_parts = {name: as_tangent(part, form.inner[name]) for name, part in parts.items()}
    if all(converted_parts[name] is part for name, part in parts.items()):
        return x
    return rebuilt(type(x), converted_parts, context, x.shape, x.stride())


def flattening(forms: Sequence[Form | None]) -> Callable[[Sequence[Any]], list[Any]]:
    """A function that takes arguments of these forms apart into one flat list."""

    def flatten(args: Sequence[Any]) -> list[Any]:
        found: list[Any] = []
        for x, form in zip(args, forms):
            if form is None:
                found.append(x)
            else:
                form.take(x, found)
        return found

    return flatten


def built(values: Sequence[Any], forms: Sequence[Form | None]) -> list[Any]:
    """Build values of these forms from the flat list `values`."""
    given = iter(values)
    return [next(given) if form is None else form.build(given) for form in forms]


def methods_of(cls: type) -> list[types.FunctionType]:
    """The Python functions that define how a wrapper subclass treats its inner tensors."""
    names = ("__torch_dispatch__", "__tensor_flatten__", "__tensor_unflatten__", "__new__", "__init__")
    found = (_raw(cls, name) for name in names)
    return [fn for fn in (getattr(raw, "__func__", raw) for raw in found) if isinstance(fn, types.FunctionType)]

