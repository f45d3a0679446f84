"""The lock that lets only one thread of the process capture, trace and generate code at a time.

torch's tracing patches classes and modules while it runs, so two threads must not trace at once. Building kernels (the
C++ compiler, Triton's workers) only waits for other processes, so it runs outside the lock, by `without_lock`. While
one thread builds, others may take the lock; `make_once` keeps them from compiling the same thing again.

A fork waits until no other thread holds the lock, so that a child never starts from a half-finished trace.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from operator import call
from typing import Any, TypeVar

T = TypeVar("T")

_FORK_SECONDS = 60  # a fork waits no longer for other threads to leave the lock

_lock: Any = threading.RLock()
_changed = threading.Condition(_lock)
_makers: dict[Hashable, int] = {}  # what is being made, and the thread that makes it

compile_lock = _lock
"""For `with compile_lock:`.  Reentrant; a signal cannot interrupt between taking the lock and entering the block."""


def without_lock(work: Callable[[], T]) -> T:
    """`work()` while this thread does not hold the lock, however often it has taken it; then the lock is taken back."""
    if not _lock._is_owned():
        return work()
    state: list[Any] = []
    try:
        state.extend(map(call, (_lock._release_save,)))  # one call in C: no signal is handled between its two effects
        return work()
    finally:
        if state:
            _lock._acquire_restore(state[0])


def make_once(key: Hashable, find: Callable[[], T | None], make: Callable[[], T]) -> T:
    """What `find()` gives, or else `make()`; both run under the lock, and for a key in one thread at a time.

    A thread that is already making something waits for no other key, lest two threads wait for each other: both make.
    """
    me = threading.get_ident()
    with _lock:
        if me not in _makers.values():
            while key in _makers:
                _changed.wait()
        found = find()
        if found is not None:
            return found
        outer = _makers.get(key)
        try:
            _makers[key] = me
            return make()
        finally:
            if outer is None:
                _makers.pop(key, None)
            else:
                _makers[key] = outer
            _changed.notify_all()


# ---- fork

_forking: list[bool] = []  # whether the thread that forks has the lock; written by that thread while it has it


def _before_fork() -> None:
    """Wait for the other threads; one that stays inside does so for a reason that may be this very thread."""
    _forking.append(_lock.acquire(timeout=_FORK_SECONDS))


def _after_fork_in_parent() -> None:
    if _forking.pop():
        _lock.release()


def _after_fork_in_child() -> None:
    """The other threads do not exist here: what they were making is nobody's, and so are locks that they held."""
    global _changed
    if _forking.pop():
        _lock.release()
    elif not _lock._is_owned():
        _lock._at_fork_reinit()
    _forking.clear()
    me = threading.get_ident()
    for key in [key for key, maker in _makers.items() if maker != me]:
        del _makers[key]
    _changed = threading.Condition(_lock)


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
