"""Every choice of block sizes, warps and splits, as pure functions of plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

SMS = 132  # of an H200; an A100 has 108
WAVES = 4  # programs a multiprocessor should have to hide the latency of memory
TILED_MIN = 8  # shortest dimension for which transposing through a tile repays
PERSISTENT_ROW = 16384  # longest row that one program holds in registers
PERSISTENT_COLUMN = 1024  # the same where memory is contiguous across the rows
MAX_TILE = 16384  # elements of a tile held in registers
SPLIT_MIN_WORK = 1 << 18  # elements below which a second launch costs more than idle multiprocessors
MAX_SPLIT = 512
POINTWISE_BLOCK = 1024
POINTWISE_EACH = 8  # elements a thread, here and below
TILE_SIDE, TILE_EACH = 64, 16
HELD_LEAST, HELD_EACH = 2048, 16  # elements that a program holds at least, of several rows if those are short
LOOP_EACH = 8
BLOCK_ROW = 2048  # elements of a row that a looping program takes at once
BLOCK_COLUMNS = 64  # rows that it takes where memory is contiguous across them
MAX_WARPS = 16


@dataclass(frozen=True)
class Config:
    """Block sizes by axis letter, and how a kernel is launched. `split`: programs that share one row, each of `chunk`
    elements (a multiple of the block)."""

    blocks: tuple[tuple[str, int], ...]
    warps: int
    persistent: bool = False
    split: int = 1
    chunk: int = 0
    stages: int = 1

    def block(self, letter: str) -> int:
        """The block size of an axis."""
        return dict(self.blocks)[letter]


def power(n: int) -> int:
    """The least power of 2 that is not less than n."""
    return 1 << max(n - 1, 0).bit_length()


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def pointwise(size: int) -> Config:
    """Flat blocks, smaller where there would be too few programs."""
    block = min(POINTWISE_BLOCK, max(128, power(ceil_div(size, WAVES * SMS))), power(size))
    return Config((("x", block),), _warps(block, POINTWISE_EACH))


def tiled(y: int, x: int, times: int) -> Config:
    """Square tiles, longer along one axis where the other is short; `times` as many as cover y * x."""
    side = TILE_SIDE if y * x * times >= TILE_SIDE**2 * SMS * 2 else 32
    block_x = min(side, power(x))
    block_y = min(side * side // block_x, power(y), 256)
    block_x = min(side * side // block_y, power(x), 256)
    return Config((("y", block_y), ("x", block_x)), _warps(block_y * block_x, TILE_EACH))


def reduction(rows: int, length: int, contiguous: str, mixed: bool, phases: int) -> Config:
    """How `rows` rows of `length` are reduced: rows held in registers, rows in a loop, or rows shared by programs.

    `contiguous`: "r" where a row is contiguous in memory, "x" where neighbouring rows are. `phases`: passes over a row
    that is not held.
    """
    if contiguous == "r":
        if length <= PERSISTENT_ROW:
            return _persistent_rows(rows, length, 8 if mixed else 1)
        return _split(rows, length, 16 if mixed else 1, 64 if mixed else BLOCK_ROW)
    if length <= (PERSISTENT_COLUMN if phases > 1 else 32):
        block = power(length)
        columns = min(power(rows), max(16, min(128, 4096 // block)))
        return Config((("x", columns), ("r", block)), _warps(columns * block, HELD_EACH), persistent=True)
    columns = min(BLOCK_COLUMNS, power(rows))
    return _split(rows, length, columns, min(power(length), BLOCK_ROW // columns))


def _persistent_rows(rows: int, length: int, least: int) -> Config:
    block = power(length)
    several = max(1, HELD_LEAST // block, least)
    while several > 1 and (ceil_div(rows, several) < WAVES * SMS or several * block > MAX_TILE):
        several //= 2
    several = min(several, power(rows))
    return Config((("x", several), ("r", block)), _warps(several * block, HELD_EACH), persistent=True)


def _split(rows: int, length: int, several: int, block: int) -> Config:
    """A loop over blocks of the row, shared by enough programs to fill the device."""
    tiles, steps = ceil_div(rows, several), ceil_div(length, block)
    split = 1
    if rows * length >= SPLIT_MIN_WORK and tiles < 2 * SMS:
        split = min(MAX_SPLIT, ceil_div(WAVES * SMS, tiles), max(1, steps // 2))
    split = power(split) if split > 1 else 1
    per = ceil_div(steps, split)
    split = ceil_div(steps, per)
    warps = _warps(several * block, LOOP_EACH)
    return Config((("x", several), ("r", block)), warps, split=split, chunk=per * block)


def joining(rows: int, parts: int) -> Config:
    """How the results of programs that shared rows are joined: as many rows at once as make wide reads."""
    several = min(power(rows), 64, max(8, 4096 // power(parts)))
    return Config((("x", several), ("r", 1)), _warps(several * power(parts), 8), split=parts)


def _warps(elements: int, each: int) -> int:
    return min(MAX_WARPS, max(1, power(elements // (32 * each))))
