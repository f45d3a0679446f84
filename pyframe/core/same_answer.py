"""The predicate of guards on the answers of abstract base classes."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any


class SameAnswer:
    """Guard predicate: `ask(kind, cls)` has the same result.  Evaluated again only after some class was registered with
    any ABC (the ABC cache token has changed)."""

    def __init__(self, ask: Callable[[type, type], bool], kind: type, cls: type) -> None:
        self.ask, self.kind, self.cls = ask, kind, cls
        self.answer, self.token = ask(kind, cls), abc.get_cache_token()

    def __call__(self, _: Any) -> bool:
        token = abc.get_cache_token()
        if token == self.token:
            return True
        if self.ask(self.kind, self.cls) is not self.answer:
            return False
        self.token = token
        return True

    def __hash__(self) -> int:
        return hash((self.ask, id(self.kind), id(self.cls)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameAnswer) and self.kind is other.kind and self.cls is other.cls
