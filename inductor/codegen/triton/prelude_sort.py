"""Sorts of rows, which generated Triton kernels call; see `prelude.py`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sort_key(x, descending: tl.constexpr):
    """A signed integer that orders as `x` does. Zeros are equal, NaN is greater than every number and equal to NaN."""
    if x.dtype.is_floating():
        if x.dtype == tl.float64:
            bits = tl.where(x == 0, 0.0, x).to(tl.int64, bitcast=True)
            key = tl.where(x != x, 0x7FFFFFFFFFFFFFFF, bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF))
        elif x.dtype == tl.float32:
            bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
            key = tl.where(x != x, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))
        else:
            bits = x.to(tl.int16, bitcast=True).to(tl.int32)
            bits = tl.where((bits & 0x7FFF) == 0, 0, bits)
            key = tl.where(x != x, 0x7FFF, bits ^ ((bits >> 15) & 0x7FFF))
    else:
        key = x
    return ~key if descending else key


@triton.jit
def from_sort_key(key, is_negative_zero, dtype: tl.constexpr, descending: tl.constexpr):
    """The element of a key. All NaNs are the same one."""
    key = ~key if descending else key
    if dtype.is_floating():
        if dtype == tl.float64:
            found = (key ^ ((key >> 63) & 0x7FFFFFFFFFFFFFFF)).to(tl.float64, bitcast=True)
        elif dtype == tl.float32:
            key = key.to(tl.int32)
            found = (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        else:
            key = key.to(tl.int32)
            found = (key ^ ((key >> 15) & 0x7FFF)).to(tl.int16).to(dtype, bitcast=True).to(tl.float32)
        key = tl.where(is_negative_zero != 0, found * -1.0, found)
    return key


@triton.jit
def negative_zero(x):
    """1 for each -0.0, else 0. All int32."""
    if x.dtype == tl.float64:
        found = x.to(tl.int64, bitcast=True) == -9223372036854775808
    elif x.dtype == tl.float32:
        found = x.to(tl.int32, bitcast=True) == -2147483648
    else:
        found = x.to(tl.int16, bitcast=True) == -32768
    return found.to(tl.int32)


@triton.jit
def sort_pairs(key, tag, lane):
    """Pairs in ascending order along axis 1, by a bitonic network. No two pairs are equal; `lane` is the position. The
    tile is handled as a hypercube with two elements along each dimension, the last ones being those of axis 1."""
    total: tl.constexpr = tl.standard._log2(key.numel)
    steps: tl.constexpr = tl.standard._log2(key.shape[1])
    a = tl.reshape(key, [2] * total)
    b = tl.reshape(tag, [2] * total)
    at = tl.reshape(lane, [2] * total)
    for stage in tl.static_range(1, steps + 1):
        for k in tl.static_range(stage):
            other = a ^ tl.xor_sum(a, total - stage + k, True)
            mate = b ^ tl.xor_sum(b, total - stage + k, True)
            less = (a < other) | ((a == other) & (b < mate))
            # Every second run of the earlier stages is in descending order, so that two of them can be merged.
            run = at >> stage if stage < steps else at * 0
            first = ((at >> (stage - 1 - k)) ^ run) & 1 == 0
            a = tl.where(less == first, a, other)
            b = tl.where(less == first, b, mate)
    return tl.reshape(a, key.shape), tl.reshape(b, key.shape)


@triton.jit
def _bit(rank: tl.constexpr, k: tl.constexpr):
    """Bit k of the index of each element of a hypercube with `rank` dimensions."""
    return tl.reshape(tl.arange(0, 2), [1] * (rank - 1 - k) + [2] + [1] * k)


@triton.jit
def _turned(a, descending, doubles: tl.constexpr):
    """Numbers that order the other way where `descending` is 1, and those again if called twice."""
    if doubles:
        return a ^ (descending.to(tl.int64) << 63)
    else:
        return a ^ -descending.to(a.dtype)


@triton.jit
def _less(a, b, doubles: tl.constexpr):
    if doubles:
        return a.to(tl.float64, bitcast=True) < b.to(tl.float64, bitcast=True)
    else:
        return a < b


@triton.jit
def _lesser(a, b):
    return tl.where(a < b, a, b)


@triton.jit
def _step(a, rank: tl.constexpr, k: tl.constexpr, doubles: tl.constexpr):
    """Each pair of elements whose indices differ in bit k, the lesser one first."""
    other = a ^ tl.xor_sum(a, rank - 1 - k, True)
    return tl.where(_less(a, other, doubles) ^ (_bit(rank, k) == 1), a, other)


@triton.jit
def _spread(x, low: tl.constexpr, width: tl.constexpr):
    """The columns of `x` in another order, in which neighbours are what one of `width` threads holds, if each of them
    holds `low` neighbours of the rows of `x`, and as many again behind those of all threads. `x` itself if `low` is 0.
    """
    if low > 0:
        steps: tl.constexpr = x.shape[1] // (width * low)
        parts = tl.reshape(x, [x.shape[0], steps, width, low])
        return tl.reshape(tl.permute(parts, (0, 2, 1, 3)), x.shape)
    else:
        return x


@triton.jit
def _runs(a, rank: tl.constexpr, last: tl.constexpr, doubles: tl.constexpr):
    """A hypercube in sorted runs of 2 ** last elements, every second one of them turned.

    A bitonic network needs every second run in descending order: it is held turned, and sorted as the others are."""
    for stage in tl.static_range(1, last + 1):
        turned = _bit(rank, stage)
        if stage > 1:
            turned = turned ^ _bit(rank, stage - 1)
        a = _turned(a, turned, doubles)
        for k in tl.static_range(stage):
            a = _step(a, rank, stage - 1 - k, doubles)
    return a


@triton.jit
def sort_numbers(x, doubles: tl.constexpr):
    """Integers in ascending order along axis 1. No two of a row are equal. `doubles`: they are int64, and not negative
    and less than 2 ** 62, so that they are compared as bits of float64, which takes one instruction."""
    rank: tl.constexpr = tl.standard._log2(x.numel)
    steps: tl.constexpr = tl.standard._log2(x.shape[1])
    a = _runs(tl.reshape(x, [2] * rank), rank, steps - 1, doubles)
    if steps > 1:
        a = _turned(a, _bit(rank, steps - 1), doubles)
    for k in tl.static_range(steps):
        a = _step(a, rank, steps - 1 - k, doubles)
    return tl.reshape(a, x.shape)


@triton.jit
def least_numbers(x, count: tl.constexpr, doubles: tl.constexpr):
    """The first `count` columns of what `sort_numbers` gives; `count` is a power of 2, at least 2 and at most half of
    them. Runs of `count` are sorted, and of two runs the least are kept, until there is one."""
    rank: tl.constexpr = tl.standard._log2(x.numel)
    steps: tl.constexpr = tl.standard._log2(x.shape[1])
    few: tl.constexpr = tl.standard._log2(count)
    a = _runs(tl.reshape(x, [2] * rank), rank, few, doubles)
    a = _turned(a, _bit(rank, few), doubles)
    return tl.reshape(_halved(a, rank, steps, few, doubles), [x.shape[0], count])


@triton.jit
def _halved(a, rank: tl.constexpr, steps: tl.constexpr, few: tl.constexpr, doubles: tl.constexpr):
    if doubles:
        least = tl.reduce(a.to(tl.float64, bitcast=True), rank - 1 - few, _lesser).to(tl.int64, bitcast=True)
    else:
        least = tl.min(a, rank - 1 - few)
    if steps - 1 > few:
        least = _turned(least, _bit(rank - 1, few), doubles)
    for k in tl.static_range(few):
        least = _step(least, rank - 1, few - 1 - k, doubles)
    if steps - 1 > few:
        return _halved(_turned(least, _bit(rank - 1, few), doubles), rank - 1, steps - 1, few, doubles)
    else:
        return least


@triton.jit
def sort_rows(
    x, length, narrow: tl.constexpr, descending: tl.constexpr, low: tl.constexpr, width: tl.constexpr,
    doubles: tl.constexpr,
):
    """The elements along axis 1 in order, which is stable, and their positions; those from `length` on come last.
    `narrow`: elements have at most 16 bits. `low` and `width`: how threads hold rows, as `_spread` says. `doubles`: as
    in `sort_numbers`, for elements of 32 bits.

    One number for each element is sorted, its key followed by its tag: its position and whether it is a negative zero.
    Keys of 64 bits are sorted with their tags.
    """
    if x.dtype.primitive_bitwidth == 64:
        lane = tl.broadcast_to(tl.arange(0, x.shape[1])[None, :], x.shape)
        key = tl.where(lane < length, sort_key(x, descending), 0x7FFFFFFFFFFFFFFF)
        tag = lane * 2 + negative_zero(x) if x.dtype.is_floating() else lane * 2
        key, tag = sort_pairs(key, tag, lane)
        return from_sort_key(key, tag & 1, x.dtype, descending), tag >> 1
    else:
        numbers = _spread(packed(x, length, narrow, descending, doubles), low, width)
        return unpacked(sort_numbers(numbers, doubles), x.shape[1], x.dtype, descending, doubles)


@triton.jit
def first_in_order(
    x, length, narrow: tl.constexpr, descending: tl.constexpr, low: tl.constexpr, width: tl.constexpr,
    doubles: tl.constexpr, count: tl.constexpr,
):
    """What `sort_rows` gives for the first `count` lanes of axis 1, a power of 2, at least 2 and at most half of them,
    and the same for the lanes behind, again and again. Not for elements of 64 bits."""
    numbers = _spread(packed(x, length, narrow, descending, doubles), low, width)
    found, order = unpacked(least_numbers(numbers, count, doubles), x.shape[1], x.dtype, descending, doubles)
    return _repeated(found, x.shape), _repeated(order, x.shape)


@triton.jit
def _repeated(x, shape: tl.constexpr):
    times: tl.constexpr = shape[1] // x.shape[1]
    return tl.reshape(tl.broadcast_to(tl.expand_dims(x, 1), [x.shape[0], times, x.shape[1]]), shape)


@triton.jit
def packed(x, length, narrow: tl.constexpr, descending: tl.constexpr, doubles: tl.constexpr):
    """One number for each element that orders as `sort_rows` does: int32 if `narrow`, else int64, with `doubles` not
    negative. For rows of at most 4096 lanes, whose keys and tags have 45 bits."""
    count: tl.constexpr = x.shape[1]
    lane = tl.broadcast_to(tl.arange(0, count)[None, :], x.shape)
    tag = lane * 2
    if x.dtype.is_floating():
        tag += negative_zero(x)
    key = sort_key(x, descending)
    if narrow:
        return tl.where(lane < length, key, 0x7FFF) * (2 * count) + tag
    else:
        numbers = tl.where(lane < length, key, 0x7FFFFFFF).to(tl.int64) * (2 * count) + tag
        return numbers + (1 << 44) if doubles else numbers


@triton.jit
def unpacked(numbers, count: tl.constexpr, dtype: tl.constexpr, descending: tl.constexpr, doubles: tl.constexpr):
    """The elements and positions of what `packed` gives for rows of `count` lanes."""
    if doubles:
        numbers -= 1 << 44
    tag = numbers & (2 * count - 1)
    key = ((numbers - tag) // (2 * count)).to(tl.int32)
    tag = tag.to(tl.int32)
    return from_sort_key(key, tag & 1, dtype, descending), tag >> 1
