"""Programs about torch's modes, settings and utilities."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .programs import program, x


@program
def function_mode() -> Any:
    from torch.overrides import TorchFunctionMode

    class Double(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            return out * 2 if func is torch.sin else out

    def f(a: Any) -> Any:
        with Double():
            b = torch.sin(a)
        return b + torch.sin(a)

    return f, [(x(),)]


@program
def device_context() -> Any:
    def f(a: Any) -> Any:
        with torch.device("cpu"):
            b = torch.ones(4)
        return a + b

    return f, [(x(),)]


@program
def autocast() -> Any:
    def f(a: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            b = a @ a
        return b, torch.is_autocast_enabled("cpu")

    return f, [(x(3, 3),)]


@program
def autocast_as_a_decorator() -> Any:
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def g(a: Any) -> Any:
        return a @ a

    return (lambda a: g(a) + 1), [(x(3, 3),)]


@program
def default_dtype_set() -> Any:
    def f(a: Any) -> Any:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        b = torch.ones(4)
        torch.set_default_dtype(before)
        return a + b

    return f, [(x(),)]


@program
def inference_mode() -> Any:
    def f(a: Any) -> Any:
        with torch.inference_mode():
            b = a * 2
        return b.is_inference(), torch.is_inference_mode_enabled()

    return f, [(x(),)]


@program
def record_function() -> Any:
    def f(a: Any) -> Any:
        with torch.profiler.record_function("block"):
            b = a.sin()
        return b + 1

    return f, [(x(),)]


@program
def seeds_and_states() -> Any:
    def f(a: Any) -> Any:
        torch.manual_seed(3)
        with torch.random.fork_rng(devices=[]):
            b = torch.rand(4)
        return a + b + torch.rand(4)

    return f, [(x(),)]


@program
def pytrees() -> Any:
    import torch.utils._pytree as pytree

    def f(a: Any) -> Any:
        tree = {"a": [a, (a + 1, 2)], "b": None}
        leaves, spec = pytree.tree_flatten(tree)
        doubled = pytree.tree_map(lambda v: v * 2 if v is not None else v, tree)
        return pytree.tree_unflatten(leaves, spec), doubled, pytree.tree_map_only(int, lambda v: v + 1, tree)

    return f, [(x(),)]


@program
def jvp_and_grad() -> Any:
    def f(a: Any) -> Any:
        def loss(v: Any) -> Any:
            return (v.sin() ** 2).sum()

        return torch.func.grad(loss)(a), torch.func.jacrev(torch.sin)(a), torch.func.hessian(loss)(a)

    return f, [(x(),)]


@program
def is_compiling() -> Any:
    def f(a: Any) -> Any:
        return a + 1 if torch.compiler.is_compiling() in (True, False) else a

    return f, [(x(),)]


@program
def disabled_function() -> Any:
    @torch.compiler.disable
    def g(a: Any) -> Any:
        return a.sin() + 1

    def f(a: Any) -> Any:
        return g(a * 2) * 3

    return f, [(x(),)]


@program
def mark_dynamic() -> Any:
    def f(a: Any) -> Any:
        return a.sum(0) * a.shape[0]

    calls = [x(n, 3) for n in (4, 5, 6)]
    return f, [(a,) for a in calls]


@program
def losses() -> Any:
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    def f(a: Any, t: Any) -> Any:
        return criterion(a, t) + F.nll_loss(a.log_softmax(-1), t) + F.mse_loss(a, a + 1, reduction="sum")

    return f, [(x(3, 4, grad=True), torch.tensor([0, 1, 3]))]


@program
def embedding_bag_and_padding() -> Any:
    emb = nn.Embedding(5, 3, padding_idx=0, max_norm=1.0)
    return (lambda i: emb(i) * 2), [(torch.tensor([0, 2, 4]),)], lambda: emb.weight


@program
def packed_sequences() -> Any:
    def f(a: Any) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(a, torch.tensor([3, 2]), batch_first=True)
        padded, lengths = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        return padded * 2, lengths

    return f, [(x(2, 3, 4),)]


@program
def pad_sequence() -> Any:
    def f(a: Any, b: Any) -> Any:
        return nn.utils.rnn.pad_sequence([a, b], batch_first=True, padding_value=1.0) * 2

    return f, [(x(2, 3), x(4, 3))]


@program
def bucketize_and_topk() -> Any:
    def f(a: Any) -> Any:
        values, places = a.topk(2)
        named = a.max(dim=0)
        return (
            values,
            places,
            named.values,
            named.indices,
            torch.sort(a)[0],
            torch.searchsorted(torch.sort(a)[0], values),
        )

    return f, [(x(6),)]
