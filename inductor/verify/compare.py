"""Runs a graph on copies of its inputs and decides whether two runs gave the same results.

A floating-point result is right if it is within the tolerance of its dtype of ATen's result. Otherwise, its distance
from a run in float64 may be that tolerance plus three times the error of ATen's own run. If changing the inputs in
their last bit changes ATen's result, three times that change is allowed as well; this covers results that a comparison
or a rounding decides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

# Relative and absolute tolerance, by dtype.
TOLERANCE = {
    torch.float64: (1e-7, 1e-9), torch.float32: (1.3e-5, 1e-5),
    torch.float16: (2e-3, 1e-4), torch.bfloat16: (1.6e-2, 1e-3),
}  # fmt: skip
_ALLOWED_ERROR = 3  # times the error of ATen
_CLOSE_RUNS = 2  # number of runs on inputs changed in the last bit


class NotComparable(Exception):
    """The graph cannot be run a second time, or its results cannot be compared; the message says why."""


@dataclass
class Outcome:
    """The outcome of a run: `results`, the values of `inputs` afterwards, and `gradients` of the inputs that need one;
    or the exception that was raised."""

    results: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)
    error: Exception | None = None
    drew: bool = False  # whether the run drew random numbers

    def parts(self) -> list[tuple[str, Any]]:
        """All compared values, with names."""
        groups = (("result", self.results), ("input", self.inputs), ("gradient of input", self.gradients))
        return [(f"{name} {i}", value) for name, values in groups for i, value in enumerate(values)]


def copies(args: Sequence[Any], convert: Callable[[torch.Tensor], torch.Tensor] | None = None) -> list[Any]:
    """Copies of the arguments that share memory with each other as the arguments do, and require gradients as they do.
    `convert` changes the values of floating-point memory. NotComparable for anything but plain tensors and numbers."""
    memory: dict[int, torch.Tensor] = {}
    seen: dict[int, Any] = {}
    return [seen.setdefault(id(x), _copy(x, memory, convert)) if isinstance(x, torch.Tensor) else _number(x)
            for x in args]  # fmt: skip


def _number(x: Any) -> Any:
    if isinstance(x, int | float | bool | None):
        return x
    raise NotComparable(f"an input of type {type(x).__name__}")


def _copy(
    x: torch.Tensor, memory: dict[int, torch.Tensor], convert: Callable[[torch.Tensor], torch.Tensor] | None
) -> torch.Tensor:
    if type(x) not in (torch.Tensor, torch.nn.Parameter) or x.layout != torch.strided or x.is_conj() or x.is_neg():
        raise NotComparable(f"an input of type {type(x).__name__} that is more than dense memory")
    with torch.no_grad():
        whole = x.detach()
        length = whole.untyped_storage().nbytes() // max(whole.element_size(), 1)
        key = whole.untyped_storage()._cdata
        flat = memory.get(key)
        if flat is None or flat.element_size() < whole.element_size():
            flat = whole.as_strided((length,), (1,), 0).clone()
            if convert is not None and flat.is_floating_point():
                flat = convert(flat)
            memory[key] = flat
        if convert is None and flat.dtype != whole.dtype:
            flat = flat.view(whole.dtype)
        new = _alias(flat, whole.shape, whole.stride(), int(whole.storage_offset()))
    if not x.requires_grad:
        return new
    leaf = new.requires_grad_()
    return leaf if x.is_leaf else _NoLeaf.apply(leaf)


def _alias(x: torch.Tensor, shape: Sequence[int], stride: Sequence[int], offset: int) -> torch.Tensor:
    """A tensor in the memory of `x` that autograd does not consider a view."""
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage(), offset, shape, stride)


class _NoLeaf(torch.autograd.Function):
    """Returns the same memory as a tensor that is not a leaf, so it may be written to."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return _alias(x, x.shape, x.stride(), int(x.storage_offset()))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


@contextlib.contextmanager
def same_random_numbers(device: torch.device) -> Any:
    """Restore the states of the random number generators after the block."""
    devices = [device.index or 0] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        yield


def _states(device: torch.device) -> list[torch.Tensor]:
    found = [torch.get_rng_state()]
    return [*found, torch.cuda.get_rng_state(device)] if device.type == "cuda" else found


def device_of(args: Sequence[Any]) -> torch.device:
    """The device of the first tensor on an accelerator, else the CPU."""
    found = (x.device for x in args if isinstance(x, torch.Tensor) and x.device.type != "cpu")
    return next(found, torch.device("cpu"))


def run(call: Callable[..., Any], args: Sequence[Any]) -> Outcome:
    """Run `call(*args)` and compute gradients of its weighted results. `args` are copies that it may write to."""
    device = device_of(args)
    with same_random_numbers(device):
        before = _states(device)
        leaves = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
        try:
            results = pytree.tree_leaves(call(*args))
            gradients = _gradients(results, leaves) if leaves else []
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise NotComparable("there is not enough memory") from error
        except Exception as error:
            return Outcome(error=error)
        drew = any(not torch.equal(x, y) for x, y in zip(before, _states(device)))
    inputs = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
    return Outcome([x.detach() if isinstance(x, torch.Tensor) else x for x in results], inputs, gradients, drew=drew)


def run_converted(eager: fx.GraphModule, args: Sequence[Any], convert: Callable[[Any], Any]) -> Outcome:
    """ATen's run on inputs converted by `convert`; an Outcome with an error if there is not enough memory."""
    try:
        changed = copies(args, convert)
    except (MemoryError, torch.OutOfMemoryError):
        return Outcome(error=MemoryError())
    try:
        return run(eager, changed)
    except NotComparable as error:
        return Outcome(error=error)


