"""ATen graphs traced on the CPU as if their tensors were on a GPU, and what they are lowered to: shows what is
generated for a GPU without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.aot.joint import to_joint
from inductor.aot.partition import partition
from inductor.aot.random import seeded
from inductor.aot.training_decompositions import training_decompositions
from inductor.ir.nodes import GraphIR
from inductor.lower import lower_graph, separate_results
from inductor.package.on_gpu import GPU as GPU
from inductor.package.on_gpu import moved as moved
from inductor.package.on_gpu import on_gpu as on_gpu
from inductor.passes import run_half_passes, run_joint_passes, run_passes, without_known_masks


def lowered_inference(gm: fx.GraphModule, inputs: Sequence[Any]) -> GraphIR:
    """The loop IR of a captured graph, without gradients."""
    plain = [x.detach() if isinstance(x, torch.Tensor) else x for x in inputs]
    with torch.no_grad():
        aten = to_aten(without_known_masks(gm), plain, decompositions())
    graph = on_gpu(aten.graph)
    seeded(graph)
    return lower_graph(run_passes(graph, aten.shared), aten.shared, aten.uncounted)


def lowered_training(gm: fx.GraphModule, inputs: Sequence[Any]) -> tuple[GraphIR, GraphIR]:
    """The loop IR of the forward and of the backward of a captured graph. Autocast is as the caller has set it."""
    joint = to_joint(without_known_masks(gm), inputs, training_decompositions())
    on_gpu(joint.graph)
    seeded(joint.graph)
    run_joint_passes(joint.graph)
    halves = partition(joint)
    return _lowered_half(halves.forward), _lowered_half(halves.backward)


def _lowered_half(half: fx.GraphModule) -> GraphIR:
    run_half_passes(half)
    return lower_graph(half, separate_results(half))
