"""Programs about what autograd saves: hooks of saved tensors, of nodes and of parameters, policies of checkpoints."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
)

from .programs import program, x


@program
def saved_tensors_packed() -> Any:
    def f(a: Any) -> Any:
        with saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
            b = a.sin() * a
        return b.cos()

    return f, [(x(grad=True),)]


@program
def saved_tensors_packed_to_half_precision() -> Any:
    def f(a: Any) -> Any:
        with saved_tensors_hooks(lambda t: t.to(torch.bfloat16), lambda t: t.to(torch.float32)):
            return a.exp() * a

    return f, [(torch.tensor([1.0, 2.0, 0.5], requires_grad=True),)]


@program
def saved_tensors_recorded() -> Any:
    seen: list[Any] = []

    def pack(t: Any) -> Any:
        seen.append(("pack", t.shape))
        return t

    def unpack(t: Any) -> Any:
        seen.append(("unpack", t.shape))
        return t

    def f(a: Any) -> Any:
        with saved_tensors_hooks(pack, unpack):
            b = a.sin() * a
        return b * 2

    return f, [(x(grad=True),)], lambda: list(seen)


@program
def saved_tensors_packed_in_tuples() -> Any:
    layer = nn.Linear(4, 4)

    def f(a: Any) -> Any:
        with saved_tensors_hooks(lambda t: (t.shape, t), lambda p: p[1]):
            return layer(a).relu()

    return f, [(x(2, 4, grad=True),), (x(3, 4, grad=True),)], lambda: layer.weight.grad


@program
def saved_on_cpu() -> Any:
    def f(a: Any) -> Any:
        with save_on_cpu():
            b = a.sin() * a
        return b.cos()

    return f, [(x(grad=True),)]


@program
def saved_tensors_hooks_disabled() -> Any:
    def f(a: Any) -> Any:
        with disable_saved_tensors_hooks("not here"):
            b = a.sin() * a
        return b.cos()

    return f, [(x(grad=True),)]


@program
def checkpoint_with_a_policy() -> Any:
    layer = nn.Linear(4, 4)

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        return CheckpointPolicy.MUST_SAVE if op == torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)

    def f(a: Any) -> Any:
        return checkpoint(lambda b: layer(b).sin() @ b.t(), a, use_reentrant=False, context_fn=contexts).cos()

    return f, [(x(2, 4, grad=True),)], lambda: layer.weight.grad


@program
def checkpoint_with_a_policy_made_inside() -> Any:
    def f(a: Any) -> Any:
        def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
            return CheckpointPolicy.PREFER_SAVE

        def contexts() -> Any:
            return create_selective_checkpoint_contexts(policy)

        return checkpoint(torch.sin, a, use_reentrant=False, context_fn=contexts).cos()

    return f, [(x(2, 4, grad=True),)]


@program
def checkpoint_nested() -> Any:
    def inner(a: Any) -> Any:
        return a.sin().cos()

    def f(a: Any) -> Any:
        def outer(b: Any) -> Any:
            return checkpoint(inner, b, use_reentrant=False) * b

        return checkpoint(outer, a, use_reentrant=False)

    return f, [(x(grad=True),)]


@program
def checkpoint_reentrant_with_containers() -> Any:
    def inner(pair: Any, scale: Any) -> Any:
        return pair[0] * scale, pair[1] + 1

    def f(a: Any, b: Any) -> Any:
        return checkpoint(inner, (a, b), 2.0, use_reentrant=True)

    return f, [(x(), x())]


@program
def checkpoint_debug_enabled_around() -> Any:
    def f(a: Any) -> Any:
        with set_checkpoint_debug_enabled(False):
            return checkpoint(torch.sin, a, use_reentrant=False) * 2

    return f, [(x(grad=True),)]


@program
def checkpoint_early_stop_disabled() -> Any:
    def f(a: Any) -> Any:
        with torch.utils.checkpoint.set_checkpoint_early_stop(False):
            return checkpoint(torch.sin, a, use_reentrant=False) * 2

    return f, [(x(grad=True),)]


@program
def node_hook() -> Any:
    def f(a: Any) -> Any:
        b = a.sin()
        b.grad_fn.register_hook(lambda gi, go: (gi[0] * 2,))
        return b * 3

    return f, [(x(grad=True),)]


@program
def node_prehook_that_returns() -> Any:
    def f(a: Any) -> Any:
        b = a.sin()
        b.grad_fn.register_prehook(lambda go: (go[0] * 2,))
        return b * 3

    return f, [(x(grad=True),)]


@program
def node_names_and_neighbours() -> Any:
    def f(a: Any) -> Any:
        b = a.sin() * a
        return b, b.grad_fn.name(), [n.name() for n, _ in b.grad_fn.next_functions], b.is_leaf

    return f, [(x(grad=True),)]


@program
def post_accumulate_hook_registered_before() -> Any:
    w = x(grad=True)
    w.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2))

    def f(a: Any) -> Any:
        return (w * a).sum()

    return f, [(x(),), (x(),)], lambda: w.grad


@program
def post_accumulate_hook_steps() -> Any:
    w = nn.Parameter(x())
    opt = torch.optim.SGD([w], lr=0.1)

    def step(p: Any) -> None:
        opt.step()
        opt.zero_grad()

    w.register_post_accumulate_grad_hook(step)

    def f(a: Any) -> Any:
        return (w * a).sum()

    return f, [(x(),), (x(),)], lambda: (w.detach().clone(), w.grad)


@program
def hook_removed_in_the_graph() -> Any:
    def f(a: Any) -> Any:
        b = a.sin()
        handle = b.register_hook(lambda g: g * 3)
        c = b * 2
        handle.remove()
        return c

    return f, [(x(grad=True),)]


@program
def hook_of_an_input() -> Any:
    def f(a: Any) -> Any:
        a.register_hook(lambda g: g * 3)
        return a.sin()

    return f, [(x(grad=True),)]


@program
def module_backward_hooks_in_a_chain() -> Any:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    for layer in model:
        layer.register_full_backward_hook(lambda m, gi, go: None)
        layer.register_full_backward_pre_hook(lambda m, go: None)

    return model, [(x(2, 4, grad=True),)], lambda: [p.grad for p in model.parameters()]


@program
def module_backward_hook_with_two_inputs() -> Any:
    class Two(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a * b, a + b

    layer = Two()
    seen: list[Any] = []
    layer.register_full_backward_hook(lambda m, gi, go: seen.append((len(gi), len(go))))

    def f(a: Any, b: Any) -> Any:
        p, q = layer(a.sin(), b.cos())
        return p * q

    return f, [(x(grad=True), x(grad=True))], lambda: list(seen)


@program
def global_module_hooks() -> Any:
    layer = nn.Linear(4, 4)

    def f(a: Any) -> Any:
        handle = nn.modules.module.register_module_forward_hook(lambda m, args, out: out * 2)
        try:
            return layer(a)
        finally:
            handle.remove()

    return f, [(x(2, 4),)]


@program
def gradient_edges() -> Any:
    def f(a: Any) -> Any:
        b = a.sin()
        edge = torch.autograd.graph.get_gradient_edge(b)
        return b * 2, edge.output_nr

    return f, [(x(grad=True),)]


@program
def multi_grad_hook() -> Any:
    seen: list[Any] = []

    def f(a: Any) -> Any:
        b, c = a.sin(), a.cos()
        torch.autograd.graph.register_multi_grad_hook([b, c], lambda grads: seen.append(len(grads)))
        return b * c

    return f, [(x(grad=True),)], lambda: list(seen)


@program
def grad_mode_switched() -> Any:
    def f(a: Any) -> Any:
        torch.set_grad_enabled(False)
        b = a * 2
        torch.set_grad_enabled(True)
        return b.requires_grad, a * b, torch.is_grad_enabled()

    return f, [(x(grad=True),)]


@program
def allow_mutation_on_saved() -> Any:
    def f(a: Any) -> Any:
        b = a.clone()
        c = b * b
        b.sin_()
        return c.sum()

    def g(a: Any) -> Any:
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            out = f(a)
            out.backward()
        return out.detach()

    a = x(grad=True)
    return g, [(a,)], lambda: a.grad
