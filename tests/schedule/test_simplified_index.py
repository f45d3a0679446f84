"""Divisions in indices that the sizes of variables decide."""

import itertools
import random

import pytest

from inductor.schedule.index import Affine, Compound, FloorDiv, Mod, add, scale, simplified, variable


def value(index, at):
    """The index at a point."""
    total = index.const
    for operand, coef in index.terms:
        if isinstance(operand, str):
            total += coef * at[operand]
        elif isinstance(operand, Affine):
            total += coef * value(operand, at)
        else:
            base = value(operand.base, at)
            total += coef * (base // operand.divisor if isinstance(operand, FloorDiv) else base % operand.divisor)
    return total


def some_index(draw, depth):
    terms = [(draw.choice("xyz"), draw.randint(1, 13)) for _ in range(draw.randint(1, 2))]
    if depth:
        kind = draw.choice([FloorDiv, Mod])
        terms.append((kind(some_index(draw, depth - 1), draw.choice([2, 3, 4, 6, 12])), draw.randint(1, 5)))
    return Compound(tuple(dict(terms).items()), draw.randint(0, 4))


@pytest.mark.parametrize("seed", range(40))
def test_values_stay(seed):
    draw = random.Random(seed)
    sizes = {name: draw.randint(1, 5) for name in "xyz"}
    index = some_index(draw, 2)
    found = simplified(index, sizes)
    for point in itertools.product(*map(range, sizes.values())):
        at = dict(zip(sizes, point))
        assert value(index, at) == value(found, at)


def test_a_divided_variable():
    both = add(scale(variable("q"), 64), variable("r"))
    index = Compound(((FloorDiv(Compound(((both, 1),)), 64), 100), (Mod(Compound(((both, 1),)), 64), 1)))
    assert simplified(index, {"q": 8, "r": 64}) == Affine((("q", 100), ("r", 1)))
    assert isinstance(simplified(index, {"q": 8, "r": 65}), Compound)  # the remainder may be 64
    assert isinstance(simplified(index, {"q": 8}), Compound)
