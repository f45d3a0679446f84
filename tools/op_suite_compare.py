"""Compares the outcome of a compiled call with that of the eager call, for the operator suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

ERROR_FACTOR = 3  # largest error allowed beyond the dtype's tolerance, in units of eager's own, against float64


@dataclass
class Outcome:
    """The outcome of a call: `results` (any containers), the `inputs` afterwards, and `gradients` of the inputs."""

    results: Any
    inputs: Any
    gradients: Any = None

    def parts(self) -> Iterator[tuple[str, Any]]:
        yield "result", self.results
        yield "input", self.inputs
        yield "gradient", self.gradients


def difference(
    want: Outcome, got: Outcome, reference: Callable[[], Outcome | None], values: bool = True,
    unset: frozenset[int] = frozenset(),
) -> str | None:
    """A description of how `got` differs from eager's `want`, or None. `reference()`: the same call in float64, or None
    if that is not possible. Without `values`, everything except the elements is compared; for results whose numbers are
    in `unset`, elements are never compared."""
    exact = None
    for (part, expected), (_, actual) in zip(want.parts(), got.parts(), strict=True):
        left, left_spec = pytree.tree_flatten(expected)
        right, right_spec = pytree.tree_flatten(actual)
        if left_spec != right_spec:
            return f"{part}: structure {right_spec} instead of {left_spec}"
        for position, (x, y) in enumerate(zip(left, right, strict=True)):
            where = f"{part} {position}"
            if not isinstance(x, torch.Tensor):
                if not _same_object(x, y) and values:
                    return f"{where}: {y!r} instead of {x!r}"
                continue
            problem = _metadata(x, y, part == "gradient")
            if problem is not None:
                return f"{where}: {problem}"
            if not values or (part == "result" and position in unset):
                continue
            problem = _elements(x, y)
            if problem is not None:
                exact = exact or (reference(),)
                if not _as_exact(part, position, x, y, exact[0]):
                    return f"{where}: {problem}"
    return _aliases(want, got)


def with_nearer_elements(want: Outcome, other: Outcome, got: Outcome) -> Outcome:
    """`want` with the elements of `other` where those equal the ones in `got` and its own do not."""
    def choose(x: Any, alternative: Any, y: Any) -> Any:
        if not all(isinstance(t, torch.Tensor) and t.layout is torch.strided for t in (x, alternative, y)):
            return x
        if not x.is_floating_point() or not x.shape == alternative.shape == y.shape:
            return x
        nearer, actual = _dense(alternative).to(x.dtype), _dense(y).to(x.dtype)
        fits = torch.isclose(nearer, actual, rtol=16 * torch.finfo(x.dtype).eps, equal_nan=True)
        chosen = torch.empty_like(x, requires_grad=False)
        chosen.copy_(torch.where(fits, nearer, _dense(x)))
        return chosen.requires_grad_(x.requires_grad)

    def tree(x: Any, alternative: Any, y: Any) -> Any:
        leaves, spec = pytree.tree_flatten(x)
        others, actual = pytree.tree_leaves(alternative), pytree.tree_leaves(y)
        if not len(leaves) == len(others) == len(actual):
            return x
        return pytree.tree_unflatten([choose(*each) for each in zip(leaves, others, actual, strict=True)], spec)

    return Outcome(
        tree(want.results, other.results, got.results), want.inputs,
        tree(want.gradients, other.gradients, got.gradients),
    )  # fmt: skip


def with_elements(want: Outcome, other: Outcome) -> Outcome:
    """`want` with the results and gradients of `other`, rounded to its dtypes."""
    def of_other(x: Any, y: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.layout is not torch.strided or not x.is_floating_point():
            return x
        return torch.empty_like(x, requires_grad=False).copy_(y.detach()).requires_grad_(x.requires_grad)

    return Outcome(
        pytree.tree_map(of_other, want.results, other.results), want.inputs,
        pytree.tree_map(of_other, want.gradients, other.gradients),
    )  # fmt: skip


def _same_object(x: Any, y: Any) -> bool:
    if type(x) is not type(y):
        return False
    if isinstance(x, float | complex):
        return x == y or abs(x - y) <= 1e-6 * abs(x) or (x != x and y != y)
    return isinstance(x, torch.Generator) or x is y or bool(x == y)


def _metadata(x: torch.Tensor, y: Any, is_gradient: bool) -> str | None:
    if not isinstance(y, torch.Tensor):
        return f"{type(y).__name__} instead of a tensor"
    facts: list[tuple[str, Callable[[torch.Tensor], Any]]] = [
        ("class", type), ("dtype", lambda t: t.dtype), ("shape", lambda t: tuple(t.shape)),
        ("device", lambda t: t.device), ("layout", lambda t: t.layout),
        ("requires_grad", lambda t: t.requires_grad), ("conj bit", torch.is_conj), ("neg bit", torch.is_neg),
    ]  # fmt: skip
    if x.layout is torch.strided and not is_gradient:
        facts.append(("strides", _strides))
    for name, read in facts:
        if read(x) != read(y):
            return f"{name} {read(y)} instead of {read(x)}"
    return None


def _strides(x: torch.Tensor) -> tuple[int, ...]:
    """The strides of the dimensions with more than one element; the others have no meaning."""
    if x.numel() == 0:
        return ()
    return tuple(step for n, step in zip(x.shape, x.stride(), strict=True) if n > 1)


def _dense(x: torch.Tensor) -> torch.Tensor:
    x = x.detach()
    if x.layout is not torch.strided:
        x = x.to_dense()
    if x.is_quantized:
        x = x.dequantize()
    return x.resolve_conj().resolve_neg()


def _elements(x: torch.Tensor, y: torch.Tensor) -> str | None:
    x, y = _dense(x), _dense(y)
    try:
        torch.testing.assert_close(y, x, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:300]
    return None


def _as_exact(part: str, position: int, x: torch.Tensor, y: torch.Tensor, exact: Outcome | None) -> bool:
    """Whether `y` is about as close to the exact value as eager's `x`. If `x` is not finite although the exact value is
    (eager's intermediate results overflowed), `y` must equal the exact value within the dtype's tolerance."""
    if exact is None or not (x.is_floating_point() or x.is_complex()):
        return False
    leaves = pytree.tree_leaves(dict(exact.parts())[part])
    if position >= len(leaves) or not isinstance(leaves[position], torch.Tensor):
        return False
    truth = _dense(leaves[position])
    dtype = x.dtype
    x, y = _dense(x).to(truth.dtype), _dense(y).to(truth.dtype)
    if truth.shape != x.shape or not (truth.is_floating_point() or truth.is_complex()):
        return False
    better = torch.isfinite(y) & torch.isfinite(truth) & ~torch.isfinite(x)
    if better.any() and _elements(truth[better].to(dtype), y[better].to(dtype)) is not None:
        return False
    finite = torch.isfinite(x) & torch.isfinite(truth)
    exactly = ~torch.isfinite(truth) & ((y == truth) | (y.isnan() & truth.isnan()))  # eager rounded on the way
    rest = ~(finite | better | exactly)
    if not torch.equal(x[rest].nan_to_num(0.5), y[rest].nan_to_num(0.5)):
        return False
    if not finite.any():
        return True
    ours, eagers = (y - truth).abs()[finite], (x - truth).abs()[finite]
    return bool(ours.max() <= ERROR_FACTOR * eagers.max())  # false where ours is not finite


def _aliases(want: Outcome, got: Outcome) -> str | None:
    """Whether results share memory with other inputs or results than they do in eager."""
    expected, actual = _sharing(want), _sharing(got)
    return None if expected == actual else f"shared memory: {actual} instead of {expected} (results, then inputs)"


def _sharing(outcome: Outcome) -> list[int]:
    """For each result, the first tensor among inputs and results with the same memory."""
    first: dict[int, int] = {}
    found = []
    leaves = pytree.tree_leaves(outcome.inputs) + pytree.tree_leaves(outcome.results)
    for position, x in enumerate(leaves):
        if isinstance(x, torch.Tensor) and x.layout is torch.strided and x.numel():
            found.append(first.setdefault(x.untyped_storage()._cdata, position))
    return found
