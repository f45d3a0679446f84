"""Runs CPython's own tests with re-encoded or traced code, and compares the outcome of each test with plain CPython.

    python tools/cpython_suite.py                              # rebuild, under every CPython found
    python tools/cpython_suite.py --mode trace                 # every frame through the tracer (this Python)
    python tools/cpython_suite.py --python 3.12 --verbose test_dict test_generators
    python tools/cpython_suite.py --mode trace --python venv312/bin/python

In mode `rebuild`, the code of every function is replaced by `materialize(canonicalize(code))`; this needs no torch. In
mode `trace`, every frame goes through the tracer with the backend "eager" (`pyframe.testing.trace_everything`); an
interpreter given by its path needs torch, and our extension modules built for it.

If a test module exceeds its time limit, the tests that it completed are compared.

Writes benchmarks/results/cpython_suite.{json,txt} unless test modules are named. Exit status 1 if any outcome differs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests")]

from conftest_pythons import find_python  # noqa: E402

WORKER = Path(__file__).with_name("cpython_suite_worker.py")
RESULTS = ROOT / "benchmarks" / "results" / "cpython_suite"
MODULES = (
    "test_abc", "test_asyncgen", "test_augassign", "test_baseexception", "test_bisect", "test_bool", "test_call",
    "test_class", "test_collections", "test_compare", "test_configparser", "test_contextlib",
    "test_contextlib_async", "test_copy", "test_coroutines", "test_csv", "test_dataclasses", "test_decimal",
    "test_decorators", "test_deque", "test_descr", "test_dict", "test_dictcomps", "test_dictviews", "test_dynamic",
    "test_enum", "test_enumerate", "test_except_star", "test_exception_group", "test_exception_hierarchy",
    "test_exception_variations", "test_exceptions", "test_extcall", "test_fractions", "test_frame", "test_fstring",
    "test_funcattrs", "test_functools", "test_gc", "test_generator_stop", "test_generators", "test_genericclass",
    "test_genexps", "test_grammar", "test_heapq", "test_inspect", "test_isinstance", "test_iter", "test_itertools",
    "test_json", "test_keywordonlyarg", "test_list", "test_listcomps", "test_memoryview", "test_metaclass",
    "test_named_expressions", "test_opcache", "test_operator", "test_ordered_dict", "test_patma", "test_pickle",
    "test_positional_only_arg", "test_pow", "test_property", "test_raise", "test_random", "test_range", "test_re",
    "test_reprlib", "test_richcmp", "test_scope", "test_set", "test_setcomps", "test_slice", "test_sort",
    "test_statistics", "test_string", "test_super", "test_sys_setprofile", "test_sys_settrace", "test_textwrap",
    "test_traceback", "test_tuple", "test_types", "test_typing", "test_unpack", "test_unpack_ex", "test_unary",
    "test_weakref", "test_with", "test_yield_from", "test_zipfile",
)  # fmt: skip
_IDENTITY = "whether equal strings that are computed are one object, and tuples that an iterator in C uses again"
_SIZES = "sys.getsizeof() of a container that the frame created"
_OBJECTS = "how many objects there are, or are found to be garbage: those of captures made meanwhile count too"
_SPECIALISED = "that calls of Python functions are specialised, which CPython does not do while a hook evaluates frames"
# Tests of behaviour that traced frames need not preserve, with the reason; "*" is any class.
NOT_TRACED = {
    "test.test_class.ClassTests.testSetattrWrapperNameIntern": _IDENTITY,
    "test.test_dict.DictTest.test_str_nonstr": _IDENTITY,
    "test.test_itertools.TestBasicOps.test_combinations_tuple_reuse": _IDENTITY,
    "test.test_dict.DictTest.test_splittable_popitem": _SIZES,
    "test.test_descr.ClassPropertiesAndMethods.test_slots": _OBJECTS,
    **dict.fromkeys(
        (
            "test.test_opcache.TestCallCache.test_assign_init_code",
            "test.test_opcache.TestRacesDoNotCrash.test_binary_subscr_getitem",
            "test.test_opcache.TestRacesDoNotCrash.test_for_iter_gen",
            "test.test_opcache.TestRacesDoNotCrash.test_load_attr_getattribute_overridden",
            "test.test_opcache.TestRacesDoNotCrash.test_load_attr_property",
        ),
        _SPECIALISED,
    ),
    "test.test_gc.GCCallbackTests.test_collect_garbage": _OBJECTS,
}


def run(python: str, mode: str, module: str, seconds: float, names: Sequence[str] = ()) -> dict[str, Any]:
    """{"tests": {id: status}}, and "crash" with a description if the run did not end normally."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        out = Path(folder) / "outcome.jsonl"
        command = [python, "-X", "faulthandler", "-W", "ignore", str(WORKER), mode, module, str(out), f"{seconds:.0f}"]
        try:
            done = subprocess.run(
                [*command, *names], cwd=folder, env=environment, capture_output=True, timeout=20 * seconds,
                check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            errors = done.stderr.decode(errors="replace").strip()
            ended = f"exit status {done.returncode}: {errors[-1500:]}"
            if done.returncode == -signal.SIGXCPU:
                ended = f"took more than {seconds:.0f} s of processor time"
        except subprocess.TimeoutExpired:
            ended = f"took more than {20 * seconds:.0f} s"
        lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    tests = {line["test"]: line["status"] for line in lines if "test" in line}
    last = lines[-1] if lines else {}
    if "replaced" not in last:
        return {"tests": tests, "crash": ended}
    return {"tests": {**tests, **last["outside"]}, "replaced": last["replaced"]}


def compare(plain: dict[str, Any], ours: dict[str, Any], mode: str) -> dict[str, Any]:
    """The differences between two runs of a module."""
    if "crash" in plain and not plain["tests"]:
        return {"verdict": "not comparable", "plain": plain["crash"], "tests": 0}
    cut_off = "crash" in ours or "crash" in plain
    names = ours["tests"].keys() & plain["tests"].keys() if cut_off else {*plain["tests"], *ours["tests"]}
    different = {
        name: [plain["tests"].get(name), ours["tests"].get(name)]
        for name in sorted(names)
        if _status(plain["tests"].get(name)) != _status(ours["tests"].get(name))
    }
    left_out = sorted(name for name in different if not_compared(name, mode))
    for name in left_out:
        del different[name]
    verdict = "different" if different else "same"
    stopped = None
    if "crash" in ours:
        stopped = ours["crash"]
        verdict = "crash" if not stopped.startswith("took more") else "different" if different else "cut off"
    return {
        "verdict": verdict,
        "tests": len(plain["tests"]),
        "compared": len(names) - len(left_out),
        "passed": sum(status == "ok" for status in plain["tests"].values()),
        "different": different,
        "not_compared": left_out,
        "stopped": stopped,
        "replaced": ours.get("replaced", 0),
    }


def not_compared(test: str, mode: str) -> str | None:
    """The reason why a test may have another outcome than with plain CPython."""
    for name, reason in NOT_TRACED.items() if mode == "trace" else ():
        if test == name or test.startswith(f"{name}.") or (name.startswith("*") and test.endswith(name[1:])):
            return reason
    return None


def _status(outcome: str | None) -> str | None:
    return outcome if outcome is None else outcome.partition(":")[0]


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'python':8}{'mode':9}{'module':28}{'tests':>6}{'compared':>9}{'passed':>8}{'seconds':>9}  outcome"]
    for row in rows:
        lines.append(
            f"{row['python']:8}{row['mode']:9}{row['module']:28}{row['tests']:6}{row.get('compared', 0):9}"
            f"{row.get('passed', 0):8}{row['seconds']:9.1f}  {_verdict_text(row)}"
        )
    for python, mode in dict.fromkeys((row["python"], row["mode"]) for row in rows):
        mine = [row for row in rows if (row["python"], row["mode"]) == (python, mode)]
        lines.append(
            f"{python} {mode}: {sum(r['verdict'] == 'same' for r in mine)} of {len(mine)} modules the same, "
            f"{sum(r['tests'] for r in mine)} tests, {sum(r.get('compared', 0) for r in mine)} compared, "
            f"{sum(len(r.get('different', ())) for r in mine)} different, "
            f"{sum(r['verdict'] == 'cut off' for r in mine)} modules cut off, "
            f"{sum(r['verdict'] == 'crash' for r in mine)} crashes"
        )
    return "\n".join(lines)


