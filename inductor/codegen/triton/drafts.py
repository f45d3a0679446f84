"""Generates the Triton kernels of a group: one for a pointwise group, one or more for a group with reductions."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...schedule.node import Group
from ..values import Values
from .axes import plan_axes
from .gpu import Gpu
from .kernel import Draft
from .pointwise_kernel import PointwiseKernel
from .reduction_kernel import ReductionKernel
from .work import Scratch, Work


def drafts(
    group: Group, dtypes: Mapping[str, str], gpu: Gpu, unaligned: Collection[str] = ()
) -> tuple[list[Draft], list[Scratch]]:
    """The kernels of a group in launch order, and the scratch memory that they share. Both are empty for a group
    without elements.

    `unaligned` names the buffers whose address need not be a multiple of 16 bytes.
    """
    if 0 in group.outer:
        return [], []
    axes = plan_axes(group)
    inner = {name for name, _ in axes.axis("r").variables} if group.reduces else set()
    values = Values(group, axes.renames, inner, dtypes)
    if not group.reduces:
        return [PointwiseKernel(values, axes, dtypes, gpu).draft(unaligned)], []
    work = Work(values, axes, dtypes, gpu)
    return [ReductionKernel(work, job).draft(unaligned) for job in work.jobs], list(work.scratch.values())
