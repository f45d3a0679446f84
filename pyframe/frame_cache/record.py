"""The format of a kept capture: plain data that `marshal` reads and writes.

An entry holds nothing but numbers, strings, bytes and tuples of them. Objects that its guards and its code refer to are
numbers in a table of descriptions (see `described`). `file_store` adds the checksum, and `trust` decides which files
may be read.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass
from typing import Any

from .described import NotKept

FORMAT = 5
SUFFIX = ".frame"  # of the files
# Kinds of graphs: an entry of the graph cache, nodes to be compiled again, and the same with sizes that vary.
# WHOLE: nodes that run as they are, because they are too few to be compiled; NONE: the frame has no graph.
ENTRY, NODES, SIZED, WHOLE, NONE = "entry", "nodes", "sized", "whole", "none"
ORIGINAL = -1  # among the constants of code: the frame's own code, to be run eagerly


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """A capture of a frame that runs at most one graph, as data.

    `objects`: descriptions. `ops`: the guard program, with numbers of objects in place of objects. `registers`,
    `inputs`: how many registers the program has, and how many of them, the first ones, hold graph inputs. `facts`: what
    else must be equal in the process that loads it. `code`: the replacement code without its constants, and the
    constants: bytes of plain values, numbers of objects, ORIGINAL, or what
    `made_constants` describes. `input_registers`: those of the graph's inputs.
    `output`: the template of the direct call. `graph`: its kind, and what `inductor.kept_graph` needs. `undo`: the
    fields of an Undo, if the frame runs again eagerly where the graph fails. `texts`: for each operation, what to say
    if it fails, packed. `arguments`: for each argument its sizes, its number, or None. `varied`: which of them vary in
    this capture, as pairs of a path (the number of an argument, then indices and keys) and a dimension, or None for a
    number. `breaks`: of each graph break its kind, the line, what happened, and whether the counters count it.
    `function`: the name of the function. `eager`: there is nothing to compile, and the frame runs as it is.
    """

    objects: tuple[Any, ...]
    ops: tuple[Any, ...]
    registers: int
    inputs: int
    facts: tuple[Any, ...]
    code: tuple[Any, ...]
    input_registers: tuple[int, ...]
    output: Any
    graph: tuple[Any, ...]
    undo: tuple[Any, ...] | None
    texts: bytes
    arguments: tuple[Any, ...]
    varied: tuple[Any, ...]
    breaks: tuple[tuple[str, str, str, bool], ...]
    function: str
    eager: bool


def dump(record: FrameRecord) -> bytes:
    """The bytes of a record. NotKept if something in it is not plain data, such as a subclass of int."""
    try:
        return marshal.dumps((FORMAT, *(getattr(record, name) for name in FrameRecord.__slots__)))
    except ValueError as error:
        raise NotKept("something that is not plain data") from error


def load(data: bytes) -> FrameRecord | None:
    """The record in these bytes, which must come from a file whose checksum is right; None for another format."""
    try:
        found = marshal.loads(data)
    except (ValueError, EOFError, TypeError):
        return None
    if type(found) is not tuple or len(found) != len(FrameRecord.__slots__) + 1 or found[0] != FORMAT:
        return None
    return FrameRecord(*found[1:])


class Texts:
    """For each operation of a loaded guard program, what to say if it fails; unpacked when it is needed."""

    def __init__(self, packed: bytes, count: int) -> None:
        self._packed, self._count = packed, count
        self._texts: list[str] | None = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> str:
        if self._texts is None:
            lines, numbers = marshal.loads(self._packed)
            self._texts = [lines[number] for number in numbers]
        return self._texts[index]


def pack_texts(texts: list[str]) -> bytes:
    """The texts of operations as bytes; equal ones are stored once."""
    lines = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return marshal.dumps((tuple(lines), tuple(lines[text] for text in texts)))
