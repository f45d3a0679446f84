"""Kept captures of frames with graph breaks: their resume functions, loops and inlined calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pyframe
from pyframe.emit.resume import continuation
from pyframe.frame_cache.code_hash import code_hash
from pyframe.interp import positions

from .breaking import stop
from .test_frame_cache import counts, frames  # noqa: F401  a fixture

ROOT = Path(__file__).parent.parent.parent
# Programs a part of which is not kept, and why.
IN_PART = {
    "while loop": "a condition on numbers that is no relation between integers",
}
UNCHANGED = {"writes", "while loop", "with block", "handler", "closure", "sizes"}  # nothing that they do is changed


def run_programs(mode: str, folder: Path) -> dict[str, Any]:
    output = folder / f"{mode}.json"
    env = {**os.environ, "PYFRAME_CACHE_DIR": str(folder / "cache"), "PYFRAME_FRAME_CACHE": "on"}
    subprocess.run(
        [sys.executable, "-m", "tests.frame_cache.breaking", mode, str(output)], env=env, check=True, cwd=ROOT
    )
    found: dict[str, Any] = json.loads(output.read_text())
    return found


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the programs of `breaking` gave in three processes with one cache."""
    folder = tmp_path_factory.mktemp("breaks")
    return {mode: run_programs(mode, folder) for mode in ("cold", "same", "changed")}


def test_results_and_side_effects_are_those_of_eager(outcomes: dict[str, dict[str, Any]]) -> None:
    for mode, found in outcomes.items():
        assert [name for name, outcome in found.items() if not outcome["right"]] == [], mode


def test_a_warm_process_traces_nothing(outcomes: dict[str, dict[str, Any]]) -> None:
    for name, outcome in outcomes["same"].items():
        assert outcome["reasons"] == ([IN_PART[name]] if name in IN_PART else []), name
        assert bool(outcome["traced"]) is (name in IN_PART), name
        assert outcome["loaded"] > 0, name


def test_a_warm_process_imports_no_tracer_and_no_compiler(outcomes: dict[str, dict[str, Any]]) -> None:
    first, *_ = outcomes["same"].values()
    assert not {*first["imported"]} & {"pyframe.driver", "pyframe.interp", "inductor.compile", "sympy"}
    assert "pyframe.driver" in next(iter(outcomes["cold"].values()))["imported"]


def test_breaks_are_counted_as_if_they_were_traced(outcomes: dict[str, dict[str, Any]]) -> None:
    for name, outcome in outcomes["same"].items():
        assert outcome["breaks"] == outcomes["cold"][name]["breaks"], name


def test_what_another_process_changes_is_noticed(outcomes: dict[str, dict[str, Any]]) -> None:
    for name, outcome in outcomes["changed"].items():
        assert bool(outcome["traced"]) is (name not in UNCHANGED or name in IN_PART), name


# ---- within one process


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    pyframe.graph_break()
    return y * 2


def test_both_parts_of_a_frame_are_kept(frames: Path) -> None:  # noqa: F811
    loaded, kept, reasons = counts(breaks, torch.ones(3))
    assert (loaded, kept, reasons) == (0, 2, [])
    assert counts(breaks, torch.ones(3)) == (2, 0, [])
    assert pyframe.counters["instructions_traced"] == 0
    assert torch.equal(pyframe.compile(breaks)(torch.ones(3)), torch.full((3,), 4.0))


def test_a_frame_without_operators_is_not_traced_again(frames: Path) -> None:  # noqa: F811
    def plain(text: str) -> list[str]:
        return [text]

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        pyframe.graph_break()
        print(*plain("first"), end="")
        return y + 1

    counts(program, torch.ones(3))
    counts(program, torch.ones(3))
    assert pyframe.counters["instructions_traced"] == 0


DEBUG = False


