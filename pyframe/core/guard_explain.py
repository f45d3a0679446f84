"""Explains in one line why a guard failed, and evaluates whole guards in Python.

Compiled code evaluates guards in C. `evaluate` is the slow counterpart that tests compare the C evaluator with; the
driver also uses it to see which values have changed since a capture. Both evaluate a guard by calling the functions of
`guard_reference`, which has one for each guard operation.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

from . import expr
from .guard import Guard, TensorMeta
from .guard_program import OPERANDS, guard_row, source_row, tensor_payload
from .guard_reference import ACCESSORS, CHECKS, CallContext, read_tensor, unlike
from .source import Source

# Fields of _C.GlobalState that are booleans stored as numbers.
FLAGS = {
    "grad_mode",
    "inference_mode",
    "autocast_cpu",
    "autocast_cuda",
    "deterministic",
    "deterministic_warn_only",
    "fill_uninitialized_memory",
}


class GONE:
    """Placeholder for the payload of a guard whose object has been deallocated."""


def read(source: Source, context: CallContext) -> Any:
    """The value of `source` for this call; exceptions of the reads propagate."""
    name, *operands = source_row(source)
    return ACCESSORS[name](context, *_values(name, operands, context))


def _values(name: str, operands: Iterable[Any], context: CallContext) -> Iterator[Any]:
    for letter, operand in zip(OPERANDS[name].removeprefix("d"), operands, strict=True):
        if letter == "r":
            yield read(operand, context)
        elif letter == "R":
            yield tuple(read(source, context) for source in operand)
        else:
            yield operand


def holds(guard: Guard, context: CallContext) -> bool:
    """Whether `guard` holds for this call; False if evaluating it raises."""
    name, *operands = guard_row(guard)
    try:
        return CHECKS[name](*_values(name, operands, context))
    except Exception:  # noqa: BLE001  user code runs here (attributes, __eq__); as in C, the guard fails if it raises
        return False


def evaluate(guards: Iterable[Guard], function: FunctionType, locals: tuple[Any, ...]) -> int | None:
    """Index of the first guard that fails for a call of `function` with these fast locals, or None.

    The reference for tests: slow, and independent of the guard program and of C.
    """
    context = CallContext(function, locals)
    return next((i for i, guard in enumerate(guards) if not holds(guard, context)), None)


# ---- messages --------------------------------------------------------------------------------------------


def explain(guard: Guard, function: FunctionType, locals: tuple[Any, ...]) -> str:
    """Why `guard` fails for this call, in one line: the subject, the expected and actual values, the user's line.

    For instance ``x.size(0): expected 4, got 8, guard from model.py:12: `y = x.view(4)` ``.
    """
    context = CallContext(function, locals)
    try:
        found = _EXPLANATIONS[guard.kind](guard, context)
    except Exception as error:  # noqa: BLE001  reading user values may raise anything, which explains the failure
        found = f"{_subject(guard)}: cannot be read ({type(error).__name__}: {error})"
    if guard.line is None:
        return found
    text = f": `{guard.line.quoted}`" if guard.line.quoted else ""
    return f"{found}, guard from {guard.line.filename}:{guard.line.lineno}{text}"


def _subject(guard: Guard) -> str:
    return guard.kind if guard.source is None else guard.source.name


def _value(guard: Guard, context: CallContext) -> Any:
    assert guard.source is not None
    return read(guard.source, context)


def _expected(what: str, expected: object, actual: object) -> str:
    return f"{what}: expected {expected}, got {actual}"


def _qualified(kind: type) -> str:
    if kind is GONE:
        return "a class that no longer exists"
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _identified(value: object) -> str:
    """An object described by its type, its name if it has one, and its address (several objects may share a name)."""
    if value is None or value is GONE:
        return "None" if value is None else "an object that no longer exists"
    name = getattr(value, "__qualname__", None) or getattr(value, "co_qualname", None)
    what = f"{_qualified(type(value))} {name}" if isinstance(name, str) else f"{_qualified(type(value))} object"
    return f"{what} at {id(value):#x}"


def _type(guard: Guard, context: CallContext) -> str:
    actual = type(_value(guard, context))
    return _expected(f"type({_subject(guard)})", _qualified(guard.payload), _qualified(actual))


def _identity(guard: Guard, context: CallContext) -> str:
    return _expected(_subject(guard), _identified(guard.payload), _identified(_value(guard, context)))


def _not_identity(guard: Guard, context: CallContext) -> str:
    actual = _identified(_value(guard, context))
    return _expected(_subject(guard), f"anything but {_identified(guard.payload)}", actual)


def _equals(guard: Guard, context: CallContext) -> str:
    actual = _value(guard, context)
    expected, got = reprlib.repr(guard.payload), reprlib.repr(actual)
    if type(actual) is not type(guard.payload):
        expected, got = (
            f"{text} ({_qualified(type(value))})"
            for text, value in ((expected, guard.payload), (got, actual))
        )
    return _expected(_subject(guard), expected, got)


def _length(guard: Guard, context: CallContext) -> str:
    return _expected(f"len({_subject(guard)})", guard.payload, len(_value(guard, context)))


def _keys(guard: Guard, context: CallContext) -> str:
    actual = list(_value(guard, context))
    return _expected(f"list({_subject(guard)})", reprlib.repr(list(guard.payload)), reprlib.repr(actual))


def _presence(wanted: str, form: str) -> Callable[[Guard, CallContext], str]:
    def word(guard: Guard, context: CallContext) -> str:
        _value(guard, context)
        what = form.format(guard.payload, subject=_subject(guard))
        return _expected(what, wanted, {"present": "absent", "absent": "present"}[wanted])

    return word


def _class_finds(guard: Guard, context: CallContext) -> str:
    reads, cls = guard.payload, _value(guard, context)
    name = unlike(cls, reads.metaclass, reads.method_order, reads.entries)
    if name is None:
        return f"{_subject(guard)}: failed, but holds now"
    if not name:
        return f"{_subject(guard)}: its metaclass or its bases have changed"
    return f"{_subject(guard)}.{name}: looking this name up in the class now finds another object"


def _tensor(guard: Guard, context: CallContext) -> str:
    subject, actual = _subject(guard), _value(guard, context)
    return "; ".join(tensor_differences(subject, guard.payload, actual)) or f"{subject}: failed, but holds now"


def tensor_differences(subject: str, meta: TensorMeta, tensor: Any) -> Iterator[str]:
    """One phrase for each item of `meta` that `tensor` does not satisfy."""
    actual_type: type = type(tensor)
    if actual_type is not meta.type:
        yield _expected(f"type({subject})", _qualified(meta.type), _qualified(actual_type))
        return
    actual, wanted = read_tensor(tensor), tensor_payload(meta)
    if actual[1] != meta.dtype:
        yield _expected(f"{subject}.dtype", meta.dtype, actual[1])
    if actual[2:4] != wanted[2:4]:
        yield _expected(f"{subject}.device", meta.device, tensor.device)
    yield from _dimension_differences(subject, meta, actual)
    if actual[7] != meta.requires_grad:
        yield _expected(f"{subject}.requires_grad", meta.requires_grad, actual[7])
    if actual[8] != meta.dispatch_keys:
        yield _expected(f"dispatch keys of {subject}", f"{meta.dispatch_keys:#x}", f"{actual[8]:#x}")


def _dimension_differences(subject: str, meta: TensorMeta, actual: Any) -> Iterator[str]:
    if actual[4] != len(meta.sizes):
        yield _expected(f"{subject}.dim()", len(meta.sizes), actual[4])
        return
    for method, wanted, have in (("size", meta.sizes, actual[5]), ("stride", meta.strides, actual[6])):
        if have is None:
            yield f"{subject}: expected a strided tensor"
            continue
        for i, (want, got) in enumerate(zip(wanted, have, strict=True)):
            if want is not None and want != got:
                yield _expected(f"{subject}.{method}({i})", want, got)


def _global_state(guard: Guard, context: CallContext) -> str:
    before, now = guard.payload.as_dict(), type(guard.payload).capture().as_dict()
    differing = [name for name in before if before[name] != now[name]]
    return (
        "; ".join(_mode(name, before[name], now[name]) for name in differing)
        or "torch's global state: failed, but holds now"
    )


def _mode(name: str, before: Any, now: Any) -> str:
    if name in FLAGS:
        before, now = ("on" if value == 1 else "off" for value in (before, now))
    return _expected(f"torch's {name.replace('_', ' ')}", before, now)


def _same(guard: Guard, context: CallContext) -> str:
    return f"{_subject(guard)} and {guard.payload}: expected one object, got two"


def _distinct(guard: Guard, context: CallContext) -> str:
    names: dict[int, str] = {}
    for source in guard.payload:
        other = names.setdefault(id(read(source, context)), source.name)
        if other != source.name:
            return f"{other} and {source.name}: expected different objects, got one"
    return "different objects: failed, but holds now"


def _relation(guard: Guard, context: CallContext) -> str:
    tree = guard.payload.tree if isinstance(guard.payload, expr.Holds) else guard.payload
    values = ", ".join(f"{source.name} = {reprlib.repr(read(source, context))}" for source in expr.sources(tree))
    return f"{expr.text(tree)}: expected to be true, is false with {values}"


def _predicate(guard: Guard, context: CallContext) -> str:
    _, further, text = guard.payload
    sources = [*([] if guard.source is None else [guard.source]), *further]
    values = ", ".join(f"{source.name} = {reprlib.repr(read(source, context))}" for source in sources)
    return f"{text}: expected to be true, is false" + (f" with {values}" if values else "")


_EXPLANATIONS: dict[str, Callable[[Guard, CallContext], str]] = {
    "TYPE": _type,
    "ID": _identity,
    "NOT_ID": _not_identity,
    "EQUALS": _equals,
    "LEN": _length,
    "DICT_KEYS": _keys,
    "DICT_HAS": _presence("present", "{subject}[{0!r}]"),
    "DICT_LACKS": _presence("absent", "{subject}[{0!r}]"),
    "HAS_ATTR": _presence("present", "{subject}.{0}"),
    "NO_ATTR": _presence("absent", "{subject}.{0}"),
    "CLASS_FINDS": _class_finds,
    "TENSOR": _tensor,
    "GLOBAL_STATE": _global_state,
    "SAME": _same,
    "DISTINCT": _distinct,
    "RELATION": _relation,
    "PREDICATE": _predicate,
}
