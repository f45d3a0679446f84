"""Walks and compares code objects, for the tools, benchmarks and tests of the bytecode codec.

Imports only the standard library, so that workers can use it in a CPython without torch.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any


def nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """`code` and every code object in its constants."""
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from nested_codes(const)


def same_constant(left: Any, right: Any) -> bool:
    """Whether two constants are equal: 1, 1.0 and True differ, so do 0.0 and -0.0; NaN equals itself."""
    return left is right or (type(left) is type(right) and repr(left) == repr(right))
