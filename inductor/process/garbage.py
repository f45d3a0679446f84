"""Postpones full garbage collections while this project compiles.

A full collection of CPython's garbage collector looks at every object of the process: with torch loaded, some 400,000,
which takes 0.2 to 0.4 seconds. A compilation creates enough objects that live for a while, such as nodes of graphs, to
start several, and so do the imports of the compiler's modules. Collections of young objects go on as usual, so that
short-lived garbage is freed. Afterwards the number of collections since the last full one starts at 0 again: most of
what made one due is gone.

The thresholds belong to the process. They are only changed by the thread that holds the compile lock, and they are as
the program set them whenever that thread releases the lock, as while kernels are built.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_NEVER = 2**31 - 1  # collections of the middle generation between full ones; the largest number that CPython takes
# A program that freezes objects freezes all that there are, some thousands; CPython 3.12 itself starts with hundreds.
_LEAST_FROZEN = 1000

_set_by_program: list[int] = []  # the program's number of such collections, while full ones are postponed


def without_full_collections(work: Callable[[], T]) -> T:
    """Run `work()`; the garbage collector makes no full collections meanwhile, unless it is called. Only for a thread
    that holds the compile lock."""
    if _set_by_program:
        return work()
    young, middle, full = gc.get_threshold()
    try:
        _set_by_program.append(full)
        gc.set_threshold(young, middle, _NEVER)
        return work()
    finally:
        _replace(_NEVER, full)
        _set_by_program.clear()
        if gc.isenabled() and gc.get_count()[2] > full:
            _start_again()


def as_program_set(work: Callable[[], T]) -> T:
    """Run `work()`, which releases the compile lock, with the thresholds that the program set."""
    if not _set_by_program:
        return work()
    full = _set_by_program[0]
    try:
        _replace(_NEVER, full)
        _set_by_program.clear()
        return work()
    finally:
        _set_by_program[:] = [full]
        _replace(full, _NEVER)


def _start_again() -> None:
    """Set the counts of collections to 0. CPython does that where it freezes objects; unless the program has frozen
    some, they are as before after it (but for those that CPython 3.12 freezes itself)."""
    if gc.get_freeze_count() < _LEAST_FROZEN:
        gc.collect(1)  # young garbage would wait for the next full collection
        gc.freeze()
        gc.unfreeze()


def _replace(old: int, new: int) -> None:
    """Change the threshold for full collections, unless the program has set another one meanwhile."""
    young, middle, full = gc.get_threshold()
    if full == old:
        gc.set_threshold(young, middle, new)


def end_in_child() -> None:
    """Restore the program's thresholds in a child that was forked while another thread compiled."""
    if _set_by_program:
        _replace(_NEVER, _set_by_program.pop())
