"""Runs one of CPython's test modules: `python cpython_suite_worker.py MODE MODULE OUTCOME SECONDS [NAME...]`.

Writes one line of JSON to the file OUTCOME as each test ends, so that an interrupted run shows how far it came, and
{"replaced": count} at the end. The run is stopped after SECONDS of processor time. If NAMEs are given, only tests whose
id contains one of them run.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.machinery
import io
import json
import os
import resource
import sys
import time
import types
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[1]


def rebuild_everything() -> Any:
    """Replace the code of every existing function, and of functions of modules imported from now on; returns a list
    that counts them."""
    package = types.ModuleType("pyframe")  # past pyframe/__init__.py: no torch
    package.__path__ = [str(ROOT / "pyframe")]
    sys.modules["pyframe"] = package
    from pyframe.bytecode import canonicalize, materialize

    del sys.modules["pyframe"]
    count = [0]

    def rebuild(code: types.CodeType) -> types.CodeType:
        consts = tuple(rebuild(c) if isinstance(c, types.CodeType) else c for c in code.co_consts)
        count[0] += 1
        return materialize(canonicalize(code.replace(co_consts=consts)))

    ours = str(ROOT)
    functions = [f for f in gc.get_objects() if type(f) is types.FunctionType]
    for fn in functions:
        if not fn.__code__.co_filename.startswith(ours):
            fn.__code__ = rebuild(fn.__code__)
    load = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        code = load(self, fullname)
        return code if code is None or code.co_filename.startswith(ours) else rebuild(code)

    importlib.machinery.SourceFileLoader.get_code = get_code
    return count


# Modules that tests are written with: their captures are kept from one test to the next, all others are dropped.
MACHINERY = ("contextlib", "difflib", "linecache", "re", "tokenize", "traceback", "unittest", "warnings", "weakref")


def trace_tests(module: str) -> Any:
    """Send every frame of a test through the tracer, except unittest's own frames; returns a counter."""
    sys.path.insert(0, str(ROOT))
    from pyframe import testing

    sys.path.pop(0)
    library = Path(os.__file__).parent
    kept = tuple(str(library / name) for name in MACHINERY if name not in module)
    compiler = testing.EveryFrame("eager", 2)
    count = [0]
    for case in (unittest.TestCase, unittest.IsolatedAsyncioTestCase):
        call = case._callTestMethod

        def traced(self: Any, method: Any, call: Any = call) -> None:
            try:
                with testing.trace_everything(compiler=compiler):
                    call(self, method)
            finally:
                count[0] += len(compiler.codes_with_entries)
                compiler.forget(lambda code: code.co_filename.startswith(kept))

        case._callTestMethod = traced
    return count


class Outcomes(unittest.TestResult):
    """Test id -> status, written down as each test ends."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self.tests: dict[str, str] = {}
        self.out = out
        self.began = time.perf_counter()

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self.began = time.perf_counter()

    def stopTest(self, test: Any) -> None:
        super().stopTest(test)
        seconds = round(time.perf_counter() - self.began, 3)
        line = {"test": test.id(), "status": self.tests.get(test.id()), "seconds": seconds}
        self.out.write(json.dumps(line) + "\n")
        self.out.flush()

    def note(self, test: Any, status: str) -> None:
        self.tests[test.id()] = status

    def addSuccess(self, test: Any) -> None:
        self.tests.setdefault(test.id(), "ok")

    def addError(self, test: Any, err: Any) -> None:
        self.note(test, f"error: {self._error_text(err)}")

    def addFailure(self, test: Any, err: Any) -> None:
        self.note(test, f"failure: {self._error_text(err)}")

    def addSkip(self, test: Any, reason: str) -> None:
        self.note(test, "skipped")

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.note(test, "unexpected success")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.note(test, f"failure: {self._error_text(err)}")

    @staticmethod
    def _error_text(err: Any) -> str:
        import traceback

        text = "".join(traceback.format_exception(*err))[-1200:]
        return text.replace(sys.base_prefix, "")  # paths of the standard library are the same everywhere


def chosen(suite: Any, names: Sequence[str]) -> Any:
    """The tests of a suite whose ids contain one of the names."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from chosen(test, names)
        elif any(name in test.id() for name in names):
            yield test


def run(module: Any, result: Outcomes, names: Sequence[str]) -> None:
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    if names:
        suite = unittest.TestSuite(chosen(suite, names))
    with contextlib.redirect_stdout(io.StringIO()):
        suite.run(result)


def main(mode: str, name: str, out: str, seconds: str, *names: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    counter = [0]
    if mode == "torch":  # plain CPython with torch imported
        importlib.import_module("torch")
    if mode == "rebuild":
        counter = rebuild_everything()
    if mode == "trace":
        counter = trace_tests(name)
    with Path(out).open("w") as file:
        result = Outcomes(file)
        run(importlib.import_module(f"test.{name}"), result, names)
        outside = {test: status for test, status in result.tests.items() if test.startswith(("setUp", "tearDown"))}
        file.write(json.dumps({"replaced": counter[0], "outside": outside}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
