"""Functions that generated Triton kernels call; `prelude_sort.py` has those that sort. Kernels import them by name;
compiling workers load these two files alone."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

# ---- extremes: NaN wins, as in ATen


@triton.jit
def nan_max(a, b):
    """The greater."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def nan_min(a, b):
    """The lesser."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def arg_max(a, i, b, j):
    """The greater of (value, position) pairs; of equals the one that comes first."""
    first = (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def arg_min(a, i, b, j):
    """The lesser of (value, position) pairs; of equals the one that comes first."""
    first = (a < b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def later_max(a, i, b, j):
    """`arg_max` where j is greater than i."""
    keep = (b <= a) | (a != a)
    return tl.where(keep, a, b), tl.where(keep, i, j)


@triton.jit
def later_min(a, i, b, j):
    """`arg_min` where j is greater than i."""
    keep = (b >= a) | (a != a)
    return tl.where(keep, a, b), tl.where(keep, i, j)


@triton.jit
def first_where(found, i):
    """The least of the positions found along axis 1, which is kept."""
    if i.dtype == tl.int64:
        return tl.min(tl.where(found, i, 9223372036854775807), 1, keep_dims=True)
    else:
        return tl.min(tl.where(found, i, 2147483647), 1, keep_dims=True)


@triton.jit
def first_max(a, i):
    """The greatest along axis 1, which is kept, and the first of its positions."""
    top = tl.reduce(a, 1, nan_max, keep_dims=True)
    return top, first_where((a == top) | (a != a), i)


@triton.jit
def first_min(a, i):
    """The least along axis 1, which is kept, and the first of its positions."""
    low = tl.reduce(a, 1, nan_min, keep_dims=True)
    return low, first_where((a == low) | (a != a), i)


@triton.jit
def product(a, b):
    """The product."""
    return a * b


# ---- scans: `b` follows `a`


@triton.jit
def plus(a, b):
    """The sum."""
    return a + b


@triton.jit
def sum_exps(a, total, b, more):
    """The greatest element of two runs and the sum of exp(element - greatest), from those of each. NaN spoils both, and
    elements that are the same infinity have the difference 0."""
    e = tl.where(a == b, 1.0, exp_below(-tl.abs(a - b)))
    return nan_max(a, b), tl.where(b > a, total * e + more, total + more * e)


@triton.jit
def log_sum(top, total):
    """The logarithm of the sum of exponentials of a run, from what `sum_exps` gives."""
    return top + tl.log(total)


@triton.jit
def log_sum_rough(top, total):
    """`log_sum` in float32 with an error of some 1e-7."""
    return top + libdevice.fast_logf(total)


@triton.jit
def scan_exps(x, carry, carried, reverse: tl.constexpr):
    """The running results of `sum_exps` along axis 1, continued from `carry` and `carried` of the elements ahead.

    Where no running maximum is far below the greatest element of its row, all are sums of exp(element - greatest),
    which takes one exponential per element. The sums are then far from underflow, and the results as accurate.
    """
    greatest = tl.maximum(tl.max(x, 1, keep_dims=True), carry)
    first = tl.maximum(lane(x, x.shape[1] - 1 if reverse else 0), carry)
    near = (first >= greatest - 16) & (tl.abs(greatest) < float("inf"))
    if tl.min(tl.min(near.to(tl.int32), 1), 0) == 1:
        top = tl.broadcast_to(greatest, x.shape)
        total = tl.associative_scan(exp_below(x - greatest), 1, plus, reverse=reverse)
        total += carried * exp_below(carry - greatest)
    else:
        top, total = tl.associative_scan((x, tl.full(x.shape, 1.0, x.dtype)), 1, sum_exps, reverse=reverse)
        top, total = sum_exps(carry, carried, top, total)
    return top, total


@triton.jit
def last_max(a, i, b, j):
    """The greater of (value, position) pairs; of equals, and of two NaNs, the second."""
    keep = (b == b) & ((a != a) | (a > b))
    return tl.where(keep, a, b), tl.where(keep, i, j)


@triton.jit
def last_min(a, i, b, j):
    """The lesser of (value, position) pairs; of equals, and of two NaNs, the second."""
    keep = (b == b) & ((a != a) | (a < b))
    return tl.where(keep, a, b), tl.where(keep, i, j)


@triton.jit
def lane(x, at):
    """Element `at` of axis 1, which is kept."""
    found = tl.arange(0, x.shape[1])[None, :] == at
    return tl.sum(tl.where(found, x, tl.zeros_like(x)), 1, keep_dims=True)


# ---- totals that programs pass on (chain.py): words with 32 bits of a value, and the mark 1 << 32


@triton.jit
def take_ticket(memory, programs):
    """The number of programs of this launch that have started before, and whether it is the first or the second of two
    launches. *memory counts the programs of both."""
    ticket = tl.atomic_add(memory, 1, sem="relaxed")
    tl.store(memory, 0, mask=ticket == 2 * programs - 1)
    return ticket % programs, ticket // programs


@triton.jit
def publish(here, there, plane, value, mask):
    """Stores a value where others wait for it, and clears the place that the next launch uses. The second word of a
    value of 64 bits is `plane` words behind the first."""
    if value.dtype.primitive_bitwidth == 64:
        bits = value.to(tl.int64, bitcast=True)
        _publish_word(here, there, bits, mask)
        _publish_word(here + plane, there + plane, bits >> 32, mask)
    else:
        _publish_word(here, there, value.to(tl.int32, bitcast=True).to(tl.int64), mask)


@triton.jit
def _publish_word(here, there, bits, mask):
    tl.atomic_xchg(here, (bits & 0xFFFFFFFF) | 0x100000000, mask=mask, sem="relaxed")
    tl.store(there, tl.zeros_like(bits), mask=mask)


@triton.jit
def receive(words, plane, mask, dtype: tl.constexpr):
    """Waits until `publish` has stored all values where `mask`; any value elsewhere."""
    low = _marked(words, mask)
    if dtype.primitive_bitwidth == 64:
        return ((_marked(words + plane, mask) << 32) | (low & 0xFFFFFFFF)).to(dtype, bitcast=True)
    return low.to(tl.int32).to(dtype, bitcast=True)


@triton.jit
def _marked(words, mask):
    found = tl.load(words, mask=mask, other=0x100000000, volatile=True)
    while tl.min(tl.min((found >> 32).to(tl.int32), 1), 0) == 0:
        found = tl.load(words, mask=mask, other=0x100000000, volatile=True)
    return found


# ---- a greatest element and the sum of exp(element - greatest), in one pass


@triton.jit
def exp_below(x):
    """exp of what is at most 0. In float32, results too small for a normal number are 0."""
    if x.dtype == tl.float32:
        return tl.exp2(x * 1.4426950408889634)
    else:
        return tl.exp(x)


@triton.jit
def online_step(top, total, v):
    """One more element a lane. `top` starts at the lowest finite number, so that no difference is inf - inf."""
    d = v - top
    e = exp_below(-tl.abs(d))
    return nan_max(top, v), tl.where(d > 0, total * e + 1.0, total + e)


@triton.jit
def online_groups(top, total, v):
    """`online_step` with several elements a lane: `v` is a multiple of `top` long."""
    w = tl.reshape(v, [top.shape[0], top.shape[1], v.shape[1] // top.shape[1]])
    best = nan_max(top, tl.reduce(w, 2, nan_max))
    more = tl.sum(exp_below(w - tl.expand_dims(best, 2)), 2)
    return best, total * exp_below(top - best) + more


@triton.jit
def online_fold(top, total):
    """Lanes joined along axis 1, which is kept."""
    best = tl.reduce(top, 1, nan_max, keep_dims=True)
    return best, tl.sum(total * exp_below(top - best), 1, keep_dims=True)


@triton.jit
def online_close(top, total):
    """The results as two passes would give them: without a finite element, -inf and NaN."""
    empty = total == 0
    return tl.where(empty, float("-inf"), top), tl.where(empty, float("nan"), total)


# ---- a mean and the sum of squared deviations from it, in one pass


@triton.jit
def moments_step(first, total, squares, v, is_first):
    """One more element a lane: the sums of the differences from the lane's first element, and of their squares."""
    first = tl.where(is_first, v, first)
    d = v - first
    return first, total + d, squares + d * d


