"""Sources keep their hash: it does not depend on the length of the path after the first time."""

from __future__ import annotations

import pickle

from pyframe.core.source import AttrSource, LocalSource


class Counted(str):
    """A name that counts how often it is hashed."""

    hashed = 0

    def __hash__(self) -> int:
        Counted.hashed += 1
        return super().__hash__()


def test_the_steps_of_a_path_are_hashed_once():
    name = Counted("layer")
    path = AttrSource(AttrSource(AttrSource(LocalSource("model", 0), name), "a"), "b")
    Counted.hashed = 0
    longer = [AttrSource(path, attribute) for attribute in "xyz"]
    assert len({*longer, *longer, path}) == 4
    assert Counted.hashed == 1


def test_equal_sources_have_equal_hashes_and_copies_compute_their_own():
    first, second = (AttrSource(LocalSource("x", 0), "weight") for _ in range(2))
    assert hash(first) == hash(second) and first == second
    assert pickle.loads(pickle.dumps(first)) == first
    assert b"_hash" not in pickle.dumps(first)
    assert repr(first) == repr(second)
