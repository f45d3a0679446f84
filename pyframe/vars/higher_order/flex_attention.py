"""Models the operator `flex_attention`: one graph node that takes its score_mod and mask_mod as subgraphs of scalars.

The function `torch.nn.attention.flex_attention.flex_attention` itself is traced inline, up to its call of the operator.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from inductor.eager.flex_attention import (
    FLEX_ATTENTION,
    dtype_under_autocast,
    indexed_by_tensors,
    stride_order,
    working_dtype,
)

from ..containers.sequence import TupleVar
from ..objects.functions import PartialVar
from ..protocol.base import Var
from ..registry import register
from ..torch_objects.tensor import TensorVar
from ..tracer import Tracer
from .control_flow import KIND, Branch

_NAMES = (
    "query", "key", "value", "score_mod", "block_mask", "scale", "kernel_options", "score_mod_other_buffers",
    "mask_mod_other_buffers",
)  # fmt: skip
WITHOUT_TF32 = ("cpu",)
_Q_INDICES = 7  # position in the tuple of a BlockMask


@register(FLEX_ATTENTION)
def _flex_attention(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    arguments = dict(zip(_NAMES, args), **kwargs)
    tensors = [x for x in (arguments[name] for name in _NAMES[:3]) if isinstance(x, TensorVar)]
    if len(tensors) != 3 or tx.graph.stack.in_transform:
        return tx.graph_break(KIND, "flex_attention of arguments that are not tensors, or in a transformed function")
    if any(name in arguments and arguments[name].unpack(tx) for name in _NAMES[7:]):
        return tx.graph_break(KIND, "flex_attention with buffers that the caller passes")
    if tensors[0].fake.dtype is torch.float32 and tensors[0].fake.device.type not in WITHOUT_TF32:
        _guard_precision(tx)
    *blocks, mask_mod = arguments["block_mask"].unpack(tx)
    score = _traced(tx, "score_mod", arguments["score_mod"], tensors[0], with_score=True)
    mask = _traced(tx, "mask_mod", mask_mod, tensors[0], with_score=False)
    recorded = _recorded(tx, [*tensors, *score.lifted], mask.lifted, blocks)
    graphs = [tx.graph.stack.attach(f"flex_attention_{branch.what}", branch.gm) for branch in (score, mask)]
    operands = [
        *tensors, graphs[0], (*blocks, graphs[1]), arguments["scale"],
        arguments["kernel_options"], TupleVar(score.lifted), TupleVar(mask.lifted),
    ]  # fmt: skip
    results = _results(tx, tensors[0].fake, tensors[2].fake, recorded)
    return TupleVar(tx.graph.record(FLEX_ATTENTION, operands, results))


def _guard_precision(tx: Tracer) -> None:
    """Guard the setting by which kernels multiply float32."""
    setting = torch._C._get_cublas_allow_tf32
    tx.wrap(setting, tx.const_source(setting, "allow_tf32")).call(tx, [], {})


def _traced(tx: Tracer, what: str, fn: Var, query: TensorVar, with_score: bool) -> Branch:
    """The graph of a score_mod or mask_mod, a function of scalars."""
    device = query.fake.device
    dtypes = [torch.int32] * 4
    if with_score:
        dtypes.insert(0, working_dtype(dtype_under_autocast(query.fake)))
    with tx.graph.fake_mode:
        fakes = [torch.empty((), dtype=dtype, device=device) for dtype in dtypes]
    if with_score and torch.is_grad_enabled():
        fakes[0].requires_grad_(query.fake.requires_grad)
    indexed = PartialVar(tx.wrap(indexed_by_tensors, tx.const_source(indexed_by_tensors, what)), [fn], {})
    branch = Branch(tx, what, indexed, [TensorVar(query.node, fake) for fake in fakes], fakes)
    result = branch.result
    if not isinstance(result, TensorVar) or result.fake.dim() != 0:
        return tx.graph_break(KIND, f"a {what} that returns {result.describe()}, not a scalar tensor")
    return branch.close([0], single=True)


def _recorded(tx: Tracer, inputs: Sequence[Var], of_mask: Sequence[Var], blocks: Sequence[Var]) -> bool:
    """Whether the results require gradients. Breaks the graph where eager raises an error."""
    requires = lambda group: any(isinstance(x, TensorVar) and x.fake.requires_grad for x in group)  # noqa: E731
    if requires(of_mask):
        tx.graph_break(KIND, "a mask_mod that reads a tensor that requires a gradient")
    recorded = torch.is_grad_enabled() and requires(inputs)
    if recorded and not isinstance(blocks[_Q_INDICES], TensorVar):
        tx.graph_break(KIND, "gradients of flex_attention with a BlockMask without q_indices")
    return recorded


def _results(tx: Tracer, query: torch.Tensor, value: torch.Tensor, recorded: bool) -> list[torch.Tensor]:
    """Fake tensors for the output, the logsumexp and the largest score of each row."""
    dtype = dtype_under_autocast(query)
    order = stride_order(query)
    shape = [*query.shape[:3], value.shape[3]]
    with tx.graph.fake_mode, torch.enable_grad():
        output = query.new_empty([shape[dim] for dim in order], dtype=dtype)
        output = output.detach().permute([order.index(dim) for dim in range(4)])
        rows = [query.new_empty(shape[:3], dtype=working_dtype(dtype)).detach() for _ in range(2)]
        if recorded:
            output, rows[0] = (x.requires_grad_().clone() for x in (output, rows[0]))
    return [output, *rows]
