"""A capture leaves no garbage that only the collector of cycles finds: programs count what that collects."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyframe.core.files import OWN_ROOTS
from pyframe.testing import EveryFrame, trace_everything


def nothing() -> int:
    return 1


def loop_with_break() -> int:
    total = 0
    for each in [(1, "a"), (2, "b")]:
        gc.isenabled()
        total += each[0]
    return total


def numbers() -> Iterator[int]:
    yield 1
    yield 2


def generators() -> list[int]:
    return [*numbers(), *zip([1, 2], reversed([3, 4]), strict=True), *enumerate({5: 6})][:1]


def fails(value: int) -> None:
    if value == 3:
        raise ValueError(value)


def caught() -> str:
    try:
        fails(3)
    except ValueError as error:
        return str(error)
    return ""


def leaves() -> None:
    fails({"a": 3}["a"])


def recursive() -> int:
    def down(value: int) -> int:
        return value and down(value - 1)

    return down(3)


def _ours(value: Any) -> bool:
    if isinstance(value, types.FrameType):
        return value.f_code.co_filename.startswith(OWN_ROOTS)
    return type(value).__module__.startswith(("pyframe.", "torch."))


@pytest.mark.parametrize("program", [nothing, loop_with_break, generators, caught, leaves, recursive])
def test_a_capture_leaves_no_cycles(program: Callable[[], Any]) -> None:
    gc.freeze()  # the collections below are of what this test makes, not of the whole process: a second each
    with trace_everything(compiler=EveryFrame("eager", 2)):
        nothing()  # a capture releases what the last capture of an earlier test was kept for
    compiler = EveryFrame("eager", 2)
    for _ in range(10):  # what earlier tests left: tensors outlive a first collection
        if not gc.collect():
            break
    gc.disable()
    earlier = set(map(id, gc.get_objects()))  # some of it may be released by this capture
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        with trace_everything(compiler=compiler):
            try:
                program()
            except ValueError:
                pass
        gc.collect()
        assert [value for value in gc.garbage if _ours(value) and id(value) not in earlier] == []
    finally:
        gc.set_debug(0)
        gc.enable()
        gc.garbage.clear()
        gc.unfreeze()
    assert compiler.codes_with_entries
