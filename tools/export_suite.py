"""Exports the models of `benchmarks.capture_models`, and packages them, and compares both with eager.

    python -m tools.export_suite                       # every model as an exported program
    python -m tools.export_suite --packages            # every model as a package for this CPU, in Python and C++
    python -m tools.export_suite --only hf/bert --only timm/resnet18
    python -m tools.export_suite --out benchmarks/results   # writes export_suite.txt and .json there

An exported program is compared three times: as it is, saved and loaded, and printed and executed. Results, arguments
and buffers must be those of eager bit by bit. A package is called in this process, where its results must be eager's
within the tolerances of their dtypes, and from C++, where they must be the bits of Python. A model is *refused* if
`Unsupported`, `UserError` or `PackageError` says why it is none, *failed* if anything else happens. Models run in a
worker process; one that dies or takes longer than --timeout seconds counts as failed.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "export"), str(ROOT / "tests" / "package")]

EQUAL, REFUSED, FAILED = "equal", "refused", "failed"
Row = dict[str, Any]


# ---- one model, in the worker


def _exported(model: Any, inputs: dict[str, Any], folder: Path) -> Row:
    """Compare the exported program, the same saved and loaded, and its text with eager."""
    from export_checks import Printed

    import pyframe

    exported = pyframe.export(model)(**inputs)
    row: Row = {"outcome": EQUAL}
    ways: dict[str, Any] = {"program": exported}
    try:
        exported.save(folder / "program")
    except pyframe.UserError as error:
        row["saved"] = f"refused: {error}"
    else:
        ways["loaded"] = loaded = pyframe.export.load(folder / "program")
        loaded.function = model
    ways["printed"] = Printed(exported)
    for way, program in ways.items():
        comparison = program.check(**inputs)
        if not comparison.equal:
            return {**row, "outcome": FAILED, "why": f"{way}: {comparison}"}
    return row


def _packaged(model: Any, inputs: dict[str, Any], folder: Path) -> Row:
    """Compare the package with eager, in this process and from C++."""
    import torch
    from package_util import build, run_cpp

    import pyframe
    from inductor.package.targets import default_targets

    path = folder / "model.pyframe"
    start = time.perf_counter()
    pyframe.package(model, (), path, kwargs=inputs, targets=default_targets({"cpu"})[:1])
    took = time.perf_counter() - start
    with torch.random.fork_rng():  # random numbers on the CPU are those of eager
        package = pyframe.load(path)
        before = torch.get_rng_state()
        got = package(**inputs)
        draws = not torch.get_rng_state().equal(before)
    with torch.no_grad(), torch.random.fork_rng():
        want = model(**inputs)  # last: it may write to buffers, of which the package has a copy
    row: Row = {"outcome": EQUAL, "package s": round(took, 1), "MB": round(path.stat().st_size / 1e6, 1)}
    ours, eager = _tensors(got), _tensors(want)
    if type(got) is not type(want) or len(ours) != len(eager):
        why = f"{len(ours)} results in a {type(got)}, not {len(eager)} in {type(want)}"
        return {**row, "outcome": FAILED, "why": why}
    for a, b in zip(ours, eager, strict=True):
        with contextlib.suppress(NotImplementedError):
            torch.testing.assert_close(a, b, equal_nan=True, rtol=1e-3, atol=1e-4)
    if draws:
        return {**row, "why": "not called from C++: it draws random numbers, of which C++ has another seed"}
    own = set(package.operators) - set(_of_libtorch(package.operators))
    if own:
        return {**row, "why": f"not called from C++, where Python's libraries register no operators: {sorted(own)}"}
    results, _ = run_cpp(build(folder.parent / "serve_cpp"), folder, path, package.leaves((), inputs))
    same = [a.shape == b.shape and _bits(a).equal(_bits(b)) for a, b in zip(results, ours, strict=True)]
    if not all(same):
        return {**row, "outcome": FAILED, "why": f"C++: {same.count(False)} of {len(same)} results have other bits"}
    return row


def _of_libtorch(names: Iterable[str]) -> list[str]:
    """The operators of these that a process with libtorch alone has."""
    program = (
        "import sys, torch\n"
        "for name in sys.argv[1:]:\n"
        "    space, _, rest = name.partition('.')\n"
        "    if hasattr(getattr(torch.ops, space), rest.partition('.')[0]):\n"
        "        print(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *names], check=True, capture_output=True, text=True)
    return done.stdout.split()


def _bits(x: Any) -> Any:
    import torch

    return x.detach().contiguous().flatten().view(torch.uint8)


def _tensors(value: Any) -> list[Any]:
    """The tensors in a result, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [x for each in value.values() for x in _tensors(each)]
    if isinstance(value, tuple | list):
        return [x for each in value for x in _tensors(each)]
    fields = getattr(value, "__dataclass_fields__", None) or getattr(value, "__dict__", {})
    return [x for name in fields for x in _tensors(getattr(value, name))]


