"""Heuristics for Triton kernels as pure functions of plain numbers: block sizes, warps, and splits of long rows.

`sms` is the number of multiprocessors of the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

WAVES = 4  # programs per multiprocessor that hide the latency of memory
TILED_MIN = 8  # the shortest dimension for which transposing through a tile is worthwhile
PERSISTENT_ROW = 16384  # longest row that one program holds in registers
PERSISTENT_COLUMN = 1024  # the same if memory is contiguous across the rows
VARYING_ROW, VARYING_STEP = 1024, 4  # least length assumed for rows of symbolic length, and its growth factor
MAX_TILE = 16384  # elements of a tile held in registers
SPLIT_MIN_WORK = 1 << 18  # loads below which sharing short rows costs more than idle multiprocessors
# Below that, programs that are few take their blocks one after the other at some 0.3 us each, whatever their size: the
# mean of 3,136 rows of 72 channels in bfloat16 took 30.8 us on an H200 with 2 programs of 98 blocks. Where no more than
# one in FEW_PROGRAMS multiprocessors has a program, columns are narrower and blocks longer, down to the bytes of memory
# that are read at once, and rows of at least ALONE_STEPS blocks are shared.
FEW_PROGRAMS, NARROW_BYTES, ALONE_STEPS = 4, 32, 12
MAX_SPLIT = 512
POINTWISE_BLOCK, POINTWISE_BLOCK_LIGHT = 1024, 2048
POINTWISE_EACH, POINTWISE_EACH_LIGHT = 8, 16  # elements per thread; so are the other *_EACH constants
LIGHT_VALUES = 64  # values that a point takes at most in a kernel that is light
TILE_SIDE, TILE_EACH = 64, 16
HELD_LEAST = 2048  # elements that a program should hold at least; it takes several rows if they are short
HELD_PRODUCT = 4096  # the same for products with a row, of which a thread holds HELD_EACH_LONG elements
# Products of a matrix and a row, in half precision: elements that a program takes at once, those of a thread, and warps
# of a multiprocessor. Each program takes several such tiles, and loads the next one while it adds up the one before.
MATRIX_TILE, MATRIX_EACH, MATRIX_WARPS = 8192, 64, 20
# The same where the length of rows is far from a power of 2: elements of a program, which takes equal steps through
# them, the shortest and the longest steps, the most of them, how many times as long that power of 2 must be; and
# elements of a thread per step: those of one load in half precision, so that the row and the matrix are divided among
# threads in the same way.
STEPS_TILE, STEPS_LEAST, STEPS_LONGEST, STEPS_MOST, STEPS_GAIN, STEPS_EACH = 11264, 256, 1024, 16, 1.2, 8
HELD_LONG = 2048  # row length from which warps wait for each other, so that fewer warps are faster
HELD_EACH, HELD_EACH_LONG = 16, 32
HELD_MANY = 4  # number of tensors held at a time from which a thread holds fewer elements of each
ALONE_EACH = 4  # for so few programs that each has its own multiprocessor
LOOP_EACH, LOOP_EACH_SLOW = 8, 16
BLOCK_ROW = 2048  # elements of a row that a looping program takes at once, twice as many with LOOP_EACH_SLOW
BLOCK_COLUMNS = 64  # rows that it takes if memory is contiguous across them
JOIN_FIRST = 1 << 20  # partial results that programs would read, from which a kernel that joins them first costs less
MANY_LOADS, LIGHTER = 8, 4  # loads per element, as of a convolution, from which blocks are smaller by this factor
# Sums of a kernel from which its programs are small and, so that loads overlap, more; and those from which a thread has
# fewer elements of each, as they would not fit in its registers.
MANY_SUMS, SUMS_THAT_SPILL, WAVES_OF_SUMS = 6, 12, 16
SHARED_STEPS = 8  # blocks per row from which sharing the row is worth a second launch
# Programs up to which a kernel waits itself for the one before it, so that its launch overlaps with the end of that.
# The wait costs each program some 0.3 us: bias + GELU with 32,768 programs took 44 us on an H200, and 34 us without.
EARLY_PROGRAMS = 1024
AHEAD_PROGRAMS = 8192  # the same for kernels that read matrices while they wait
MAX_WARPS, MAX_WARPS_OF_LARGE_TILES = 16, 32
SCAN_ROW, SCAN_EACH = 8192, 32  # elements of a row that a program scans at once, and those of a thread
# Bytes of a row of memory and number of such rows that a program takes at once in scans across them. One warp takes
# them, so that a thread has whole columns of the tile and scans them without the others.
SCAN_COLUMN_BYTES, SCAN_ROWS = 512, 8
SCAN_WAVES, SCAN_WAVES_OF_WARPS = 8, 16  # programs per multiprocessor of these two kinds
MAX_SCAN_SPLIT = 1024
SCAN_SHARED_STEPS, SCAN_SHARED_STEPS_OF_WARPS = 4, 16  # blocks per row from which programs of these kinds share it
# Scans in which programs pass totals on (chain.py): elements of a row that a program takes at once and how often, if
# there are enough for so many programs per multiprocessor. On an H200 a sum of 32M numbers in bfloat16 takes 47.2 us,
# and 53.4 us with a kernel for each pass. Programs of more elements, of which there are fewer at a time to hide the
# time for which they wait, take up to 59 us. Across rows of memory such kernels were no faster than one for each pass.
CHAIN_ROW, CHAIN_STEPS, CHAIN_WAVES = 4096, 2, 4
JOIN_SCANS = 1 << 22  # JOIN_FIRST for totals of chunks
SORT_TILE, SORT_LEAST, SORT_EACH = 4096, 1024, 8  # elements of a tile that is sorted, at most and at least
# Length of contiguous rows from which a program sorts one alone, and elements per thread, by the bits of an element.
SORT_ALONE, SORT_ALONE_EACH, SORT_ALONE_WARPS = 512, {16: 32, 32: 16}, 4
# Reductions with bounds: columns of a tile, points that it takes at once, elements per thread. Few threads of many
# elements, as each thread computes all of the bounds and indices.
BOUNDED_COLUMNS, BOUNDED_ROWS, BOUNDED_EACH = 1024, 8, 16
STREAM_BYTES = 1 << 24  # size of a tensor from which it will not stay in the cache until its next use


@dataclass(frozen=True)
class Config:
    """Block sizes by axis letter, and launch options. `split` is the number of programs that share one row; they
    process its blocks in turn. `unrolled`: loops over the row are unrolled, so that loads need not wait for the sums of
    the blocks before them. `programs`: if not 0, their number; each takes several tiles of rows in turn."""

    blocks: tuple[tuple[str, int], ...]
    warps: int
    persistent: bool = False
    split: int = 1
    stages: int = 1
    unrolled: bool = False
    programs: int = 0

    def block(self, letter: str) -> int:
        """The block size of an axis."""
        return dict(self.blocks)[letter]


def power(n: int) -> int:
    """The least power of 2 that is not less than n."""
    return 1 << max(n - 1, 0).bit_length()


def power_within(n: int) -> int:
    """The greatest power of 2 that is not more than n, but at least 1."""
    return max(1, power(n + 1) // 2)


def room(length: int) -> int:
    """The row length for which a kernel over rows of symbolic length is configured, if their hint is `length`.

    If the kernel holds rows in registers, longer rows need another compilation.
    """
    most = VARYING_ROW
    while most < length:
        most *= VARYING_STEP
    return most


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def pointwise(size: int, sms: int, light: bool = False) -> Config:
    """One-dimensional blocks, smaller if there would be too few programs, and larger for many programs that are
    `light`: bias + GELU of 32M elements took 34.2 us on an H200 in blocks of 1,024, and 32.9 us in those of 2,048."""
    if light and size >= POINTWISE_BLOCK_LIGHT * WAVES * WAVES * sms:
        return Config((("x", POINTWISE_BLOCK_LIGHT),), _warps(POINTWISE_BLOCK_LIGHT, POINTWISE_EACH_LIGHT))
    block = min(POINTWISE_BLOCK, max(128, power(ceil_div(size, WAVES * sms))), power(size))
    return Config((("x", block),), _warps(block, POINTWISE_EACH))


def tiled(y: int, x: int, times: int, sms: int) -> Config:
    """Square tiles, longer along one axis if the other is short. The kernel covers y * x elements `times` times."""
    side = TILE_SIDE if y * x * times >= TILE_SIDE**2 * sms * 2 else 32
    block_x = min(side, power(x))
    block_y = min(side * side // block_x, power(y), 256)
    block_x = min(side * side // block_y, power(x), 256)
    return Config((("y", block_y), ("x", block_x)), _warps(block_y * block_x, TILE_EACH))


@dataclass(frozen=True)
class Shape:
    """A reduction of `rows` rows of `length` elements.

    `contiguous`: "r" if rows are contiguous in memory, "x" if elements of neighbouring rows are adjacent. `mixed`: some
    accesses are contiguous in the other direction. `aligned`: rows begin at multiples of the elements that a thread
    loads at once. `phases`: passes over a row if it is not held in registers. `once`: the threads of a row exchange
    results only once, at the end. `slow`: the work per element is too much for unrolling the loop. `stores`: elements
    are written. `tiles`: the number of loads of each element: one of a full-size tensor, several of a convolution.
    `product`: each row is multiplied with elements that all rows share. `matrix`: nothing but sums of such products is
    stored. `sums`: results per row. `shared`: each program
    first reduces a row that is the same for all programs. `itemsize`: bytes of the largest elements in memory.
    """

    rows: int
    length: int
    contiguous: str
    mixed: bool
    aligned: bool
    phases: int
    once: bool
    slow: bool
    stores: bool
    tiles: int
    product: bool = False
    matrix: bool = False
    sums: int = 1
    shared: bool = False
    itemsize: int = 2


def reduction(shape: Shape, sms: int) -> Config:
    """Chooses how rows are reduced: held in registers, in a loop, or shared by several programs."""
    rows, length = shape.rows, shape.length
    if shape.contiguous == "r":
        if shape.product and shape.matrix and shape.tiles and not shape.mixed:
            config = _row_products(shape, sms)
            if config is not None:
                return config
        if length <= PERSISTENT_ROW:
            return _persistent_rows(shape, sms)
        if shape.mixed:
            return _split(shape, 16, 64, LOOP_EACH, sms)
        each = LOOP_EACH_SLOW if shape.slow and shape.aligned and not shape.stores else LOOP_EACH
        return _split(shape, 1, BLOCK_ROW * each // LOOP_EACH, each, sms)
    if length <= (PERSISTENT_COLUMN if shape.phases > 1 else 32):
        block = power(length)
        columns = min(power(rows), max(16, min(128, 4096 // block)))
        return Config((("x", columns), ("r", block)), _warps(columns * block, HELD_EACH), persistent=True)
    columns, each = min(BLOCK_COLUMNS, power(rows)), LOOP_EACH_SLOW if shape.slow else LOOP_EACH
    if _loads(shape) < SPLIT_MIN_WORK:
        narrow = NARROW_BYTES // max(shape.itemsize, 2)
        while columns > narrow and FEW_PROGRAMS * ceil_div(rows, columns) <= sms:
            columns //= 2
    block = BLOCK_ROW * each // LOOP_EACH // columns
    if shape.tiles >= MANY_LOADS and ceil_div(rows, columns) < sms:
        block //= LIGHTER
    return _split(shape, columns, min(power(length), block), each, sms)


def _row_products(shape: Shape, sms: int) -> Config | None:
    """Products of a matrix and a row. None for few or long rows, which are treated like others."""
    steps = _even_steps(shape.length)
    if steps is not None:
        several = power_within(STEPS_TILE // (shape.length * shape.tiles))
        while several > 1 and ceil_div(shape.rows, several) < WAVES * sms:
            several //= 2
        return Config((("x", several), ("r", steps)), _warps(steps, STEPS_EACH), unrolled=True)
    length = power(shape.length)
    wide = max(shape.itemsize // 2, 1)  # times as many bytes as in half precision
    several = power_within(MATRIX_TILE // (length * shape.tiles * wide))
    while several > 1 and ceil_div(shape.rows, several) < WAVES * sms:
        several //= 2
    warps = _warps(several * length * shape.tiles * wide, MATRIX_EACH)
    tiles, most = max(1, ceil_div(shape.rows, several)), MATRIX_WARPS * sms // warps
    if tiles <= most and not shape.shared or length > PERSISTENT_ROW:
        return None
    programs = ceil_div(tiles, ceil_div(tiles, most))
    return Config((("x", several), ("r", length)), warps, persistent=True, programs=programs)


def _even_steps(length: int) -> int | None:
    """The length of equal steps through a row of products that is far from a power of 2: as one block it would have
    many lanes without an element."""
    steps = min(length & -length, STEPS_LONGEST)
    good = steps >= STEPS_LEAST and length // steps <= STEPS_MOST and power(length) >= STEPS_GAIN * length
    return steps if good else None


def _persistent_rows(shape: Shape, sms: int) -> Config:
    block = power(shape.length)
    product = shape.product and shape.once and shape.tiles == 1 and block >= HELD_LONG
    several = max(1, (HELD_PRODUCT if product else HELD_LEAST) // block, 8 if shape.mixed else 1)
    while several > 1 and (ceil_div(shape.rows, several) < WAVES * sms or several * block > MAX_TILE):
        several //= 2
    several = min(several, power(shape.rows))
    tile = several * block
    if ceil_div(shape.rows, several) <= sms:
        most = MAX_WARPS_OF_LARGE_TILES if tile <= MAX_WARPS_OF_LARGE_TILES * 32 * 2 * ALONE_EACH else MAX_WARPS
        warps = _warps(tile, ALONE_EACH, most)
    elif product and several > 1:
        warps = _warps(tile, HELD_EACH_LONG)
    elif shape.once or block < HELD_LONG or shape.tiles >= HELD_MANY:
        warps = _warps(tile, HELD_EACH)
    else:
        warps = _warps(tile, HELD_EACH_LONG)
    return Config((("x", several), ("r", block)), warps, persistent=True)


def bounded(columns: int, points: int) -> Config:
    """The config of a reduction whose rows have bounds of their own, such as the sums of bags of rows of a table.
    `columns`: the number of rows with the same bounds. `points`: the expected number of points of a row."""
    several = min(power(columns), BOUNDED_COLUMNS)
    block = max(2, min(BOUNDED_ROWS, power(points)))
    return Config((("x", several), ("r", block)), _warps(several * block, BOUNDED_EACH))


def _split(shape: Shape, several: int, block: int, each: int, sms: int) -> Config:
    """A loop over blocks of the row. If rows are few, enough programs share a row to fill the device."""
    tiles, steps = ceil_div(shape.rows, several), ceil_div(shape.length, block)
    split, waves = 1, WAVES_OF_SUMS if shape.sums >= MANY_SUMS else WAVES
    each = each // 2 if shape.sums >= SUMS_THAT_SPILL else each
    if _loads(shape) >= SPLIT_MIN_WORK:
        pays = tiles < 2 * sms and steps >= SHARED_STEPS
    else:
        pays = 0 < FEW_PROGRAMS * tiles <= sms and steps >= ALONE_STEPS
    if pays:
        split = min(MAX_SPLIT, waves * sms // tiles, steps // 2)
    return Config((("x", several), ("r", block)), _warps(several * block, each), split=power_within(split))


def _loads(shape: Shape) -> int:
    """The loads of a pass over all rows, where one of a convolution counts as often as it reads."""
    return shape.rows * shape.length * (shape.tiles if shape.tiles >= MANY_LOADS else 1)


def scanning(shape: Shape, length: int, itemsize: int, sms: int) -> Config:
    """The config of a scan: as that of a reduction for rows that are held, and otherwise a loop over blocks of the row,
    of which several programs take chunks if rows are few. `length`: of the rows that are expected, where `shape` has
    the longest that may come. `itemsize`: bytes of the largest elements."""
    held = reduction(shape, sms)
    rows = shape.rows
    if held.persistent:
        return held
    waves, least = SCAN_WAVES, SCAN_SHARED_STEPS
    if shape.contiguous == "r" and shape.mixed:
        several, block, each = 16, 64, LOOP_EACH
    elif shape.contiguous == "r":
        several, block, each = 1, SCAN_ROW, SCAN_EACH
    else:
        several, block = min(SCAN_COLUMN_BYTES // max(itemsize, 2), power(rows)), SCAN_ROWS
        each, waves, least = max(1, several * block // 32), SCAN_WAVES_OF_WARPS, SCAN_SHARED_STEPS_OF_WARPS
    tiles, steps = max(1, ceil_div(rows, several)), ceil_div(length, block)
    split = min(MAX_SCAN_SPLIT, waves * sms // tiles, steps) if steps >= least else 1
    return Config((("x", several), ("r", block)), _warps(several * block, each), split=power_within(split))


def chaining(rows: int, length: int, sms: int) -> Config:
    """The config of a scan of contiguous rows that programs share, if they pass totals on."""
    steps = max(1, ceil_div(length, CHAIN_ROW))
    each = max(1, min(CHAIN_STEPS, steps * rows // max(1, CHAIN_WAVES * sms)))
    return Config((("x", 1), ("r", CHAIN_ROW)), _warps(CHAIN_ROW, SCAN_EACH), split=ceil_div(steps, each))


def sorting(rows: int, length: int, contiguous: str, bits: int) -> Config:
    """The config of a kernel that sorts rows, which it holds whole; several of them if they are short. `bits`: those of
    the widest elements that are sorted: 16 for less, 32 or 64.

    Threads of a warp exchange elements by shuffles, and warps by shared memory while they wait for each other, so that
    few warps with many elements each are fastest. Measured on an H200 with rows of 1024: in bfloat16 67.7 us with one
    warp, 126 with two, 154 with four; in float32 170 with two, 297 with four. With rows of 4096 in bfloat16 (and a
    softmax and a running sum) 82 with four, 84 with two, 135 with eight. Two rows per program: 551, as then threads do
    not hold their elements in the order that `layout_of_row` says. With rows of 128 all numbers of rows and warps took
    42 to 43. Between these lengths the elements per thread are those of 1024, rows of 512 are handled like those, and
    shorter ones like those of 128: in a tile of 1024, of which each warp has whole rows.
    """
    block = power(length)
    if contiguous == "r" and bits <= 32 and block >= SORT_ALONE:
        warps = _warps(block, SORT_ALONE_EACH[bits], SORT_ALONE_WARPS)
        return Config((("x", 1), ("r", block)), warps, persistent=True)
    several = min(power(rows), max(1, (SORT_TILE if contiguous == "x" else SORT_LEAST) // block))
    return Config((("x", several), ("r", block)), _warps(several * block, SORT_EACH), persistent=True)


def layout_of_row(config: Config, length: int, itemsize: int) -> tuple[int, int]:
    """How threads hold a contiguous row that is a program's only one: the number of neighbours that each of them loads
    at once, if elements have `itemsize` bytes, and the number of threads. (0, 0) for other tiles."""
    low, width = min(16 // itemsize, length & -length), 32 * config.warps
    alone = config.block("x") == 1 and config.block("r") >= SORT_ALONE and low * width <= config.block("r")
    return (low, width) if alone else (0, 0)


def streamed(elements: int, itemsize: int) -> bool:
    """Whether a tensor is so large that reading it should not evict other data from the cache."""
    return elements * itemsize >= STREAM_BYTES


def joins(rows: int, split: int, scans: bool) -> bool:
    """Whether partial results of `rows` rows, which `split` programs share, are combined by a kernel of their own
    instead of by each program that needs them."""
    return rows * split * split >= (JOIN_SCANS if scans else JOIN_FIRST)


def joining(rows: int, parts: int) -> Config:
    """The config of the kernel that combines partial results: enough rows at once for wide loads."""
    several = min(power(rows), 64, max(8, 4096 // power(parts)))
    return Config((("x", several), ("r", 1)), _warps(several * power(parts), 8), split=parts)


def _warps(elements: int, each: int, most: int = MAX_WARPS) -> int:
    return min(most, max(1, power(elements // (32 * each))))
