"""A program that is traced, profiled or debugged is seen as plain CPython runs it."""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pyframe

Events = list[tuple[str, str]]


def plus_one(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    return y * 2


def switched_on_inside(x: torch.Tensor) -> Events:
    x = plus_one(x)
    events: Events = []
    sys.settrace(recorder(events))
    x = plus_one(x)
    sys.settrace(None)
    return events


def switched_on_after_a_break(x: torch.Tensor) -> Events:
    pyframe.graph_break()
    events: Events = []
    sys.setprofile(recorder(events))
    x = plus_one(x)
    sys.setprofile(None)
    return events


def profiled_inside(x: torch.Tensor) -> Events:
    with cProfile.Profile() as profile:
        plus_one(x)
    return sorted((place[2], str(row[0])) for place, row in pstats.Stats(profile).stats.items())  # type: ignore[attr-defined]


def switched_on_in_a_call(x: torch.Tensor) -> Events:
    events = switched_on_inside(x)
    plus_one(x)
    return events


def recorder(events: Events) -> Callable[..., Any]:
    def record(frame: Any, event: str, arg: Any) -> Any:
        if event in ("call", "line", "return"):
            events.append((event, f"{frame.f_code.co_name}:{frame.f_lineno - frame.f_code.co_firstlineno}"))
        return record

    return record


PROGRAMS = (switched_on_inside, switched_on_after_a_break, profiled_inside, switched_on_in_a_call)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_a_program_sees_that_traces_itself(program: Callable[..., Events]) -> None:
    expected = program(torch.ones(2))
    assert expected
    compiled = pyframe.compile(program, backend="eager")
    assert [compiled(torch.ones(2)) for _ in range(2)] == [expected] * 2


@pytest.mark.parametrize("setter", [sys.settrace, sys.setprofile])
def test_a_traced_thread_runs_the_frames_of_the_program(setter: Callable[..., None]) -> None:
    counter = pyframe.testing.CompileCounter()
    compiled = pyframe.compile(plus_one, backend=counter)
    x = torch.ones(2)

    def events_of(fn: Callable[..., Any]) -> Events:
        events: Events = []
        setter(recorder(events))
        fn(x)
        setter(None)
        return [event for event in events if event[1].startswith("plus_one")]

    expected = events_of(plus_one)
    assert events_of(compiled) == expected != []
    assert counter.frame_count == 0
    compiled(x)
    assert counter.frame_count == 1
    assert events_of(compiled) == expected
    with pyframe.config.patch(compile_when_traced=True):
        assert events_of(compiled) == []
    assert events_of(compiled) == expected


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_fullgraph_tells_of_it(program: Callable[..., Events]) -> None:
    compiled = pyframe.compile(program, backend="eager", fullgraph=True)
    with pytest.raises(pyframe.Unsupported, match=r"debugger, profiler or trace function|graph_break\(\)|Profile"):
        compiled(torch.ones(2))