def _row(name: str, check: Callable[[Any, dict[str, Any], Path], Row], folder: Path) -> Row:
    import pyframe
    from benchmarks.capture_models import CASES

    start = time.perf_counter()
    try:
        model, inputs = CASES[name]()
    except (ImportError, OSError) as error:
        return {"model": name, "outcome": "not here", "why": str(error)}
    try:
        found = check(model, inputs, folder)
    except (pyframe.Unsupported, pyframe.UserError, pyframe.PackageError) as error:
        found = {"outcome": REFUSED, "why": f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001 - a failure is what the suite reports
        where = traceback.format_exception(error)[-6:]
        found = {"outcome": FAILED, "why": f"{type(error).__name__}: {error}", "trace": "".join(where)}
    return {"model": name, **found, "seconds": round(time.perf_counter() - start, 1)}


def worker(packages: bool) -> None:
    """Read names of models from the standard input, and write a row of JSON for each."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what models print is no row
    with tempfile.TemporaryDirectory(dir=os.environ["EXPORT_SUITE_FOLDER"]) as folder:
        for line in sys.stdin:
            row = _row(line.strip(), _packaged if packages else _exported, Path(folder))
            print(json.dumps(row), file=out, flush=True)


# ---- all models


class Worker:
    """A process that runs models one after the other; a new one takes its place when it has died."""

    def __init__(self, packages: bool, timeout: float) -> None:
        self.packages, self.timeout = packages, timeout
        self.process: subprocess.Popen[str] | None = None

    def row(self, name: str) -> Row:
        if self.process is None or self.process.poll() is not None:
            line = [sys.executable, "-m", "tools.export_suite", "--worker", *["--packages"] * self.packages]
            self.process = subprocess.Popen(
                line, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(name + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], self.timeout)
        text = process.stdout.readline() if ready else ""
        if text:
            found: Row = json.loads(re.sub(r'[^\s"`(]*/site-packages/?', "", text.replace(f"{ROOT}/", "")))
            return found
        process.kill()
        status = process.wait()
        why = f"exit status {status}" if ready else f"longer than {self.timeout} s"
        return {"model": name, "outcome": FAILED, "why": why}

    def close(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait()


def rows(names: list[str], packages: bool, timeout: float) -> Iterator[Row]:
    """A row for each model."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EXPORT_SUITE_FOLDER"] = folder
        if packages:
            from package_util import build

            build(Path(folder) / "serve_cpp")
        process = Worker(packages, timeout)
        try:
            for name in names:
                yield process.row(name)
        finally:
            process.close()


def summary(found: list[Row]) -> str:
    """The counts, and everything that is not equal with its first lines."""
    counts = collections.Counter(row["outcome"] for row in found)
    lines = [", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())]
    for outcome in (FAILED, REFUSED):
        for row in found:
            if row["outcome"] == outcome:
                lines.append(f"{outcome:8} {row['model']:32} " + " | ".join(row["why"].splitlines()[:3])[:300])
    not_saved = [row for row in found if "saved" in row]
    lines += [f"not saved {row['model']:31} {row['saved'].splitlines()[0][:200]}" for row in not_saved]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="a model, or the beginning of its name")
    parser.add_argument("--packages", action="store_true")
    parser.add_argument("--timeout", type=float, default=180.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        worker(chosen.packages)
        return 0
    from benchmarks.capture_models import CASES

    names = [name for name in CASES if not chosen.only or name.startswith(tuple(chosen.only))]
    found: list[Row] = []
    for row in rows(names, chosen.packages, chosen.timeout):
        found.append(row)
        print(json.dumps({key: value for key, value in row.items() if key != "trace"}), flush=True)
    text = summary(found)
    print(text)
    if chosen.out is not None:
        stem = "export_suite_packages" if chosen.packages else "export_suite"
        (chosen.out / f"{stem}.json").write_text(json.dumps(found, indent=1) + "\n")
        (chosen.out / f"{stem}.txt").write_text(text + "\n")
    return int(any(row["outcome"] == FAILED for row in found))


if __name__ == "__main__":
    sys.exit(main())
