"""`flex_attention` on a GPU as an operator of its own with a gradient, for which kernels are generated.

Where no kernel can be generated, and on the CPU, the compiler traces `dense_flex_attention` instead.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from ..cache.graph_key import OfGraphs
from ..eager.flex_attention import (
    autocasts,
    dense_flex_attention,
    dtype_under_autocast,
    over_grid,
    replace_operator,
    stride_order,
)
from ..errors import Unsupported
from ..ir.flex_attention import FlexFunctions, functions_of
from ..lower.flex_attention import is_expression
from .decompositions import decompositions
from .fake import fake_mode, make_fx

DEVICES = ("cuda",)  # with kernels
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
MAX_DIM, LEAST_BLOCK = 256, 16
_WHOLE = 1 << 30  # the size of a block that torch takes for everything
_KV, _Q, _FULL = slice(2, 4), slice(6, 8), 2  # positions in the tuple of a BlockMask; those of full blocks follow

_LIBRARY = torch.library.Library("pyframe", "FRAGMENT")
_INPUTS = "Tensor query, Tensor key, Tensor value"
_REST = "Tensor[] blocks, Tensor[] score_others, Tensor[] mask_others, float scale, int functions"
_LIBRARY.define(f"flex_attention({_INPUTS}, {_REST}) -> (Tensor, Tensor, Tensor)")
_LIBRARY.define(
    f"flex_attention_backward({_INPUTS}, Tensor gradient, Tensor logsumexp, Tensor delta, {_REST})"
    " -> (Tensor, Tensor, Tensor)"
)


def _run(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, blocks: Sequence[torch.Tensor],
    score_others: Sequence[torch.Tensor], mask_others: Sequence[torch.Tensor], scale: float, functions: int,
) -> tuple[torch.Tensor, ...]:
    return tuple(functions_of(functions).reference(query, key, value, scale, score_others, mask_others))


def _run_backward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, gradient: torch.Tensor, logsumexp: torch.Tensor,
    delta: torch.Tensor, blocks: Sequence[torch.Tensor], score_others: Sequence[torch.Tensor],
    mask_others: Sequence[torch.Tensor], scale: float, functions: int,
) -> tuple[torch.Tensor, ...]:
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in (query, key, value)]
        output, found, _ = functions_of(functions).reference(*leaves, scale, score_others, mask_others)
        of_rows = ((output * gradient).sum(-1).detach() - delta) * math.log(2)  # the gradient of the logsumexp
        return torch.autograd.grad((output, found), leaves, (gradient, of_rows.to(found.dtype)))


def _fake(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    order = stride_order(query)
    shape = [*query.shape[:3], value.shape[3]]
    output = query.new_empty([shape[dim] for dim in order]).permute([order.index(dim) for dim in range(4)])
    rows = [query.new_empty(shape[:3], dtype=torch.float32) for _ in range(2)]
    return output, rows[0], rows[1]


def _fake_backward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


for _name, _real, _meta in (
    ("flex_attention", _run, _fake), ("flex_attention_backward", _run_backward, _fake_backward)
):  # fmt: skip
    _LIBRARY.impl(_name, _real, "CompositeExplicitAutograd")
    torch.library.register_fake(f"pyframe::{_name}", _meta, lib=_LIBRARY)
FORWARD = torch.ops.pyframe.flex_attention.default
BACKWARD = torch.ops.pyframe.flex_attention_backward.default


class _Attention(torch.autograd.Function):
    """The operator with its gradients of query, key and value. `blocks`: those of the rows, then of the columns."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, blocks: Sequence[torch.Tensor],
        score_others: Sequence[torch.Tensor], mask_others: Sequence[torch.Tensor], scale: float, number: int,
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        rows = blocks[: len(blocks) // 2]
        output, logsumexp, largest = FORWARD(query, key, value, rows, score_others, mask_others, scale, number)
        ctx.save_for_backward(query, key, value, output, logsumexp, *blocks, *score_others, *mask_others)
        ctx.counts, ctx.scale, ctx.number = (len(blocks), len(score_others)), scale, number
        ctx.mark_non_differentiable(largest)
        return output, logsumexp, largest

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        of_output, of_rows, _ = gradients
        query, key, value, output, logsumexp, *rest = ctx.saved_tensors
        blocks, others = rest[: ctx.counts[0]], rest[ctx.counts[0] :]
        if of_output is None:
            of_output = torch.zeros_like(output)
        delta = (output.float() * of_output.float()).sum(-1)
        if of_rows is not None:
            delta = delta - of_rows / math.log(2)
        split = ctx.counts[1]
        found = BACKWARD(
            query, key, value, of_output, logsumexp, delta, blocks, others[:split], others[split:], ctx.scale,
            ctx.number,
        )  # fmt: skip
        return *found, None, None, None, None, None


class FlexAttention(OfGraphs):
    """A call of flex_attention in a graph: traced as the operator if kernels can compute it. Called with the arguments
    of `dense_flex_attention`, but without the functions: `blocks` are the other items of the BlockMask."""

    def __init__(self, score_mod: fx.GraphModule, mask_mod: fx.GraphModule) -> None:
        self.score_mod, self.mask_mod = self.graphs = score_mod, mask_mod
        self.__name__ = self.__qualname__ = "flex_attention"  # torch.fx names nodes after functions
        self.__module__ = __name__
        self.functions: list[FlexFunctions] = []  # of each trace; operators refer to them

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, blocks: Sequence[Any], scale: float,
        options: Mapping[str, Any], score_others: Sequence[Any] = (), mask_others: Sequence[Any] = (),
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        others = score_others, mask_others
        if not torch._is_functional_tensor(query):  # not the compiler's trace
            return self._dense(query, key, value, scale, *others)
        query, key, value = (x.to(dtype_under_autocast(x)) for x in (query, key, value))
        kind = query.device.type
        with torch.autocast(kind, enabled=False) if autocasts(kind) else contextlib.nullcontext():
            functions = self._functions((query, key, value), blocks, options, others)
            if functions is None:
                return self._dense(query, key, value, scale, *others)
            batch = query.shape[0]
            key, value = (x if x.shape[0] == batch else x.expand(batch, -1, -1, -1) for x in (key, value))
            return self._operator(query, key, value, blocks, scale, others, functions.number)

    def _dense(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, *others: Any) -> Any:
        return dense_flex_attention(query, key, value, self.score_mod, (self.mask_mod,), scale, None, *others)

    @staticmethod
    def _operator(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, blocks: Sequence[Any], scale: float,
        others: tuple[Sequence[Any], Sequence[Any]], number: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        of_rows, of_columns = _listed(blocks, _KV), _listed(blocks, _Q)
        score_others, mask_others = list(others[0]), list(others[1])
        if torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value)):
            listed = [*of_rows, *of_columns]
            found = _Attention.apply(query, key, value, listed, score_others, mask_others, scale, number)
        else:
            found = FORWARD(query, key, value, of_rows, score_others, mask_others, scale, number)
        return cast(tuple[torch.Tensor, torch.Tensor, torch.Tensor], found)

    def _functions(
        self, inputs: Sequence[torch.Tensor], blocks: Sequence[Any], options: Mapping[str, Any],
        others: tuple[Sequence[Any], Sequence[Any]],
    ) -> FlexFunctions | None:
        """The functions for the operator; None if no kernel can compute this call. Unsupported if the sizes vary: each
        size is compiled then."""
        captured = [*others[0], *others[1]]
        recorded = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
        block_size = tuple(blocks[-2:])
        if not _has_kernel(inputs, block_size) or not all(isinstance(x, torch.Tensor) for x in captured):
            return None
        if torch.is_grad_enabled() and any(x.requires_grad for x in captured):
            return None
        if not _same_device([*inputs, *captured]):
            return None
        if recorded and len(_listed(blocks, _Q)) != len(_listed(blocks, _KV)):  # a mask without lists of the columns
            return None
        tensors = [*inputs, *captured, *_listed(blocks, _KV)]
        if any(type(n) is not int for x in tensors for n in (*x.shape, *x.stride())):
            raise Unsupported("flex_attention on sizes that vary")
        sizes = (*inputs[0].shape[:3], inputs[1].shape[2])
        with _outside_of_traces():
            functions = self._traced(sizes, inputs[0], others, block_size, dict(options), recorded)
            if functions is None:
                return None
        self.functions.append(functions)
        return functions

    def _traced(
        self, sizes: tuple[Any, ...], query: torch.Tensor, others: tuple[Sequence[Any], Sequence[Any]],
        block_size: tuple[int, int], options: dict[str, Any], recorded: bool,
    ) -> FlexFunctions | None:
        mode = fake_mode()
        with mode:
            like = [list(map(_empty_like, each)) for each in others]
            scores, gradients = (torch.empty(sizes, device=query.device) for _ in range(2))
            places = [torch.empty(n, dtype=torch.int32, device=query.device) for n in sizes]

        def score(scores: torch.Tensor, *rest: torch.Tensor) -> list[torch.Tensor]:
            return [over_grid(self.score_mod, 1, rest[4:])(scores, *rest).float()]

        def mask(*rest: torch.Tensor) -> list[torch.Tensor]:
            return [over_grid(self.mask_mod, 0, rest[4:])(*rest)]

        def gradient(gradients: torch.Tensor, scores: torch.Tensor, *rest: torch.Tensor) -> list[torch.Tensor]:
            with torch.enable_grad():
                scores = scores.detach().requires_grad_()
                (changed,) = score(scores, *rest)
            if not changed.requires_grad:
                return [torch.zeros_like(scores)]
            (found,) = torch.autograd.grad(changed, scores, gradients, allow_unused=True)
            return [torch.zeros_like(scores) if found is None else found]

        def trace(fn: Callable[..., Any], *args: Any) -> fx.GraphModule:
            with mode, torch.no_grad():
                traced: fx.GraphModule = make_fx(fn, decomposition_table=decompositions())(*args)
            return traced

        try:
            functions = FlexFunctions(
                trace(score, scores, *places, *like[0]),
                trace(gradient, gradients, scores, *places, *like[0]) if recorded else None,
                trace(mask, *places, *like[1]), block_size, options, self._dense,
            )  # fmt: skip
        except RuntimeError:  # refused by vmap or autograd; the dense form raises the error if it is one in eager
            return None
        return functions if is_expression(functions, cast(Any, sizes), like) else None


