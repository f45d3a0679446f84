"""The scheduler: decides which loop nests are fused into one kernel and in what order kernels and ATen calls run."""

from .fuse import Fuse, WhyNot, fuse
from .node import Group, Member, Node
from .scheduler import extern_reads, output_names, print_schedule, schedule

__all__ = [
    "Fuse", "Group", "Member", "Node", "WhyNot", "extern_reads", "fuse", "output_names", "print_schedule", "schedule",
]  # fmt: skip
