"""Instances of C classes that are tuples with more, or other, attributes than items."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pyframe

MOMENT, FILE = time.gmtime(5), os.stat(__file__)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x * MOMENT.tm_gmtoff, MOMENT.tm_zone, MOMENT.tm_year, MOMENT[0], MOMENT),
        lambda x: (x + 1, FILE.st_mtime, FILE.st_mtime_ns, FILE[8], FILE.st_size, FILE),  # FILE[8] is a whole number
        lambda x: (x, *MOMENT[:3], len(MOMENT), list(MOMENT), MOMENT == tuple(MOMENT), isinstance(MOMENT, tuple)),
        lambda x: (x, os.stat(__file__).st_mtime, time.gmtime(7).tm_zone),
        lambda x: (x, torch.max(x, 0).values, os.terminal_size((2, 3)).lines),
    ],
)
def test_items_and_attributes(program: Callable[..., Any]) -> None:
    x = torch.ones(2)
    fast = pyframe.compile(program, backend="eager")
    for _ in range(2):
        assert repr(fast(x)) == repr(program(x))
