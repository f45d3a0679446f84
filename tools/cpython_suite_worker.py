"""One run of one of CPython's test modules: `python cpython_suite_worker.py MODE MODULE OUTCOME.json`."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.machinery
import io
import json
import sys
import types
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def rebuild_everything() -> Any:
    """Replace the code of every function there is, and of every module imported from now on; gives a counter."""
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
    functions = [f for f in gc.get_objects() if isinstance(f, types.FunctionType)]
    for fn in functions:
        if not fn.__code__.co_filename.startswith(ours):
            fn.__code__ = rebuild(fn.__code__)
    load = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        code = load(self, fullname)
        return code if code is None or code.co_filename.startswith(ours) else rebuild(code)

    importlib.machinery.SourceFileLoader.get_code = get_code
    return count


def trace_tests() -> Any:
    """Send every frame of a test through the tracer, those of unittest around it left out; gives a counter."""
    sys.path.insert(0, str(ROOT))
    from pyframe import testing

    sys.path.pop(0)
    count = [0]
    call = unittest.TestCase._callTestMethod

    def traced(self: Any, method: Any) -> None:
        with testing.trace_everything(recompile_limit=2) as compiler:
            call(self, method)
        count[0] += len(compiler.asked)

    unittest.TestCase._callTestMethod = traced
    return count


class Outcomes(unittest.TestResult):
    """Test id -> status."""

    def __init__(self) -> None:
        super().__init__()
        self.tests: dict[str, str] = {}

    def note(self, test: Any, status: str) -> None:
        self.tests[test.id()] = status

    def addSuccess(self, test: Any) -> None:
        self.tests.setdefault(test.id(), "ok")

    def addError(self, test: Any, err: Any) -> None:
        self.note(test, f"error: {self._words(err)}")

    def addFailure(self, test: Any, err: Any) -> None:
        self.note(test, f"failure: {self._words(err)}")

    def addSkip(self, test: Any, reason: str) -> None:
        self.note(test, "skipped")

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.note(test, "unexpected success")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.note(test, f"failure: {self._words(err)}")

    @staticmethod
    def _words(err: Any) -> str:
        import traceback

        return "".join(traceback.format_exception(*err))[-1200:]


def run(module: Any) -> dict[str, str]:
    result = Outcomes()
    with contextlib.redirect_stdout(io.StringIO()):
        unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    return result.tests


def main(mode: str, name: str, out: str) -> None:
    counter = [0]
    if mode == "rebuild":
        counter = rebuild_everything()
    if mode == "trace":
        counter = trace_tests()
    tests = run(importlib.import_module(f"test.{name}"))
    Path(out).write_text(json.dumps({"tests": tests, "replaced": counter[0]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
