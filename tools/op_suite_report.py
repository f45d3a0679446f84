"""Stores and merges the rows of the operator suite, and writes them as a table."""

from __future__ import annotations

import collections
import json
import subprocess
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from op_suite_exceptions import KNOWN, LEFT_OUT, UNINITIALISED, UNINITIALISED_RESULTS

ROOT = Path(__file__).resolve().parents[1]
FINE = ("right", "not run")
VERDICTS = ("right", "wrong", "error", "other error", "no error", "not reused", "together", "crash", "hang", "not run")


@dataclass(frozen=True)
class Tables:
    """Data of a suite that its report uses: the suite's name; the known failures ("name mode", "name mode dtype" or
    "name mode case": the verdict, and the reason); what is not run, with the reason; and operators some of whose
    results have uninitialized elements."""

    title: str
    known: Mapping[str, tuple[str, str]]
    left_out: Mapping[str, str]
    uninitialised: Set[str] = frozenset()
    uninitialised_results: Mapping[str, Set[int]] = field(default_factory=dict)
    compared: str = "float32, 2 samples, forward and backward, every k-th operator"  # what `--peer` runs


OPERATOR_TABLES = Tables("Operator database", KNOWN, LEFT_OUT, UNINITIALISED, UNINITIALISED_RESULTS)


@dataclass
class Row:
    """An operator in one mode: `cases` by name, each [verdict, detail]. `remarks`: what did not run as one compiled
    graph, with the reasons."""

    op: str
    mode: str
    device: str
    engine: str
    samples: int
    dtypes: str = ""
    commit: str = ""
    cases: dict[str, list[str]] = field(default_factory=dict)
    remarks: set[str] = field(default_factory=set)
    seconds: float = 0.0

    def data(self) -> dict[str, Any]:
        """The row in its stored form."""
        return {**self.__dict__, "remarks": sorted(self.remarks)}

    @staticmethod
    def of(data: Mapping[str, Any]) -> Row:
        """The row from its stored form."""
        return Row(**{**data, "remarks": set(data["remarks"])})

    def counts(self) -> collections.Counter[str]:
        """The number of cases by verdict."""
        return collections.Counter(verdict for verdict, _ in self.cases.values())

    def summary(self) -> str:
        """The counts as text."""
        return ", ".join(f"{n} {verdict}" for verdict, n in self.counts().most_common()) or "no cases"


def known(row: Row, case: str, tables: Tables = OPERATOR_TABLES) -> tuple[str, str] | None:
    """The expected verdict of a case, with the reason, if it is not "right"."""
    dtype = case.partition(":")[0]
    for key in (f"{row.op} {row.mode} {case}", f"{row.op} {row.mode} {dtype}", f"{row.op} {row.mode}"):
        if key in tables.known:
            return tables.known[key]
    return None


def failures(row: Row, tables: Tables = OPERATOR_TABLES) -> dict[str, list[str]]:
    """The cases that are neither right nor expected to fail."""
    bad = {}
    for case, (verdict, detail) in row.cases.items():
        expected = known(row, case, tables)
        if verdict not in FINE and (expected is None or expected[0] != verdict):
            bad[case] = [verdict, detail]
    return bad


def stale(rows: Sequence[Row], tables: Tables = OPERATOR_TABLES) -> list[str]:
    """The keys in the table of known failures of which no case in these rows fails, although the operator was run."""
    used, run = set(), set()
    for row in rows:
        run.add((row.op, row.mode))
        for case, (verdict, _) in row.cases.items():
            if verdict not in FINE:
                dtype = case.partition(":")[0]
                used |= {f"{row.op} {row.mode} {case}", f"{row.op} {row.mode} {dtype}", f"{row.op} {row.mode}"}
    return [key for key in tables.known if key not in used and tuple(key.split(" ")[:2]) in run]


def merge(log: Path) -> list[Row]:
    """The last row of each operator and mode in a file of rows."""
    if not log.exists():
        return []
    rows = [Row.of(json.loads(line)) for line in log.read_text().splitlines()]
    return list({(row.op, row.mode, row.device): row for row in rows}.values())


def _groups(row: Row, case: str) -> list[str]:
    """The other lines of the table of totals that include a case."""
    dtype, (database, is_in_one, _) = case.partition(":")[0], row.op.partition(":")
    found = [f"dtype {dtype}"] if dtype in row.dtypes.split() else []
    return [*found, f"database {database}"] if is_in_one else found


def _totals(rows: Sequence[Row]) -> list[str]:
    lines = [f"{'':24}" + "".join(f"{verdict:>12}" for verdict in VERDICTS)]
    groups: dict[str, collections.Counter[str]] = {}
    for row in rows:
        for case, (verdict, _) in row.cases.items():
            for name in (f"mode {row.mode}", *_groups(row, case), "all"):
                groups.setdefault(name, collections.Counter())[verdict] += 1
    for name in sorted(groups, key=lambda verdict: (verdict == "all", verdict.startswith("dtype"), verdict)):
        lines.append(f"{name:24}" + "".join(f"{groups[name][verdict]:>12}" for verdict in VERDICTS))
    return lines


