"""Lowers an ATen graph to the loop IR, node by node.

Nodes with a lowering become values of the loop IR; this module decides which of these are written to memory. Other
nodes become calls of ATen. It also handles writes to inputs and the strides and aliasing of the outputs.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
import torch.fx as fx

from ..errors import Unsupported
from ..fx_utils.arguments import getitem_key, node_at, results_of
from ..fx_utils.places import blame
from ..fx_utils.views import ANY_VIEW, operator_name
from ..ir.body import LoopBody
from ..ir.buffer import (
    Buffer,
    ComputedBuffer,
    ConstantBuffer,
    ExternKernel,
    InputBuffer,
    Layout,
    MultiOutput,
    View,
)
from ..ir.nodes import (
    AlikeBuffers,
    BufferView,
    GraphIR,
    Pointwise,
    TensorValue,
    dense_order,
    store,
    store_body,
    store_padded,
)
from ..ir.real import Real
from ..ir.size import Size, hint
from ..overlap import elements_overlap
from .alignment import PRODUCTS, is_generated, padded_length, padded_sizes, turned
from .common import is_value, used_results
from .complex_memory import OF_PARTS
from .in_place import InPlace, earlier_readers, in_place_writes
from .index_write import IndexWrite
from .index_writes import index_write
from .layouts import OPAQUE, check_static, check_within, is_tensor, outermost_first, same_strides, static_layout
from .origins import set_origins
from .partial_writes import VIEW_OF, in_place_variant, written_view
from .registry import Unlowered, find
from .repeated import Copies, NotCopied, copies_of
from .results import check_shared, distinct_objects

# A Pointwise that is used more than once is realized from the first pair of costs on. Above the second pair, any
# Pointwise is.
MANY_READS, MUCH_WORK = 4, 10
MAX_READS, MAX_WORK = 16, 64
# So is one of at least this cost that is used many times and by results of many times its size.
DEAR, MANY_USES, EXPANDED = 6, 4, 4
MAX_DEPTH = 60  # the longest chain of unrealized Pointwise values


class GraphLowering:
    """Lowers the nodes of one graph in order. `node` is the current node and `val` its fake result."""

    def __init__(
        self, shared: Sequence[int | None] | None = None, uncounted: Sequence[int] = (), row_products: bool = False,
        copies: Copies | None = None,
    ) -> None:
        self.copies = copies  # of ranges of the graph that are not lowered
        self.shared, self.uncounted, self.row_products = shared, uncounted, row_products
        self.in_place: dict[fx.Node, InPlace] = {}
        self.inputs: list[Any] = []
        self.constants: list[ConstantBuffer] = []
        self.buffers: list[Any] = []
        self.env: dict[fx.Node, Any] = {}
        self.node: fx.Node = None  # type: ignore[assignment]  # set before any lowering runs
        self.val: Any = None
        self.padded: dict[tuple[str, Layout, tuple[int, ...]], Buffer] = {}  # padded copies, by what was copied
        self.generated: set[str] = set()  # as in GraphIR
        self.copying = False  # whether the last call was a write to an input
        self.alike: AlikeBuffers | None = None
        self.not_in_loops: set[fx.Node] = set()  # nodes with values of dtypes that loops do not support

    def fresh(self) -> str:
        """An unused buffer name."""
        return f"buf{len(self.buffers) + (self.copies.skipped if self.copies is not None else 0)}"

    def add_computed(self, layout: Layout, body_of: Callable[[str], LoopBody]) -> ComputedBuffer:
        """Appends a new buffer that `body_of(its name)` fills, and returns it."""
        # Tracing a body must not realize other values, so the name is still unused afterwards.
        name = self.fresh()
        buffer = ComputedBuffer(name, layout, body_of(name), (self.node,))
        self.buffers.append(buffer)
        return buffer

    # ---- nodes

    def run(self, gm: fx.GraphModule) -> GraphIR:
        """The loop IR of `gm`. Raises Unsupported. Any exception is annotated with the node that was being lowered."""
        try:
            return self._run(gm)
        except Exception as error:
            blame(error, self.node)
            raise

    def _run(self, gm: fx.GraphModule) -> GraphIR:
        nodes = list(gm.graph.nodes)
        self.in_place = in_place_writes(gm.graph)
        for at, node in enumerate(nodes):
            if self.copies is not None:
                self.copies.reach(self, at)
                if self.copies is not None and self.copies.is_copied(node):
                    continue
            self.node, self.val = node, node.meta.get("val")
            if not all(map(_loops_support, self.val if isinstance(self.val, tuple | list) else (self.val,))):
                self.not_in_loops.add(node)
            match node.op:
                case "placeholder":
                    self.env[node] = self.placeholder()
                case "get_attr":
                    self.env[node] = self.constant(gm)
                case "call_function":
                    copies = node.target is torch.ops.aten.copy_.default
                    if copies and not self.copying:
                        self.finish_copies(nodes)
                    self.copying = copies
                    self.env[node] = self.call()
                case "output":
                    outputs = self.outputs()
                    set_origins(self.buffers, self.env)
                    if self.copies is not None:
                        outputs = self.copies.finish(self, outputs)
                    check_shared(outputs, self.shared or (None,) * len(outputs))
                    viewed = distinct_objects(results_of(self.node.graph), outputs)
                    return GraphIR(
                        self.inputs, self.constants, self.buffers, outputs, viewed=viewed,
                        generated=frozenset(self.generated), alike=self.alike,
                    )  # fmt: skip
                case other:
                    raise Unsupported(f"a graph node of kind {other}")
        raise Unsupported("the graph has no output node")

    def placeholder(self) -> Any:
        """The value of a placeholder: the next graph input."""
        position = len(self.inputs)
        if is_tensor(self.val):
            opaque = self.node.meta.get(OPAQUE, False)
            buffer = InputBuffer(f"in{position}", static_layout(self.val), position, opaque)
            self.inputs.append(buffer)
            return BufferView(buffer, buffer.layout)
        if self.val is not None and type(self.val) not in (int, float, bool, Size):
            raise Unsupported(f"an input of type {type(self.val).__name__}")
        self.inputs.append(self.val)
        return self.val

    def constant(self, gm: fx.GraphModule) -> Any:
        """The value of a get_attr node; a tensor becomes a ConstantBuffer, on the device that the node is for."""
        value = operator.attrgetter(str(self.node.target))(gm)
        if not isinstance(value, torch.Tensor):
            return value
        device = self.val.device if isinstance(self.val, torch.Tensor) else value.device
        layout = replace(static_layout(value), device=device)
        buffer = ConstantBuffer(f"const{len(self.constants)}", layout, value.detach())
        self.constants.append(buffer)
        return BufferView(buffer, buffer.layout)

    def call(self) -> Any:
        """The value of a call node."""
        target = self.node.target
        if isinstance(self.val, Size | Real):  # computed from sizes alone
            return self.val
        args, kwargs = fx.map_arg((self.node.args, self.node.kwargs), self.env.__getitem__)
        if target is operator.getitem:
            return self.env[node_at(self.node)][getitem_key(self.node)]
        if target is torch.ops.aten.copy_.default:
            return self.copy_into(args[0], args[1])
        if not isinstance(target, torch._ops.OpOverload):
            raise Unsupported(f"a call of {target}, which is not an ATen overload")
        check_static(self.val)
        if self.node in self.in_place and (written := self.write_in_place(self.in_place[self.node])) is not None:
            return written
        lower = find(target)
        mutates = target._schema.is_mutable
        if lower is not None and not mutates and self.in_loops():
            try:
                return self.kept(lower(self, *args, **kwargs))
            except Unlowered:
                pass
        if mutates:
            raise Unsupported(f"{target} writes to its argument")
        return self.extern(target)

    def in_loops(self) -> bool:
        """Whether loops support all dtypes of the current node's inputs and results. They support complex numbers only
        as parts in memory and, on the CPU, no 8-bit floats and uint16 to uint64."""
        if self.node.target in OF_PARTS:
            return True
        return not self.not_in_loops or self.not_in_loops.isdisjoint((self.node, *self.node.all_input_nodes))

    def kept(self, value: Any, users: Sequence[fx.Node] | None = None) -> Any:
        """A lowering's result, realized if computing it again at each use would cost too much. `users`: the nodes that
        use it; by default those that use the current node."""
        if isinstance(value, tuple | list):
            parts = [[user for user in self.node.users if user.args[1] == k] for k in range(len(value))]
            return type(value)(self.kept(x, [u for part in own for u in part.users]) for x, own in zip(value, parts))
        if isinstance(value, Pointwise):
            operands = (self.env.get(arg) for arg in self.node.all_input_nodes)
            waiting = (x for x in operands if isinstance(x, Pointwise) and x.memory is None)
            value.depth = 1 + max((x.depth for x in waiting), default=0)
            if value.depth > MAX_DEPTH:
                return value.realize(self)
        if isinstance(value, Pointwise) and value.view is None:
            value.padded = padded_length(self.node)
            if value.reads > MAX_READS or value.work > MAX_WORK:
                return value.realize(self)
            users = list(self.node.users) if users is None else users
            uses = self.uses(users)
            if (value.reads >= MANY_READS or value.work >= MUCH_WORK) and uses > 1:
                return value.realize(self)
            if value.work >= DEAR and uses >= MANY_USES and _is_expanded(value, users):
                return value.realize(self)
        return value

    def uses(self, users: Iterable[fx.Node]) -> int:
        """The number of nodes that use a value which these nodes use, directly or through views of it."""
        return sum(self.uses(user.users) if operator_name(user) in ANY_VIEW else 1 for user in users)

    # ---- extern kernels

    def extern(self, target: Any) -> Any:
        """Adds a call of the ATen operator and returns its results. Views become strided views of their source."""
        views = target is torch.ops.aten._unsafe_view.default  # a view, although its schema does not declare it
        if views or any(r.alias_info is not None for r in target._schema.returns):
            return self.strided_view()
        if target in PRODUCTS:
            sizes = padded_sizes((node_at(self.node), node_at(self.node, 1)), self.node)
            if sizes is not None:
                return self.padded_product(target, sizes)
        args = tuple(self.operand(a) for a in self.node.args)
        kwargs = {k: self.operand(a) for k, a in self.node.kwargs.items()}
        multi = isinstance(self.val, tuple | list)
        vals = self.val if multi else () if self.val is None else (self.val,)  # an assertion returns nothing
        name = self.fresh()
        if target in PRODUCTS and is_generated((node_at(self.node), node_at(self.node, 1)), self.node):
            self.generated.add(name)
        used = used_results(self.node) if multi else {0}
        outs: list[MultiOutput | None] = []
        for i, val in enumerate(vals):
            if i in used and not isinstance(val, int | Size) and not is_tensor(val):
                raise Unsupported(f"{target} returns a {type(val).__name__}")
            out_name = f"{name}_{i}" if multi else name
            is_used = is_tensor(val) and i in used
            outs.append(MultiOutput(out_name, static_layout(val), i) if is_used else None)
        self.buffers.append(ExternKernel(name, target, args, kwargs, tuple(outs), (self.node,), multi))
        # Numbers that an operator returns depend only on sizes, so the numbers of the fake results are correct.
        values = [
            v if isinstance(v, int | Size) else None if o is None else BufferView(o, o.layout)
            for o, v in zip(outs, vals)
        ]
        return tuple(values) if multi else values[0] if values else None

    def add_call(self, target: Any, args: Sequence[Any], position: int, layout: Layout) -> BufferView:
        """As in LoweringGraph."""
        given = tuple([_whole_or_view(arg) if isinstance(arg, BufferView) else arg for arg in args])
        name = self.fresh()
        out = MultiOutput(f"{name}_{position}", layout, position)
        outs = [out if k == position else None for k in range(len(target._schema.returns))]
        self.buffers.append(ExternKernel(name, target, given, {}, tuple(outs), (self.node,), True))
        return BufferView(out, layout)

    def padded_product(self, target: Any, sizes: tuple[int, int, int]) -> BufferView:
        """Adds the call of a product that is padded to these sizes (see `alignment`); its result is a part of that."""
        m, k, n = sizes
        args = self.padded_matrix(node_at(self.node), m, k), self.padded_matrix(node_at(self.node, 1), k, n)
        layout = static_layout(self.val)
        whole = Layout.contiguous(layout.device, layout.dtype, (*layout.size[:-2], m, n))
        out = MultiOutput(self.fresh(), whole)
        self.buffers.append(ExternKernel(out.name, target, args, {}, (out,), (self.node,)))
        return BufferView(out, whole.with_view(layout.size, whole.stride))

    def padded_matrix(self, arg: fx.Node, rows: int, columns: int) -> Any:
        """An operand of a product as a matrix of this size, filled up with zeros."""
        value, stride = self.env[arg], tuple(arg.meta["val"].stride())
        if isinstance(value, Pointwise) and value.stride is None and dense_order(value.size, stride) is not None:
            value.stride = stride
        memory = value.realize(self)
        across = memory.layout.stride[-1] != 1 and memory.layout.stride[-2] == 1
        layout = turned(memory.layout) if across else memory.layout
        size = (*layout.size[:-2], *((columns, rows) if across else (rows, columns)))
        if layout.size == size:
            buffer = memory.buffer
        elif _has_zeros(memory.buffer, layout, size):
            buffer, layout = memory.buffer, layout.with_view(size, layout.stride)
        else:  # there is one copy for all products that read it
            key = memory.buffer.name, layout, size
            if key not in self.padded:
                self.padded[key] = store_padded(self, BufferView(memory.buffer, layout), size).buffer
            buffer = self.padded[key]
            layout = buffer.layout
        layout = turned(layout) if across else layout
        return buffer if layout == buffer.layout else View(buffer, layout)

    def operand(self, arg: Any) -> Any:
        """An argument of an extern kernel; tensors are realized with the strides of their fake tensors.

        ATen kernels may rely on strides that are not dense, such as those of a mask that was padded to align its rows
        and then sliced. Such a tensor is passed as a view, as in eager.
        """
        if isinstance(arg, list | tuple):
            return type(arg)(map(self.operand, arg)) if type(arg) in (list, tuple) else list(map(self.operand, arg))
        if not isinstance(arg, fx.Node):
            return arg
        value = self.env[arg]
        if not is_value(value):
            return value
        val = arg.meta["val"]
        dense = dense_order(val.shape, tuple(val.stride())) is not None
        memory = self.in_memory(value, val) if dense else viewed_memory(self, value)
        return _whole_or_view(memory)

    def in_memory(self, value: TensorValue, val: torch.Tensor) -> BufferView:
        """Realizes the value, with the strides of `val` if those are dense."""
        if isinstance(value, Pointwise) and value.stride is None:
            value.stride = tuple(val.stride())
        memory = own_dtype(self, value.realize(self))
        wanted = tuple(val.stride())
        if same_strides(memory.layout, wanted) or dense_order(val.shape, wanted) is None:
            return memory
        return store(self, memory, wanted)

    def strided_view(self) -> Any:
        """The results of a view operator without a lowering, with the strides and offsets of their fake tensors."""
        source = next((a for a in self.node.args if isinstance(a, fx.Node) and is_value(self.env[a])), None)
        vals: Sequence[Any] = self.val if isinstance(self.val, tuple | list) else (self.val,)
        if source is None or not all(is_tensor(v) for v in vals):
            raise Unsupported(f"{self.node.target} on these arguments")
        memory, base = self.in_memory(self.env[source], source.meta["val"]), source.meta["val"]
        if self.node.target is torch.ops.aten.as_strided.default:
            memory = self.whole_memory(self.env[source], base)
        if not same_strides(memory.layout, tuple(base.stride())):
            vals = self.restrided(memory.layout, source)
            base = base.as_strided(memory.layout.size, memory.layout.stride, 0)
        shift = memory.layout.offset - base.storage_offset()
        outs = []
        for val in vals:
            layout = replace(static_layout(val), device=memory.device)
            offset = val.storage_offset() + shift
            view = layout.with_view(layout.size, layout.stride, offset)
            check_within(view, memory.buffer)
            outs.append(BufferView(memory.buffer, view))
        return tuple(outs) if isinstance(self.val, tuple | list) else outs[0]

    def whole_memory(self, value: TensorValue, val: torch.Tensor) -> BufferView:
        """`value` as a view of its base's memory: `as_strided` may read elements of the base outside the view."""
        memory = viewed_memory(self, value)
        return memory if same_strides(memory.layout, tuple(val.stride())) else self.in_memory(value, val)

    def restrided(self, layout: Layout, source: fx.Node) -> Sequence[torch.Tensor]:
        """The fake results of the current view operator for a source with the strides of `layout` and offset 0."""
        if any(isinstance(n, Size) for n in (*layout.size, *layout.stride)):
            raise Unsupported(
                f"{self.node.target} with dynamic sizes on a tensor whose layout differs from its fake tensor's"
            )
        if self.node.target is torch.ops.aten.as_strided.default:
            raise Unsupported("as_strided on a tensor whose strides differ from its fake tensor's")
        base = torch.empty_strided(layout.size, layout.stride, dtype=layout.dtype, device="meta")
        args = [base if a is source else a for a in self.node.args]
        result = self.node.target(*args, **self.node.kwargs)  # type: ignore[operator]
        return result if isinstance(result, tuple | list) else (result,)

    # ---- mutation and outputs

    def write_in_place(self, plan: InPlace) -> BufferView | None:
        """Lowers a partial write as a write to the input from whose memory its first argument comes, and returns that
        argument, which has the new value from now on; None if that is not possible."""
        base = viewed_memory(self, self.env[node_at(self.node)])
        target = cast(Any, self.node.target)
        buffer = base.buffer
        if not isinstance(buffer, InputBuffer):
            return None
        if target not in VIEW_OF:
            if not self.in_loops():
                return None
            args, kwargs = fx.map_arg((self.node.args[1:], self.node.kwargs), self.env.__getitem__)
            write = index_write(base, target, args, kwargs)
            if write is None and buffer.position in self.uncounted:
                return None  # ATen counts writes, but not the program those through x.data
            self.settle_readers(plan)
            if write is not None:
                self.store_at_indices(base, write)
            else:
                self.call_in_place(in_place_variant(target), base)
            return base
        source = self.env[node_at(self.node, 1)]
        view = written_view(base, self.node)
        if isinstance(source, BufferView) and source.buffer is buffer and source.layout == view:
            return base  # was written in place itself
        if source.dtype != view.dtype or tuple(source.size) != view.size:
            return None
        self.settle_readers(plan)
        self.store_into(buffer, view, source)
        return base

    def call_in_place(self, variant: Any, base: BufferView) -> None:
        """Adds a call of an ATen operator that writes to its first argument, the memory `base` of an input."""

        def operand(arg: Any) -> Any:
            if isinstance(arg, list | tuple):
                return [operand(each) for each in arg]
            memory = self.operand(arg)
            read = memory.buffer if isinstance(memory, View) else memory
            return store(self, self.env[arg]).buffer if read is base.buffer else memory  # no operand may overlap

        written = base.buffer if base.layout == base.buffer.layout else View(base.buffer, base.layout)
        args = (written, *map(operand, self.node.args[1:]))
        kwargs = {name: operand(arg) for name, arg in self.node.kwargs.items()}
        call = ExternKernel(self.fresh(), variant, args, kwargs, (), (self.node,), mutates=base.buffer.name)
        self.buffers.append(call)

    def store_at_indices(self, base: BufferView, write: IndexWrite) -> None:
        """Adds the loops of a write to the memory `base`, through temporaries if they read it."""
        self.padded.clear()
        body = write.body(base)
        if any(read.buf == base.buffer.name for read in body.reads):
            body = write.realized(self, base.buffer.name).body(base)
        self.add_loops(base, body)

    def add_loops(self, base: BufferView, body: LoopBody) -> None:
        """Adds loops that write to the memory `base`."""
        self.buffers.append(ComputedBuffer(self.fresh(), base.layout, body, (self.node,), mutates=base.buffer.name))

    def settle_readers(self, plan: InPlace) -> None:
        """Called before a write to an input: computes every value that reads it and is used afterwards, and copies
        views of it."""
        self.padded.clear()
        current = self.node
        for self.node in earlier_readers(plan, current):
            self.env[self.node] = self.settled(self.env[self.node], plan.target)
        self.node = current

    def settled(self, value: Any, target: fx.Node) -> Any:
        """A value in memory that is no input's; views of the input `target` are copied. A view of a computed value is
        settled in the memory of that value, since `viewed_memory` may ask for it later."""
        if isinstance(value, tuple | list):
            return type(value)(self.settled(each, target) for each in value)
        if not is_value(value):
            return value
        memory = viewed_memory(self, value)
        if memory.buffer is not self.env[target].buffer:
            return value
        copy = store(self, memory, tuple(memory.layout.stride))
        if isinstance(value, Pointwise):
            value.memory, value.view = copy, None
            return value
        return copy

    def finish_copies(self, nodes: Sequence[fx.Node]) -> None:
        """Called before the first `copy_` into an input: realizes every output and every other copied value now, since
        they may read inputs that are about to be overwritten."""
        results = [n for n in nodes[-1].all_input_nodes if isinstance(self.env.get(n), Pointwise)]
        copied = [node_at(n, 1) for n in nodes if n.target is torch.ops.aten.copy_.default][1:]
        viewed = self.shared_nodes(nodes[-1])
        current = self.node
        for self.node in results:
            self.output(self.env[self.node], self.node.meta["val"], self.node in viewed)
        for self.node in copied:
            if isinstance(self.env.get(self.node), Pointwise):
                self.in_memory(self.env[self.node], self.node.meta["val"])
        self.node = current

    def shared_nodes(self, output: fx.Node) -> set[fx.Node]:
        """The graph results that share memory with other results."""
        results, groups = results_of(output.graph), self.shared or ()
        pairs, members = zip(results, groups), Counter(groups)
        return {x for x, group in pairs if x is not None and group is not None and members[group] > 1}

    def copy_into(self, target: Any, value: Any) -> Any:
        """Lowers `input.copy_(value)`, through a temporary if the value reads the input at other positions."""
        if not (isinstance(target, BufferView) and isinstance(target.buffer, InputBuffer)):
            raise Unsupported("copy_ into a tensor that is not a graph input")
        if not is_value(value) or tuple(value.size) != tuple(target.size) or value.dtype != target.dtype:
            raise Unsupported("copy_ of another size or dtype than its target's")
        in_memory = isinstance(value, BufferView) and value.buffer is target.buffer
        if not (in_memory and value.layout == target.layout):  # else all writes were done in place
            self.store_into(target.buffer, target.layout, value)
        return target

    def store_into(self, target: InputBuffer, view: Layout, value: TensorValue) -> None:
        """Adds the loops that write `value` to a view of an input, through a temporary if the value reads the input at
        other positions."""
        self.padded.clear()
        order = dense_order(view.size, view.stride) or outermost_first(view)
        body = store_body(target.name, view, value, order)
        written = body.writes[0].index
        if any(r.buf == target.name and r.index != written for r in body.reads):
            body = store_body(target.name, view, store(self, value), order)
        self.buffers.append(ComputedBuffer(self.fresh(), view, body, (self.node,), mutates=target.name))

    def outputs(self) -> list[BufferView | float | None]:
        """The results of the graph. A tensor shares memory with other results exactly as `shared` demands."""
        flat = self.node.args[0]
        args = flat if isinstance(flat, list | tuple) else [flat]
        groups = self.shared or (None,) * len(args)
        outs: list[Any] = []
        owner: dict[str, int] = {}
        viewed = self.shared_nodes(self.node)
        if self.copies is not None:
            self.copies.begin_results(self)
        for q, (arg, group) in enumerate(zip(args, groups)):
            first = len(self.buffers)
            if self.copies is not None and self.copies.is_copied_result(q):
                outs.append(None)
                continue
            value = self.env[arg] if isinstance(arg, fx.Node) else arg
            if is_value(value):
                memory = self.output(value, arg.meta["val"], arg in viewed)
                if group is not None:
                    taken = owner.setdefault(memory.buffer.name, group)
                    if taken != group or isinstance(memory.buffer, InputBuffer | ConstantBuffer):
                        memory = self.copy_like(memory, arg.meta["val"])
                        owner[memory.buffer.name] = group
                outs.append(memory)
            elif value is None or isinstance(value, int | float | Size | Real):
                outs.append(value)
            else:
                raise Unsupported(f"an output of type {type(value).__name__}")
            if self.copies is not None:
                self.copies.note_result(self, q, first)
        return outs

    def copy_like(self, value: BufferView, val: torch.Tensor) -> BufferView:
        """A copy of a value with the strides of `val`, which may leave gaps."""
        stride = tuple(val.stride())
        dense = dense_order(val.shape, stride) is not None
        if not dense and not isinstance(val, torch.Tensor):  # a SizedTensor's elements may overlap for some sizes
            raise Unsupported("the memory layout of a result has gaps")
        if dense or not val.numel() or elements_overlap(val):
            return store(self, value, stride)
        layout = Layout(value.device, value.dtype, tuple(value.size), stride)
        order = outermost_first(layout)
        return BufferView(self.add_computed(layout, lambda name: store_body(name, layout, value, order)), layout)

    def output(self, value: TensorValue, val: torch.Tensor, viewed: bool) -> BufferView:
        """Realizes an output with its strides in eager. With `viewed`, it is returned as a view if it is one."""
        if not viewed and dense_order(val.shape, tuple(val.stride())) is not None:
            return self.in_memory(value, val)
        computed = not viewed and isinstance(value, Pointwise) and value.view is None
        if computed and isinstance(val, torch.Tensor) and val.numel() and not elements_overlap(val):
            raise Unsupported("the memory layout of a result has gaps")
        return viewed_memory(self, value)


