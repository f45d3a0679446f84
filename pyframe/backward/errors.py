"""The reason why a backward pass cannot be captured."""

from __future__ import annotations


class Uncapturable(Exception):
    """Raised while a backward pass is recorded; it then runs eagerly, as nothing of it has run yet."""