@triton.jit
def moments_close(first, total, squares, count):
    """The state that `moments_fold` takes, from that of `moments_step`."""
    mean = total / tl.maximum(count, 1.0)
    squares = squares - total * mean
    return first, mean, tl.where(squares < 0, 0.0, squares)


@triton.jit
def plus_pairs(a, b, c, d):
    """The sums of two pairs."""
    return a + c, b + d


@triton.jit
def moments_fold(first, mean, squares, count, count_all):
    """Sets of `count` elements joined along axis 1, which is kept. The mean of each set is the sum `first` + `mean`, of
    which the second is small. The mean of all is found with a rounding error, and then the error."""
    center = tl.sum(count * (first + mean), 1, keep_dims=True) / count_all
    d = (first - center) + mean
    squares, error = tl.reduce((squares + count * d * d, count * d), 1, plus_pairs, keep_dims=True)
    error = error / count_all
    squares = squares - error * error * count_all
    return center, error, tl.where(squares < 0, 0.0, squares)


@triton.jit
def corrected_moments(mean, deviation, count):
    """The mean and the sum of squared deviations, from a mean with a rounding error and the deviations from it."""
    squares, error = tl.reduce((deviation * deviation, deviation), 1, plus_pairs, keep_dims=True)
    error = error / count
    squares = squares - error * error * count
    return mean + error, tl.where(squares < 0, 0.0, squares)


