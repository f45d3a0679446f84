"""Index simplification against plain integer arithmetic."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from inductor.ir.symbolic import Sym, bounds, evaluate, substitute, symbol

A, B, C = Sym("a", 4), Sym("b", 6), Sym("c", 8)
a, b, c = map(symbol, (A, B, C))


def points():
    return ({"a": x, "b": y, "c": z} for x, y, z in itertools.product(range(4), range(6), range(8)))


def test_a_reshape_and_back_is_the_identity():
    flat = a * 48 + b * 8 + c
    assert [flat // 48, flat // 8 % 6, flat % 8] == [a, b, c]
    assert str(flat // 8) == "6*a + b"


def test_parts_of_a_division_join():
    z = c + 4 * b
    assert 64 * a + 6 * (z // 3) + 2 * (z % 3) == 64 * a + 2 * c + 8 * b
    assert str(8 * (c // 5) + c % 5) != str(c)
    assert (c - 3) // 5 * 5 + (c - 3) % 5 == c - 3


@settings(deadline=None, derandomize=True)
@given(st.tuples(*[st.integers(-6, 12)] * 4), st.integers(2, 9), st.integers(-9, 9), st.integers(-3, 3), st.integers(-9, 9))
def test_values_of_sums_of_parts(coefs, d, k, extra, other):
    e = a * coefs[0] + b * coefs[1] + c * coefs[2] + coefs[3]
    for quotients in (k * d, other):
        total = (e // d) * quotients + (e % d) * k + e * extra
        for env in points():
            v = evaluate(e, env)
            assert evaluate(total, env) == (v // d) * quotients + (v % d) * k + v * extra


def test_constants_are_ints():
    assert a - a == 0 and (a * 8) % 8 == 0 and (c // 8) == 0
    assert symbol(Sym("x", 1)) == 0


@settings(deadline=None, derandomize=True)
@given(
    st.tuples(*[st.integers(-10, 48)] * 4), st.integers(1, 50), st.integers(1, 12), st.integers(-5, 5), st.integers(1, 9)
)
def test_values_and_bounds(coefs, d1, m1, shift, d2):
    e = a * coefs[0] + b * coefs[1] + c * coefs[2] + coefs[3]
    derived = [
        (e // d1, lambda v: v // d1),
        (e % d1, lambda v: v % d1),
        ((e // d1 + shift) % m1, lambda v: (v // d1 + shift) % m1),
        ((e % d1 * m1 + shift) // d2, lambda v: (v % d1 * m1 + shift) // d2),
    ]
    for env in points():
        value = evaluate(e, env)
        for expr, plain in derived:
            assert evaluate(expr, env) == plain(value)
            assert eval(str(expr), {}, env) == plain(value)
            assert bounds(expr)[0] <= plain(value) <= bounds(expr)[1]


def test_substitute_simplifies():
    i, j = symbol(Sym("i", 2)), symbol(Sym("j", 4))
    flat = c // 4
    assert substitute(flat, {C: i * 4 + j}) == i
