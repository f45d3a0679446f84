"""`ops`: the operations of the loop IR as functions, dispatched to the current handler of the calling thread.

An `inner_fn` calls `ops.add(x, y)`. Under the tracing handler the call records an op; another handler may count or
print it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .ops import OPS
from .symbolic import Index


class Handler:
    """Base class of handlers. Ops of the table that have no method of their own call `default`."""

    def default(self, op: str, args: tuple[Any, ...]) -> Any:
        """Handles `op`, whose operands are all values."""
        raise NotImplementedError(f"{type(self).__name__} does not handle {op}")

    def load(self, buf: str, index: Index, dtype: torch.dtype) -> Any:
        """The element at `index` (in elements from the buffer's start), in the buffer's dtype."""
        return self.default("load", (buf, index, dtype))

    def store(self, buf: str, index: Index, value: Any, mode: str | None = None, where: Any = None) -> None:
        """Stores `value`, which has the buffer's dtype. Mode None assigns; the other ones ("add", "mul", "max", "min")
        combine it atomically with what is there, "max" and "min" only integers. With `where`, only the points store at
        which this bool is true."""
        self.default("store", (buf, index, value, mode, where))

    def reduction(self, dtype: torch.dtype, kind: str, value: Any, bounds: tuple[Any, Any] | None = None) -> Any:
        """The reduction of `value` over the reduction variables. `kind` is a name of `REDUCTIONS` in ops.py. Kinds that
        have `position_of` give the int64 position in the flattened reduction space, the first one among equals.

        With `bounds`, two integer values that do not vary along the one reduction variable, only the points from the
        first bound up to but not including the second one count, and all reductions of the body have the same bounds.
        Of no points, the result is the neutral element of `kind`, or any position."""
        return self.default("reduction", (dtype, kind, value, bounds))

    def scan(self, dtype: torch.dtype, kind: str, value: Any, reverse: bool = False) -> Any:
        """The running result at each point of the reduction variables, in row-major order: of all elements up to and
        including this one, or from this one on if `reverse`. `kind` is a name of `SCANS` in ops.py. Kinds that have
        `position_of` give int64 positions in the flattened reduction space and cannot be reversed."""
        return self.default("scan", (dtype, kind, value, reverse))

    def sort(
        self, dtype: torch.dtype, what: str, value: Any, descending: bool, element: torch.dtype, count: int = 0
    ) -> Any:
        """`value` sorted along the reduction variables. `what` is a name of `SORTS` in ops.py: "values", or
        "positions", int64, in the flattened reduction space. The order is stable; NaN is greater than every number. All
        values are numbers of the dtype `element`, which may be narrower than their own. With a `count`, only the first
        `count` points of a row get results; at others, any value."""
        return self.default("sort", (dtype, what, value, descending, element, count))

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Any:
        """A literal."""
        return self.default("constant", (value, dtype))

    def index_expr(self, expr: Index, dtype: torch.dtype) -> Any:
        """An index expression as a value."""
        return self.default("index_expr", (expr, dtype))

    def indirect(self, value: Any, size: int, inside: bool = False) -> Index:
        """An integer value as an index into a dimension of `size`. Negative values count from the end. With `inside` it
        is certain to be at least 0 and less than `size` where it is used, and is not checked."""
        return self.default("indirect", (value, size, inside))

    def checked(self, element: Any, value: Any, size: int) -> Any:
        """`element`, which was loaded at `indirect(value, size)`, made to depend on that index. An index out of bounds
        must be reported even if the load does not use it, as along a dimension of size 1 or of stride 0."""
        return element

    def masked(self, mask: Any, body: Callable[[], Any], other: bool | int | float) -> Any:
        """`body()` where `mask` is true, else `other`. Loads in the body are executed only where `mask` is true."""
        return self.default("masked", (mask, body, other))

    def to_dtype(self, value: Any, dtype: torch.dtype) -> Any:
        """`value` converted like `Tensor.to(dtype)`."""
        return self.default("to_dtype", (value, dtype))

    def bitcast(self, value: Any, dtype: torch.dtype) -> Any:
        """The bits of `value` reinterpreted as another dtype of the same width."""
        return self.default("bitcast", (value, dtype))

    def as_stored(self, value: Any, dtype: torch.dtype) -> Any:
        """A float32 value rounded to `dtype` (float16 or bfloat16), as a store would round it, and kept in float32."""
        return self.default("as_stored", (value, dtype))


def _method(name: str) -> Callable[..., Any]:
    def method(self: Handler, *args: Any) -> Any:
        return self.default(name, args)

    method.__name__ = name
    return method


def _forward(name: str) -> Callable[..., Any]:
    def method(self: Ops, *args: Any) -> Any:
        return getattr(self.current, name)(*args)

    method.__name__ = name
    return method


class Ops(threading.local):
    """Forwards each op to the current handler of this thread. `using(handler)` replaces the handler for a block."""

    def __init__(self) -> None:
        self.current = Handler()

    @contextmanager
    def using(self, handler: Handler) -> Iterator[None]:
        """Makes `handler` the current handler within the block."""
        before, self.current = self.current, handler
        try:
            yield
        finally:
            self.current = before


for _name in OPS:
    if not hasattr(Handler, _name):
        setattr(Handler, _name, _method(_name))
    setattr(Ops, _name, _forward(_name))

Ops.checked = _forward("checked")  # type: ignore[attr-defined]  # a method of handlers that is not in OPS
ops: Any = Ops()
