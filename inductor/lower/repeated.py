"""Lowers a few of many equal ranges of a graph, such as the layers of a network, and copies the others.

Four of the ranges that `repeats.py` finds are lowered: A, B, T and the last, L, which takes the values of T in the
place of those of the range before it. The buffers of the ranges between T and L are those of T, with other names.

What is lowered for a range depends on its nodes, which are equal, and on the state in which the range before left its
values: which of them are in memory. L is lowered in the state that T left, as the range after T is. So all ranges are
alike if L has the same buffers as T, and leaves T as T left B. `Copies` compares both, and raises NotCopied where they
differ; then each range is lowered.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import fx

from ..fx_utils.arguments import results_of
from ..ir.body import LoopBody, Op, SubBody
from ..ir.buffer import Buffer, ComputedBuffer, ExternKernel, MultiOutput, View
from ..ir.nodes import AlikeBuffers, BufferView, Pointwise
from ..ir.renamed import RenamedBody, with_names
from .in_place import in_place_writes
from .layouts import OPAQUE
from .repeats import REAL, Repeats, draws, find

if TYPE_CHECKING:
    from .graph import GraphLowering

A, B, T = range(REAL)
# Where a buffer comes from, seen from a range: ("buffer", number of ranges before it, number among the buffers of that
# range, output), ("result", the same, number among those that results create, output) or ("input", number of ranges
# before it, number).
Origin: TypeAlias = tuple[str, int, int, int | None]


enabled = True  # for tests and for debugging
_ACCESSES = ("load", "store")


class NotCopied(Exception):
    """The ranges are not alike, or something else needs what is not lowered."""


def copies_of(graph: fx.Graph) -> Copies | None:
    """The ranges of a graph of which some need not be lowered; None if there are none, or if the graph writes to
    inputs."""
    if not enabled or any(True for _ in graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)):
        return None
    repeats = find(graph)
    try:
        return None if repeats is None or in_place_writes(graph) else Copies(repeats)
    except NotCopied:
        return None


class Copies:
    """The ranges of one graph while it is lowered. `skipped`: the number of buffers so far that are not lowered but
    will be copies."""

    def __init__(self, repeats: Repeats) -> None:
        self.repeats, self.last = repeats, repeats.count - 1
        self.skipped = 0
        self._begins = {repeats.start + k * repeats.period: k for k in (A, B, T, self.last)}
        self._ends = {at + repeats.period: k for at, k in self._begins.items()}
        self._first = 0
        self.lists: dict[int, list[Any]] = {}  # the buffers that each range created
        self.bounds: dict[int, int] = {}  # the number of buffers after each range
        self._states: dict[int, Any] = {}
        self.counterparts: dict[int, int] = {}  # for each result that is not lowered, that of T
        self.made: dict[int, list[Any]] = {}  # by result: the buffers that it created
        self._clones: dict[fx.Node, int] = {}  # copies of inputs before the first range, with the range that uses them
        self.inputs = self._varying_inputs()
        self._check_uses()

    def _check_uses(self) -> None:
        """NotCopied if a value is used where the range that it is in is not lowered, or stands for another one."""
        repeats = self.repeats
        for node in repeats.nodes[repeats.start + self.last * repeats.period :]:
            near = 2 if repeats.range_of(node) is not None else 0
            used = map(self.range_of, node.all_input_nodes if node.op != "output" else ())
            if any(k is not None and k < self.last - near for k in used):
                raise NotCopied

    def _varying_inputs(self) -> list[list[fx.Node]]:
        """The inputs of the graph that each range uses, where these are not the same for all ranges."""
        outer = self.repeats.outer
        varying = [s for s, x in enumerate(outer[0]) if any(each[s] is not x for each in outer)]
        out = [[self._input(each[s], k) for s in varying] for k, each in enumerate(outer)]
        if any(_described(x) != _described(y) for each in out for x, y in zip(each, out[T])):
            raise NotCopied
        shared = [_pattern((*before, *each)) for before, each in itertools.pairwise(out)]
        if any(each != shared[0] for each in shared):  # one range uses an input twice that others do not
            raise NotCopied
        end = self.repeats.start + self.last * self.repeats.period
        for x in self._clones:  # of a range that is not lowered, it is in no state
            if any(user.op != "output" and self.range_of(user) is None for user in x.users):
                raise NotCopied
        for x in {x for each in out[:REAL] for x in each}:  # after T they stand for those of another range
            if any(user.op != "output" and self.repeats.place[user] >= end for user in x.users):
                raise NotCopied
        return out

    def _input(self, x: fx.Node, k: int) -> fx.Node:
        if x.op == "placeholder":
            return x
        source = x.args[0] if x.target is torch.ops.aten.clone.default else None
        if not isinstance(source, fx.Node) or source.op != "placeholder" or self._clones.setdefault(x, k) != k:
            raise NotCopied
        return source

    def range_of(self, node: fx.Node) -> int | None:
        """The number of the range that a node belongs to."""
        found = self.repeats.range_of(node)
        return self._clones.get(node) if found is None else found

    def is_copied(self, node: fx.Node) -> bool:
        """Whether a node is not lowered."""
        k = self.repeats.range_of(node)
        return k is not None and T < k < self.last and node.op != "get_attr"

    def moved(self, node: fx.Node, ranges: int) -> fx.Node:
        """The node at the same place of a range so many ranges later; itself if it is in no range."""
        if self.repeats.range_of(node) is not None:
            return self.repeats.moved(node, ranges)
        k = self._clones.get(node)
        return node if k is None else self.repeats.outer[k + ranges][self.repeats.outer[k].index(node)]

    # ---- while the graph is lowered

    def reach(self, lowering: GraphLowering, at: int) -> None:
        """Called before node number `at` is lowered."""
        k = self._ends.get(at)
        if k is not None:
            self.lists[k] = lowering.buffers[self._first :]
            self.bounds[k] = len(lowering.buffers)
            before = {B: A, T: B, self.last: T}.get(k)
            own = self._state(lowering, k), len(self.lists[k])
            self._states[k] = own, None if before is None else self._state(lowering, before)
            if k == T and self._states[T] != self._states[B]:
                lowering.copies = None  # nothing was left out so far: each range is lowered
                return
            if k == self.last and self._states[k] != self._states[T]:
                raise NotCopied
        k = self._begins.get(at)
        if k is not None:
            self._first = len(lowering.buffers)
        if k == self.last:
            self.skipped = len(self.lists[T]) * (self.last - REAL)
            for real, later in ((B, self.last - 2), (T, self.last - 1)):
                for node in self.nodes(real):
                    lowering.env[self.repeats.moved(node, later - real)] = lowering.env[node]

    def nodes(self, k: int) -> Any:
        begin = self.repeats.start + k * self.repeats.period
        return self.repeats.nodes[begin : begin + self.repeats.period]

    def _state(self, lowering: GraphLowering, k: int) -> Any:
        """What is known of the values of a range."""
        return [_state_of(lowering.env[node]) for node in self.nodes(k)]

    def begin_results(self, lowering: GraphLowering) -> None:
        """Called after all nodes were lowered, before results are put into memory."""
        if self._state(lowering, T) != self._states[self.last][1]:
            raise NotCopied
        place: dict[fx.Node, int] = {}
        for q, node in enumerate(results_of(lowering.node.graph)):
            if isinstance(node, fx.Node) and self.range_of(node) is not None and place.setdefault(node, q) != q:
                raise NotCopied
        for node, q in place.items():
            k = self.range_of(node)
            if k is not None and T < k < self.last:
                self.counterparts[q] = place[self.moved(node, T - k)]

    def is_copied_result(self, q: int) -> bool:
        """Whether a result is not lowered."""
        return q in self.counterparts

    def note_result(self, lowering: GraphLowering, q: int, first: int) -> None:
        """Note the buffers that a result created: those from number `first` on."""
        self.made[q] = lowering.buffers[first:]

    # ---- afterwards

    def finish(self, lowering: GraphLowering, outs: list[Any]) -> list[Any]:
        """Add all copies to the buffers, and return the results; `outs` has something else for those that are copied.
        """
        return _Expansion(self, lowering).run(outs)


def _described(node: fx.Node) -> Any:
    """What lowering reads of an input."""
    val = node.meta["val"]
    if not isinstance(val, torch.Tensor):
        raise NotCopied
    return tuple(val.shape), val.stride(), val.dtype, val.device, val.layout, node.meta.get(OPAQUE, False)


def _pattern(nodes: Sequence[fx.Node]) -> list[int]:
    """Which of the nodes are the same."""
    first: dict[fx.Node, int] = {}
    return [first.setdefault(node, k) for k, node in enumerate(nodes)]


def _state_of(value: Any) -> Any:
    if isinstance(value, Pointwise):
        costs = value.reads, value.work, value.depth
        return *costs, value.stride, value.padded, value.memory is None, value.view is None
    if isinstance(value, BufferView):
        return value.layout, type(value.buffer)
    return tuple(map(_state_of, value)) if isinstance(value, tuple | list) else value


class _Expansion:
    """The buffers of all ranges, from those that were lowered."""

    def __init__(self, copies: Copies, lowering: GraphLowering) -> None:
        self.copies, self.lowering = copies, lowering
        self.last, self.lists = copies.last, copies.lists
        env, given = lowering.env, [x for x in (*lowering.inputs, *lowering.constants) if isinstance(x, Buffer)]
        self.inputs = [[_input_name(env[x]) for x in each] for each in copies.inputs]
        before = lowering.buffers[: copies.bounds[A] - len(self.lists[A])]
        named = [*given, *(x for buffer in before for _, x in _outputs(buffer))]
        self.fixed = {x.name for x in named} - {name for each in self.inputs for name in each}
        self.objects = {x.name: x for x in named}
        self.objects |= {x.name: x for buffer in lowering.buffers for _, x in _outputs(buffer)}
        drawing = [node for node in copies.nodes(T) if draws(node)]
        seeds = [env[node.args[0]] for node in drawing]
        if not all(isinstance(x, BufferView) and x.layout.stride == (1,) and not x.layout.offset for x in seeds):
            raise NotCopied
        self.seeds = {x.buffer.name for x in seeds}
        results = results_of(lowering.node.graph)
        self.ranges = [copies.range_of(x) if isinstance(x, fx.Node) else None for x in results]
        end = copies.repeats.start + self.last * copies.repeats.period
        self.late = {q for q, x in enumerate(results) if isinstance(x, fx.Node) and copies.repeats.place[x] >= end}
        self.made = copies.made
        self.made_by_template = [buffer for q, k in enumerate(self.ranges) if k == T for buffer in self.made[q]]
        self.images: dict[tuple[str, int, int], Any] = {}

    def run(self, outs: list[Any]) -> list[Any]:
        """Copy, and return the results."""
        copies, lowering = self.copies, self.lowering
        view, later = self.view((T, B, A)), self.view((self.last, T, B))
        if len(self.lists[T]) != len(self.lists[self.last]):
            raise NotCopied
        numbers = self._number_results()
        for buffer, other in zip(self.lists[T], self.lists[self.last]):
            if self.form(buffer, T, view) != self.form(other, self.last, later):
                raise NotCopied
        own = list(lowering.buffers)
        end = copies.bounds[T]
        copied: list[Any] = []
        for j in range(T + 1, self.last):
            for i, buffer in enumerate(self.lists[T]):
                copied.append(self.image(buffer, f"buf{end + len(copied)}", j, view, ("buffer", j, i)))
        # results of T may be in memory of what L created, which stands for the range after T
        result_view = view | self.origins("buffer", -1, self.lists[self.last])
        result_view |= self.origins("result", 0, self.made_by_template)
        made = self._copied_results(result_view, numbers)
        new = list(outs)
        for q, k in enumerate(self.ranges):
            if k is not None and T <= k < self.last:
                of = copies.counterparts.get(q, q)
                new[q] = self.value(outs[of], k, result_view)
            elif q in self.late:
                new[q] = self.value(outs[q], self.last - 1, view)
        # in what was lowered after T, its values stand for those of the range before the last one
        tail = own[end:]
        self.fixed |= {x.name for buffer in tail for _, x in _outputs(buffer)} | set(self.inputs[self.last])
        created = {id(x): q for q, each in self.made.items() for x in each}
        changed = {}
        for buffer in tail:
            of_result = created.get(id(buffer))
            if of_result is None or of_result in self.late:
                changed[id(buffer)] = self.last - 1, view
            elif self.ranges[of_result] == T:
                changed[id(buffer)] = T, result_view
        for buffer in tail:
            if id(buffer) in changed:
                self.change(buffer, *changed[id(buffer)])
        rest = [x for x in tail if id(x) not in created]
        for q in range(len(outs)):
            rest += made.get(q, self.made.get(q, []))
        lowering.buffers = [*own[:end], *copied, *rest]
        lowering.alike = AlikeBuffers(end - len(self.lists[T]), len(self.lists[T]), self.last - T)
        return new

    def _number_results(self) -> dict[int, int]:
        """Rename the buffers that results created, and return the numbers of the first ones that copied results create:
        they are in the order of the results."""
        copies, numbers, names = self.copies, dict[int, int](), dict[str, str]()
        number = len(self.lowering.buffers) + copies.skipped - sum(map(len, self.made.values()))
        for q in range(len(self.ranges)):
            of = copies.counterparts.get(q)
            if of is not None:
                numbers[q] = number
            else:
                names |= {buffer.name: f"buf{number + i}" for i, buffer in enumerate(self.made[q])}
            number += len(self.made[q if of is None else of])
        created = [buffer for each in self.made.values() for buffer in each]
        if all(old == new for old, new in names.items()):
            return numbers
        outputs = {x.name: (buffer.name, x) for buffer in created for _, x in _outputs(buffer)}
        moved = {name: names[of] + name.removeprefix(of) for name, (of, _) in outputs.items()}
        for buffer in created:
            if isinstance(buffer, ComputedBuffer):
                own = {dep.buf: moved.get(dep.buf, dep.buf) for dep in (*buffer.body.reads, *buffer.body.writes)}
                buffer.body = with_names(buffer.body, own)
            else:
                buffer.name = names[buffer.name]
        for _, x in outputs.values():
            x.name = moved[x.name]
        self.objects = {x.name: x for x in self.objects.values()}
        self.lowering.generated = {names.get(name, name) for name in self.lowering.generated}
        return numbers

    def _copied_results(self, view: Mapping[str, Origin], numbers: Mapping[int, int]) -> dict[int, list[Any]]:
        """What each result creates that is not lowered."""
        place = {id(buffer): i for i, buffer in enumerate(self.made_by_template)}
        found: dict[int, list[Any]] = {}
        for q, of in sorted(self.copies.counterparts.items()):
            j, number = self.ranges[q], numbers[q]
            assert j is not None
            found[q] = []
            for buffer in self.made[of]:
                name = f"buf{number + len(found[q])}"
                found[q].append(self.image(buffer, name, j, view, ("result", j, place[id(buffer)])))
        return found

    # ---- where buffers come from

    def origins(self, kind: str, back: int, buffers: Sequence[Any]) -> dict[str, Origin]:
        """The origins of the results of some buffers."""
        return {x.name: (kind, back, i, k) for i, buffer in enumerate(buffers) for k, x in _outputs(buffer)}

    def view(self, ranges: Sequence[int]) -> dict[str, Origin]:
        """The origins of what a lowered range may use. `ranges`: this range, and those that were lowered before it."""
        found: dict[str, Origin] = {}
        for back, k in enumerate(ranges):
            for s, name in enumerate(self.inputs[k]):
                found.setdefault(name, ("input", back, s, None))
            found |= self.origins("buffer", back, self.lists[k])
        return found

    def at(self, j: int, origin: Origin) -> str:
        """The name of what has this origin, seen from range `j`."""
        kind, back, i, output = origin
        k = j - back
        if kind == "input":
            return self.inputs[k][i]
        if kind == "buffer" and k in self.lists:
            buffer = self.lists[k][i]
        else:
            buffer = self.made_by_template[i] if k == T else self.images[kind, k, i]
        return str(dict(_outputs(buffer))[output].name)

    def name(self, name: str, j: int, view: Mapping[str, Origin]) -> str:
        """The name of a buffer of T, seen from range `j`."""
        origin = view.get(name)
        if origin is not None:
            return self.at(j, origin)
        if name not in self.fixed:
            raise NotCopied
        return name

    # ---- comparing

    def form(self, buffer: Any, k: int, view: Mapping[str, Origin]) -> Any:
        """Equal for buffers of two ranges that are copies of each other."""
        number = {seed: n for n, seed in enumerate(self.copies.repeats.seeds[k])}
        stands = k - 1 if k != self.last else T
        before = {seed: n for n, seed in enumerate(self.copies.repeats.seeds[stands])}

        def named(name: str) -> Any:
            if name not in view and name not in self.fixed:
                raise NotCopied
            return view.get(name, name)

        def position(name: str, index: Any) -> Any:
            if type(index) is not int or name not in self.seeds:
                return index
            return ("own", number[index]) if index in number else ("before", before.get(index, ("fixed", index)))

        def form(x: Any) -> Any:
            if isinstance(x, Op):
                if x.name in _ACCESSES:
                    return x.name, named(x.args[0]), position(*x.args[:2]), x.args[2:], x.dtype
                return x.name, form(x.args), x.dtype
            if isinstance(x, SubBody):
                return form(x.ops), x.result, x.start
            if isinstance(x, View):
                return View, named(x.buffer.name), x.layout
            if isinstance(x, Buffer):
                return Buffer, named(x.name)
            if isinstance(x, list | tuple):
                return type(x), tuple(map(form, x))
            if isinstance(x, dict):
                return tuple((key, form(y)) for key, y in x.items())
            return type(x), repr(x) if isinstance(x, float) else x

        if type(buffer) is ComputedBuffer:
            body = buffer.body
            if buffer.mutates is not None:
                raise NotCopied
            return buffer.layout, body.iter_vars, body.reduce_vars, form(body.ops), buffer.zeros_from
        if type(buffer) is not ExternKernel or buffer.mutates is not None:
            raise NotCopied
        outs = tuple([None if x is None else (x.layout, x.position) for x in buffer.outputs])
        generated = buffer.name in self.lowering.generated
        return buffer.target, form(buffer.args), form(buffer.kwargs), outs, buffer.returns_tuple, generated

    # ---- copies

    def image(self, buffer: Any, name: str, j: int, view: Mapping[str, Origin], key: tuple[str, int, int]) -> Any:
        """The buffer of range `j` at the place of one of T."""
        copies = self.copies
        nodes = tuple([copies.moved(x, j - T) for x in buffer.origins])
        image: Any
        if isinstance(buffer, ComputedBuffer):
            image = ComputedBuffer(name, buffer.layout, buffer.body, nodes, None, buffer.zeros_from)
            self.images[key] = image
            image.body = self.body(buffer, j, view)
        elif type(buffer) is not ExternKernel:
            raise NotCopied
        else:
            outs = [
                x and MultiOutput(name + x.name.removeprefix(buffer.name), x.layout, x.position) for x in buffer.outputs
            ]
            args, kwargs = self.operand(buffer.args, j, view), self.operand(buffer.kwargs, j, view)
            image = ExternKernel(name, buffer.target, args, kwargs, tuple(outs), nodes, buffer.returns_tuple)
            self.images[key] = image
        self.objects |= {x.name: x for _, x in _outputs(image)}
        if buffer.name in self.lowering.generated:
            self.lowering.generated.add(name)
        return image

    def body(self, buffer: ComputedBuffer, j: int, view: Mapping[str, Origin]) -> LoopBody:
        """The loops of a buffer, seen from range `j`."""
        deps = (*buffer.body.reads, *buffer.body.writes)
        names = {dep.buf: self.name(dep.buf, j, view) for dep in deps}
        return RenamedBody(buffer.body, names, self._positions(buffer.body, j) if self.seeds else {})

    def _positions(self, body: LoopBody, j: int) -> dict[tuple[str, Any], int]:
        """The seeds of range `j` in the place of those of T."""
        seeds, found = self.copies.repeats.seeds, {}
        for dep in body.reads:
            if dep.buf in self.seeds and type(dep.index) is int:
                for back in range(REAL):
                    if dep.index in seeds[T - back]:
                        found[dep.buf, dep.index] = seeds[j - back][seeds[T - back].index(dep.index)]
                        break
        return found

    def operand(self, x: Any, j: int, view: Mapping[str, Origin]) -> Any:
        """Arguments of a call, seen from range `j`."""
        if isinstance(x, View):
            return View(self.objects[self.name(x.buffer.name, j, view)], x.layout)
        if isinstance(x, Buffer):
            return self.objects[self.name(x.name, j, view)]
        if isinstance(x, list | tuple):
            return type(x)([self.operand(y, j, view) for y in x])
        if isinstance(x, dict):
            return {key: self.operand(y, j, view) for key, y in x.items()}
        return x

    def value(self, x: Any, j: int, view: Mapping[str, Origin]) -> Any:
        """A result, seen from range `j`."""
        if not isinstance(x, BufferView):
            return x
        name = x.buffer.name
        if name not in view:
            return x
        return BufferView(self.objects[self.at(j, view[name])], x.layout)

    def change(self, buffer: Any, j: int, view: Mapping[str, Origin]) -> None:
        """Let a lowered buffer access what it should, seen from range `j`."""
        nodes = [self.copies.moved(x, j - T) if self.copies.range_of(x) in (A, B, T) else x for x in buffer.origins]
        buffer.origins = tuple(nodes)
        if isinstance(buffer, ComputedBuffer):
            buffer.body = self.body(buffer, j, view)
        else:
            buffer.args = self.operand(buffer.args, j, view)
            buffer.kwargs = self.operand(buffer.kwargs, j, view)


def _input_name(value: Any) -> str:
    if not isinstance(value, BufferView):
        raise NotCopied
    return value.buffer.name


def _outputs(buffer: Any) -> list[tuple[int | None, Any]]:
    """What has memory of a buffer or call, with the number of the output."""
    if isinstance(buffer, ComputedBuffer):
        return [(None, buffer)]
    return [(k, x) for k, x in enumerate(buffer.outputs) if x is not None]
