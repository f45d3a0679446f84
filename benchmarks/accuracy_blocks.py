"""Small models of one layer or two for `benchmarks.accuracy`: each has what a class of architectures has."""

from __future__ import annotations

from .capture_models import Case

BLOCKS: dict[str, Case] = {}
