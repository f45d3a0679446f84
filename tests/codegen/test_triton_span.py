"""The interval of an index that decides whether a Triton kernel computes with 32 or 64 bits."""

from inductor.codegen.triton.span import fits_int32, span
from inductor.schedule.index import Affine, Opaque


def test_index_with_a_size_that_no_loop_has():
    x = Affine(terms=(("x", 1),))
    assert fits_int32(span(Opaque("(v / size0) + (v % size0)", (("v", x),)), {"x": 30}, {}))
    assert not fits_int32(span(Opaque("(v % size0) * size0", (("v", x),)), {"x": 30}, {}))


def test_intermediate_results_count():
    x = Affine(terms=(("x", 1),))
    assert fits_int32(span(Opaque("v * 1000 / 1000", (("v", x),)), {"x": 2**20}, {}))
    assert not fits_int32(span(Opaque("v * 10000 / 10000", (("v", x),)), {"x": 2**20}, {}))
