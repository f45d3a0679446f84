"""Kept captures in which sizes or numbers vary, and several captures of one function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

import inductor
import pyframe
from inductor.log import stages

from .test_frame_cache import frames  # noqa: F401  a fixture

Counts = tuple[int, int, int]


def calls(fn: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], **settings: Any) -> Counts:
    """How many captures were loaded and kept, and how many instructions were traced, by calls after a reset, each of
    which has to give what eager gives."""
    pyframe.reset()
    compiled = pyframe.compile(fn, **settings)
    for given in arguments:
        torch.testing.assert_close(compiled(*given), fn(*given))
    found = pyframe.counters
    assert not found["frames_not_kept"], found["frames_not_kept"]
    return found["frames_loaded"], found["frames_kept"], found["instructions_traced"]


def rows(*sizes: int) -> list[tuple[torch.Tensor]]:
    return [(torch.linspace(0, 1, size * 4).reshape(size, 4),) for size in sizes]


def weighted(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x.shape[0]).sum(-1)


def test_sizes_that_vary_are_kept(frames: Path) -> None:  # noqa: F811
    loaded, kept, traced = calls(weighted, rows(3, 5, 7))
    assert (loaded, kept, traced > 0) == (0, 2, True)
    assert calls(weighted, rows(3, 5, 7, 9)) == (2, 0, 0)
    assert pyframe.counters["recompiles"] == 1


def test_a_first_call_with_new_sizes_needs_no_capture_nor_kernel(frames: Path) -> None:  # noqa: F811
    calls(weighted, rows(3, 5))
    assert calls(weighted, rows(9, 4)) == (1, 0, 0)
    assert (pyframe.counters["cache_hits"], pyframe.counters["cache_misses"]) == (1, 0)


def test_a_size_of_one_has_a_capture_of_its_own(frames: Path) -> None:  # noqa: F811
    calls(weighted, rows(3, 5))
    loaded, kept, traced = calls(weighted, rows(1, 5))
    assert (loaded, kept, traced > 0) == (1, 1, True)
    assert calls(weighted, rows(1, 5)) == (2, 0, 0)


def test_with_dynamic_the_first_capture_is_kept(frames: Path) -> None:  # noqa: F811
    calls(weighted, rows(3), dynamic=True)
    assert calls(weighted, rows(6), dynamic=True) == (1, 0, 0)
    assert calls(weighted, rows(6))[:2] == (0, 1)  # without it, sizes are constants


def test_marks_are_part_of_the_key(frames: Path) -> None:  # noqa: F811
    def marked(dim: int, size: int) -> list[tuple[torch.Tensor]]:
        ((x,),) = rows(size)
        pyframe.mark_dynamic(x, dim)
        return [(x,)]

    calls(weighted, marked(0, 3))
    assert calls(weighted, marked(0, 8)) == (1, 0, 0)
    assert calls(weighted, marked(1, 3))[:2] == (0, 1)


def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y if x.shape[0] < 8 else x - y


def test_relations_between_sizes_are_guarded(frames: Path) -> None:  # noqa: F811
    def pairs(*sizes: tuple[int, int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(torch.ones(a, 2), torch.ones(b, 2)) for a, b in sizes]

    calls(added, pairs((3, 3), (5, 5)))
    assert calls(added, pairs((6, 6), (7, 7))) == (1, 0, 0)
    loaded, kept, traced = calls(added, pairs((9, 9)))  # the other branch
    assert (loaded, kept, traced > 0) == (0, 1, True)
    loaded, kept, traced = calls(added, pairs((5, 1)))  # broadcasts
    assert (loaded, kept, traced > 0) == (0, 1, True)


def scaled_by(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n + x.shape[0] // n


def test_ints_that_vary_are_kept(frames: Path) -> None:  # noqa: F811
    x = torch.ones(6)
    calls(scaled_by, [(x, 2), (x, 3)])
    assert calls(scaled_by, [(x, 2), (x, 3), (x, 4)]) == (2, 0, 0)
    assert calls(scaled_by, [(x, 5)]) == (1, 0, 0)


def test_a_transposed_input_has_a_capture_of_its_own(frames: Path) -> None:  # noqa: F811
    given = [*rows(3, 5), (torch.ones(4, 6).t(),)]
    calls(weighted, given)
    assert calls(weighted, given)[2] == 0
    assert calls(weighted, [(torch.ones(4, 7).t(),), *rows(6)])[2] == 0


def test_gradients_with_sizes_that_vary(frames: Path) -> None:  # noqa: F811
    def gradients() -> list[torch.Tensor]:
        pyframe.reset()
        compiled, found = pyframe.compile(weighted), []
        for ((x,),) in map(rows, (3, 5, 7)):
            x.requires_grad_()
            compiled(x).sum().backward()
            assert x.grad is not None
            torch.testing.assert_close(x.grad, x.detach().cos() * x.shape[0])
            found.append(x.grad)
        return found

    cold = gradients()
    warm = gradients()
    assert (pyframe.counters["frames_loaded"], pyframe.counters["instructions_traced"]) == (2, 0)
    assert pyframe.counters["cache_misses"] == 0
    assert all(map(torch.equal, cold, warm))


SIGN = 1


def signed(x: torch.Tensor) -> torch.Tensor:
    return x.exp() if SIGN > 0 else x.neg()


def test_captures_that_only_guards_tell_apart_are_kept_beside_each_other(
    frames: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    (given,) = rows(3)
    for number, sign in enumerate((1, -1, 1, -1)):
        monkeypatch.setitem(globals(), "SIGN", sign)
        assert calls(signed, [given])[:2] == ((0, 1) if number < 2 else (1, 0))


def test_a_function_that_is_captured_again_for_another_reason_than_sizes(frames: Path) -> None:  # noqa: F811
    def both() -> list[tuple[torch.Tensor]]:
        return [*rows(3), (torch.ones(3, 4, dtype=torch.float64),)]

    calls(weighted, both())
    assert calls(weighted, both()) == (2, 0, 0)


def test_a_float_that_varies_is_not_kept_and_says_so(frames: Path) -> None:  # noqa: F811
    def rooted(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor

    pyframe.reset()
    compiled = pyframe.compile(rooted)
    for factor in (1.5, 2.5):
        compiled(torch.ones(3), factor)
    assert list(pyframe.counters["frames_not_kept"]) == ["a graph that takes a number of type float that varies"]


def not_for_all_sizes(x: torch.Tensor) -> torch.Tensor:
    y = x.reshape(x.shape[0] * 2, -1) @ torch.ones(2, 16)
    return torch.cat([y, y.mean(0, keepdim=True)]).view(-1, 4, 4).amax(-1)


def test_that_a_graph_cannot_be_compiled_for_all_sizes_is_kept(frames: Path) -> None:  # noqa: F811
    calls(not_for_all_sizes, rows(3, 5, 7))
    assert pyframe.counters["graphs_per_size"] == 1
    assert calls(not_for_all_sizes, rows(3, 5, 7))[2] == 0
    assert (pyframe.counters["graphs_per_size"], pyframe.counters["cache_misses"]) == (1, 0)


def test_after_a_reset_the_first_call_has_the_capture_for_its_sizes(frames: Path) -> None:  # noqa: F811
    calls(weighted, rows(3, 5))
    assert calls(weighted, rows(3, 5)) == (2, 0, 0)


def reads_a_number(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return torch.full((1,), n) + x * 2  # type: ignore[call-overload]


def test_where_a_graph_is_divided_is_kept(frames: Path) -> None:  # noqa: F811
    stages.count_in(pyframe.counters)
    inputs = [torch.ones(2), torch.tensor(3)]
    found = []
    for _ in range(2):
        pyframe.reset()
        compiled = inductor.compile_fx(torch.fx.symbolic_trace(reads_a_number), inputs)
        torch.testing.assert_close(compiled(*inputs), reads_a_number(*inputs))
        found.append((pyframe.counters["cache_hits"], pyframe.counters["cache_misses"]))
    (hits, misses), again = found
    assert hits == 0 and misses > 1 and again == (misses, 0)
