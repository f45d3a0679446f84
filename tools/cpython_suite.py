"""Runs CPython's own test modules on what we make of code, and compares each test with plain CPython.

    python tools/cpython_suite.py                              # rebuild, under every CPython found
    python tools/cpython_suite.py --mode trace                 # every frame through the tracer (this Python)
    python tools/cpython_suite.py --python 3.12 --verbose test_dict test_generators

rebuild: every function's code is `materialize(canonicalize(code))`; needs no torch.
trace: every frame is sent through the tracer with backend "eager" (`pyframe.testing.trace_everything`).

Writes benchmarks/results/cpython_suite.{json,txt} unless modules are named.  Exit status 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
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
_NO_NOP = "line events of statements without code of their own: the canonical form has no NOP"
# Tests of what is promised not to be kept, with the reason.
NOT_COMPARED = {
    "test.test_patma.TestTracing.test_default_wildcard": _NO_NOP,
    "test.test_patma.TestTracing.test_unreachable_code": _NO_NOP,
}


def run(python: str, mode: str, module: str, seconds: float) -> dict[str, Any]:
    """{"tests": {id: status}} or {"crash": what happened}."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        out = Path(folder) / "outcome.json"
        command = [python, "-X", "faulthandler", "-W", "ignore", str(WORKER), mode, module, str(out)]
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, timeout=seconds, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"crash": f"took more than {seconds:.0f} s"}
        if out.exists():
            return json.loads(out.read_text())
    errors = done.stderr.decode(errors="replace").strip()
    return {"crash": f"exit status {done.returncode}: {errors[-1500:]}"}


def compare(plain: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """What differs between two runs of a module."""
    if "crash" in plain or "crash" in ours:
        verdict = "not comparable" if "crash" in plain else "crash"
        return {"verdict": verdict, "plain": plain.get("crash"), "ours": ours.get("crash"), "tests": 0}
    different = {
        name: [plain["tests"].get(name), ours["tests"].get(name)]
        for name in sorted({*plain["tests"], *ours["tests"]})
        if _status(plain["tests"].get(name)) != _status(ours["tests"].get(name)) and name not in NOT_COMPARED
    }
    passed = sum(status == "ok" for status in plain["tests"].values())
    return {
        "verdict": "different" if different else "same",
        "tests": len(plain["tests"]),
        "passed": passed,
        "different": different,
        "replaced": ours.get("replaced", 0),
    }


def _status(outcome: str | None) -> str | None:
    return outcome if outcome is None else outcome.partition(":")[0]


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'python':8}{'mode':9}{'module':28}{'tests':>6}{'passed':>8}{'replaced':>10}{'seconds':>9}  outcome"]
    for row in rows:
        lines.append(
            f"{row['python']:8}{row['mode']:9}{row['module']:28}{row['tests']:6}{row.get('passed', 0):8}"
            f"{row.get('replaced', 0):10}{row['seconds']:9.1f}  {_words(row)}"
        )
    for python, mode in dict.fromkeys((row["python"], row["mode"]) for row in rows):
        mine = [row for row in rows if (row["python"], row["mode"]) == (python, mode)]
        differing = sum(len(row.get("different", ())) for row in mine)
        lines.append(
            f"{python} {mode}: {sum(r['verdict'] == 'same' for r in mine)} of {len(mine)} modules the same, "
            f"{sum(r['tests'] for r in mine)} tests, {differing} different, "
            f"{sum(r['verdict'] == 'crash' for r in mine)} crashes"
        )
    return "\n".join(lines)


def _words(row: dict[str, Any]) -> str:
    if row["verdict"] == "different":
        names = ", ".join(name.split(".")[-1] for name in row["different"])
        return f"{len(row['different'])} different: {names[:200]}"
    if row["verdict"] == "crash":
        return "crash: " + str(row["ours"]).replace("\n", " ")[:160]
    if row["verdict"] == "not comparable":
        return "plain CPython: " + str(row["plain"]).replace("\n", " ")[:160]
    return row["verdict"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="test modules (default: all of the list)")
    parser.add_argument("--mode", choices=("rebuild", "trace"), default="rebuild")
    parser.add_argument("--python", action="append", help="3.11, 3.12 ...; may be repeated")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one module")
    parser.add_argument("--verbose", action="store_true", help="print every test that differs")
    given = parser.parse_args()
    own = "{}.{}".format(*sys.version_info[:2])
    versions = given.python or ([own] if given.mode == "trace" else ["3.11", "3.12", "3.13", "3.14"])
    rows: list[dict[str, Any]] = []

    def one(job: tuple[str, str, str]) -> dict[str, Any]:
        version, python, module = job
        start = time.perf_counter()
        plain = run(python, "plain", module, given.timeout)
        ours = run(python, given.mode, module, given.timeout * (5 if given.mode == "trace" else 1))
        row = {"python": version, "mode": given.mode, "module": module, **compare(plain, ours)}
        return {**row, "seconds": round(time.perf_counter() - start, 1)}

    found = [(version, find_python(version)) for version in versions]
    jobs = [(v, python, module) for v, python in found if python for module in given.modules or MODULES]
    with ThreadPoolExecutor(given.jobs) as pool:
        for row in pool.map(one, jobs):
            rows.append(row)
            print(table([row]).splitlines()[1], flush=True)
            for name, (plain, ours) in row.get("different", {}).items() if given.verbose else ():
                print(f"    {name}\n        plain {plain}\n        ours  {ours}")
            if row["verdict"] == "crash" and given.verbose:
                print(row["ours"])
    print("\n".join(table(rows).splitlines()[1 + len(rows) :]))
    if not given.modules:
        _save(rows)
    return int(any(row["verdict"] in ("different", "crash") for row in rows))


def _save(rows: list[dict[str, Any]]) -> None:
    """Renews the results of the Pythons and the mode that ran."""
    path = RESULTS.with_suffix(".json")
    ran = {(row["python"], row["mode"]) for row in rows}
    kept = json.loads(path.read_text()) if path.exists() else []
    every = [row for row in kept if (row["python"], row["mode"]) not in ran] + rows
    path.write_text(json.dumps(every, indent=1) + "\n")
    RESULTS.with_suffix(".txt").write_text(table(every) + "\n")


if __name__ == "__main__":
    sys.exit(main())