def _listing(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"{title}: {len(lines)}", *(f"  {line}" for line in lines)]


def _remarks(rows: Sequence[Row]) -> list[str]:
    found: dict[str, set[str]] = {}
    for row in rows:
        for remark in row.remarks:
            found.setdefault(remark, set()).add(row.op)
    lines = []
    for remark, ops in sorted(found.items(), key=lambda pair: -len(pair[1])):
        lines += [f"{remark}: {len(ops)} operators", f"    {', '.join(sorted(ops))}"]
    return lines


def commit() -> str:
    """The commit of this checkout."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def write_report(
    path: Path, rows: Sequence[Row], device: str, compared: Mapping[str, Sequence[Row]] | None = None,
    tables: Tables = OPERATOR_TABLES,
) -> int:
    """Writes `path`.{json,txt}; returns 1 if a case is not as expected. `compared`: rows of each compiler for a
    sample."""
    import torch

    rows = [row for row in rows if row.device == device]
    bad = [
        f"{row.op} {row.mode} {case}: {verdict}: {detail}"
        for row in rows for case, (verdict, detail) in failures(row, tables).items()
    ]  # fmt: skip
    expected = [
        f"{row.op} {row.mode} {case}: {verdict}: {known(row, case, tables)[1]}"  # type: ignore[index]
        for row in rows for case, (verdict, _) in row.cases.items()
        if verdict not in FINE and case not in failures(row, tables)
    ]  # fmt: skip
    old = stale(rows, tables)
    ops = {row.op for row in rows}
    lines = [
        f"{tables.title} of torch {torch.__version__}, device {device}, at commit {commit()}",
        f"{len(ops)} operators, {len(rows)} rows (operator x mode)",
        f"samples of each operator and dtype: {sorted({row.samples or 'all' for row in rows}, key=str)}",
        *(f"dtypes of {n} rows: {text}" for text, n in collections.Counter(row.dtypes for row in rows).most_common()),
        *(f"commit of {n} rows: {text}" for text, n in collections.Counter(row.commit for row in rows).most_common()),
        "", *_totals(rows),
        *_listing("Not right", bad), *_listing("Known, with the reason", expected),
        *_listing("Known failures that no longer fail", old),
        *_listing("Operators that are not run", [f"{name}: {why}" for name, why in tables.left_out.items()]),
        *_listing("Elements not compared, as they are uninitialised", sorted(tables.uninitialised & ops)),
        *_listing(
            "Results whose elements are not compared, for the same reason",
            [f"{name}: {sorted(found)}" for name, found in tables.uninitialised_results.items() if name in ops],
        ),
    ]
    if compared:
        lines += _comparison(compared, tables)
    lines += ["", "What does not run as one compiled graph", *_remarks(rows)]
    path.with_suffix(".txt").write_text("\n".join(lines) + "\n")
    data = {
        "torch": torch.__version__, "device": device, "commit": commit(), "failures": bad, "known": expected,
        "rows": [_stored(row) for row in rows],
        "compared": {name: [row.data() for row in found] for name, found in (compared or {}).items()},
    }  # fmt: skip
    path.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    print("\n".join(lines[:3] + _totals(rows)), flush=True)
    print(f"{len(bad)} not right, {len(expected)} known, {len(old)} known that no longer fail", flush=True)
    return 1 if bad or old else 0


def _stored(row: Row) -> dict[str, Any]:
    """The row with the names of cases that are not right, and the counts of all verdicts."""
    cases = {name: found for name, found in row.cases.items() if found[0] != "right"}
    return {**row.data(), "cases": cases, "counts": row.counts()}


def _comparison(compared: Mapping[str, Sequence[Row]], tables: Tables) -> list[str]:
    lines = ["", f"Beside torch.compile, the same cases: {tables.compared}"]
    lines.append(f"{'':24}" + "".join(f"{verdict:>12}" for verdict in VERDICTS) + f"{'seconds':>12}")
    for name, rows in compared.items():
        total: collections.Counter[str] = sum((row.counts() for row in rows), collections.Counter())
        seconds = sum(row.seconds for row in rows)
        lines.append(f"{name:24}" + "".join(f"{total[verdict]:>12}" for verdict in VERDICTS) + f"{seconds:>12.0f}")
    for name, rows in compared.items():
        bad = [f"{r.op} {r.mode} {c}: {v}: {d}" for r in rows for c, (v, d) in r.cases.items() if v not in FINE]
        lines += _listing(f"Not right with {name}", bad)
    return lines