# ---- arithmetic


@triton.jit
def sign(x):
    """-1, 0 or 1; 0 of NaN too."""
    one = tl.full([], 1, x.dtype)
    return tl.where(x > 0, one, tl.where(x < 0, -one, 0 * one))


@triton.jit
def int_to_float(x):
    """A signed integer as float32.

    By its magnitude and sign: LLVM's back end for NVIDIA takes -1 for 1 where it knows that a number is -1 or 0 and the
    float is rounded to bfloat16 at once, as in `where(x > 0, 1, where(x < 0, -1, 0))` of vectors.
    """
    if x.dtype == tl.int64:
        magnitude = (-x).to(tl.uint64, bitcast=True).to(tl.float32)
    else:
        magnitude = (-(x.to(tl.int32))).to(tl.uint32, bitcast=True).to(tl.float32)
    return tl.where(x < 0, -magnitude, x.to(tl.float32))


@triton.jit
def int_floordiv(a, b):
    """a / b rounded to minus infinity."""
    q = a // b
    r = a - q * b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), q - 1, q)


@triton.jit
def int_remainder(a, b):
    """What `int_floordiv` leaves: of b's sign."""
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def remainder(a, b):
    """The remainder of b's sign."""
    r = libdevice.fmod(a, b)
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def divide(a, b):
    """a / b correctly rounded."""
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    else:
        return a / b


@triton.jit
def floordiv(a, b):
    """a / b rounded to minus infinity, exact where b divides a; -1 if b is infinite and of the other sign."""
    r = libdevice.fmod(a, b)
    q = divide(a - r, b)
    q = tl.where((r != 0) & ((r < 0) != (b < 0)), q - 1, q)
    f = tl.floor(q)
    f = tl.where(q - f > 0.5, f + 1, f)
    f = tl.where(q == 0, a / b * 0.0, f)  # the sign of the zero
    return tl.where(b == 0, a / b, f)


@triton.jit
def tanh(x):
    """The hyperbolic tangent in float32: an odd polynomial near zero, 1 - 2 / (exp(2|x|) + 1) elsewhere."""
    a = tl.abs(x)
    s = x * x
    p = -5.70498872745e-3 * s + 2.06390887954e-2
    p = p * s - 5.37397155531e-2
    p = p * s + 1.33314422036e-1
    p = p * s - 3.33332819422e-1
    p = p * s * x + x
    q = 1.0 - 2.0 / (tl.exp(a + a) + 1.0)
    return tl.where(a < 0.625, p, tl.where(x < 0, -q, q))


@triton.jit
def ndtr(x):
    """The normal distribution function in float32: 2 to a polynomial (fitted to log2 of the smaller tail)."""
    a = tl.abs(x)
    r = -2.2697032e-8 * a + 6.9111871e-7
    r = r * a - 9.0565891e-6
    r = r * a + 6.4668378e-5
    r = r * a - 2.3683293e-4
    r = r * a - 9.3370712e-5
    r = r * a + 7.0662270e-3
    r = r * a - 5.2524872e-2
    r = r * a - 4.5919299e-1
    r = r * a - 1.1511073
    r = r * a - 1.0
    # the polynomial is fitted on 0 .. 5.5 and falls to minus infinity beyond
    tail = tl.exp2(r)
    return tl.where(x < 0, tail, 1.0 - tail)


