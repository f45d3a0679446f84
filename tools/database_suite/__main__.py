"""Runs torch's databases other than that of operators through the whole stack, and compares each call with eager.

    python -m tools.database_suite                                    # every database, some samples of each entry
    python -m tools.database_suite --only modules:nn.LSTM,foreach:* --modes train,forward --dtypes float32
    python -m tools.database_suite --peer 40                          # torch.compile and ours on a sample of entries

Databases: `module_db`, `optim_db`, the foreach operators, `autograd_function_db`, `custom_op_db`, `hop_db`, torch's
Python references of operators, distributions, and programs with function transforms and training loops. Comparisons,
worker processes and the rows of the report are those of `tools/op_suite.py`: results, strides, gradients, inputs and
buffers afterwards, and a second call, which must not compile again.

Each result is appended to OUT/database_suite.jsonl at once; OUT/database_suite.{json,txt} are written from that file.
`--resume` skips entries that have a row. Exit status 1 if something is not right that `exceptions.py` does not list, or
if something that it lists is right.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from op_suite import common_arguments, matches, run_all, with_path  # noqa: E402
from op_suite_report import Row, commit, failures, merge, write_report  # noqa: E402

from tools.database_suite.exceptions import TABLES  # noqa: E402

WORKER = Path(__file__).with_name("worker.py")
LISTING = """
from tools.database_suite.databases import LOCATIONS, database
for name in LOCATIONS:
    for entry in database(name).names():
        print(f"{name}:{entry}", *database(name).modes)
"""


def entries() -> dict[str, list[str]]:
    """Every entry and its modes, read in a process of its own because databases import much of torch."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LISTING], env=with_path(ROOT / "tools"), cwd=ROOT, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}


def select(args: argparse.Namespace, found: dict[str, list[str]], done: set[tuple[str, str]]) -> list[dict[str, Any]]:
    """One request for each selected entry and mode that is not in `done`."""
    modes = set(args.modes.split(",")) - {""}
    here = commit()
    units = [
        {
            "op": name, "mode": mode, "device": "cpu", "dtypes": args.dtypes.split(","), "samples": args.samples,
            "batch": args.batch, "commit": here,
        }
        for name, offered in found.items() if matches(name, args.only)
        for mode in offered if (not modes or mode in modes) and (name, mode) not in done
    ]  # fmt: skip
    first, _, of = args.shard.partition("/")
    return units[int(first) - 1 :: int(of)]


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line, or of `given`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="entries as database:name, or beginnings followed by *")
    parser.add_argument("--modes", default="", help="all by default")
    parser.add_argument("--dtypes", default="float32,bfloat16,int64,complex64")
    parser.add_argument("--name", default="database_suite", help="of the files in OUT")
    common_arguments(parser, "entry", samples=4, batch=12, timeout=240)
    return parser.parse_args(given)


def run(units: Sequence[dict[str, Any]], args: argparse.Namespace, log: Path | None, engine: str = "ours") -> list[Row]:
    """Runs these units; returns their rows."""
    os.environ.setdefault("PYFRAME_STRICT", "internal")  # an internal error of the compiler is a failure
    os.environ.setdefault("PYFRAME_MEASURE", "0")  # about compiled graphs, not ATen where that is faster
    return run_all(units, engine, args, log, WORKER, TABLES)


def main() -> int:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    log = args.out / f"{args.name}.jsonl"
    found = entries()
    if args.peer:
        units = select(args, found, set())
        units = units[:: max(1, len(units) // args.peer)]
        rows = {engine: run(units, args, None, engine) for engine in ("ours", "peer")}
        both = set.intersection(*({(row.op, row.mode) for row in each} for each in rows.values()))
        rows = {engine: [row for row in each if (row.op, row.mode) in both] for engine, each in rows.items()}
        return write_report(args.out / args.name, merge(log), "cpu", rows, TABLES)
    kept = merge(log)
    units = select(args, found, {(row.op, row.mode) for row in kept} if args.resume else set())
    if args.failed:
        bad = {(row.op, row.mode) for row in kept if failures(row, TABLES)}
        units = [unit for unit in units if (unit["op"], unit["mode"]) in bad]
    print(f"{len(units)} units (entry x mode), {args.workers} workers", flush=True)
    run(units, args, log)
    return write_report(args.out / args.name, merge(log), "cpu", None, TABLES)


if __name__ == "__main__":
    sys.exit(main())
