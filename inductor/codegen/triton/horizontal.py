"""Launches of independent pointwise groups with the same code as one launch, such as the updates of an optimizer.

Each group gets a range of the programs. A program selects the pointers and the number of elements of its group by
comparing its number with the starts of these ranges; the code that follows is common to all groups.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ...ir.buffer import ExternKernel
from ...ir.size import Size
from ...schedule.node import Group
from ...schedule.scheduler import extern_reads
from ..group_key import GroupKey, Numbered, group_key
from ..values import Values
from . import heuristics
from .axes import plan_axes
from .gpu import Gpu
from .kernel import Draft
from .pointwise_kernel import FlatKernel

MAX_POINTERS = 480  # 4,096 bytes of arguments, less those that Triton adds
MAX_GROUPS = 64
MAX_CREATED = 1 << 20  # bytes: a group that creates larger results is not moved, because they would live longer
VECTOR = 16  # elements; counts that are multiples of it allow wide loads

Unit: TypeAlias = "Group | ExternKernel"


@dataclass
class _Batch:
    """Groups that may run in one launch, and what the units from the first of them on read and write."""

    groups: list[Group]
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)

    def add(self, reads: Collection[str], writes: Collection[str]) -> None:
        self.reads.update(reads)
        self.writes.update(writes)


def batches(
    units: Sequence[Unit], given: Collection[str], nbytes: Mapping[str, int]
) -> list[ExternKernel | list[Group]]:
    """The units in order, where independent pointwise groups that look alike are together at the place of the first.

    `given`: the inputs. `nbytes`: the size of each buffer that has a known one.
    """
    out: list[ExternKernel | list[Group]] = []
    opened: dict[object, _Batch] = {}
    for unit in units:
        reads, writes = _accesses(unit)
        key = _likeness(unit, given, nbytes) if isinstance(unit, Group) else None
        batch = None if key is None else opened.get(key)
        if isinstance(unit, Group) and batch is not None and _independent(batch, reads, writes):
            batch.groups.append(unit)
        elif isinstance(unit, Group):
            out.append([unit])
            if key is not None:
                opened[key] = _Batch(out[-1])  # type: ignore[arg-type]  # the list that was appended
        else:
            out.append(unit)
        for other in opened.values():
            other.add(reads, writes)
    return out


def _accesses(unit: Unit) -> tuple[Collection[str], Collection[str]]:
    if isinstance(unit, Group):
        return unit.read_names(), unit.written_names()
    writes = [o.name for o in unit.outputs if o is not None]
    return extern_reads(unit), [*writes, unit.mutates] if unit.mutates is not None else writes


def _independent(batch: _Batch, reads: Collection[str], writes: Collection[str]) -> bool:
    """Whether a unit may run at the same time as the first group of the batch."""
    return not (batch.writes.intersection(reads) or (batch.writes | batch.reads).intersection(writes))


def _likeness(group: Group, given: Collection[str], nbytes: Mapping[str, int]) -> object:
    """A cheap key that groups with the same code have in common; None for a group that is launched alone."""
    if type(group) is not Group or group.reduces or not group.fusible or group.device.type == "cpu":
        return None
    if any(isinstance(n, Size) or n == 0 for n in group.outer):
        return None
    created = [name for name in group.stored if name not in given]
    if any(nbytes.get(name, MAX_CREATED + 1) > MAX_CREATED for name in created):
        return None
    return len(group.outer) > 0, *(tuple(op.name for op in m.node.unnamed_ops) for m in group.members)


@dataclass(frozen=True)
class _Flat:
    """A group as a one-dimensional kernel over `count` elements. `offsets`: the elements of FlatKernel's."""

    draft: Draft
    count: int
    offsets: tuple[int, ...]

    @property
    def key(self) -> object:
        """Equal for kernels that differ only in pointers and in the number of elements."""
        return self.draft.lines, self.draft.signature, self.draft.aligned, self.count % VECTOR == 0


@dataclass(frozen=True)
class _Numbered:
    """A flat kernel for all groups with one key. `bufs`, `offsets`: in place of those of `flat`, if there is one; an
    offset is the number of a position in the key, None for the first element of a buffer."""

    flat: _Flat | None
    bufs: tuple[Numbered, ...] = ()
    offsets: tuple[int | None, ...] = ()

    def of(self, key: GroupKey) -> _Flat | None:
        """The kernel of a group that has this key."""
        if self.flat is None:
            return None
        draft = replace(self.flat.draft, bufs=tuple(key.named(self.bufs)))
        offsets = tuple([0 if k is None else key.positions[k][1] for k in self.offsets])
        return _Flat(draft, self.flat.count, offsets)