_ON_CPU = {
    torch.float32, torch.float64, torch.bfloat16, torch.float16,
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
}  # fmt: skip


def _is_expanded(value: Pointwise, users: Sequence[fx.Node]) -> bool:
    """Whether each element of a value is used for several elements of all results that use it, as those of a table of
    angles are."""
    results = [user.meta.get("val") for user in users]
    own = math.prod(map(hint, value.size))
    return all(isinstance(val, torch.Tensor) and hint(val.numel()) >= EXPANDED * own for val in results)


def _loops_support(val: Any) -> bool:
    """Whether a value of a node is no tensor, or one of a dtype that loops support on its device."""
    if not is_tensor(val) or val.dtype in _ON_CPU:
        return True
    return not val.dtype.is_complex and val.device.type != "cpu"


def _has_zeros(buffer: Buffer, layout: Layout, size: tuple[int, ...]) -> bool:
    """Whether memory that was padded has zeros where a matrix of this layout is extended to `size`."""
    if not isinstance(buffer, ComputedBuffer) or buffer.zeros_from is None:
        return False
    *steps, last = layout.stride
    length = buffer.layout.size[-1]
    rows = last == 1 and steps[-1] == length and all(n % length == 0 for n in (*steps, layout.offset))
    return rows and layout.size[-1] == buffer.zeros_from and size == (*layout.size[:-1], length)