def _listed(blocks: Sequence[Any], which: slice) -> list[Any]:
    """Counts and places of the partial blocks, and of the full ones if the mask has any. Empty if one block is
    everything."""
    if blocks[which.start] is None:
        return []
    full = blocks[which.start + _FULL : which.stop + _FULL]
    return [*blocks[which], *(full if full[0] is not None else ())]


def _has_kernel(inputs: Sequence[torch.Tensor], block_size: tuple[Any, ...]) -> bool:
    query, key, value = inputs
    if query.device.type not in DEVICES or query.dtype not in DTYPES or {x.dtype for x in inputs} != {query.dtype}:
        return False
    if not all(type(n) is int for n in block_size):
        return False
    sizes = query.shape[2], key.shape[2]
    fitting = all(n % LEAST_BLOCK == 0 or n >= length for n, length in zip(block_size, sizes))
    dims = all(x.shape[3] <= MAX_DIM for x in (query, value))
    return fitting and dims and 0 not in (*query.shape, *key.shape, *value.shape)


def _empty_like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def _same_device(tensors: Sequence[torch.Tensor]) -> bool:
    return len({x.device for x in tensors}) == 1


@contextlib.contextmanager
def _outside_of_traces() -> Iterator[None]:
    """Suspends the modes of a trace that is in progress, so that another one can be made."""
    functionalize = torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)
    with _disable_current_modes(), torch._C._ExcludeDispatchKeyGuard(functionalize):
        yield


