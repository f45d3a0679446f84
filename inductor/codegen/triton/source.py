"""Collects the Triton kernels of a graph and the launches of each group.

Each distinct kernel appears once, below a comment with the user's source lines that it comes from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...schedule.depthwise_gradient import DepthwiseGradient
from ...schedule.flex_attention import FlexGroup
from ...schedule.node import Group
from ...schedule.product import Product
from ...schedule.row_attention import RowAttention
from ..cpp.source import Source, user_lines
from ..emitter import HostNumber
from ..group_key import GroupKey, Numbered, group_key
from ..origins import operators
from .depthwise_gradient import depthwise_gradient_drafts
from .drafts import drafts
from .flex_attention import ForwardKernel
from .flex_attention_backward import backward_drafts
from .gpu import DEFAULT, Gpu
from .horizontal import FlatKernels, combined
from .kernel import Draft, Launch, TritonKernel
from .ops import imports
from .product_drafts import product_drafts
from .row_attention import row_attention_drafts
from .shared_sizes import Shared, shared
from .work import Scratch

_DIGITS = 8


@dataclass(frozen=True)
class GroupLaunches:
    """The launches of a group in order, and the scratch memory that they share. Both are empty for an empty group."""

    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...]

    @property
    def bufs(self) -> list[str | HostNumber]:
        """All arguments of the launches except scratch memory, without duplicates."""
        scratch = {s.name for s in self.scratch}
        return [b for b in dict.fromkeys(b for launch in self.launches for b in launch.bufs) if b not in scratch]


@dataclass(frozen=True)
class _Generated:
    """The launches of a group, as numbers of a GroupKey: of each, the kernel, the arguments and the positions."""

    numbered: tuple[tuple[int, tuple[Numbered, ...], tuple[int, ...]], ...]
    scratch: tuple[Scratch, ...]

    @classmethod
    def of_group(cls, made: GroupLaunches, key: GroupKey) -> _Generated:
        """Describes the launches of a group with this key."""
        place = {position: k for k, position in enumerate(key.positions)}
        return cls(
            tuple([
                (launch.kernel, key.numbered(launch.bufs), tuple([place[p] for p in launch.positions]))
                for launch in made.launches
            ]),
            made.scratch,
        )  # fmt: skip

    def launches(self, key: GroupKey) -> GroupLaunches:
        """The launches of a group that has this key."""
        return GroupLaunches(
            tuple([
                Launch(kernel, tuple(key.named(bufs)), tuple([key.positions[k] for k in positions]))
                for kernel, bufs, positions in self.numbered
            ]),
            self.scratch,
        )  # fmt: skip


@dataclass
class TritonSource:
    """Collects kernels for a GPU. `kernels` are the distinct ones, in order of first use; `host` holds those of groups
    that run on the CPU."""

    gpu: Gpu = DEFAULT
    kernels: list[TritonKernel] = field(default_factory=list)
    host: Source = field(default_factory=Source)
    _known: dict[tuple[object, ...], int] = field(default_factory=dict)
    # by key of a group, or by its exact key if its kernels do not take all fixed positions as arguments
    _by_group: dict[Any, _Generated] = field(default_factory=dict)
    _flat: FlatKernels = field(default_factory=FlatKernels)

    def group(self, group: Group, dtypes: Mapping[str, str], unaligned: Collection[str] = ()) -> GroupLaunches:
        """The launches of a group; `unaligned` as in `drafts`. Unsupported for an op or dtype that Triton lacks. For
        groups that are equal but for their buffers, kernels are generated once."""
        key = group_key(group, dtypes, unaligned)
        if key is None:
            return self._generated(group, dtypes, unaligned)
        known = self._by_group.get(key.key) or self._by_group.get(key.exact)
        if known is not None:
            return known.launches(key)
        made = self._generated(group, dtypes, unaligned)
        taken = {position for launch in made.launches for position in launch.positions}
        self._by_group[key.key if taken == set(key.positions) else key.exact] = _Generated.of_group(made, key)
        return made

    def _generated(self, group: Group, dtypes: Mapping[str, str], unaligned: Collection[str]) -> GroupLaunches:
        plain = False
        if isinstance(group, Product):
            made, scratch = product_drafts(group, dtypes, unaligned)
        elif isinstance(group, RowAttention):
            made, scratch = row_attention_drafts(group, dtypes, self.gpu, unaligned)
        elif isinstance(group, DepthwiseGradient):
            made, scratch = depthwise_gradient_drafts(group, dtypes, self.gpu, unaligned)
        elif isinstance(group, FlexGroup):
            scratch = []
            if group.kernel.backward:
                made = backward_drafts(group, dtypes, self.gpu, unaligned)
            else:
                made = [ForwardKernel(group, dtypes, self.gpu).draft(unaligned)]
        else:
            made, scratch = drafts(group, dtypes, self.gpu, unaligned)
            plain = True
        launches = [Launch(self._number(d, group, plain), d.bufs, d.positions) for d in made]
        return GroupLaunches(tuple(launches), tuple(scratch))

    def share_sizes(self) -> list[Shared]:
        """Make one kernel of those that are equal but for sizes; returns what takes the place of each kernel."""
        self.kernels, places = shared(self.kernels)
        self._known.clear()
        self._by_group.clear()
        return places

    def several(
        self, groups: Sequence[Group], dtypes: Mapping[str, str], unaligned: Collection[str] = ()
    ) -> list[tuple[GroupLaunches, list[Group]]]:
        """The launches of groups that `horizontal.batches` put together, with the groups that each of them computes."""
        out = []
        for draft, members in combined(groups, dtypes, self.gpu, self._flat, unaligned):
            if draft is None:
                out.append((self.group(members[0], dtypes, unaligned), members))
            else:
                out.append((GroupLaunches((Launch(self._number(draft, members[0]), draft.bufs),), ()), members))
        return out

    def _number(self, draft: Draft, group: Group, plain: bool = False) -> int:
        constants = tuple(draft.constants.items())
        contents = (draft.lines, constants, draft.signature, draft.aligned, draft.grid, draft.config)
        if contents not in self._known:
            self._known[contents] = len(self.kernels)
            # Named by contents, so that equal kernels of different graphs share an entry in the cache of cubins.
            digest = hashlib.sha256(repr(contents).encode()).hexdigest()[:_DIGITS]
            name = "_".join([draft.kind, *operators([group]), digest])
            text = imports(draft.used) + "\n\n" + _comment(group) + draft.text(name)
            self.kernels.append(
                TritonKernel(name, text, draft.bufs, draft.constants, draft.grid, draft.config.warps,
                             draft.config.stages, draft.signature, draft.aligned, draft.sizes, draft.workspace, plain,
                             "wait_for_kernel_ahead" in draft.used)
            )  # fmt: skip
        return self._known[contents]

    @property
    def names(self) -> list[str]:
        """The names of the kernels."""
        return [kernel.name for kernel in self.kernels]

    def texts(self) -> list[str]:
        """The text of each kernel."""
        return [kernel.text for kernel in self.kernels]


def _comment(group: Group) -> str:
    names = ", ".join(m.node.name for m in group.members)
    return "".join(f"# {line}\n" for line in [names, *user_lines(group)])
