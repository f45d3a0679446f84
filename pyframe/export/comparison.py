"""Compares an exported program with the function that it was made of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..signature.structure import Constant, Leaf, Path, Structure, flatten, path_text, unflatten
from .state import State

if TYPE_CHECKING:
    from .exported import Exported


@dataclass
class Comparison:
    """`greatest_error`: the greatest absolute difference of an element; `where`: in which result, or what both wrote.
    `relative_error`: that difference over the greatest magnitude in this tensor. `differences`: what is not comparable:
    other sizes, dtypes, types or constants."""

    greatest_error: float = 0.0
    relative_error: float = 0.0
    where: str = ""
    differences: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether all results are the same."""
        return self.greatest_error == 0 and not self.differences

    def __str__(self) -> str:
        if self.equal:
            return "equal to eager"
        lines = [f"greatest error {self.greatest_error:.3g} (relative {self.relative_error:.3g}) in {self.where}"]
        return "\n".join([*(lines if self.where else []), *self.differences])


def compare(
    exported: Exported, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Comparison:
    """See `Exported.check`."""
    held = (each for each in exported.constants.values() if isinstance(each, torch.Tensor))
    tensors = [*held, *State(function).tensors()]
    owner = getattr(function, "__self__", function)
    modules = list(owner.modules()) if isinstance(owner, nn.Module) else []
    found = []
    for run in (function, exported):
        copied_args, copied_kwargs = _copied([list(args), dict(kwargs)])
        with _as_before(tensors, modules), torch.random.fork_rng():
            result = run(*copied_args, **copied_kwargs)
            state = _state(run, exported, function)
            found.append(_copied({"result": result, "arguments": [copied_args, copied_kwargs], "state": state}))
    comparison = Comparison()
    for (path, expected), (_, actual) in zip(*map(_leaves, _same_structure(found, comparison)), strict=True):
        _compare(path_text(path[1:]) if path else "", str(path[0][1]), expected, actual, comparison)
    return comparison


def _state(owner: Any, exported: Exported, function: Any) -> dict[str, torch.Tensor]:
    """What a run may have written besides its arguments."""
    of_function = State(function).named
    shared = exported.constants if exported.shares_state else {}  # of a function: those of modules that it reads
    named = exported.constants if owner is exported else {**shared, **of_function}
    return {name: named[name] for name in exported.mutated if name in of_function or name in shared}


@contextlib.contextmanager
def _as_before(tensors: Sequence[torch.Tensor], modules: Sequence[nn.Module]) -> Iterator[None]:
    """Restores the values of tensors, and which buffers modules have, after the block."""
    buffers = [(module, dict(module._buffers)) for module in modules]
    kept = [(tensor, tensor.detach().clone(), tensor._version) for tensor in tensors]
    try:
        yield
    finally:
        for module, held in buffers:
            module._buffers.update(held)
        with torch.no_grad():
            for tensor, value, version in kept:
                if tensor._version != version or not torch.equal(tensor, value):
                    tensor.copy_(value)


def _copied(value: Any) -> Any:
    """A value with copies of its tensors."""
    copies: dict[int, torch.Tensor] = {}

    def leaf(found: Any) -> Any:
        if not isinstance(found, torch.Tensor):
            return found
        if id(found) not in copies:
            copies[id(found)] = found.detach().clone().requires_grad_(found.requires_grad)
        return copies[id(found)]

    leaves: list[Any] = []

    def take(found: Any, path: Path) -> Structure:
        leaves.append(leaf(found))
        return Leaf(len(leaves) - 1)

    return unflatten(flatten(value, take, objects=True), leaves)


def _leaves(value: Any) -> list[tuple[Path, Any]]:
    found: list[tuple[Path, Any]] = []

    def leaf(each: Any, path: Path) -> Structure:
        found.append((path, each))
        return Constant(None)

    flatten(value, leaf, objects=True)
    return found


def _same_structure(found: Sequence[Any], comparison: Comparison) -> Sequence[Any]:
    """Both runs, without results of different structures."""
    expected, actual = found
    for part in ("result", "arguments", "state"):
        if [path for path, _ in _leaves(expected[part])] != [path for path, _ in _leaves(actual[part])]:
            comparison.differences.append(f"the {part} has another structure")
            expected[part] = actual[part] = None
    return found


def _compare(path: str, part: str, expected: Any, actual: Any, comparison: Comparison) -> None:
    where = part + path
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        if type(expected) is not type(actual) or expected != actual and expected == expected:
            comparison.differences.append(f"{where} is {actual!r}, not {expected!r}")
        return
    if (expected.shape, expected.dtype) != (actual.shape, actual.dtype):
        comparison.differences.append(
            f"{where} is {actual.dtype} {tuple(actual.shape)}, not {expected.dtype} {tuple(expected.shape)}"
        )
        return
    error, size = _greatest_error(expected, actual)
    if error > comparison.greatest_error or error != error:
        comparison.greatest_error, comparison.where = error, where
        comparison.relative_error = error / size if size else error


def _greatest_error(expected: torch.Tensor, actual: torch.Tensor) -> tuple[float, float]:
    """The greatest difference of an element, and the greatest magnitude. Elements that are both NaN, or the same
    infinity, do not differ."""
    if not expected.numel():
        return 0.0, 0.0
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = expected.detach().to(wide), actual.detach().to(wide)
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    differences = torch.where(same, 0.0, (a - b).abs())
    finite = torch.where(torch.isfinite(a), a.abs(), 0.0)
    return float(differences.max()), float(finite.max())
