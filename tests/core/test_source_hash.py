"""Sources keep their hash: it does not depend on the length of the path after the first time."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from pyframe.core.guard import Guard, UserLine
from pyframe.core.source import AttrSource, CallSource, LocalSource


class Counted(str):
    """A name that counts how often it is hashed."""

    hashed = 0

    def __hash__(self) -> int:
        Counted.hashed += 1
        return super().__hash__()


def test_the_steps_of_a_path_are_hashed_once():
    name = Counted("layer")
    Counted.hashed = 0
    path = AttrSource(AttrSource(AttrSource(LocalSource("model", 0), name), "a"), "b")
    longer = [AttrSource(path, attribute) for attribute in "xyz"]
    assert len({*longer, *longer, path}) == 4
    assert Counted.hashed == 1


def test_equal_sources_have_equal_hashes_and_copies_compute_their_own():
    first, second = (AttrSource(LocalSource("x", 0), "weight") for _ in range(2))
    assert hash(first) == hash(second) and first == second
    assert pickle.loads(pickle.dumps(first)) == first
    assert b"_hash" not in pickle.dumps(first)
    assert repr(first) == repr(second)


def test_a_source_of_what_has_no_hash_has_none():
    source = CallSource(LocalSource("x", 0), [], "call")
    with pytest.raises(TypeError, match="unhashable"):
        hash(source)
    assert source == CallSource(LocalSource("x", 0), [], "call")


def test_fields_are_set_once_and_have_their_defaults():
    line = UserLine("file.py", 3, "f")
    assert (line.filename, line.lineno, line.function, line.text) == ("file.py", 3, "f", "")
    assert line == UserLine(function="f", lineno=3, filename="file.py", text="")
    with pytest.raises(dataclasses.FrozenInstanceError):
        line.lineno = 4
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'function'"):
        UserLine("file.py", 3)
    with pytest.raises(ValueError, match="unknown guard kind"):
        Guard(None, "NO_SUCH_KIND", None, line)
    assert dataclasses.replace(line, lineno=5).lineno == 5