def perhaps(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1 if DEBUG else x


def test_a_frame_that_had_no_operators_is_captured_once_it_has(
    frames: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    counts(perhaps, torch.ones(3))
    monkeypatch.setitem(globals(), "DEBUG", True)
    assert counts(perhaps, torch.ones(3)) == (0, 1, [])


def test_where_breaks_are_errors_no_capture_with_one_is_loaded(frames: Path) -> None:  # noqa: F811
    counts(breaks, torch.ones(3))
    with pyframe.error_on_graph_break(True), pytest.raises(pyframe.Unsupported):
        counts(breaks, torch.ones(3))
    with pytest.raises(pyframe.Unsupported):
        counts(breaks, torch.ones(3), fullgraph=True)


def test_a_break_in_a_container_of_torch_is_not_kept(
    frames: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    forward = nn.ReLU.forward.__code__
    monkeypatch.setattr(positions, "library_forwards", lambda frames: {forward})  # as for DDP
    assert counts(breaks, torch.ones(3)) == (0, 1, [  # the resume function is kept
        "a graph break in a module of torch, parts of which are captured on their own"])  # fmt: skip


def test_hashes_of_resume_functions_with_unbound_locals(frames: Path) -> None:  # noqa: F811
    def program(x: torch.Tensor, n: int) -> torch.Tensor:
        for k in range(n):
            if k == 1:
                y = x.sin()
            stop(k)
        return x + n if n < 2 else y

    for _ in range(2):
        _, _, reasons = counts(program, torch.ones(3), 3)
        assert not [reason for reason in reasons if "constant of type" in reason]


def test_training_through_a_break(frames: Path) -> None:  # noqa: F811
    def gradient() -> torch.Tensor:
        x = torch.linspace(0, 1, 4).requires_grad_()
        pyframe.reset()
        pyframe.compile(breaks)(x).sin().sum().backward()
        assert x.grad is not None
        return x.grad

    cold = gradient()
    warm = gradient()
    assert pyframe.counters["instructions_traced"] == 0 and pyframe.counters["frames_loaded"] > 1
    assert torch.equal(cold, warm)
    torch.testing.assert_close(warm, 2 * (2 * (torch.linspace(0, 1, 4) + 1)).cos())


def test_checked_captures_with_breaks_are_those_that_are_traced(frames: Path) -> None:  # noqa: F811
    counts(breaks, torch.ones(3))
    pyframe.config.frame_cache = "check"
    counts(breaks, torch.ones(3))
    assert pyframe.counters["frames_loaded"] > 1 and pyframe.counters["instructions_traced"] > 0


def asks(x: torch.Tensor) -> torch.Tensor:
    try:
        raise  # noqa: PLE0704  what a caller handles, if it handles anything
    except RuntimeError:
        return x + 1
    except KeyError:
        return x - 1


def test_what_a_caller_handles_is_guarded_or_breaks_the_graph(frames: Path) -> None:  # noqa: F811
    def around(fn: Callable[..., Any]) -> Any:
        try:
            raise KeyError
        except KeyError:
            return fn(torch.ones(3))

    for _ in range(2):
        for order in ((True, False), (False, True)):
            pyframe.reset()
            compiled = pyframe.compile(asks)
            for handling in order:
                found = around(compiled) if handling else compiled(torch.ones(3))
                assert torch.equal(found, around(asks) if handling else asks(torch.ones(3)))
            assert not pyframe.counters["frames_not_kept"]
    assert pyframe.counters["instructions_traced"] == 0


MADE = "def f(x):\n    y = x + 1\n    stop()\n    return y * 2"


def test_resume_functions_are_made_of_the_code_that_there_is(frames: Path) -> None:  # noqa: F811
    def made() -> Callable[..., Any]:
        space: dict[str, Any] = {"stop": pyframe.graph_break}
        exec(compile(MADE, "made.py", "exec"), space)
        found: Callable[..., Any] = space["f"]
        return found

    counts(made(), torch.ones(3))
    again = made()
    pyframe.reset()
    compiled = pyframe.compile(again)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 4.0))
    assert pyframe.counters["instructions_traced"] == 0
    (entry,) = pyframe._C.entries(again.__code__)
    assert entry.code is not None
    resumed = [each for each in entry.code.co_consts if hasattr(each, "co_code") and continuation(each) is not None]
    assert resumed and all(continuation(each).key[0]() is again.__code__ for each in resumed)  # type: ignore[union-attr,index]
    assert len({code_hash(each) for each in resumed}) == len(resumed)
