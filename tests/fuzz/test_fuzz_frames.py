"""A short run of tools/fuzz_frames.py: random programs, captured and as they are."""

from __future__ import annotations

import fuzz_frames
import pytest

import pyframe


@pytest.mark.parametrize("seed", range(12))
def test_random_program(seed):
    text = fuzz_frames.render(fuzz_frames.Writer(seed).program())
    assert fuzz_frames.difference(text) in (None, fuzz_frames.NO_PROGRAM), text
    pyframe.reset()


def test_a_difference_is_found_and_shrunk(monkeypatch):
    """A capture that gets additions wrong is caught, and the program loses what has no part in it."""
    add = fuzz_frames.Node([("n = n + 41", None)])
    noise = [fuzz_frames.Node([(text, None)]) for text in ("m += 2", "xs.append(n)", "s = 'k'")]
    functions = {"helper0": noise[:1], "program": [noise[1], fuzz_frames.Node([("if m:", [add, noise[2]])])]}
    behaviour = fuzz_frames.behaviour

    def wrong(text, captured):
        return behaviour(text.replace("n + 41", "n + 42") if captured else text, False)

    monkeypatch.setattr(fuzz_frames, "behaviour", wrong)
    shrunk = fuzz_frames.shrink(functions)
    assert [list(node.render(0)) for node in shrunk["program"]] == [["n = n + 41"]] and shrunk["helper0"] == []
