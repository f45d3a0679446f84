"""Writes the Triton code of a sort of rows, which a program holds in registers."""

from __future__ import annotations

from ...dtypes import dtype_of
from ...ir.size import hint
from ..values import Val
from .emit import Emitter, Piece
from .gpu import Gpu
from .heuristics import Config, layout_of_row, power
from .ops import COMPUTE, ELEMENT

NARROW = ("bool", "int8", "uint8", "int16", "bfloat16", "float16")  # dtypes of at most 16 bits
WIDE = ("int64", "float64")  # dtypes whose elements do not fit in one integer with their positions


def emit(e: Emitter, value: Val, config: Config, gpu: Gpu) -> dict[str, Piece]:
    """Writes the sort `value` of a tile of `config`. Returns the results by their names in `SORTS`: the elements in
    order, and their positions in the row."""
    source, (_, descending, element, count) = value.args[0], value.attrs
    kind = "i" if source.kind == "m" else source.kind
    text, axes, whole = e.as_kind(source, kind), e.get(source).axes, e.whole()
    if axes != whole:
        text = f"tl.broadcast_to({text}, {e.shape(whole)})"
    if element in ("bfloat16", "float16"):
        text = f"{text}.to({ELEMENT[element]})"
    found, order = e.fresh("v"), e.fresh("o")
    length, first = e.axes.axis("r").size, max(2, power(count))
    low, width = layout_of_row(config, hint(length), dtype_of(element).itemsize) if e.axes.contiguous == "r" else (0, 0)
    doubles = gpu.doubles and element not in NARROW and element not in WIDE
    options = f"rnumel, {element in NARROW}, {bool(descending)}, {low}, {width}, {doubles}"
    if count and element not in WIDE and 2 * first <= length:
        e.used.add("first_in_order")
        e.lines.append(f"{found}, {order} = first_in_order({text}, {options}, {first})")
    else:
        e.used.add("sort_rows")
        e.lines.append(f"{found}, {order} = sort_rows({text}, {options})")
    at = "l" if e.wide else "i"
    positions = e.emit(at, whole, order if at == "i" else f"{order}.to({COMPUTE[at]})")
    return {"values": Piece(found, kind, whole), "positions": positions}
