"""`counted`: a number with its noun, for people."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """For example "1 graph" and "2 graphs"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