def _gradients(results: Sequence[Any], leaves: Sequence[torch.Tensor]) -> list[Any]:
    outputs = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
    if not outputs or not torch.is_grad_enabled():
        return []
    return list(torch.autograd.grad(outputs, leaves, [weights(x) for x in outputs], allow_unused=True))


def weights(x: torch.Tensor) -> torch.Tensor:
    """A fixed gradient for a result like `x`, in which neighbours differ."""
    tensor = torch.empty_strided(tuple(x.shape), x.stride(), dtype=x.dtype, device=x.device)
    return tensor.copy_((torch.arange(x.numel()) * 0.7).cos().reshape(tuple(x.shape)))


def difference(compiled: Outcome, eager: Outcome, rerun: Callable[[Callable[[Any], Any]], Outcome]) -> str | None:
    """A description of the difference; None if there is none beyond rounding. `rerun(convert)` runs ATen on inputs
    whose values are converted by `convert`."""
    if compiled.error is not None or eager.error is not None:
        kinds = tuple(type(each.error).__name__ if each.error is not None else None for each in (compiled, eager))
        return None if kinds[0] == kinds[1] else f"{kinds[0] or 'a result'} in place of {kinds[1] or 'a result'}"
    ours, theirs = compiled.parts(), eager.parts()
    if len(ours) != len(theirs):
        return f"{len(ours)} values in place of {len(theirs)}"
    wrong = [i for i, ((_, x), (_, y)) in enumerate(zip(ours, theirs)) if not _close(x, y)]
    if not wrong:
        return None
    structure = next((s for i in wrong if (s := _structure(ours[i][1], theirs[i][1]))), None)
    if structure is not None:
        return f"{ours[wrong[0]][0]}: {structure}"
    exact = None if eager.drew else _parts_of(rerun(torch.Tensor.double), theirs)
    near = [] if eager.drew else [_parts_of(rerun(_last_bit(k)), theirs) for k in range(_CLOSE_RUNS)]
    for i in wrong:
        name, value = ours[i]
        reference = theirs[i][1] if exact is None else exact[i]
        answers = [run[i] for run in near if run is not None]
        excess = _excess(value, theirs[i][1], reference, answers)
        if excess is not None:
            return f"{name} {excess}"
    return None


def _parts_of(outcome: Outcome, like: list[tuple[str, Any]]) -> list[Any] | None:
    """The values of a run; None if it raised, or if its values differ from `like` in number, type or shape."""
    values = [value for _, value in outcome.parts()]
    same = len(values) == len(like) and all(
        isinstance(x, torch.Tensor) == isinstance(y, torch.Tensor) and getattr(x, "shape", 0) == getattr(y, "shape", 0)
        for x, (_, y) in zip(values, like)
    )
    return values if outcome.error is None and same else None


def _last_bit(seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that changes floats by about one unit in the last place."""

    def change(x: torch.Tensor) -> torch.Tensor:
        signs = (torch.arange(x.numel(), device=x.device) * (2654435761 + 2 * seed)) % 3 - 1
        return (x.double() * (1 + torch.finfo(x.dtype).eps * signs.reshape(x.shape))).to(x.dtype)

    return change


def _structure(x: Any, y: Any) -> str | None:
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return f"{_short(x)} in place of {_short(y)}"
    for what in ("shape", "dtype", "device"):
        if getattr(x, what) != getattr(y, what):
            return f"{what} {getattr(x, what)} in place of {getattr(y, what)}"
    return None


def _short(x: Any) -> str:
    return f"a tensor of shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else repr(x)


def _close(x: Any, y: Any) -> bool:
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return (x is y) or (type(x) is type(y) and (x == y or (x != x and y != y)))
    if _structure(x, y) is not None:
        return False
    if x.is_floating_point():
        rtol, atol = TOLERANCE.get(x.dtype, (0.1, 0.1))
        return torch.allclose(x, y, rtol=rtol, atol=atol, equal_nan=True)
    if x.is_complex():
        return torch.allclose(x, y, equal_nan=True)
    return torch.equal(x, y)


def _excess(ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, near: Sequence[torch.Tensor]) -> str | None:
    """By how much a tensor differs beyond what rounding explains, in words; None if it does not."""
    if not ours.is_floating_point() and not ours.is_complex():
        wrong = ours != eager
        for other in (exact, *near):
            wrong &= other == eager
        return None if not wrong.any() else f"differs in {int(wrong.sum())} of {wrong.numel()} elements"
    rtol, atol = TOLERANCE.get(ours.dtype, (1.3e-5, 1e-5))
    wide = torch.complex128 if ours.is_complex() else torch.float64
    ours, eager, exact = ours.to(wide), eager.to(wide), exact.to(wide)
    finite = exact.isfinite() & eager.isfinite()
    own = (eager - exact).abs()[finite]
    allowed = atol + rtol * exact.abs() + (_ALLOWED_ERROR * own.max() if own.numel() else 0.0)
    for other in near:
        allowed = allowed + _ALLOWED_ERROR * (other.to(wide) - eager).abs().nan_to_num(float("inf"))
    same = (ours == eager) | (ours == exact) | (ours.isnan() & (eager.isnan() | exact.isnan()))
    error = (ours - exact).abs()
    wrong = ~(same | (error <= allowed))
    if not wrong.any():
        return None
    worst = float(error[wrong].nan_to_num(float("inf")).max())
    limit = float(allowed[wrong].min())
    return f"differs in {int(wrong.sum())} of {wrong.numel()} elements, by up to {worst:.3g} (allowed: {limit:.3g})"
