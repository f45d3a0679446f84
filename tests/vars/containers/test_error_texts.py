"""What the errors of containers say: CPython's versions differ, and captured code says what the running one does."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import pytest
from language_support import Table, agree

case = Table()
X3 = [1, 2, 3]


class Derived(list): ...


class OwnError:
    def __hash__(self):
        raise TypeError("own text")


class OtherError:
    def __hash__(self):
        raise ValueError("own text")


def messages(*calls: Any) -> list[tuple[str, str]]:
    found = []
    for call in calls:
        try:
            call()
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return found


def _pair(values: Any) -> None:
    first, second = values


@case()
def too_many_values(x):
    kinds = (X3, tuple(X3), dict.fromkeys(X3), Derived(X3), "abc", range(3), iter(X3), namedtuple("P", "a b c")(1, 2, 3))
    return x + 1, [messages(lambda values=values: _pair(values)) for values in kinds]


@case()
def too_few_values(x):
    return x + 1, messages(lambda: _pair([1]), lambda: _pair("a"), lambda: _pair(iter([])), lambda: _pair(3))


@case()
def extremes_of_nothing(x):
    return x + 1, messages(lambda: max(()), lambda: min([]), lambda: max(iter(())))


def noted(call):
    try:
        call()
    except TypeError as error:
        return str(error), getattr(error, "__notes__", None)


@case()
def items_that_are_no_pairs(x):
    fill = {}.update
    errors = messages(lambda: dict([(1,)]), lambda: dict(["abc"]), lambda: dict(1), lambda: fill([(1, 2, 3)]))
    return x + 1, errors, noted(lambda: dict([1])), noted(lambda: fill([(1, 2), 3]))


@case()
def unhashable_keys(x):
    key, d = [1], {2: 3}
    return x + 1, messages(
        lambda: {key: 1}, lambda: d[key], lambda: d.__setitem__(key, 1), lambda: d.get(key), lambda: d.setdefault(key, 1),
        lambda: d.pop(key), lambda: key in d, lambda: dict([(key, 1)]), lambda: {k: 1 for k in [key]},
        lambda: d[(1, key)], lambda: defaultdict(int)[key], lambda: OrderedDict()[key],
        lambda: OrderedDict().__setitem__(key, 1), lambda: d.get({}), lambda: d[OwnError()], lambda: d[OtherError()],
    )  # fmt: skip


@case()
def unhashable_elements(x):
    item, s = [1], {2, 3}
    return x + 1, messages(
        lambda: {item}, lambda: s.add(item), lambda: item in s, lambda: s.discard(item), lambda: s.remove(item),
        lambda: set([item]), lambda: frozenset([item]), lambda: s.update([item]), lambda: {k for k in [item]},
        lambda: s.union([item]), lambda: s.intersection([item]), lambda: s.difference([item]), lambda: s.add((1, item)),
        lambda: s.issuperset([item]), lambda: hash(item), lambda: hash((1, item)), lambda: s.add(OwnError()),
    )  # fmt: skip


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_whole_graph(row: Any) -> None:
    agree(*row)