class FlatKernels:
    """Generates flat kernels, once for groups that are equal but for their buffers and fixed positions in these."""

    def __init__(self) -> None:
        self._known: dict[Any, _Numbered] = {}

    def of_group(
        self, group: Group, dtypes: Mapping[str, str], gpu: Gpu, unaligned: Collection[str]
    ) -> _Flat | None:
        """None if the kernel of the group has two axes, or needs 64-bit indices."""
        key = group_key(group, dtypes, unaligned)
        known = None if key is None else self._known.get(key.key)
        if key is not None and known is not None:
            return known.of(key)
        kernel = _flat_kernel(group, dtypes, gpu)
        flat = None if kernel is None else _Flat(kernel.draft(unaligned), group.work(), ())
        if flat is not None and kernel is not None:
            flat = replace(flat, offsets=tuple([at for _, at in kernel.offsets]))
            numbers = {} if key is None else {position: k for k, position in enumerate(key.positions)}
            # A position that the kernel takes and the key lacks is that of an index that happens to be constant.
            described = {at for at in kernel.offsets if at[1]} == set(numbers) and not _has_fixed_variables(group)
            if key is not None and described:
                offsets = tuple([numbers.get(at) for at in kernel.offsets])
                self._known[key.key] = _Numbered(flat, key.numbered(flat.draft.bufs), offsets)
        elif key is not None:
            self._known[key.key] = _Numbered(None)
        return flat


def _has_fixed_variables(group: Group) -> bool:
    """Whether a loop variable of a member is another number than 0 throughout the group."""
    return any(not index.terms and index.const != 0 for member in group.members for index in member.env.values())


def combined(
    groups: Sequence[Group], dtypes: Mapping[str, str], gpu: Gpu, kernels: FlatKernels, unaligned: Collection[str] = ()
) -> list[tuple[Draft | None, list[Group]]]:
    """The groups of a batch by launch: a kernel and the groups that it computes, or None and one group that needs a
    kernel of its own."""
    alike: dict[object, list[tuple[_Flat, Group]]] = {}
    alone: list[Group] = []
    for group in groups:
        flat = kernels.of_group(group, dtypes, gpu, unaligned)
        if flat is None:
            alone.append(group)
        else:
            alike.setdefault(flat.key, []).append((flat, group))
    out: list[tuple[Draft | None, list[Group]]] = []
    for members in alike.values():
        most = max(1, min(MAX_GROUPS, MAX_POINTERS // max(1, len(members[0][0].draft.bufs))))
        for start in range(0, len(members), most):
            some = members[start : start + most]
            if len(some) == 1:
                alone.append(some[0][1])
            else:
                out.append((_merged([flat for flat, _ in some], gpu), [group for _, group in some]))
    return out + [(None, [group]) for group in alone]


def _flat_kernel(group: Group, dtypes: Mapping[str, str], gpu: Gpu) -> FlatKernel | None:
    """None if the kernel of the group has two axes, or needs 64-bit indices."""
    axes = plan_axes(group)
    if len(axes.tile) != 1 or axes.fixed:
        return None
    kernel = FlatKernel(Values(group, axes.renames, set(), dtypes), axes, dtypes, gpu)
    return None if kernel.wide else kernel


def _merged(parts: Sequence[_Flat], gpu: Gpu) -> Draft:
    """One kernel for all parts, which have the same key."""
    first = parts[0].draft
    config = heuristics.pointwise(sum(part.count for part in parts), gpu.multiprocessors)
    block = config.block("x")
    positions = range(len(first.bufs))
    varying = [i for i in positions if any(part.draft.bufs[i] != first.bufs[i] for part in parts)]
    bufs, signature, aligned = list(first.bufs), list(first.signature), list(first.aligned)
    lines = ["pid = tl.program_id(0)", "start = pid * 0", f"xnumel = pid * 0 + {parts[0].count}"]
    lines += [f"c{k} = pid * 0 + {offset}" for k, offset in enumerate(parts[0].offsets)]
    programs = heuristics.ceil_div(parts[0].count, block)
    for part in parts[1:]:
        lines += [f"if pid >= {programs}:", f"    start = pid * 0 + {programs}", f"    xnumel = pid * 0 + {part.count}"]
        lines += [
            f"    c{k} = pid * 0 + {own}"
            for k, own in enumerate(part.offsets) if any(p.offsets[k] != own for p in parts)
        ]  # fmt: skip
        for i in varying:
            lines.append(f"    b{i} = b{len(bufs)}")
            if i in first.aligned:
                aligned.append(len(bufs))
            bufs.append(part.draft.bufs[i])
            signature.append(first.signature[i])
        programs += heuristics.ceil_div(part.count, block)
    return replace(
        first, kind="several", lines=(*lines, *first.lines), bufs=tuple(bufs), constants={"XBLOCK": block},
        grid=(programs,), config=config, signature=tuple(signature), aligned=tuple(aligned),
    )  # fmt: skip

