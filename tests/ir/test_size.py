"""Sizes against ints: every operation on random polynomials, at the values compiled for and at others it serves."""

import itertools
import pickle
import random

import pytest

from inductor.errors import Unsupported
from inductor.ir.size import SizeEnv, at, ceil_of, hint, known, quotient, range_of, same, whole_part
from inductor.ir.substitute import substitute_sizes
from inductor.ir.symbolic import Expr, FloorDiv, Sym, floordiv, mod, symbol


def env_of(a=6, b=10):
    env = SizeEnv()
    return env, env.symbol("size0", a, 2), env.symbol("size1", b, 2)


def random_size(rng, x, y, depth=3):
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([x, y, rng.randrange(0, 9)])
    left, right = random_size(rng, x, y, depth - 1), random_size(rng, x, y, depth - 1)
    match rng.randrange(5):
        case 0:
            return left + right
        case 1:
            return left * right
        case 2:
            return left - right
        case 3:
            return left // (right * right + 1)
        case _:
            return left % (right * right + 2)


@pytest.mark.parametrize("seed", range(60))
def test_arithmetic_and_comparison(seed):
    env, *symbols = env_of()
    state = random.Random(seed).getstate()

    def run(x, y):
        rng = random.Random()
        rng.setstate(state)
        made, truths = [], []
        for _ in range(12):
            made.append(random_size(rng, x, y))
            a, b = rng.choice(made), rng.choice(made)
            truths.append([a < b, a <= b, a == b, a != b, a > b, a >= b][rng.randrange(6)])
        return made, truths

    try:
        sizes, truths = run(*symbols)
    except Unsupported:  # a quotient of what may be negative
        return
    program = pickle.loads(pickle.dumps(env.program()))
    assert run(6, 10)[1] == truths
    served = 0
    for a, b in itertools.product((2, 3, 5, 6, 8, 17), (2, 4, 10, 13)):
        values = program.values({"size0": a, "size1": b})
        if program.serves(values):
            served += 1
            numbers, found = run(a, b)
            assert [at(x, values) for x in sizes] == numbers and found == truths
    assert served


def test_what_is_known():
    env, x, y = env_of()
    assert known(x, ">", 1) and known(x * y, ">=", 4) and not known(x, "<", y) and not known(x, ">=", y)
    assert x != 0 and x != 1 and x + 1 > x and same(x * y, y * x)
    assert not env.program().assumed
    assert quotient(x * y * 6, x * 2) == y * 3 and quotient(x, 2) is None and quotient(x * x - y * y, x - y) == x + y
    assert whole_part(x * 64 + 70, 64) == (x + 1, 6)
    assert (x * 64 + 63) // 64 == x and (x * 64 + 3) % 64 == 3 and -1 % x == x - 1
    assert hint(ceil_of(x, 4)) == 2
    assert x < y
    assert env.program().assumed == ((x, "<", y),)


@pytest.mark.parametrize("seed", range(20))
def test_bounds_by_quotients(seed):
    """The bounds of sums with quotients hold for all values, and are exact for an output size of a pooling."""
    rng = random.Random(seed)
    env, x, _ = env_of()
    half = x // 2
    for n in (half * 2 - x, x - half * 2, half * 2 - x + 4):
        low, high = range_of(n)
        assert (low, high) == (min(at(n, env.program().values({"size0": a, "size1": 2})) for a in range(2, 9)), low + 1)
    parts = [x, half]
    for _ in range(5):
        parts.append((rng.choice(parts) * rng.randrange(1, 4) + rng.randrange(4)) // rng.randrange(2, 7))
    for _ in range(10):
        n = sum(rng.choice(parts) * rng.randrange(-6, 7) for _ in range(4)) + rng.randrange(9)
        low, high = range_of(n)
        for a in range(2, 40):
            assert low <= at(n, env.program().values({"size0": a, "size1": 2})) <= high
    assert not env.program().assumed


def test_only_ints_have_digits():
    _, x, _ = env_of()
    for wrong in (lambda: range(x), lambda: float(x), lambda: x / 2, lambda: [0] * x, lambda: x < 2.5):
        with pytest.raises(Unsupported):
            wrong()


def test_structures_of_sizes():
    _, x, y = env_of()
    values = {"size0": 3, "size1": 4}
    assert substitute_sizes({"a": (x, [y * 2, "b"]), "c": 1}, values) == {"a": (3, [8, "b"]), "c": 1}
    same_object = ([1, 2], ("a",))
    assert substitute_sizes(same_object, values) is same_object


@pytest.mark.parametrize("seed", range(40))
def test_indices(seed):
    """Quotients of indices with symbolic strides, at every point."""
    rng = random.Random(seed)
    env, x, y = env_of(3, 4)
    variables = [Sym("i", x), Sym("j", y), Sym("k", 5)]
    i, j, k = map(symbol, variables)
    strides = [(y * 5, 5, 1), (1, x, x * y), (5, x * 5, 1)][rng.randrange(3)]
    flat = i * strides[0] + j * strides[1] + k * strides[2]
    divisor = rng.choice([5, y, x, x * y, y * 5, x * 5, 2, 10])
    try:
        exprs = floordiv(flat, divisor), mod(flat, divisor)
    except Unsupported:
        return
    for a, b in ((3, 4), (2, 7), (6, 2)):
        values = env.program().values({"size0": a, "size1": b})
        for point in itertools.product(range(a), range(b), range(5)):
            here = dict(zip("ijk", point))
            number = sum(p * at(s, values) for p, s in zip(point, strides))
            d = at(divisor, values)
            assert value_of(exprs[0], here, values) == number // d
            assert value_of(exprs[1], here, values) == number % d


def value_of(expr, point, values):
    if not isinstance(expr, Expr):
        return at(expr, values)
    total = at(expr.const, values)
    for atom, coef in expr.terms:
        if isinstance(atom, Sym):
            number = point[atom.name]
        else:
            base, divisor = value_of(atom.base, point, values), at(atom.divisor, values)
            number = base // divisor if isinstance(atom, FloorDiv) else base % divisor
        total += number * at(coef, values)
    return total
