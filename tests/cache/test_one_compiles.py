"""Processes with one cache directory, as the ranks of a job: one compiles a graph, the others load it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import pyframe
from inductor.cache import claims
from inductor.process.compile_lock import compile_lock

PROGRAM = """
import sys, time
from pathlib import Path
import torch
import pyframe
from inductor import compile as compiler

torch.set_num_threads(1)
place, training = Path(sys.argv[1]), sys.argv[3] == "training"
name = "generate_training" if training else "generate"
generate = getattr(compiler, name)

def slow(*args, **kwargs):
    (place / f"generated-{sys.argv[2]}").touch()
    time.sleep(0.3)
    return generate(*args, **kwargs)

setattr(compiler, name, slow)
(place / f"ready-{sys.argv[2]}").touch()
while not (place / "go").exists():
    time.sleep(0.001)
x = torch.linspace(0, 1, 12).requires_grad_(training)
y = pyframe.compile(lambda x: (x.sin() * 3).relu())(x)
torch.testing.assert_close(y, (x.sin() * 3).relu())
"""


@pytest.mark.parametrize("kind", ["inference", "training"])
def test_one_of_several_processes_compiles(tmp_path: Path, kind: str) -> None:
    environment = {**os.environ, "PYFRAME_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(Path.cwd())}
    running = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path), str(rank), kind], env=environment)
        for rank in range(3)
    ]
    while len(list(tmp_path.glob("ready-*"))) < 3:
        assert all(p.poll() is None for p in running)
        time.sleep(0.01)
    (tmp_path / "go").touch()
    assert [p.wait(200) for p in running] == [0] * 3
    assert len(list(tmp_path.glob("generated-*"))) == 1
    assert not list((tmp_path / "cache" / "claims").iterdir())


def test_who_waits_holds_no_lock_and_compiles_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(claims, "WAIT_SECONDS", 0.5)
    created, waited = claims._create, []

    def of_another(path: Path) -> bool:
        if not created(path):
            return False
        if path.suffix != ".graph" or waited:
            return True
        path.write_text("1 another-machine")
        waited.append(path)
        return False

    monkeypatch.setattr(claims, "_create", of_another)
    taken: list[float] = []

    def take() -> None:
        while not waited:
            time.sleep(0.01)
        with compile_lock:
            taken.append(time.monotonic())

    thread = threading.Thread(target=take)
    thread.start()
    x = torch.randn(7)
    torch.testing.assert_close(pyframe.compile(lambda x: x.cos() * 5)(x), x.cos() * 5)
    end = time.monotonic()
    thread.join()
    assert taken and taken[0] < end - 0.2 and pyframe.counters["kernels"] == 1
    assert not list((tmp_path / "cache" / "claims").iterdir())
