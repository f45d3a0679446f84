"""First calls do not import sympy, and torch's questions about sizes are answered as by torch."""

from __future__ import annotations

import os

import forked_python
import pytest
import torch
from torch.fx.experimental import symbolic_shapes

from inductor.process import symbolic_stub
from inductor.process.symbolic_stub import SymbolicShapesStub, SympyStub


def run(text, cache):
    """What a program prints in a process of its own."""
    env = {**os.environ, "PYFRAME_CACHE_DIR": str(cache), "PYFRAME_STRICT": "internal"}
    out = forked_python.run(text, environment=env)
    assert out.returncode == 0, out.stderr
    return out.stdout.split()


PROGRAM = """
import sys, torch, pyframe
def fn(x, w): return torch.sin(x @ w + 1).sum(-1)
with torch.no_grad(): pyframe.compile(fn)(torch.ones(4, 4), torch.ones(4, 4))
print("sympy" in sys.modules)
"""


def test_a_warm_first_call_does_not_import_sympy(tmp_path):
    run(PROGRAM, tmp_path)
    assert run(PROGRAM, tmp_path) == ["False"]


def test_sympy_works_in_a_program_whatever_imports_it_first(tmp_path):
    stubbed = """
import sys, torch
from inductor.process.import_stubs import stub_torch_compiler
def ask():
    import sympy
    return isinstance(3, sympy.Basic)
with stub_torch_compiler:
    import sympy as early
    print(ask(), "sympy.core" in sys.modules)
    {statement}
    print(isinstance(sympy.Integer(3), early.Basic), early.Basic is sympy.Basic)
import sympy
from torch.fx.experimental.symbolic_shapes import ShapeEnv
print(isinstance(sympy.Symbol("x") + 1, sympy.Basic), sys.modules["sympy"] is sympy, ShapeEnv.__module__)
"""
    for statement in ("import sympy", "import sympy.core.numbers", "from sympy.core.numbers import Integer; import sympy"):
        printed = run(stubbed.format(statement=statement), tmp_path)
        assert printed[:2] == ["False", "False"], statement
        assert printed[2:] == ["True"] * 4 + ["torch.fx.experimental.symbolic_shapes"], statement


@pytest.fixture
def stub():
    return SymbolicShapesStub(symbolic_stub.NAME)


QUESTIONS = [
    ("guard_or_false", (True,)), ("guard_or_true", (False,)), ("statically_known_true", (False,)),
    ("is_symbolic", (3,)), ("is_nested_int", (3,)), ("has_free_unbacked_symbols", ([3, torch.ones(2)],)),
    ("free_unbacked_symbols", ((3, 4),)), ("sym_eq", ((1, 2), (1, 2))), ("sym_eq", ((1, 2), (1, 3))),
    ("sym_eq", ((1, 2), (1,))), ("sym_eq", (2, 2)), ("sym_and", (True, False, True)), ("sym_or", (False, True)),
    ("sym_and", (True,)), ("guard_int", (3,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), QUESTIONS)
def test_answers_for_plain_numbers_are_torchs(stub, name, args):
    want, got = getattr(symbolic_shapes, name)(*args), getattr(stub, name)(*args)
    assert got == want and type(got) is type(want)


def test_symbols_are_left_to_torch(stub):
    size = symbolic_shapes.ShapeEnv().create_unbacked_symint()
    assert stub.is_symbolic(size) and stub.has_free_unbacked_symbols([size])
    assert stub.free_unbacked_symbols(size) == symbolic_shapes.free_unbacked_symbols(size) != set()
    assert stub.guard_or_false(size == 3) is False and stub.guard_or_true(size == 3) is True


def test_other_names_are_those_of_the_real_modules(stub):
    import sympy

    assert stub.ShapeEnv is symbolic_shapes.ShapeEnv
    assert SympyStub("sympy").Symbol is sympy.Symbol
    assert SympyStub("sympy").Basic is sympy.Basic  # the real module is loaded
    with pytest.raises(AttributeError):
        stub.__file__  # noqa: B018
