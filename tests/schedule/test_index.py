"""Index expressions of the scheduler against plain integer arithmetic: substitution, bounds, and both printers."""

import ctypes
import itertools
import random
import subprocess

from inductor.codegen.printer import CppPrinter, TritonPrinter
from inductor.ir.size import SizeEnv
from inductor.ir.symbolic import Expr, Sym, evaluate, symbol
from inductor.schedule.index import Affine, Compound, from_ir, variable

SYMS = [Sym("i0", 4), Sym("i1", 6), Sym("i2", 8)]
ENV = {  # i0 and i1 are parts of one merged variable; i2 is the product of two
    "i0": variable("o0"),
    "i1": Affine((("o1", 1),)),
    "i2": Affine((("r0", 4), ("r1", 1))),
}
SIZES = {"o0": 4, "o1": 6, "r0": 2, "r1": 4}


def expressions(count: int) -> list[Expr]:
    """Random expressions with a floor division or a modulus."""
    rng, out = random.Random(0), []
    variables = list(map(symbol, SYMS))
    while len(out) < count:
        e = sum((v * rng.randint(-5, 20) for v in variables), rng.randint(-9, 9))
        e = e // rng.randint(2, 40) if rng.random() < 0.5 else e % rng.randint(2, 40)
        e = e * rng.randint(1, 4) + rng.choice(variables) * rng.randint(0, 3) + rng.randint(-2, 2)
        e = e % rng.randint(2, 30) if rng.random() < 0.3 else e
        if isinstance(e, Expr) and isinstance(from_ir(e), Compound):
            out.append(e)
    return out


def points():
    for o0, o1, r0, r1 in itertools.product(range(4), range(6), range(2), range(4)):
        yield {"o0": o0, "o1": o1, "r0": r0, "r1": r1}, {"i0": o0, "i1": o1, "i2": 4 * r0 + r1}


def test_python_text_and_bounds_after_a_substitution():
    for e in expressions(60):
        index = from_ir(e).substitute(ENV)
        assert index.names() <= SIZES.keys()
        low, high = index.span({name: (0, size - 1) for name, size in SIZES.items()})
        code = compile(TritonPrinter().index(index), "index", "eval")
        for place, own in points():
            value = eval(code, {}, place)
            assert value == evaluate(e, own)
            assert low <= value <= high


def test_cpp_text(tmp_path):
    chosen = expressions(60)
    texts = [CppPrinter().index(from_ir(e).substitute(ENV)) for e in chosen]
    body = "".join(f"out[{k}] = {text};\n" for k, text in enumerate(texts))
    source = f"void f(long o0, long o1, long r0, long r1, long* out) {{\n{body}}}\n"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", tmp_path / "f.so"], input=source.encode(), check=True)
    f = ctypes.CDLL(str(tmp_path / "f.so")).f
    out = (ctypes.c_long * len(chosen))()
    for place, own in points():
        f(*map(ctypes.c_long, place.values()), out)
        assert list(out) == [evaluate(e, own) for e in chosen]


def test_equal_structure_is_equal():
    one, other = (from_ir((symbol(SYMS[0]) * 6 + symbol(Sym("i1", n))) // 4) for n in (6, 9))
    assert one == other and hash(one) == hash(other)
    assert one.substitute(ENV) == other.substitute(ENV) != one
    assert one != from_ir((symbol(SYMS[0]) * 6 + symbol(SYMS[1])) % 4)


def test_comparing_symbolic_divisors_assumes_nothing():
    env = SizeEnv()
    a, b = env.symbol("size0", 4, 2), env.symbol("size1", 4, 2)
    x = symbol(Sym("i0", 100))
    one, other = from_ir(x // a), from_ir(x // b)
    assert one != other and one == from_ir(x // a)
    assert env.program().assumed == ()


def test_printing_records_the_size_symbols():
    env = SizeEnv()
    rows, columns = env.symbol("size0", 4, 2), env.symbol("size1", 5, 2)
    printer = CppPrinter()
    assert printer.index(from_ir(symbol(SYMS[0]) * rows)) == "size0*i0"
    assert printer.symbols == {"size0"}
    assert printer.index(from_ir(symbol(SYMS[2]) // (columns + 3))) == "((i2) / (size1 + 3))"
    assert printer.symbols == {"size0", "size1"}


def test_coefficients_beside_divisions():
    """The coefficient of a variable is the step of the index along it, where it is in no division."""
    inside = from_ir(symbol(SYMS[2]) * 5 + (symbol(SYMS[1]) + 3) // 4 + symbol(SYMS[0]))
    assert isinstance(inside, Compound)
    assert [inside.coef(name) for name in ("i0", "i1", "i2", "other")] == [1, None, 5, 0]
    assert inside.substitute({"i2": Affine((("r0", 4), ("r1", 1)))}).coef("r0") == 20
