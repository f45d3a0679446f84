"""Handlers of the instructions that build, extend and unpack containers, strings and slices."""

from __future__ import annotations

from typing import Any

from ..core.python_compat import TOO_MANY_VALUES_COUNTED
from ..vars.containers.coroutines import WrappedItemVar
from ..vars.containers.mapping import DictVar, key_of, pairs_of, var_of
from ..vars.containers.sequence import ListVar, SliceVar, TupleVar
from ..vars.numbers.number_sets import new_set
from ..vars.objects.classes import ClassVar
from ..vars.objects.functions import BoundMethodVar, FunctionVar
from ..vars.protocol import slots
from ..vars.protocol.base import Var
from ..vars.protocol.const import ConstVar
from ..vars.protocol.number_text import joined_text
from ..vars.protocol.text import format_of
from ..vars.torch_objects.loop_varying import RuntimeValueVar, joined
from .frame import Frame, op


@op("BUILD_TUPLE")
def build_tuple(frame: Frame, count: int) -> None:
    frame.push(TupleVar(frame.popn(count)))


@op("BUILD_LIST")
def build_list(frame: Frame, count: int) -> None:
    frame.push(ListVar(frame.popn(count)))


@op("BUILD_SET")
def build_set(frame: Frame, count: int) -> None:
    frame.push(new_set(frame.tx, frame.popn(count), set))


@op("BUILD_MAP")
def build_map(frame: Frame, count: int) -> None:
    flat = frame.popn(2 * count)
    pairs = zip(flat[::2], flat[1::2], strict=True)
    frame.push(DictVar({key_of(frame.tx, key): value for key, value in pairs}))


@op("BUILD_CONST_KEY_MAP")
def build_const_key_map(frame: Frame, count: int) -> None:
    keys = frame.pop().constant()
    frame.push(DictVar(dict(zip(keys, frame.popn(count), strict=True))))


@op("BUILD_SLICE")
def build_slice(frame: Frame, count: int) -> None:
    start, stop, step = [*frame.popn(count), ConstVar(None)][:3]
    frame.push(SliceVar(start, stop, step))


@op("BINARY_SLICE")
def binary_slice(frame: Frame, arg: None) -> None:
    container, start, stop = frame.popn(3)
    frame.push(container.getitem(frame.tx, SliceVar(start, stop, ConstVar(None))))


@op("STORE_SLICE")
def store_slice(frame: Frame, arg: None) -> None:
    value, container, start, stop = frame.popn(4)
    container.setitem(frame.tx, SliceVar(start, stop, ConstVar(None)), value)


@op("BUILD_STRING")
def build_string(frame: Frame, count: int) -> None:
    parts = frame.popn(count)
    if any(isinstance(part, RuntimeValueVar) for part in parts):
        frame.push(joined(frame.tx, parts))
    elif (text := joined_text(frame.tx, parts)) is not None:
        frame.push(text)
    else:
        texts = [part.constant() for part in parts]
        frame.tx.limit_size(sum(map(len, texts)), "a text")
        frame.push(ConstVar("".join(texts)))


@op("CONVERT_VALUE")
def convert_value(frame: Frame, how: int) -> None:
    value = frame.stack[-1]
    if how == 1 and isinstance(value, RuntimeValueVar):
        frame.push(frame.pop() if value.python_type() is str else value.derived(frame.tx, str, frame.pop()))
        return
    convert = ClassVar(str) if how == 1 else frame.tx.wrap(repr if how == 2 else ascii, None)
    frame.push(frame.tx.call(convert, [frame.pop()], {}))


@op("FORMAT_SIMPLE")
def format_simple(frame: Frame, arg: None) -> None:
    frame.push(format_of(frame.tx, frame.pop(), ConstVar("")))


@op("FORMAT_WITH_SPEC")
def format_with_spec(frame: Frame, arg: None) -> None:
    frame.push(format_of(frame.tx, *frame.popn(2)))


# In a resume function the container that a comprehension fills is an argument: changes must be logged as side effects.


@op("LIST_APPEND")
def list_append(frame: Frame, depth: int) -> None:
    item = frame.pop()
    frame.stack[-depth].call_method(frame.tx, "append", [item], {})


@op("SET_ADD")
def set_add(frame: Frame, depth: int) -> None:
    item = frame.pop()
    frame.stack[-depth].call_method(frame.tx, "add", [item], {})


@op("MAP_ADD")
def map_add(frame: Frame, depth: int) -> None:
    key, value = frame.popn(2)
    frame.stack[-depth].setitem(frame.tx, key, value)


