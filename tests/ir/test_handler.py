"""The current handler of the loop IR's operations belongs to the thread; handlers know every kind of reduction."""

import threading

import pytest

from inductor.codegen.cpp import accumulate as cpp
from inductor.codegen.triton import accumulate as triton
from inductor.codegen.triton import scan
from inductor.ir import interp
from inductor.ir.handler import Handler, ops
from inductor.ir.ops import REDUCTIONS, SCANS


class Recorder(Handler):
    def __init__(self):
        self.seen = []

    def default(self, op, args):
        self.seen.append((op, args))
        return args


def test_threads_that_trace_at_the_same_time_do_not_see_each_other():
    barrier = threading.Barrier(2, timeout=30)
    recorders, failures = [Recorder(), Recorder()], []

    def trace(number):
        try:
            with ops.using(recorders[number]):
                for step in range(50):
                    barrier.wait()  # both are within their blocks, and take turns
                    ops.add(number, step)
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=trace, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for number, recorder in enumerate(recorders):
        assert recorder.seen == [("add", (number, step)) for step in range(50)]


def test_a_new_thread_has_no_handler():
    raised = []

    def call():
        try:
            ops.add(1, 2)
        except NotImplementedError as error:
            raised.append(error)

    with ops.using(Recorder()):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert len(raised) == 1


def test_the_handler_before_is_back_after_an_exception():
    before = ops.current
    with pytest.raises(KeyError), ops.using(Recorder()):
        raise KeyError
    assert ops.current is before


def test_handlers_know_every_kind_of_reduction():
    values = {name for name, kind in REDUCTIONS.items() if kind.position_of is None}
    assert set(cpp.IDENTITY) == set(triton.IDENTITY) == set(interp._REDUCE) == set(REDUCTIONS)
    assert set(cpp.COMBINE) == set(triton.STEP) == set(triton.FOLD) == values
    assert {kind.position_of for kind in REDUCTIONS.values()} == {None, "max", "min"}


def test_handlers_know_every_kind_of_scan():
    assert set(scan.COMBINE) == set(interp._SCAN) == set(SCANS)
    assert {kind.position_of for kind in SCANS.values()} == {None, "max", "min"}
