"""Programs that `tools/fuzz_frames.py` found to differ once, in their smallest form."""

from __future__ import annotations

import copy
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch

import pyframe

sys.path.insert(0, str(Path(__file__).parent))
from language_support import Table  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from fuzz_frames import described  # noqa: E402

case = Table()
X = torch.tensor([2.0, 0.5])


# ---- bools computed of tensors ----
@case(X)
def an_int_of_a_comparison(x):
    return int(x[0].item() > 1), int(x[1].item() > 1 and x[0].item() > 1)


@case(X)
def a_comparison_added(x):
    return (x[0].item() > 1) + 1, sum([x[0].item() > 1, 2]), (x[0].item() > 1) * 3


@case(X)
def the_identity_of_a_comparison(x):
    return (x[0].item() > 1) is True, (x[1].item() > 1) is not False, (x.shape[0] > 1) is True


@case(X)
def a_comparison_among_bools(x):
    return (x[0].item() > 1) in [True], (x[0].item() > 1) == True, [False, True].index(x[0].item() > 1)  # noqa: E712


# ---- what was being handled when an exception that exists already is raised ----
@case(ValueError("given"))
def raising_an_argument_in_a_handler(error):
    try:
        [].pop()
    except IndexError as caught:
        caught.add_note("s")
        raise error


@case(X)
def raising_a_group_in_a_handler(x):
    try:
        try:
            raise KeyError(1)
        finally:
            [].pop()
    except IndexError as caught:
        raise ExceptionGroup("g", [ValueError(1)])


@case(ValueError("given"))
def reading_the_context_of_an_argument(error):
    try:
        try:
            raise KeyError(1)
        except KeyError:
            raise error
    except ValueError as caught:
        return type(caught.__context__).__name__, caught is error, repr(error.__context__)


@case(ValueError("given"))
def raising_what_the_handled_one_came_from(error):
    try:
        try:
            raise error
        except ValueError:
            raise KeyError(1)
    except KeyError:
        raise error


@case(ValueError("given"))
def the_line_of_an_argument_raised_in_a_handler(error):
    try:
        [].pop()
    except IndexError as caught:
        try:
            raise error
        finally:
            caught = None


def behaviour(fn: Any, args: Any) -> Any:
    try:
        return described(fn(*args))
    except Exception as error:  # noqa: BLE001  compared, not hidden
        lines = [line for _, line in traceback.walk_tb(error.__traceback__)]
        return described(error), lines[-1]


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_does_the_same(row: Any) -> None:
    fn, args = row
    captured = pyframe.compile(fn, backend="eager")
    assert behaviour(fn, copy.deepcopy(args)) == behaviour(captured, copy.deepcopy(args))
