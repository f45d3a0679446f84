"""The counter-based random number generator Philox 2x32 with ten rounds (Salmon et al., 2011), in torch.

It defines the loop-IR op `random_bits`: generated kernels must produce the same bits.
"""

from __future__ import annotations

import torch

ROUNDS, MULTIPLIER, WEYL = 10, 0xD256D193, 0x9E3779B9
_WORD = 0xFFFFFFFF


def random_bits(key: torch.Tensor, stream: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
    """32 random bits per counter. Counters 2 * n and 2 * n + 1 have the first and the second word of the block
    (n, stream) encrypted with `key`. All int32."""
    counter = counter.long() & _WORD
    key, left, right = key.long() & _WORD, counter >> 1, stream.long() & _WORD
    for _ in range(ROUNDS):
        # The product has 64 bits, more than a nonnegative int64 holds, so the high word is computed in two halves.
        high = ((left >> 16) * MULTIPLIER + ((left & 0xFFFF) * MULTIPLIER >> 16)) >> 16
        left, right = high ^ key ^ right, left * MULTIPLIER & _WORD
        key = key + WEYL & _WORD
    return torch.where(counter & 1 == 0, left, right).to(torch.int32)
