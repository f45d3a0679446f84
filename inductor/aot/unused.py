"""Operators of a captured graph whose results nobody uses, and that raise for some elements of their operands, such as
an index that is out of range: eager raises, so what is compiled has to compute them."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

# ATen operators that look at elements before they compute: positions, classes, divisors.
_BY_POSITION = frozenset("""
    embedding embedding_bag _embedding_bag gather index index_add index_copy index_fill index_put index_select
    nll_loss_forward nll_loss2d_forward one_hot scatter scatter_add scatter_reduce take
""".split())
_BY_DIVISOR = frozenset(("div", "floor_divide", "fmod", "remainder"))  # of integers


class Watched(TorchDispatchMode):
    """Under it one node of a graph is traced; `raises`: whether an operator was called that may raise."""

    def __init__(self) -> None:
        super().__init__()
        self.raises = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        divides = name in _BY_DIVISOR and isinstance(result, torch.Tensor) and not result.is_floating_point()
        self.raises = self.raises or name in _BY_POSITION or divides
        return result


def keep(result: Any) -> None:
    """Traces a check that reads all elements of a result and holds for any.  On the CPU alone: on a GPU it would
    cost a kernel, and eager raises nothing there that a program could handle."""
    for x in pytree.tree_leaves(result):
        if isinstance(x, torch.Tensor) and x.device.type == "cpu" and x.layout == torch.strided:
            torch._assert_async(((x == x) | (x != x)).all())
