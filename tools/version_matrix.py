"""Runs the test suite over a matrix of torch releases and CPython versions, and writes the table.

    python tools/version_matrix.py [--torch 2.11.0 2.13.0 2.15.0] [--python 3.11 3.12 3.13 3.14] [--env EXE ...]
        [--tests PATH ...] [--workers N] [--budget SECONDS] [--output FOLDER]

One environment for each pair, `.venv-TORCH-pyPYTHON` at the root, is made where it is missing (by `make`, which asks
pip for torch); `--env` names interpreters that have torch already, in place of those.  A CPython that is not installed,
or an environment that pip cannot make, is a row that says so.  The table goes to FOLDER/version_matrix.txt and .json
(FOLDER: benchmarks/results).  Exit status 1 if a test failed anywhere.
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
COLUMNS = ("torch", "python", "passed", "failed", "errors", "skipped", "seconds", "note")
_COUNT = re.compile(r"(\d+) (passed|failed|error|skipped)")
_VERSIONS = "import platform, torch; print(platform.python_version(), torch.__version__)"


def interpreter(version: str) -> str | None:
    """The CPython of this version on PATH or under pyenv; None if there is none."""
    found = shutil.which(f"python{version}")
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = sorted(kept.glob(f"{version}.*/bin/python"), reverse=True)
    return str(installed[0]) if installed else found


def environment(torch: str, python: str) -> tuple[Path | None, str]:
    """The interpreter of the environment for this pair, made where it is missing, and what is to be said of it."""
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
    """What the last line of pytest says."""
    last = next((line for line in reversed(output.splitlines()) if _COUNT.search(line)), "")
    found = {name: int(number) for number, name in _COUNT.findall(last)}
    return {"passed": found.get("passed", 0), "failed": found.get("failed", 0), "errors": found.get("error", 0),
            "skipped": found.get("skipped", 0)}  # fmt: skip


def run(exe: Path, options: argparse.Namespace, log: Path) -> dict[str, Any]:
    """The row of one interpreter."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"}
    asked = subprocess.run([exe, "-c", _VERSIONS], capture_output=True, text=True, check=True, env=variables)
    python, torch = asked.stdout.split()
    row: dict[str, Any] = {"torch": torch, "python": python, "note": ""}
    # `egg_info`: the entry point of the backend is found without an installation.
    build = [exe, "setup.py", "-q", "egg_info", "build_ext", "--inplace"]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    if built.returncode:
        return {**row, "note": "the extensions do not build"}
    start = time.monotonic()
    command = [exe, "-m", "pytest", "-n", str(options.workers), *options.tests]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=options.budget,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {**row, "note": f"no end after {options.budget:.0f} s", "failed": 1}
    log.write_text(done.stdout)
    found = counts(done.stdout)
    note = "" if done.returncode in (0, 1) else f"pytest ended with {done.returncode}"
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return {**row, **found, "seconds": round(time.monotonic() - start), "note": note, "failures": failed}


def table(rows: list[dict[str, Any]]) -> str:
    cells = [COLUMNS, *([str(row.get(name, "-")) for name in COLUMNS] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
    text = "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in cells)
    for row in rows:
        text += "".join(f"\n{row['torch']}, {row['python']}: {name}" for name in row.get("failures", ()))
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", nargs="*", default=TORCH)
    parser.add_argument("--python", nargs="*", default=PYTHON)
    parser.add_argument("--env", nargs="*", default=[], metavar="EXE", help="interpreters that have torch already")
    parser.add_argument("--tests", nargs="*", default=["tests"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds for one run of the suite")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    pairs = [(torch, python) for torch in options.torch for python in options.python]
    for torch, python in [(None, exe) for exe in options.env] or pairs:
        exe, note = (Path(python), "") if torch is None else environment(torch, python)
        log = ROOT / "build" / f"version_matrix_{len(rows)}.log"
        log.parent.mkdir(exist_ok=True)
        rows.append({"torch": torch, "python": python, "note": note} if exe is None else run(exe, options, log))
        print(*(rows[-1].get(name, "-") for name in COLUMNS), sep=" | ", flush=True)
    head = f"python tools/version_matrix.py --tests {' '.join(options.tests)}  ({datetime.date.today()})"
    (options.output / "version_matrix.txt").write_text(f"{head}\n\n{table(rows)}\n")
    (options.output / "version_matrix.json").write_text(json.dumps({"command": head, "rows": rows}, indent=1) + "\n")
    print(table(rows))
    return int(any(row.get("failed") or row.get("errors") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
