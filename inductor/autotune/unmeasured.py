"""Products for which a kernel is generated without measuring, because ATen's are slow for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..codegen.triton.gpu import gpu_of
from ..codegen.triton.product_configs import configs
from ..ir.buffer import ExternKernel
from ..ir.nodes import GraphIR
from ..schedule.node import Group
from ..schedule.product import products, replaced


def with_generated_products(steps: Sequence[Group | ExternKernel], graph: GraphIR) -> list[Any]:
    """The schedule, with a generated kernel in the place of each call that is named in `graph.generated`, in the first
    configuration that fits the GPU; a call for which there is none remains."""
    chosen = []
    for candidate in products(steps, graph):
        product = candidate.product
        if product.kernel.name in graph.generated:
            tried = configs(product, gpu_of(product.result.layout.device))
            config = next((c for c in tried if c.split == 1), None)
            if config is not None:
                chosen.append((candidate, product.configured(config)))
    return replaced(steps, chosen)
