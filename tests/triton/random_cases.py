"""Random numbers made in kernels, by name; run by worker_triton.py."""

import torch
import torch.nn.functional as F
from triton_support import check

from inductor.aot.random import RANDOM_BITS

SEEDS = torch.tensor([5, -3 << 33, 2**62 + 12345])


def bits_are_those_of_the_reference_in_every_layout():
    x = torch.randn(70, 37)
    check(lambda s, x: (RANDOM_BITS(s, 1, [37, 70]), RANDOM_BITS(s, 2, [37, 70]).t() + x), SEEDS, x)
    check(lambda s: (RANDOM_BITS(s, 0, [1]), RANDOM_BITS(s, 0, [])), SEEDS)


def rows_and_columns_are_reduced_over_the_same_bits():
    def fn(s):
        kept = RANDOM_BITS(s, 2, [40, 300]) >= 0
        return kept.sum(0), kept.sum(1), kept

    check(fn, SEEDS)


def dropout_residual_and_layer_norm_are_one_kernel():
    def fn(s, x, y, w, b):
        kept = RANDOM_BITS(s, 1, [37, 300]) >= -(2**31) + 2**31 // 5
        return F.layer_norm(x * kept * (1 / 0.9) + y, (300,), w, b)

    check(fn, SEEDS, torch.randn(37, 300), torch.randn(37, 300), torch.randn(300), torch.randn(300), kinds=["persistent"])


def neighbours_take_both_words_of_a_block():
    def used(fn):
        return {name for k in check(fn, SEEDS).source.kernels for name in ("random_pairs(", "random_bits(") if name in k.text}

    assert used(lambda s: RANDOM_BITS(s, 0, [13, 37])) == {"random_pairs("}
    assert used(lambda s: (RANDOM_BITS(s, 0, [13, 38]) >= 0).sum(1)) == {"random_pairs("}
    assert used(lambda s: (RANDOM_BITS(s, 0, [13, 37]) >= 0).sum(1)) == {"random_bits("}  # rows begin at odd counters
    assert used(lambda s: (RANDOM_BITS(s, 0, [13, 38]) >= 0).sum(0)) == {"random_bits("}
    assert used(lambda s: RANDOM_BITS(s, 0, [1])) == {"random_bits("}


CASES = {fn.__name__: fn for fn in (
    bits_are_those_of_the_reference_in_every_layout,
    rows_and_columns_are_reduced_over_the_same_bits,
    dropout_residual_and_layer_norm_are_one_kernel,
    neighbours_take_both_words_of_a_block,
)}  # fmt: skip
