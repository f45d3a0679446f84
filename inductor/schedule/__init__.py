"""Scheduling: dependencies, fusion, order."""

from .fuse import Fuse, WhyNot, fuse
from .node import Group, Member, Node
from .scheduler import output_names, schedule

__all__ = ["Fuse", "Group", "Member", "Node", "WhyNot", "fuse", "output_names", "schedule"]
