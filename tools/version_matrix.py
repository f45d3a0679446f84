"""Runs the test suite over a matrix of torch releases and CPython versions, and writes the table.

    python tools/version_matrix.py [--torch 2.11.0 2.13.0 2.15.0] [--python 3.11 3.12 3.13 3.14] [--env EXE ...]
        [--tests PATH ...] [--resume] [--seconds N] [--workers N] [--budget SECONDS] [--output FOLDER]

Each pair has an environment `.venv-TORCH-pyPYTHON` at the root, which is created if it is missing (by `make`, which
lets pip install torch); `--env` names interpreters that already have torch, to be used instead. If a CPython is not
installed or pip cannot create an environment, the row says so.

The suite runs in parts: each folder in `tests`, and the test files outside folders together (`--tests` names other
parts). The result of each part is appended to FOLDER/version_matrix.jsonl at once, with the commit, so a run can be
interrupted: `--resume` skips parts that have passed on any commit, and `--seconds` starts no part after that time.
FOLDER/version_matrix.txt and .json (FOLDER: benchmarks/results) show the latest result of each part; a part without a
result is named in the table. Exit status 1 if a test failed anywhere.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TORCH = ("2.11.0", "2.13.0", "2.15.0")
PYTHON = ("3.11", "3.12", "3.13", "3.14")
COLUMNS = ("torch", "python", "passed", "failed", "errors", "skipped", "seconds", "not run", "commits")
_COUNT = re.compile(r"(\d+) (passed|failed|error|skipped)")
_FAILURE = re.compile(r"(?:FAILED|ERROR) (.+?)(?: - .*)?$")
_VERSIONS = "import platform, torch; print(platform.python_version(), torch.__version__)"


def interpreter(version: str) -> str | None:
    """The CPython of this version on PATH or under pyenv; None if there is none."""
    found = shutil.which(f"python{version}")
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = sorted(kept.glob(f"{version}.*/bin/python"), reverse=True)
    return str(installed[0]) if installed else found


def environment(torch: str, python: str) -> tuple[Path | None, str]:
    """The interpreter of the environment for this pair, which is created if it is missing, and a remark about it."""
    exe = interpreter(python)
    if exe is None:
        return None, f"no CPython {python} here"
    folder = f".venv-{torch}-py{python}"
    command = ["make", "-s", f"TORCH={torch}", f"VENV={folder}", f"PYTHON={exe}", "build"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if made.returncode:
        return None, "not installed: " + (made.stderr.strip().splitlines() or ["make failed"])[-1][:120]
    return ROOT / folder / "bin" / "python", ""


def counts(output: str) -> dict[str, int]:
    """The counts in the last line of pytest's output."""
    last = next((line for line in reversed(output.splitlines()) if _COUNT.search(line)), "")
    found = {name: int(number) for number, name in _COUNT.findall(last)}
    return {"passed": found.get("passed", 0), "failed": found.get("failed", 0), "errors": found.get("error", 0),
            "skipped": found.get("skipped", 0)}  # fmt: skip


def parts() -> list[str]:
    """The parts of the suite: folders of `tests`, and one part for the test files that are in none."""
    folders = sorted(f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if any(path.rglob("test_*.py")))
    return [*folders, "tests/test_*.py"]


def prepare(exe: Path) -> tuple[str, str, str]:
    """Builds the extensions for this interpreter; its versions of torch and Python, and an error message or ""."""
    asked = subprocess.run([exe, "-c", _VERSIONS], capture_output=True, text=True, check=True)
    python, torch = asked.stdout.split()
    # `egg_info`: the entry point of the backend is found without an installation.
    build = [exe, "setup.py", "-q", "egg_info", "build_ext", "--inplace"]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    return torch, python, "the extensions do not build" if built.returncode else ""


