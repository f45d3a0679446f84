"""Full garbage collections are postponed while the compiler works, and only then."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import inductor.build
import inductor.process.compile_lock as lock_module
import pyframe
from inductor.compile import compile_fx
from inductor.process.compile_lock import compile_lock, importing, make_once, without_lock
from inductor.process.garbage import without_full_collections

SET = (700, 10, 10)


@pytest.fixture(autouse=True)
def thresholds():
    before = gc.get_threshold()
    gc.set_threshold(*SET)
    yield
    gc.set_threshold(*before)


@pytest.fixture
def generations():
    """The generations that were collected since the test began."""
    found = []

    def note(phase, info):
        if phase == "start":
            found.append(info["generation"])

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


def many_objects():
    return [[k] for k in range(10 * sum(SET) * SET[1] * SET[2])]  # CPython wants a quarter of all objects to be new


def test_collections_of_young_objects_go_on(generations):
    kept = without_full_collections(many_objects)
    assert 0 in generations and 2 not in generations
    assert gc.get_threshold() == SET
    del kept


def test_no_full_collection_is_due_afterwards(generations):
    kept = without_full_collections(many_objects)
    assert gc.get_count()[2] == 0 and gc.get_freeze_count() == 0
    more = [[k] for k in range(10 * SET[0])]
    assert 1 in generations and 2 not in generations
    del kept, more


def test_frozen_objects_stay_frozen():
    gc.freeze()
    try:
        kept = without_full_collections(many_objects)
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
    del kept


def test_the_program_collects_as_it_likes(generations):
    assert without_full_collections(gc.collect) >= 0
    assert generations == [2]


def test_restored_after_an_error():
    with pytest.raises(ZeroDivisionError):
        without_full_collections(lambda: 1 // 0)
    assert gc.get_threshold() == SET


def test_nested_and_while_the_lock_is_released():
    seen = []

    def released():
        seen.append(gc.get_threshold())
        make_once("other", lambda: None, lambda: seen.append(gc.get_threshold()))
        seen.append(gc.get_threshold())

    def work():
        without_full_collections(lambda: seen.append(gc.get_threshold()))
        without_lock(released)
        seen.append(gc.get_threshold())

    with compile_lock:
        without_full_collections(work)
    paused = (*SET[:2], seen[0][2])
    assert paused != SET
    assert seen == [paused, SET, paused, SET, paused]
    assert gc.get_threshold() == SET


def test_thresholds_that_the_program_sets_meanwhile_stay():
    without_full_collections(lambda: gc.set_threshold(500, 5, 5))
    assert gc.get_threshold() == (500, 5, 5)


def test_a_child_forked_while_another_thread_compiles(monkeypatch):
    monkeypatch.setattr(lock_module, "_FORK_SECONDS", 0.1)
    begun, ends = threading.Event(), threading.Event()

    def compiles():
        with compile_lock:
            without_full_collections(lambda: begun.set() or ends.wait(60))

    thread = threading.Thread(target=compiles)
    thread.start()
    begun.wait(60)
    assert gc.get_threshold() != SET
    child = os.fork()
    if not child:
        os._exit(gc.get_threshold() != SET)
    assert os.waitpid(child, 0)[1] == 0
    ends.set()
    thread.join()
    assert gc.get_threshold() == SET


def test_compilation(monkeypatch):
    traced, built = [], []
    build = inductor.build.build_kernels
    monkeypatch.setattr(inductor.build, "build_kernels", lambda *args: built.append(gc.get_threshold()) or build(*args))

    def backend(gm, inputs):
        traced.append(gc.get_threshold())
        return compile_fx(gm, inputs, options={"cache": False})

    def program(x):
        return x.sin().sum(0) * 2

    x = torch.randn(3, 4)
    torch.testing.assert_close(pyframe.compile(program, backend=backend)(x), program(x))
    assert len(traced) == 1 and traced[0][:2] == SET[:2] and traced[0][2] > SET[2]
    assert built == [SET]
    assert gc.get_threshold() == SET


_IMPORT = """
import gc, torch
gc.collect()
gc.freeze()
gc.collect()  # no object is old now, so that few new ones make a full collection due
gc.set_threshold(100, 2, 2)
full = []
gc.callbacks.append(lambda phase, info: full.append(phase) if info["generation"] == 2 else None)
import pyframe
pyframe.compile
from pyframe.lazy_compiler import import_part
import_part("driver")  # what the first call of a compiled function imports
assert "pyframe.driver" in __import__("sys").modules
assert gc.get_threshold() == (100, 2, 2), gc.get_threshold()
assert not full, full
"""


def test_importing_the_compiler_starts_no_full_collection():
    root = Path(pyframe.__file__).parents[1]
    subprocess.run([sys.executable, "-c", _IMPORT], cwd=root, check=True, timeout=120)


def test_an_import_does_not_wait_for_another_thread_that_compiles(generations):
    held, done = threading.Event(), threading.Event()

    def compiles():
        with compile_lock:
            held.set()
            done.wait(60)

    other = threading.Thread(target=compiles)
    other.start()
    held.wait(60)
    try:
        assert importing(gc.get_threshold) == SET
    finally:
        done.set()
        other.join()
    assert importing(gc.get_threshold) != SET
    assert gc.get_threshold() == SET and not compile_lock._is_owned()
    with pytest.raises(ImportError):
        importing(lambda: __import__("pyframe.has_no_such_module"))
    assert gc.get_threshold() == SET and not compile_lock._is_owned()


def test_callbacks_of_the_collector_are_not_captured():
    calls = []

    def note(phase, info):
        calls.append(time.perf_counter())

    def program(x):
        y = x.sin()
        gc.collect()
        return y + 1

    def breaks():
        pyframe.reset()
        pyframe.compile(program, backend="eager")(torch.ones(3))
        return dict(pyframe.counters["graph_breaks"])

    expected = breaks()
    gc.callbacks.append(note)
    try:
        assert breaks() == expected and calls
    finally:
        gc.callbacks.remove(note)