def _whole_or_view(memory: BufferView) -> Buffer | View:
    """An operand of a call."""
    return memory.buffer if memory.layout == memory.buffer.layout else View(memory.buffer, memory.layout)


def viewed_memory(graph: GraphLowering, value: TensorValue) -> BufferView:
    """`value` as a view of the memory of its base if it is a view, even if it has been copied to its own buffer."""
    if isinstance(value, Pointwise) and value.view is not None:
        base, relayout = value.view
        memory = viewed_memory(graph, base)
        layout = relayout(memory.layout)
        if layout is not None:
            return own_dtype(graph, BufferView(memory.buffer, layout))
    return own_dtype(graph, value.realize(graph))


def own_dtype(graph: GraphLowering, memory: BufferView) -> BufferView:
    """A value in a buffer of its dtype: parts of complex numbers that more than loops read are copied."""
    return memory if memory.dtype == memory.buffer.dtype else store(graph, memory, tuple(memory.layout.stride))


def lower_graph(
    gm: fx.GraphModule, shared: Sequence[int | None] | None = None, uncounted: Sequence[int] = (),
    row_products: bool = False,
) -> GraphIR:
    """Lowers an ATen graph whose nodes carry fake tensors in `meta["val"]`.

    The only mutation allowed is `copy_` into a graph input. `shared` has one entry per output: outputs with the same
    number share memory; None is for views of inputs and for outputs that are not tensors. `uncounted`: the written
    inputs whose version counters stay the same. `row_products`: products of one row on a GPU become reductions;
    otherwise they are calls of ATen, as other products are. Raises Unsupported, with the reason, for a graph that
    cannot be compiled.
    """
    copies = copies_of(gm.graph)
    if copies is not None:
        try:
            return GraphLowering(shared, uncounted, row_products, copies).run(gm)
        except NotCopied:
            pass
    return GraphLowering(shared, uncounted, row_products).run(gm)
