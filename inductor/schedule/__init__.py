"""Scheduling: dependencies, fusion, order."""

from .fuse import Fuse, WhyNot, fuse
from .node import Group, Member, Node
from .scheduler import extern_reads, output_names, print_schedule, schedule

__all__ = [
    "Fuse", "Group", "Member", "Node", "WhyNot", "extern_reads", "fuse", "output_names", "print_schedule", "schedule",
]  # fmt: skip
