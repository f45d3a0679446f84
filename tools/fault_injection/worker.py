"""Injects faults into one program at one stage, each in a child process forked from this one.

    python -m tools.fault_injection.worker PROGRAM STAGE

Reads lines of JSON {"kind", "at"} from standard input, where 0 means to count the points, and writes one line of JSON
for each to standard output.
"""

from __future__ import annotations

import gc
import json
import opcode
import os
import signal
import sys
import threading
import time
import traceback
import types
import warnings
from pathlib import Path
from typing import Any

from .code_objects import keep_code_objects
from .points import Injected, calling_back, counter, rewrite_imports, wrap_functions

STAGES = ("first", "cached", "call")
SECONDS = 120  # for one fault
_MAX_ALLOCATIONS = 1 << 40


def main() -> None:
    """See the module."""
    name, stage = sys.argv[1:]
    rewrite_imports()
    import torch  # here and in the functions below: what is imported before `rewrite_imports` is not instrumented

    import pyframe

    wrap_functions()
    warnings.simplefilter("ignore")
    from .programs import PROGRAMS

    torch.set_num_threads(1)
    target, call = PROGRAMS[name]()
    want = call(target)
    compiled = pyframe.compile(target, backend=calling_back(_backend(stage)))
    if stage != "first":
        call(compiled)
    gc.collect()
    keep_code_objects()
    gc.freeze()  # children neither scan nor copy existing objects
    usual: list[str] = []  # what a call without a fault changes: modules that it loads add filters of warnings
    usual += _in_child(lambda: _run(stage, target, compiled, call, want, {"kind": "none", "at": 0}))["changes"]
    for line in sys.stdin:
        job = json.loads(line)
        answer = _in_child(lambda job=job: _run(stage, target, compiled, call, want, job))
        answer["wrong"] = [reason for reason in answer.get("wrong", []) if reason not in usual]
        print(json.dumps({**job, **answer}), flush=True)


def _backend(stage: str) -> Any:
    """The backend for a stage. In the stage "first" it does not use the graph cache, so that all of the compiler
    runs."""

    def compile_graph(gm: Any, inputs: Any) -> Any:
        import inductor

        return inductor.compile_fx(gm, inputs, options={"cache": stage != "first"})

    return compile_graph


def _in_child(work: Any) -> dict[str, Any]:
    """The result of `work`, run in a forked child."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(receive)
        signal.alarm(SECONDS)
        try:
            answer = work()
        except BaseException:
            answer = {"wrong": ["the tool failed: " + traceback.format_exc()[-1500:]]}
        with os.fdopen(send, "w") as out:
            json.dump(answer, out)
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as source:
        text = source.read()
    status = os.waitpid(pid, 0)[1]
    if status or not text:
        ended = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {status}"
        return {"wrong": [f"the process ended with {ended}" + (" (no end after 120 s)" if "14" in ended else "")]}
    return dict(json.loads(text))


def _run(stage: str, target: Any, compiled: Any, call: Any, want: Any, job: dict[str, Any]) -> dict[str, Any]:
    import pyframe
    from pyframe.metrics import counters

    from .state import differences, state

    kind, at = job["kind"], job["at"]
    if stage == "cached":
        pyframe.reset()
    state()  # what it imports and opens is there from now on
    before, start, cpu = state(), time.perf_counter(), time.process_time()
    result, error = _with_fault(kind, at, lambda: call(compiled))
    if at == 0 and kind != "alloc":
        seconds = time.perf_counter() - start
        counter.seen = int(1000 * (time.process_time() - cpu)) if kind == "signal" else counter.seen
        return {"points": counter.seen, "seconds": seconds, "changes": differences(before, state())}
    answer: dict[str, Any] = {"where": counter.where, "ended": type(error).__name__ if error else "result", "wrong": []}
    wrong = answer["wrong"]
    if kind in ("alloc", "signal") and error is None and counter.seen == 0:
        answer["ended"] = "not reached"
    if error is None and not _same(result, want):
        wrong.append("the call that met the exception gave a wrong result")
    if error is not None and not _is_injected(error):
        trace = "".join(traceback.format_exception(error))
        wrong.append(f"raised {type(error).__name__}: {str(error)[:200]} {trace[-900:]}")
    answer["as expected"] = error is None or isinstance(error, (KeyboardInterrupt, MemoryError, Injected))
    del result, error
    wrong += differences(before, state())
    wrong += _other_thread()
    graphs = counters["graphs"]
    try:
        for _ in range(2):
            if not _same(call(compiled), want):
                wrong.append("the next call gave a wrong result")
        answer["compiled after"] = counters["graphs"] > graphs
    except Exception:
        wrong.append("the next call raised " + traceback.format_exc()[-900:])
    return answer


def _with_fault(kind: str, at: int, work: Any) -> tuple[Any, BaseException | None]:
    if kind == "alloc":
        return _without_memory(at, work)
    if kind == "signal" and at:
        return _with_signal(at, work)
    counter.arm(kind, at)
    try:
        return work(), None
    except BaseException as error:  # the exception is the result to examine
        counter.disarm()
        return None, error.with_traceback(None) if _is_injected(error) else error
    finally:
        counter.disarm()


def _without_memory(at: int, work: Any) -> tuple[Any, BaseException | None]:
    """`work()` while CPython's allocation number `at`, and only that one, fails."""
    import _testcapi

    result, error = None, None
    _testcapi.set_nomemory(at, at + 1)
    try:
        result = work()
    except BaseException as raised:
        error = raised
    _testcapi.remove_mem_hooks()
    counter.seen = int(error is not None)
    if error is not None and _is_failed_store(error):
        error = MemoryError(str(error))
    return result, error.with_traceback(None) if error is not None and _is_injected(error) else error


