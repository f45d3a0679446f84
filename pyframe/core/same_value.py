"""Whether two constants are the same value for a program."""

from __future__ import annotations

from typing import Any


def same_value(a: Any, b: Any) -> bool:
    """Whether two plain values (numbers, texts, None, dtypes ...) are of one type and no operation tells them apart:
    0.0 is not -0.0, and NaN is NaN."""
    if type(a) is not type(b):
        return False
    return repr(a) == repr(b) if isinstance(a, float | complex) else bool(a == b)