def run_part(exe: Path, part: str, options: argparse.Namespace, log: Path) -> dict[str, Any]:
    """Runs one part of the suite completely or to the time limit; returns the counts, the names of failed tests, and
    the seconds."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"}
    paths = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob(part))]
    start = time.monotonic()
    command = [exe, "-m", "pytest", "-n", str(options.workers), *paths]
    with log.open("w") as output:
        try:
            ended = subprocess.run(
                command, cwd=ROOT, env=variables, stdout=output, stderr=subprocess.STDOUT, timeout=options.budget
            ).returncode
        except subprocess.TimeoutExpired:
            ended = None
    text = log.read_text(errors="replace")
    failures = [found[1] for line in text.splitlines() if (found := _FAILURE.match(line))]
    row = {**counts(text), "seconds": round(time.monotonic() - start), "failures": failures}
    if ended is None:
        note = f"{part}: no end in {options.budget:.0f} s"
        return {**row, "failed": row["failed"] + 1, "failures": [*failures, note]}
    if ended not in (0, 1, 5):  # 5: no tests, as in the folder for GPUs
        return {**row, "errors": row["errors"] + 1, "failures": [*failures, f"{part}: pytest ended with {ended}"]}
    return row


def is_clean(row: dict[str, Any]) -> bool:
    return not row["failed"] and not row["errors"]


def summary(torch: str, python: str, latest: dict[str, dict[str, Any]], wanted: list[str]) -> dict[str, Any]:
    """One row of the table: the sums over the parts that have a result."""
    rows = [latest[part] for part in wanted if part in latest]
    missing = [part.removeprefix("tests/") for part in wanted if part not in latest]
    sums = {name: sum(row[name] for row in rows) for name in ("passed", "failed", "errors", "skipped", "seconds")}
    return {
        "torch": torch, "python": python, **sums, "not run": " ".join(missing) or "-",
        "commits": " ".join(sorted({row["commit"] for row in rows})),
        "failures": [name for row in rows for name in row["failures"]],
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as text, then the names of the tests that failed."""
    cells = [COLUMNS, *([str(row.get(name, "-")) for name in COLUMNS] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
    text = "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in cells)
    for row in rows:
        text += "".join(f"\n{row['torch']}, {row['python']}: {name}" for name in row.get("failures", ()))
    return text


def read_results(path: Path) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """The latest result of each part, by versions of torch and Python."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        row = json.loads(line)
        found.setdefault((row["torch"], row["python"]), {})[row["part"]] = row
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", nargs="*", default=TORCH)
    parser.add_argument("--python", nargs="*", default=PYTHON)
    parser.add_argument("--env", nargs="*", default=[], metavar="EXE", help="interpreters that have torch already")
    parser.add_argument("--tests", nargs="*", metavar="PATH", help="parts to run in place of the whole suite")
    parser.add_argument("--resume", action="store_true", help="leave out parts that passed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no part after this time")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds for one part")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    (ROOT / "build").mkdir(exist_ok=True)
    results = options.output / "version_matrix.jsonl"
    wanted = options.tests or parts()
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    commit = asked.stdout.strip() or "unknown"
    start = time.monotonic()
    rows: list[dict[str, Any]] = []
    pairs = [(torch, python) for torch in options.torch for python in options.python]
    for number, (asked_torch, asked_python) in enumerate([(None, exe) for exe in options.env] or pairs):
        exe, note = (Path(asked_python), "") if asked_torch is None else environment(asked_torch, asked_python)
        torch, python = asked_torch or "?", asked_python
        if exe is not None:
            torch, python, note = prepare(exe)
        if exe is None or note:
            rows.append({"torch": torch, "python": python, "not run": note})
            continue
        latest = read_results(results).get((torch, python), {})
        for part in wanted:
            if time.monotonic() - start > options.seconds or (
                options.resume and part in latest and is_clean(latest[part])
            ):
                continue
            log = ROOT / "build" / f"version_matrix_{number}_{part.replace('/', '_').replace('*', '')}.log"
            row = {"torch": torch, "python": python, "part": part, "commit": commit}
            latest[part] = {**row, **run_part(exe, part, options, log)}
            with results.open("a") as output:
                output.write(json.dumps(latest[part]) + "\n")
            print(*latest[part].values(), sep=" | ", flush=True)
        rows.append(summary(torch, python, latest, wanted))
    head = f"python tools/version_matrix.py {' '.join(['--tests', *options.tests] if options.tests else [])}".rstrip()
    head += f"  ({datetime.date.today()})"
    (options.output / "version_matrix.txt").write_text(f"{head}\n\n{table(rows)}\n")
    (options.output / "version_matrix.json").write_text(json.dumps({"command": head, "rows": rows}, indent=1) + "\n")
    print(table(rows))
    return int(any(row.get("failed") or row.get("errors") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