def _with_signal(at: int, work: Any) -> tuple[Any, BaseException | None]:
    """`work()`, with a KeyboardInterrupt after `at` milliseconds of the processor's time."""

    def interrupt(number: int, frame: types.FrameType | None) -> None:
        counter.seen = 1
        if frame is not None:
            counter.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_qualname}"
        raise KeyboardInterrupt("injected")

    result, error = None, None
    signal.signal(signal.SIGPROF, interrupt)
    try:
        signal.setitimer(signal.ITIMER_PROF, at / 1000)
        result = work()
    except BaseException as raised:
        error = raised
    signal.setitimer(signal.ITIMER_PROF, 0)
    return result, error.with_traceback(None) if error is not None and _is_injected(error) else error


def _is_injected(error: BaseException | None) -> bool:
    """Whether the exception is the injected one or was caused by it."""
    import torch  # deferred, as in `main`

    while error is not None:
        # torch raises OutOfMemoryError if it cannot create a tensor object
        if isinstance(error, (KeyboardInterrupt, MemoryError, Injected, torch.OutOfMemoryError)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_failed_store(error: BaseException) -> bool:
    """Whether CPython had no memory to set an attribute of a class: CPython 3.13 and later then raise AttributeError. A
    class that refuses an attribute raises from a frame of its own instead."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not isinstance(error, AttributeError) or type(error.obj) is not type:
        return False
    return opcode.opname[last.tb_frame.f_code.co_code[last.tb_lasti]] == "STORE_ATTR"


def _same(got: Any, want: Any) -> bool:
    import torch

    try:
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    except (AssertionError, TypeError, ValueError):
        return isinstance(want, list) and got == want or isinstance(want, tuple) and len(got) == len(want) and all(
            map(_same, got, want)
        )
    return True


def _other_thread() -> list[str]:
    """Compiles something else in another thread, which shows that the exception left no lock taken."""
    import torch

    import pyframe

    done: list[Any] = []

    def work() -> None:
        try:
            done.append(pyframe.compile(lambda x: x * 2 + 1, backend="eager")(torch.ones(2)).tolist() == [3.0, 3.0])
        except BaseException as error:
            done.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    return [] if done == [True] else [f"another thread: {done[0] if done else 'deadlock'}"]


if __name__ == "__main__":
    main()
