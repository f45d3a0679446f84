"""What the tests of NumPy in captured code share: a comparison of results, and the check of one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import pyframe
from pyframe.metrics import counters


def same(a: Any, b: Any) -> bool:
    """Equal in type, dtype and shape, and in value but for rounding."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and (np.array_equal(a, b) or np.allclose(a, b, equal_nan=True))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a, b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def check_one_graph(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Two calls return what `fn` returns and leave the arguments as it does, with one graph and one capture."""

    def fresh() -> tuple[Any, ...]:
        copies = {np.ndarray: np.ndarray.copy, torch.Tensor: torch.Tensor.clone}
        return tuple(copies[type(arg)](arg) if type(arg) in copies else arg for arg in args)

    pyframe.reset()
    given = fresh()
    expected = fn(*given)
    compiled = pyframe.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        mine = fresh()
        assert same(compiled(*mine), expected)
        assert all(map(same, mine, given))
    assert counters["graphs"] == 1 and not counters["recompiles"]