@triton.jit
def ndtr_rough(x):
    """`ndtr` to 1e-5 of the smaller tail, by a shorter polynomial (fitted on 0 .. 7)."""
    a = tl.abs(x)
    r = -1.5971689e-6 * a + 5.6395566e-5
    r = r * a - 8.8585828e-4
    r = r * a + 8.3180834e-3
    r = r * a - 5.3546931e-2
    r = r * a - 4.5889023e-1
    r = r * a - 1.1510919
    r = r * a - 1.0
    tail = tl.exp2(r)
    return tl.where(x < 0, tail, 1.0 - tail)


@triton.jit
def ndtr_double(x):
    """The normal distribution function in float64."""
    return 0.5 * libdevice.erfc(-x * 0.70710678118654752)


# ---- random numbers


@triton.jit
def random_block(key, stream, block):
    """Both words of a block of Philox 2x32 with ten rounds, as int32. `block` is uint32, the others are int32."""
    k = key.to(tl.uint32, bitcast=True)
    left = block
    right = stream.to(tl.uint32, bitcast=True)
    for _ in tl.static_range(10):
        product = left.to(tl.uint64) * 0xD256D193
        left = (product >> 32).to(tl.uint32) ^ k ^ right
        right = product.to(tl.uint32)
        k = k + 0x9E3779B9
    return left.to(tl.int32, bitcast=True), right.to(tl.int32, bitcast=True)


@triton.jit
def random_bits(key, stream, counter):
    """Random bits as inductor/ir/philox.py says. All int32."""
    left, right = random_block(key, stream, counter.to(tl.uint32, bitcast=True) >> 1)
    return tl.where(counter & 1 == 0, left, right)


@triton.jit
def random_pairs(key, stream, counter):
    """`random_bits` where neighbours along the last axis are the two counters of a block, each of which is computed
    once."""
    even, odd = tl.split(tl.reshape(counter, [counter.numel // 2, 2]))
    left, right = random_block(key, stream, even.to(tl.uint32, bitcast=True) >> 1)
    return tl.reshape(tl.join(left, right), counter.shape)


# ---- memory that several programs change


@triton.jit
def atomic_multiply(pointers, value, start, mask):
    """Multiplies each element by `value` where `mask`. `start` is an address that may be read and written.

    What is found comes from `atomic_cas` alone, whose result is the same in all threads that have the same lane."""
    bits = tl.int64 if start.dtype.element_ty.primitive_bitwidth == 64 else tl.int32
    waits = tl.broadcast_to(mask, pointers.shape).to(tl.int32)
    factor = tl.broadcast_to(value, pointers.shape).to(start.dtype.element_ty)
    # A lane that does not wait replaces an element by itself.
    words = tl.where(waits != 0, pointers, start).to(tl.pointer_type(bits), bitcast=True)
    found = tl.atomic_cas(words, tl.zeros_like(waits).to(bits), tl.zeros_like(waits).to(bits), sem="relaxed")
    while tl.max(waits, axis=None) != 0:
        changed = (found.to(start.dtype.element_ty, bitcast=True) * factor).to(bits, bitcast=True)
        before = tl.atomic_cas(words, found, tl.where(waits != 0, changed, found), sem="relaxed")
        waits = tl.where(before == found, 0, waits)
        found = before


# ---- indices


@triton.jit
def wrap_index(i, size, mask, status):
    """Python's negative indices; one out of bounds, where `mask`, sets *status and becomes 0."""
    i = tl.where(i < 0, i + size, i)
    bad = (i < 0) | (i >= size)
    tl.store(status + i * 0, 1, mask=bad & mask)
    return tl.where(bad, 0, i)


@triton.jit
def inside(i, size):
    """Whether an index of Python, which may be negative, is within bounds."""
    return (i >= -size) & (i < size)


# ---- the kernel ahead


@triton.jit
def wait_for_kernel_ahead():
    """The place where a kernel waits for the one ahead of it, if it may start before that has ended. What it loads
    before is settled. `triton_worker.py` replaces the comment by the instructions."""
    tl.inline_asm_elementwise("// wait for the kernel ahead: $0", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
