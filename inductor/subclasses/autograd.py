"""Wraps a compiled forward and backward on inner tensors in one `torch.autograd.Function` on wrapper subclasses.

Its arguments and results are instances of traceable wrapper subclasses or plain tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from ..aot.autograd import bump, linked, placed, taking
from ..aot.input_fallback import Refused
from ..aot.partition import Halves, Saved
from ..aot.rerun import Rerun
from ..aot.training_spec import Layout, Rerunning, TrainingSpec, rerunning
from ..eager.operator_errors import run_with_aten
from .functionalize import Part, finishing
from .joint import InnerJoint, Tangent
from .wrapper_tensors import as_tangent, flattening

Compiled = Callable[..., list[torch.Tensor]]
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def wrap_inner(
    gm: torch.fx.GraphModule, inner: InnerJoint, halves: Halves, forward: Compiled, backward: Compiled,
    inputs: Sequence[Any],
) -> Callable[..., Any]:
    """Build the run-time part: what happens at each call around the two compiled graphs of plain tensors."""
    apply = super(torch.autograd.Function, _make_function(gm, inner, halves, forward, backward, inputs)).apply  # type: ignore[misc]
    tracked = {i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.requires_grad}
    places = {gradient.place for gradient in inner.gradients} or tracked
    apply = linked(apply, frozenset(tracked - places))
    whole = [Part(None) if isinstance(result, Part) else result for result in inner.results]
    finish = finishing(whole, inner.structure)
    transformed, eager = torch._C._are_functorch_transforms_active, run_with_aten(gm)

    def call(*args: Any) -> Any:
        if transformed():
            return gm(*args)
        try:
            outputs = apply(*args)
        except Refused:
            pass  # an error of `eager` must not have it as its context
        else:
            return finish(args, outputs)
        return eager(*args)

    return call


def _make_function(
    gm: torch.fx.GraphModule, inner: InnerJoint, halves: Halves, forward: Compiled, backward: Compiled,
    inputs: Sequence[Any],
) -> type[torch.autograd.Function]:
    flatten, attributes = flattening(inner.forms), inner.joint.attributes
    parts = [result.form for result in inner.results if isinstance(result, Part)]
    count, saved = len(inner.joint.origins), halves.saved
    owners = [i for i, form in enumerate(inner.forms) for _ in range(1 if form is None else form.count())]
    held = sorted({owners[i] for i in saved.inputs if i < len(owners)})  # arguments that hold saved tensors
    places = [k for k, result in enumerate(inner.results) if isinstance(result, Part)]
    differentiable = [places.index(tangent.leaf) for tangent in inner.tangents]
    flatten_held = flattening([inner.forms[i] for i in held])
    of_held = [k for i in held for k, owner in enumerate(owners) if owner == i]
    inputs_at = [of_held.index(i) if i < len(owners) else i - len(owners) for i in saved.inputs]
    gradients = _Gradients(inner, backward)
    rerun = _Rerun(gm, inner, held, inputs)
    written = sorted({owners[i] for i in inner.joint.writes})
    written_parts = [i for i in inner.joint.writes if inner.forms[owners[i]] is not None]

    def build(outputs: Sequence[Any]) -> list[Any]:
        given = iter(outputs)
        return [next(given) if form is None else form.build(given) for form in parts]

    class CompiledGraph(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> tuple[Any, ...]:
            ctx.held = rerun.hold(args)
            flat = flatten(args)
            watched = [*(args[i] for i in written), *(flat[i] for i in written_parts)]
            versions = [x._version for x in watched]
            outputs = forward(*flat, *attributes)
            for x, version in zip(watched, versions):
                bump(x, version)
            results = build(outputs[:count])
            kept = [outputs[k] for k in saved.returned] + outputs[count:]
            ctx.save_for_backward(*(args[i] for i in held), *kept)
            ctx.mark_non_differentiable(*(x for k, x in enumerate(results) if k not in differentiable))
            ctx.set_materialize_grads(False)
            return tuple(results)

        @staticmethod
        def backward(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
            given = [tangents[k] for k in differentiable]
            converted = None if torch.is_grad_enabled() else gradients.converted(given)
            if converted is None:
                return rerun(ctx, given)
            stored = ctx.saved_tensors
            ctx.maybe_clear_saved_tensors()
            flat = flatten_held(stored[: len(held)])
            primals = [flat[k] if i < len(owners) else attributes[k] for i, k in zip(saved.inputs, inputs_at)]
            return gradients([*primals, *stored[len(held) :]], converted)

    return CompiledGraph


class _Gradients:
    """Calls the compiled backward with saved tensors and tangents, and builds gradients from what it returns."""

    def __init__(self, inner: InnerJoint, backward: Compiled) -> None:
        self.backward = taking(backward)
        self.tangents, self.gradients, self.count = inner.tangents, inner.gradients, len(inner.forms)
        self.layouts = [
            [Layout(tuple(x.shape), x.stride(), x.dtype, x.device) for x in tangent.layouts]
            for tangent in inner.tangents
        ]

    def converted(self, tangents: Sequence[Any]) -> list[Any] | None:
        """The tangents in the forms for which the backward was compiled; None if one cannot be converted."""
        found = [x if x is None else as_tangent(x, tangent.form) for x, tangent in zip(tangents, self.tangents)]
        fit = all(x is None or _fits(x, tangent) for x, tangent in zip(found, self.tangents))
        return found if fit else None

    def __call__(self, given: list[torch.Tensor], tangents: Sequence[Any]) -> tuple[Any, ...]:
        for x, tangent, layouts in zip(tangents, self.tangents, self.layouts):
            if x is None:
                parts: Sequence[Any] = [None] * len(layouts)
            else:
                parts = [x] if tangent.form is None else flattening([tangent.form])([x])
            given += map(placed, parts, layouts)
        outputs = iter(self.backward(given))
        found: list[Any] = [None] * self.count
        missing = {k for k, x in enumerate(tangents) if x is None}
        for gradient in self.gradients:
            value = next(outputs) if gradient.form is None else gradient.form.build(outputs)
            # an argument that affects only results without a tangent has no gradient
            found[gradient.place] = None if missing and gradient.tangents <= missing else value
        return tuple(found)


class _Rerun:
    """Runs the captured graph again. It keeps copies, made before the call, of the arguments that the graph writes to,
    if none of these requires a gradient."""

    def __init__(
        self, gm: torch.fx.GraphModule, inner: InnerJoint, held: Sequence[int], inputs: Sequence[Any]
    ) -> None:
        owners = [i for i, form in enumerate(inner.forms) for _ in range(1 if form is None else form.count())]
        written = {owners[i] for i in inner.joint.writes}
        kept = not any(inputs[i].requires_grad for i in written)
        self.forms, self.written = inner.forms, sorted(written) if kept else []
        self.run = Rerun(gm, {}, _spec(inner, held, inputs, written, kept), len(inputs))

    def hold(self, args: Sequence[Any]) -> Any:
        """What to keep of a call that is about to run; see `Rerun.hold`."""
        return self.run.hold(self._copied(args))

    def __call__(self, ctx: Any, tangents: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients; see `Rerun`."""
        held = ctx.held
        ctx.held = (self._copied(held[0]), *held[1:])
        try:
            return self.run(ctx, tangents)
        finally:
            ctx.held = held

    def _copied(self, args: Sequence[Any]) -> Sequence[Any]:
        if not self.written:
            return args
        copied = list(args)
        with torch.no_grad():
            for i in self.written:
                form = self.forms[i]
                parts = [args[i]] if form is None else flattening([form])([args[i]])
                copies = [x.detach().clone() for x in parts]
                copied[i] = copies[0] if form is None else form.build(iter(copies))
        return copied


