"""A global named `super` is what `super()` calls, on the instruction of CPython 3.12 that combines the two, too."""

import torch

import pyframe


class Base:
    def double(self, x):
        return x * 2


class Derived(Base):
    def double(self, x):
        return super().double(x) + 1


class Other:
    def double(self, x):
        return x - 5


def test_a_global_named_super(monkeypatch):
    def program(x):
        return Derived().double(x)

    compiled, x = pyframe.compile(program, backend="eager"), torch.ones(2)
    assert compiled(x).tolist() == program(x).tolist() == [3, 3]
    monkeypatch.setitem(globals(), "super", lambda *args: Other())
    assert compiled(x).tolist() == program(x).tolist() == [-3, -3]