def _verdict_text(row: dict[str, Any]) -> str:
    text = row["verdict"]
    if row.get("different"):
        names = ", ".join(name.split(".")[-1] for name in row["different"])
        text = f"{len(row['different'])} different: {names[:200]}"
    if row.get("stopped"):
        text += f" ({row['stopped'][:160]})".replace("\n", " ")
    if row.get("plain"):
        text += f": plain CPython: {row['plain'][:160]}".replace("\n", " ")
    if row.get("not_compared"):
        text += f"; {len(row['not_compared'])} not compared"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="test modules (default: all of the list)")
    parser.add_argument("--mode", choices=("rebuild", "trace"), default="rebuild")
    parser.add_argument("--python", action="append", help="3.11, 3.12 ... or a path; may be repeated")
    parser.add_argument("--only", action="append", default=[], help="only tests whose ids contain this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120, help="seconds of processor time for one module")
    parser.add_argument("--save", action="store_true", help="write the results of the named modules too")
    parser.add_argument("--verbose", action="store_true", help="print every test that differs")
    given = parser.parse_args()
    own = "{}.{}".format(*sys.version_info[:2])
    wanted = given.python or ([own] if given.mode == "trace" else ["3.11", "3.12", "3.13", "3.14"])
    rows: list[dict[str, Any]] = []

    def one(job: tuple[str, str, str]) -> dict[str, Any]:
        version, python, module = job
        start = time.perf_counter()
        # torch replaces functions of the standard library, so it is there in both runs
        plain = run(python, "torch" if given.mode == "trace" else "plain", module, given.timeout, given.only)
        ours = run(python, given.mode, module, given.timeout * (2 if given.mode == "trace" else 1), given.only)
        row = {"python": version, "mode": given.mode, "module": module, **compare(plain, ours, given.mode)}
        return {**row, "seconds": round(time.perf_counter() - start, 1)}

    found = [python_of(version) for version in wanted]
    jobs = [(v, python, module) for v, python in found if python for module in given.modules or MODULES]
    with ThreadPoolExecutor(given.jobs) as pool:
        for row in pool.map(one, jobs):
            rows.append(row)
            print(table([row]).splitlines()[1], flush=True)
            for name, (plain, ours) in row.get("different", {}).items() if given.verbose else ():
                print(f"    {name}\n        plain {plain}\n        ours  {ours}")
            if given.save or not given.modules:
                _save([row])
    print("\n".join(table(rows).splitlines()[1 + len(rows) :]))
    return int(any(row["verdict"] in ("different", "crash") for row in rows))


def python_of(wanted: str) -> tuple[str, str | None]:
    """The version of a Python given by its version or its path, and its path."""
    if os.path.sep not in wanted:
        return wanted, find_python(wanted)
    probe = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([wanted, "-c", probe], capture_output=True, text=True, check=True)
    return done.stdout.strip(), os.path.abspath(wanted)


def _save(rows: list[dict[str, Any]]) -> None:
    """Renews the results of the modules that ran."""
    path = RESULTS.with_suffix(".json")
    kept = json.loads(path.read_text()) if path.exists() else []
    every = {(row["mode"], row["python"], row["module"]): row for row in [*kept, *rows]}
    ordered = [every[key] for key in sorted(every)]
    path.write_text(json.dumps(ordered, indent=1) + "\n")
    RESULTS.with_suffix(".txt").write_text(table(ordered) + "\n")


if __name__ == "__main__":
    sys.exit(main())