@op("LIST_EXTEND")
def list_extend(frame: Frame, depth: int) -> None:
    value = frame.pop()
    if slots.has_type(value, object):
        kind = value.python_type()
        if not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
            frame.tx.raise_(TypeError, f"Value after * must be an iterable, not {kind.__name__}")
    items = ListVar(value.unpack(frame.tx))
    frame.stack[-depth].call_method(frame.tx, "extend", [items], {})


@op("SET_UPDATE")
def set_update(frame: Frame, depth: int) -> None:
    for item in frame.pop().unpack(frame.tx):
        frame.stack[-depth].call_method(frame.tx, "add", [item], {})


def _callee(frame: Frame) -> str:
    """The name, for error messages, of the function whose arguments are being merged."""
    for var in frame.stack[::-1]:
        fn = getattr(var, "fn", None) if isinstance(var, BoundMethodVar) else var
        if isinstance(fn, FunctionVar):
            module = fn.globals.get("__name__")
            return f"{module}.{fn.qualname}"
        if isinstance(fn, ClassVar):
            module = fn.value.__module__
            return fn.value.__qualname__ if module == "builtins" else f"{module}.{fn.value.__qualname__}"
    return "function"


@op("DICT_UPDATE", "DICT_MERGE")
def dict_update(frame: Frame, depth: int) -> None:
    source = frame.pop()
    known = slots.has_type(source, object)
    if known and not slots.has_method(source, "keys") and not frame.tx.has_attribute(source, "keys"):
        kind = source.python_type().__name__
        merge = frame.instr.op == "DICT_MERGE"
        text = f"argument after ** must be a mapping, not {kind}" if merge else f"{kind!r} object is not a mapping"
        frame.tx.raise_(TypeError, f"{_callee(frame)}() {text}" if merge else text)
    pairs = pairs_of(frame.tx, source)
    target = frame.stack[-depth]
    if not isinstance(target, DictVar):
        return target.unsupported(frame.tx, "unpacking with **")
    for key, value in pairs:
        if frame.instr.op == "DICT_MERGE" and key in target.items:
            frame.tx.raise_(TypeError, f"{_callee(frame)}() got multiple values for keyword argument {key!r}")
        target.setitem(frame.tx, var_of(key), value)


def _unpacked(frame: Frame, value: Var) -> list[Any]:
    if slots.has_type(value, object):
        kind = value.python_type()
        if not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
            frame.tx.raise_(TypeError, f"cannot unpack non-iterable {kind.__name__} object")
    return value.unpack(frame.tx)


@op("UNPACK_SEQUENCE")
def unpack_sequence(frame: Frame, count: int) -> None:
    value = frame.pop()
    items = _unpacked(frame, value)
    if len(items) != count:
        counted = slots.has_type(value, list, tuple, dict) and value.python_type() in (list, tuple, dict)
        few = len(items) < count
        text = f"not enough values to unpack (expected {count}, got {len(items)})"
        many = f"too many values to unpack (expected {count}"
        many += f", got {len(items)})" if TOO_MANY_VALUES_COUNTED and counted else ")"
        frame.tx.raise_(ValueError, text if few else many)
    frame.stack.extend(reversed(items))


@op("UNPACK_EX")
def unpack_ex(frame: Frame, arg: int) -> None:
    before, after = arg & 0xFF, arg >> 8
    items = _unpacked(frame, frame.pop())
    if len(items) < before + after:
        text = f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
        frame.tx.raise_(ValueError, text)
    end = len(items) - after
    spread = [*items[:before], ListVar(items[before:end]), *items[end:]]
    frame.stack.extend(reversed(spread))


def intrinsic_list_to_tuple(frame: Frame) -> None:
    frame.push(TupleVar(frame.pop().unpack(frame.tx)))


@op("CALL_INTRINSIC_1")
def call_intrinsic_1(frame: Frame, name: Any) -> None:
    if name == "INTRINSIC_LIST_TO_TUPLE":
        intrinsic_list_to_tuple(frame)
    elif name == "INTRINSIC_UNARY_POSITIVE":
        frame.push(frame.pop().unary(frame.tx, "+"))
    elif name == "INTRINSIC_ASYNC_GEN_WRAP":
        frame.push(WrappedItemVar(frame.pop()))
    elif name == "INTRINSIC_STOPITERATION_ERROR":
        pass
    else:
        frame.tx.graph_break("unsupported-instruction", str(name))


@op("GET_LEN")
def get_len(frame: Frame, arg: None) -> None:
    frame.push(frame.stack[-1].length(frame.tx))
