"""tools/replay.py: the same program compiled twice gives the same texts; a change of what is generated shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

from tools import replay  # noqa: E402

STAGES = {"graph", "guards", "bytecode", "ir", "schedule", "code", "plan", "cache"}
RECORD = """
import sys
from pathlib import Path
from tools import replay
program = replay.programs("bench")["fused"]
replay.programs = lambda group: {"fused": program}
sys.exit(replay.record(Path(sys.argv[1]), ["bench"]))
"""


def record(folder: Path) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", RECORD, str(folder)], env=environment, check=True, capture_output=True)


def test_two_records_of_a_program_are_equal_and_a_changed_kernel_shows(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    record(before)
    record(after)
    assert set(replay.stages(before / "bench.fused")) == STAGES
    assert list(replay.differences(before, after)) == []
    kernel = next((after / "bench.fused").glob("*_code.*"))
    kernel.write_text(kernel.read_text().replace("#pragma omp parallel for", ""))
    assert [(name, stage) for name, stage, _ in replay.differences(before, after)] == [("bench.fused", "code")]


def test_addresses_and_folders_are_replaced():
    text = f"<function f at 0x7f0123456789> of {ROOT}/benchmarks, ConstSource(obj_id=94720970769968), 0x10"
    assert replay.normalized(text) == (
        "<function f at <address>> of <project>/benchmarks, ConstSource(obj_id=<address>), 0x10"
    )


def test_addresses_are_replaced_also_at_the_end_of_a_shortened_repr():
    texts = [f"<random.Rando...{end}> 0x7F00{end[-8:].upper()} obj_id={k}" for k, end in enumerate(("x560af9968020", "55d49a584020"))]
    assert len({replay.normalized(text) for text in texts}) == 1
    assert replay.normalized("f(...) x[...] ...>") == "f(...) x[...] ...>"