def with_flex_attention(gm: fx.GraphModule) -> fx.GraphModule:
    """`gm`, or a copy in which `FlexAttention` replaces the operator of torch."""

    def make(score_mod: fx.GraphModule, mask_mod: fx.GraphModule, args: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
        query, key, value, _, block_mask, scale, options, *others = args
        blocks = block_mask[:-1]
        if _is_one_block(blocks):
            unused.extend(x for x in blocks if isinstance(x, fx.Node))
            blocks = (*blocks[:2], *(None if isinstance(x, fx.Node) else x for x in blocks[2:-2]), *blocks[-2:])
        return FlexAttention(score_mod, mask_mod), (query, key, value, blocks, scale, options, *others)

    unused: list[fx.Node] = []
    found = replace_operator(gm, make)
    erased: set[fx.Node] = set()
    while unused:
        node = unused.pop()
        if node not in erased and not node.users and node.op.startswith("call") and not node.is_impure():
            unused.extend(node.all_input_nodes)
            erased.add(node)
            node.graph.erase_node(node)
    if erased:
        found.recompile()
    return found


def _is_one_block(blocks: Sequence[Any]) -> bool:
    """Whether a graph itself creates the lists of a mask of one block, for everything, as it does if the program gives
    no BlockMask."""
    counts, places = blocks[_KV]
    created = [getattr(counts, "target", None), getattr(places, "target", None)] == [torch.ones, torch.zeros]
    return created and all(type(n) is int and n >= _WHOLE for n in blocks[-2:]) and blocks[_KV.start + _FULL] is None

