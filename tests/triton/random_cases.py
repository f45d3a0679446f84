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


def layers_with_other_seeds_are_one_kernel():
    def fn(s, x, y, w, b, m):
        for k in (1, 2, 3):
            x = F.layer_norm(x * (RANDOM_BITS(s, k, [37, 40]) >= 7) + y, (40,), w, b) @ m
        return x

    seeds, size = torch.cat([SEEDS, SEEDS + 1]), (37, 40)
    tensors = torch.randn(size), torch.randn(size), torch.randn(40), torch.randn(40), torch.randn(40, 40)
    runner = check(fn, seeds, *tensors, kinds=["persistent"], atol=1e-4)
    assert len(runner.launches) == 3


def positions_that_are_equal_in_one_layer_differ_in_another():
    def fn(s, x, m):
        for first, second in ((1, 1), (2, 1), (1, 2), (2, 2), (3, 1), (0, 1)):
            x = (x * s[first] + s[second : second + 1]).softmax(-1) @ m
        for first, second in ((1, 1), (2, 1), (1, 2), (0, 0), (0, 2)):
            x = (x * s[first] + s[second]).softmax(-1) @ m
        return x

    check(fn, torch.randn(4), torch.randn(5, 40), torch.randn(40, 40), atol=1e-4)


def positions_that_are_written():
    def fn(x, y):
        first = torch.stack([x.sum(), x.amax(), (x * x).sum()])
        second = torch.stack([(y + first[1]).sum(), (y + first[2]).sum(), y.amax() + first[1]])
        return first, second, (y + second[2]).sum() + (y + second[1]).sum()

    check(fn, torch.randn(300), torch.randn(300), rtol=1e-4, atol=1e-4)


CASES = {fn.__name__: fn for fn in (
    bits_are_those_of_the_reference_in_every_layout,
    rows_and_columns_are_reduced_over_the_same_bits,
    dropout_residual_and_layer_norm_are_one_kernel,
    neighbours_take_both_words_of_a_block,
    layers_with_other_seeds_are_one_kernel,
    positions_that_are_equal_in_one_layer_differ_in_another,
    positions_that_are_written,
)}  # fmt: skip
