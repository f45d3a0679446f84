"""The interval of an index that decides whether a Triton kernel computes with 32 or 64 bits."""

from inductor.codegen.triton.span import fits_int32, span
from inductor.ir.size import named
from inductor.schedule.index import Affine, Compound, FloorDiv, Mod

X = Compound(((Affine(terms=(("x", 1),)), 1),))
SIZE = named("size0")


def fits(index: Compound, size: int) -> bool:
    return fits_int32(span(index, {"x": size}, {}))


def test_index_with_a_size_that_no_loop_has():
    assert fits(Compound(((FloorDiv(X, SIZE), 1), (Mod(X, SIZE), 1))), 30)
    assert not fits(Compound(((Mod(X, SIZE), SIZE),)), 30)


def test_intermediate_results_count():
    def back(k: int) -> Compound:
        return Compound(((FloorDiv(Compound(((Affine(terms=(("x", 1),)), k),)), k), 1),))

    assert fits(back(1000), 2**20)
    assert not fits(back(10000), 2**20)


def test_a_divisor_is_at_least_one():
    assert fits(Compound(((FloorDiv(X, SIZE - 1), 1),)), 30)
    assert not fits(Compound(((FloorDiv(X, SIZE - 5), 2**28),)), 30)
