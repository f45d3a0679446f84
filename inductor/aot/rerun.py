"""Runs the captured graph again under autograd, on the inputs of the forward, when the compiled backward is not enough.

This is needed for second derivatives, for gradients that are tensor subclasses, sparse or batched, and for some partial
backward passes.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from ..log.warnings import warn_once
from .functionalize import GraphRun, version_of
from .training_spec import TrainingSpec

# inputs that nothing else keeps and that take at least this many bytes are not kept alive for the case
_LARGE = 1 << 16


@dataclass(frozen=True)
class _Written:
    """An input that the graph reads and writes, unseen by autograd, and its elements before the write."""

    x: torch.Tensor
    elements: torch.Tensor

    def again(self) -> torch.Tensor:
        """The input as it was, for autograd the same."""
        return _WithElements.apply(self.x, self.elements)  # type: ignore[no-any-return, no-untyped-call]


class _Same(torch.autograd.Function):
    """A tensor with the history of `x`, but no part of the history of another input, and without the hooks of `x`:
    gradients with respect to it are those of the graph alone."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        return x.detach()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None) -> torch.Tensor | None:
        return grad


class _WithElements(torch.autograd.Function):
    """Other elements with the history of `x`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, elements: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        return elements.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None) -> tuple[torch.Tensor | None, None]:  # type: ignore[override]
        return grad, None


class Rerun:
    """Gradients that are differentiable themselves. RuntimeError where the forward cannot be run again as it was."""

    def __init__(self, gm: torch.fx.GraphModule, names: Mapping[str, int], spec: TrainingSpec, count: int) -> None:
        self.gm, self.names, self.origins, self.count = gm, names, spec.origins, count
        self.writes, self.hindrance, self.devices = spec.writes, spec.rerunning.hindrance, spec.rerunning.devices
        saved = set(spec.saved.inputs)
        needed = set(spec.rerunning.needed)
        self.copied = [i for i in spec.writes if i in needed]
        self.users = frozenset(k for users in spec.saved.users for k in users)
        known = len(spec.saved.users) == len(spec.saved.returned) > 0
        self.separable = known and len(self.users) < len(spec.tangents)
        # saved ones are watched by autograd, but it does not say which of them was written
        every = self.separable or bool(spec.parts)
        self.watched = [i for i in sorted(needed.difference(self.copied)) if i not in saved or every]
        self.loose = [i for i, nbytes in spec.rerunning.temporary if i not in saved and nbytes >= _LARGE]
        self.autocast = [
            (kind, torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)
        ]

    def hold(self, primals: Sequence[torch.Tensor]) -> tuple[Sequence[Any], list[int], list[torch.Tensor]]:
        """What to keep of a call that is about to run: the inputs, with a copy of those that it reads and writes, the
        versions of those that autograd does not watch, the states of the generators that will be drawn from."""
        try:
            versions = [primals[i]._version for i in self.watched]
        except RuntimeError:  # of a tensor of inference mode
            versions = [version_of(primals[i]) for i in self.watched]
        states = [_rng(device).get_rng_state(*device) for device in self.devices]
        if not self.loose and not self.copied:
            return primals, versions, states
        held: list[Any] = list(primals)
        for i in self.loose:
            held[i] = weakref.ref(held[i])
        for i in self.copied:
            held[i] = _Written(primals[i], primals[i].detach().clone())
        return held, versions, states

    def spared(self, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> bool:
        """Whether a returned tensor that was saved and written since is no part of these gradients: of those that are
        None nothing is computed in eager. False where saved tensors were freed or an input was written."""
        if not self.separable or any(tangents[k] is not None for k in self.users):
            return False
        try:
            _ = ctx._raw_saved_tensors
        except RuntimeError:
            return False
        return self.can_run(ctx)

    def can_run(self, ctx: Any) -> bool:
        """Whether the inputs of the call of this node are there as they were."""
        held, versions, _ = ctx.held
        try:
            self._primals(held, versions)
        except RuntimeError:
            return False
        return True

    def __call__(
        self, ctx: Any, tangents: Sequence[torch.Tensor | None], check: bool = True
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients of the inputs that need one, with a graph of their own where gradients are recorded. `check`:
        a RuntimeError is raised where a saved tensor was written."""
        what = "the backward of a tensor subclass or of a sparse gradient"
        if not check:
            what = "a backward of a part, the rest of which was written, or of batched gradients"
        what = "a second derivative" if torch.is_grad_enabled() else what
        primals, values = self._run(ctx, check, what)
        outputs = [(k, tangent) for k, tangent in enumerate(tangents) if self.origins[k] is not None]
        return self._gradients(ctx, primals, values, outputs)

    def part(
        self, ctx: Any, tangents: Iterable[tuple[int, torch.Tensor | None]], sources: Sequence[int]
    ) -> list[torch.Tensor | None]:
        """The gradients of flat results, `sources` by number, of which some returned tensors, given by number with
        their tangents, are computed. Leaves the gradients of the inputs, past those results, in `ctx.direct`, for the
        backward of the whole, of which `ctx` is the node."""
        primals, values = self._run(ctx, True, None)
        found: list[torch.Tensor | None] = [None] * len(sources)
        with contextlib.ExitStack() as hooks:  # which a second derivative must not find
            for n, i in enumerate(sources):
                handle = values[i].grad_fn.register_prehook(_taken(found, n, values[i].output_nr))
                hooks.callback(handle.remove)
            direct = self._gradients(ctx, primals, values, tangents)
        task = torch._C._current_graph_task_id()
        known = ctx.direct[1] if ctx.direct is not None and ctx.direct[0] == task else ()
        ctx.direct = task, added(direct, known)
        return found

    def _run(self, ctx: Any, check: bool, what: str | None) -> tuple[list[torch.Tensor], list[Any]]:
        """The inputs of the call of this node, and the flat results of one more run under autograd. `what` the user is
        told to need that."""
        held, versions, states = ctx.held
        if check:
            _ = ctx.saved_tensors  # raises autograd's own error for what was freed or written since
        held = self._primals(held, versions)
        if what is not None:
            warn_once(what, f"inductor: {what} runs the captured graph in eager, not compiled", stacklevel=3)
        # what the classes of the inputs do in `__torch_function__` is in the graph
        with self._modes(states), torch._C.DisableTorchFunctionSubclass():
            primals = self._inputs(held)
            state = {name: primals[i] for name, i in self.names.items()}
            return primals, pytree.tree_leaves(GraphRun(self.gm, state).run(*primals[: self.count]))

    def _gradients(
        self, ctx: Any, primals: Sequence[torch.Tensor], values: Sequence[Any],
        tangents: Iterable[tuple[int, torch.Tensor | None]],
    ) -> tuple[torch.Tensor | None, ...]:
        """Those of the inputs that need one, given tangents of returned tensors."""
        outputs = []
        for k, tangent in tangents:
            origin = self.origins[k]
            if tangent is not None and origin is not None:
                index, is_base = origin
                outputs.append((values[index]._base if is_base else values[index], tangent))
        wanted = [i for i, needs in enumerate(ctx.needs_input_grad) if needs]
        found = torch.autograd.grad(
            [x for x, _ in outputs],
            [primals[i] for i in wanted],
            [x for _, x in outputs],
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
        )
        gradients: list[torch.Tensor | None] = [None] * len(primals)
        for i, gradient in zip(wanted, found):
            gradients[i] = gradient
        return tuple(gradients)

    def _primals(self, held: Sequence[Any], versions: Sequence[int]) -> list[Any]:
        """The inputs that were kept. RuntimeError where one is gone or was written."""
        hindrance = self.hindrance
        alive = [x() if isinstance(x, weakref.ref) else x for x in held]
        primals: list[Any] = [x for x in alive if x is not None]
        if len(primals) < len(alive):
            hindrance = hindrance or "one of its inputs is gone"
        if hindrance is None and any(version_of(primals[i]) != v for i, v in zip(self.watched, versions)):
            hindrance = "one of its inputs has been written to since"
        if hindrance is not None:
            raise RuntimeError(
                "inductor: no second derivative of a compiled graph, nor a gradient with respect to a result of which "
                f"it computes another: {hindrance}. Run this part with backend='eager'."
            )
        return primals

    def _inputs(self, primals: Sequence[Any]) -> list[torch.Tensor]:
        """What to run the graph on, instead of the inputs themselves."""
        given = list(primals)
        for i, x in enumerate(primals):
            if i in self.writes:
                given[i] = x.again() if isinstance(x, _Written) else x.detach().clone()
            elif isinstance(x, torch.Tensor) and x.requires_grad:
                given[i] = _Same.apply(x)
        return given

    @contextlib.contextmanager
    def _modes(self, states: Sequence[torch.Tensor]) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            for kind, dtype in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype))
            for device, state in zip(self.devices, states):
                rng = _rng(device)
                stack.callback(rng.set_rng_state, rng.get_rng_state(*device), *device)
                rng.set_rng_state(state, *device)
            yield


def _taken(
    found: list[torch.Tensor | None], n: int, number: int
) -> Callable[[Sequence[torch.Tensor | None]], tuple[torch.Tensor | None, ...]]:
    """A hook of a node that puts the gradient of its output `number` in found[n] and leaves none there."""

    def hook(gradients: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...]:
        if gradients[number] is not None:
            found[n] = gradients[number]
        return tuple(None if k == number else x for k, x in enumerate(gradients))

    return hook


def added(
    gradients: Sequence[torch.Tensor | None], more: Sequence[torch.Tensor | None]
) -> tuple[torch.Tensor | None, ...]:
    """Sums, where None is zero; no `more` is all zero."""
    if not more:
        return tuple(gradients)
    return tuple(y if x is None else x if y is None else x + y for x, y in zip(gradients, more, strict=True))


def _rng(device: tuple[torch.device, ...]) -> Any:
    return getattr(torch, device[0].type) if device else torch
