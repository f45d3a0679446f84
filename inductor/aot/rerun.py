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

from ..autocast import DEVICES
from ..log.warnings import warn_once
from .functionalize import GraphRun, version_of
from .training_spec import TrainingSpec

# inputs of at least this many bytes are held by weak reference if nothing else keeps them alive
_LARGE = 1 << 16


@dataclass(frozen=True)
class _Written:
    """An input that the graph reads and writes, unseen by autograd, and a copy of its elements before the write."""

    x: torch.Tensor
    elements: torch.Tensor

    def before_write(self) -> torch.Tensor:
        """The input with its old elements and its autograd history."""
        return _WithElements.apply(self.x, self.elements)


class _Same(torch.autograd.Function):
    """A tensor with the autograd history of `x`, without its hooks, so that gradients with respect to it are those of
    the graph alone even if `x` is in the history of another input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        return x.detach()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None) -> torch.Tensor | None:
        return grad


class _WithElements(torch.autograd.Function):
    """A tensor with the elements of another tensor and the autograd history of `x`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, elements: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        return elements.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None) -> tuple[torch.Tensor | None, None]:
        return grad, None


class Rerun:
    """Computes gradients that are differentiable themselves. RuntimeError if the forward cannot be repeated."""

    def __init__(self, gm: torch.fx.GraphModule, names: Mapping[str, int], spec: TrainingSpec, count: int) -> None:
        self.gm, self.names, self.origins, self.count = gm, names, spec.origins, count
        self.writes, self.hindrance, self.devices = spec.writes, spec.rerunning.hindrance, spec.rerunning.devices
        saved = set(spec.saved.inputs)
        needed = set(spec.rerunning.needed)
        self.copied = [i for i in spec.writes if i in needed]
        self.users, self.first_returned = spec.saved.users, len(spec.saved.inputs)
        # a returned tensor that was saved and then written may be one that the backward pass does not need
        self.separable = any(len(users) < len(spec.tangents) for users in self.users)
        self.partial = spec.zeros_may_differ
        # autograd watches saved tensors for writes, but does not say which one was written
        self.counts_freed = bool(spec.conflicts)
        every = self.separable or self.counts_freed
        self.watched = [i for i in sorted(needed.difference(self.copied)) if i not in saved or every]
        self.loose = [i for i, nbytes in spec.rerunning.temporary if i not in saved and nbytes >= _LARGE]
        self.holds_versions = not (self.devices or self.copied)  # of a call, and its inputs, and nothing else
        self.autocast = [(kind, torch.get_autocast_dtype(kind)) for kind in DEVICES if torch.is_autocast_enabled(kind)]

    def hold(self, primals: Sequence[torch.Tensor]) -> tuple[Sequence[Any], list[int], list[torch.Tensor]]:
        """What to keep of a call that is about to run: the inputs (copies of those that it reads and writes), the
        version counters of those that autograd does not watch, and the states of the generators that it draws from."""
        try:
            versions = [primals[i]._version for i in self.watched]
        except RuntimeError:  # a tensor created in inference mode
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
        """Whether all saved tensors that were written since are returned tensors that these gradients do not need: in
        eager, nothing is computed for tangents that are None. False if saved tensors were freed or an input was
        written."""
        if not self.separable:
            return False
        try:
            saved = ctx._raw_saved_tensors[self.first_returned :]
        except RuntimeError:
            return False
        for each, version, users in zip(saved, ctx.versions, self.users):
            if each.data._version != version and any(tangents[k] is not None for k in users):
                return False
        return self.can_run(ctx)

    def without_zeros(
        self, ctx: Any, tangents: Sequence[torch.Tensor | None], found: tuple[torch.Tensor | None, ...]
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients instead of `found`, which have NaNs that zeros in the place of tangents that are None may have
        caused. `found` after a warning if the graph cannot run again."""
        if self.can_run(ctx):
            what = "a backward of some results, where values behind the others are not finite,"
            return self(ctx, tangents, check=False, what=what)
        warn_once(
            "NaN in a backward of some results",
            "inductor: a backward of some results of a compiled graph gives gradients with NaNs, which eager may not "
            "give, and the graph cannot run again in eager. Run this part with backend='eager'.")
        return found

    def can_run(self, ctx: Any) -> bool:
        """Whether the inputs of this node's call are alive and unchanged."""
        held, versions, _ = ctx.held
        try:
            self._primals(held, versions)
        except RuntimeError:
            return False
        return True

    def __call__(
        self, ctx: Any, tangents: Sequence[torch.Tensor | None], check: bool = True, what: str = ""
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients of the inputs that need one; differentiable if gradients are being recorded. `check`: raise
        RuntimeError if a saved tensor was written. `what`: the reason, for the warning."""
        usual = "the backward of a tensor subclass or of a sparse gradient"
        if not check:
            usual = "a backward after some saved tensors were mutated, or of batched gradients,"
        what = what or usual
        what = "a second derivative" if torch.is_grad_enabled() else what
        primals, values = self._run(ctx, check, what)
        outputs = [(k, tangent) for k, tangent in enumerate(tangents) if self.origins[k] is not None]
        return self._gradients(primals, values, outputs)

    def part(
        self, ctx: Any, tangents: Iterable[tuple[int, torch.Tensor | None]], sources: Sequence[int]
    ) -> list[torch.Tensor | None]:
        """The gradients of the flat results `sources` (numbers), given `tangents` of returned tensors (by number) that
        are computed from them. The gradients of the inputs on paths that bypass these results are left in `ctx.direct`,
        for the backward of the whole graph, whose node is `ctx`."""
        primals, values = self._run(ctx, True, None)
        tangents = list(tangents)
        if self.counts_freed and not torch._C._autograd._get_current_graph_task_keep_graph():
            ctx.freed = ctx.freed.union([k for k, x in tangents if x is not None])
        found: list[torch.Tensor | None] = [None] * len(sources)
        with contextlib.ExitStack() as hooks:  # removes the hooks, so that a second derivative does not run them
            for n, i in enumerate(sources):
                handle = values[i].grad_fn.register_prehook(_taken(found, n, values[i].output_nr))
                hooks.callback(handle.remove)
            direct = self._gradients(primals, values, tangents)
        task = torch._C._current_graph_task_id()
        known = ctx.direct[1] if ctx.direct is not None and ctx.direct[0] == task else ()
        ctx.direct = task, added(direct, known)
        return found

    def _run(self, ctx: Any, check: bool, what: str | None) -> tuple[list[torch.Tensor], list[Any]]:
        """Run the graph once more under autograd; returns the inputs and the flat results. `what`: the reason for the
        run, for the warning to the user; None: no warning."""
        held, versions, states = ctx.held
        if check:
            _ = ctx.saved_tensors  # raises autograd's own error if one was freed or written since
        held = self._primals(held, versions)
        if what is not None:
            warn_once(what, f"inductor: {what} runs the captured graph eagerly")
        # the graph already contains what `__torch_function__` of the inputs' classes does
        with self._modes(states), torch._C.DisableTorchFunctionSubclass():
            primals = self._inputs(held)
            state = {name: primals[i] for name, i in self.names.items()}
            return primals, pytree.tree_leaves(GraphRun(self.gm, state).run(*primals[: self.count]))

    def _gradients(
        self, primals: Sequence[torch.Tensor], values: Sequence[Any],
        tangents: Iterable[tuple[int, torch.Tensor | None]],
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients of the inputs that need one, given tangents of returned tensors."""
        outputs = []
        for k, tangent in tangents:
            origin = self.origins[k]
            if tangent is not None and origin is not None:
                index, is_base = origin
                outputs.append((values[index]._base if is_base else values[index], tangent))
        wanted = [i for i, x in enumerate(primals) if isinstance(x, torch.Tensor) and x.requires_grad]
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
        """The inputs that were kept. RuntimeError if one is gone or was written."""
        hindrance = self.hindrance
        alive = [x() if isinstance(x, weakref.ref) else x for x in held]
        primals: list[Any] = [x for x in alive if x is not None]
        if len(primals) < len(alive):
            hindrance = hindrance or "one of its inputs was freed"
        if hindrance is None and any(version_of(primals[i]) != v for i, v in zip(self.watched, versions)):
            hindrance = "one of its inputs was mutated after the call"
        if hindrance is not None:
            raise RuntimeError(
                "inductor: this compiled graph has no second derivative, and no gradient with respect to a result that "
                f"other results depend on: {hindrance}. Run this part with backend='eager'."
            )
        return primals

    def _inputs(self, primals: Sequence[Any]) -> list[torch.Tensor]:
        """The tensors to run the graph on in place of the inputs."""
        given = list(primals)
        for i, x in enumerate(primals):
            if i in self.writes:
                given[i] = x.before_write() if isinstance(x, _Written) else x.detach().clone()
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
    """A prehook of an autograd node that moves the gradient of its output `number` to found[n], leaving None."""

    def hook(gradients: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...]:
        if gradients[number] is not None:
            found[n] = gradients[number]
        return tuple(None if k == number else x for k, x in enumerate(gradients))

    return hook


def added(
    gradients: Sequence[torch.Tensor | None], more: Sequence[torch.Tensor | None]
) -> tuple[torch.Tensor | None, ...]:
    """Elementwise sums of two lists of gradients, where None is zero; an empty `more` adds nothing."""
    if not more:
        return tuple(gradients)
    return tuple(y if x is None else x if y is None else x + y for x, y in zip(gradients, more, strict=True))


def _rng(device: tuple[torch.device, ...]) -> Any:
    return getattr(torch, device[0].type) if device else torch
