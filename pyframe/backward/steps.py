"""What the programs of backward passes call, besides the derivatives of operators: each function does what torch's
engine does at that place. Programs run with gradients disabled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _C

Gradient = torch.Tensor | None
_run_backward: Any = torch.autograd.function.BackwardCFunction.apply  # calls the class's `backward` or `vjp`


def added(old: Gradient, new: Gradient) -> Gradient:
    """The sum of two gradients of one result; None is an undefined gradient."""
    if old is None:
        return new
    if new is None:
        return old
    if old.is_sparse:
        return new + old
    return old + new


def accumulate_grad(variable: torch.Tensor, gradient: Gradient) -> None:
    """Add a gradient to `variable.grad`: in place if there is one, otherwise as a tensor that nothing else uses."""
    if gradient is None:
        return
    held = variable.grad
    if held is None:
        variable.grad = _owned(gradient, variable)
    elif held.is_sparse and not gradient.is_sparse:
        variable.grad = gradient + held
    else:
        held.add_(gradient)


def _owned(gradient: torch.Tensor, variable: torch.Tensor) -> torch.Tensor:
    """A copy with the strides of `variable`, or contiguous if that has gaps or overlaps. Where the gradient is used
    for nothing else, the compiler computes it in that place."""
    if gradient.layout != torch.strided or variable.layout != torch.strided:
        return gradient.clone()
    dense = torch.empty_like(variable)
    if dense.stride() != variable.stride():
        return gradient.clone(memory_format=torch.contiguous_format)
    if gradient.stride() == variable.stride():
        return gradient.clone()
    return torch.empty_strided(
        variable.shape, variable.stride(), dtype=gradient.dtype, device=gradient.device
    ).copy_(gradient)


def accumulated(hook: Callable[[torch.Tensor], Any], variable: torch.Tensor) -> None:
    """Run a hook of `register_post_accumulate_grad_hook`; as in eager, also after an undefined gradient."""
    if hook(variable) is not None:
        raise RuntimeError("Tensor post accumulate grad hooks should return None.")


def after_tensor_hook(hook: Callable[[Gradient], Gradient], gradient: Gradient) -> Gradient:
    """The gradient after a hook of a tensor."""
    return _checked(gradient, hook(gradient), hook)


def after_pre_hook(hook: Callable[..., Any], gradients: Sequence[Gradient]) -> Sequence[Gradient]:
    """The gradients of a node's results after a hook of `register_prehook`."""
    return _all_checked(gradients, hook(tuple(gradients)), hook)


def after_post_hook(
    hook: Callable[..., Any], gradients: Sequence[Gradient], given: Sequence[Gradient]
) -> Sequence[Gradient]:
    """The gradients that a node has computed, after a hook of the node's `register_hook`."""
    return _all_checked(gradients, hook(tuple(gradients), tuple(given)), hook)


def _all_checked(old: Sequence[Gradient], new: Any, hook: Any) -> Sequence[Gradient]:
    if new is None:
        return old
    if not isinstance(new, tuple):
        new = (new,)
    if len(new) != len(old):
        raise RuntimeError(f"hook {_name(hook)} has returned an incorrect number of values "
                           f"(got {len(new)}, but expected {len(old)})")  # fmt: skip
    return tuple([_checked(x, y, hook, in_tuple=True) for x, y in zip(old, new)])


def _checked(old: Gradient, new: Any, hook: Any, in_tuple: bool = False) -> Gradient:
    """What a hook has returned in the place of `old`."""
    if new is None:
        return None if in_tuple else old
    if not isinstance(new, torch.Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(new).__name__}'")
    if old is None:
        if in_tuple:
            raise RuntimeError("can't replace a None gradient with a non-None value")
        return new
    if new.shape != old.shape:
        raise RuntimeError(f"hook {_name(hook)} has changed the size of value")
    return new


def _name(hook: Any) -> str:
    return f"'{getattr(hook, '__name__', '<unknown>')}'"


@_C.disable_wrapper
def unpacked(hook: Callable[[Any], Any], packed: Any) -> torch.Tensor:
    """A saved tensor that the user's `saved_tensors_hooks` have packed. Runs eagerly: `torch.utils.checkpoint` computes
    a part of the eager forward again here, and stops by an exception as soon as it has what it needs."""
    found = hook(packed)
    if not isinstance(found, torch.Tensor):
        raise TypeError("Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                        f"{type(found)}")  # fmt: skip
    return found


class SavedContext:
    """The `ctx` that a `torch.autograd.Function`'s backward gets: the real one, with the saved tensors that the engine
    has taken out of it."""

    def __init__(self, real: Any, saved: Sequence[Gradient]) -> None:
        self.__dict__.update(_real=real, _saved=tuple(saved))

    @property
    def saved_tensors(self) -> tuple[Gradient, ...]:
        return self._saved

    def maybe_clear_saved_tensors(self) -> None:
        self.__dict__["_saved"] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)


def call_backward(
    real: Any, saved: Sequence[Gradient], gradients: Sequence[Gradient], wanted: Sequence[bool]
) -> tuple[Gradient, ...]:
    """The gradients of the inputs of a `torch.autograd.Function`.

    real: its `ctx`. wanted: for each input, whether it is a tensor. Where the function wants zeros for undefined
    gradients of its results, the program passes them.
    """
    found = _run_backward(SavedContext(real, saved), *gradients)
    values = list(found) if isinstance(found, tuple | list) else [found]
    name, expected = type(real).__name__, len(wanted)
    if len(values) > expected and all(x is None for x in values[expected:]):
        del values[expected:]
    if len(values) != expected:
        raise RuntimeError(f"function {name} returned an incorrect number of gradients (expected {expected}, "
                           f"got {len(values)})")  # fmt: skip
    for k, (value, is_tensor) in enumerate(zip(values, wanted)):
        if value is not None and not is_tensor:
            raise RuntimeError(f"function {name} returned a gradient different from None at position {k + 1}, but the "
                               "corresponding forward input was not a Variable")  # fmt: skip
        if value is not None and not isinstance(value, torch.Tensor):
            raise TypeError(f"expected Variable or None (got {type(value).__name__})")
    return tuple(values)


def copied_slice(
    gradients: Sequence[Gradient], size: Sequence[int], stride: Sequence[int], offset: int, view_size: Sequence[int],
    view_stride: Sequence[int], view_offset: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The first half of the backward of an in-place write to a view: a copy of the gradient of the whole tensor, the
    part of the copy that was written, and a copy of that part."""
    gradient = gradients[0]
    assert gradient is not None
    whole = gradient.new_empty_strided(size, stride)
    whole.copy_(gradient)
    part = whole.as_strided(view_size, view_stride, view_offset - offset)
    return whole, part, part.clone(memory_format=torch.contiguous_format)


def with_slice(
    needed: Sequence[bool], whole: torch.Tensor, found: Sequence[Gradient], part: torch.Tensor
) -> list[Gradient]:
    """The second half: the gradient of the tensor before the write, and those of what was written."""
    gradients: list[Gradient] = [None] * len(needed)
    for k, is_needed in enumerate(needed):
        value = found[k] if is_needed else None
        if value is not None:
            if k == 0:
                part.copy_(value)
                gradients[0] = whole
            else:
                gradients[k] = value
    return gradients