def _fits(x: Any, tangent: Tangent) -> bool:
    return type(x) in _PLAIN if tangent.form is None else tangent.form.fits(x)


def _spec(
    inner: InnerJoint, held: Sequence[int], inputs: Sequence[Any], written: Set[int], kept: bool
) -> TrainingSpec:
    """The spec for `Rerun`, in terms of the arguments and results of the captured graph. `written`: the arguments that
    it writes to; `kept`: whether copies from before the call are kept for them."""
    origins = tuple((tangent.leaf, False) for tangent in inner.tangents)
    found = rerunning(replace(inner.joint, writes=()) if kept else inner.joint)
    temporary = tuple(
        (i, x.numel() * x.element_size())
        for i, (x, form) in enumerate(zip(inputs, inner.forms))
        if form is None and i not in written and isinstance(x, torch.Tensor) and not (x.requires_grad and x.is_leaf)
    )
    hindrance = found.hindrance
    if not kept and set(found.needed).intersection(inner.joint.writes):
        hindrance = hindrance or "it writes to an input that it reads"
    needed = tuple(i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor))
    return TrainingSpec(
        primals=len(inputs), results=(), structure=inner.structure, writes=(), origins=origins, views=(),
        tangents=(), gradients=(), saved=Saved(tuple(held), (), 0),
        rerunning=Rerunning(hindrance, needed, temporary, found.devices),
    )  # fmt: skip
