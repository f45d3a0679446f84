"""Numbers that vary in a captured graph: symbolic sizes and ints, floats, and numbers that depend on data (unbacked).

They are symbols of torch's ShapeEnv while tracing and nodes of the graph where an operator takes them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode

from .. import config
from ..core.expr import OPS, Number, Tree, sources
from ..core.files import skipped_file
from ..core.guard import Guard
from ..core.source import Source, UnbackedSource
from ..errors import Restart, UserError
from ..vars.numbers.dynamic import CaptureHistory
from ..vars.numbers.symint import SYMBOLIC_OPS, NumberVar
from ..vars.protocol.base import Var
from ..vars.protocol.const import make
from ..vars.tracer import Tracer
from .graph_inputs import GraphInputs
from .graph_stack import GraphStack
from .loops import loops_of
from .unbacked import LazyUnbackedNode, new_numbers, size_of, truth_as_int

# Numbers that are read from tensors before a loop that reads more of them breaks the graph.
MOST_IN_LOOP = 16


class GraphNumbers:
    """`values`: the numbers that vary in this capture, by source: SymInts, and the values of floats. `promised`: the
    sizes that the user marked as dynamic."""

    def __init__(
        self, tx: Tracer, stack: GraphStack, inputs: GraphInputs, history: CaptureHistory,
        fake_mode: Callable[[], FakeTensorMode],
    ) -> None:
        self._tx, self._stack, self._inputs, self._history, self._fake_mode = tx, stack, inputs, history, fake_mode
        self._shapes: Any = None
        self._nodes: dict[tuple[fx.Graph, Tree], fx.Node] = {}
        self.values: dict[Source, Any] = {}
        self.promised: set[Source] = set()
        self.made_in_loop = False  # unbacked numbers were created in a loop
        self._created = 0  # how many unbacked numbers were created

    # ---- nodes ----
    def node(self, tree: Tree) -> Any:
        """The node that computes a number, or its value if it is constant."""
        if isinstance(tree, Number):
            return tree.value
        graph = self._stack.current
        node = self._nodes.get((graph, tree))
        if node is None:
            if isinstance(tree, Source):
                node = self._source_node(tree)
            else:
                args = tuple(self.node(arg) for arg in tree.args)
                node = self._stack.annotate(graph.call_function(SYMBOLIC_OPS.get(tree.op, OPS[tree.op]), args))
            self._nodes[graph, tree] = node
        return node

    def _source_node(self, source: Source) -> fx.Node:
        """The node of a number that is an input or the result of an operator, not computed from other numbers."""
        outermost = self._stack.outermost
        if isinstance(source, UnbackedSource):
            node = source.holder.node
        elif (known := self._nodes.get((outermost, source))) is not None:
            node = known
        else:
            node = self._nodes[outermost, source] = self._inputs.add(source, self.values[source])
        if node.graph is self._stack.current:
            return node
        sym = self.values[source]
        return self._stack.lift(node, NumberVar(self._tx, source, sym), sym)

    # ---- symbolic shapes ----
    @property
    def shapes(self) -> Any:
        """The symbolic sizes of this capture, created on first use."""
        if self._shapes is None:
            from ..vars.numbers.shapes import Shapes  # deferred: loads sympy

            tx = self._tx
            self._shapes = Shapes(
                lambda: tx.user_line() if vars(tx).get("frames") else None,  # `release` has cleared a finished trace
                tx,
                config.capture_scalar_outputs and not self._history.concrete,
                config.capture_dynamic_output_shape_ops and not self._history.concrete,
            )
            mode = self._fake_mode()
            mode.shape_env = self._shapes
            mode.static_shapes = False
        return self._shapes

    @property
    def has_shapes(self) -> bool:
        """Whether this capture has symbolic sizes."""
        return self._shapes is not None

    def begin_shapes(self, allowed: bool) -> bool:
        """After an operator failed without symbolic shapes: create them if allowed; True if the operator should be
        tried again."""
        if self._shapes is not None or not allowed:
            return False
        return self.shapes is not None

    def kernels(self) -> Any:
        """A context manager: with symbolic sizes, operators use Python kernels where available, because C++ kernels may
        require concrete sizes."""
        return contextlib.nullcontext() if self._shapes is None else enable_python_dispatcher()

    def try_concrete(self) -> None:
        """After a failure that symbolic sizes may have caused: restart the trace without them."""
        if self._shapes is not None and not self._history.concrete:
            self._history.concrete = True
            raise Restart()

    def relations(self) -> list[Guard]:
        """The capture's assumptions about symbolic sizes and ints, as guards. Raises UserError if they fix a size that
        the user marked as dynamic."""
        if self._shapes is None:
            return []
        guards = list(self._shapes.relations())
        for source in self.promised:
            only = self._shapes.only_value(source)
            if only is not None:
                why = [str(guard.payload) + f" at {guard.line}" for guard in guards if _about(guard, source)]
                raise UserError(
                    f"{source} was marked as dynamic, but the program requires it to be {only}: {'; '.join(why)}. "
                    "Change the code there that depends on the size, or use maybe_mark_dynamic, which allows a "
                    "constant."
                )
        return guards

    def assertions(self) -> Any:
        """What torch has assumed so far about unbacked numbers; see `assumptions_since`."""
        return () if self._shapes is None else self._shapes.assertions()

    def assumptions_since(self, before: Any) -> list[Any]:
        """The assumptions (sympy expressions) about unbacked numbers added since `assertions` returned `before`."""
        return [] if self._shapes is None else self._shapes.assumptions_since(before)

    def text(self, assumption: Any) -> str:
        """An assumption in terms of the program's values."""
        return self.shapes.text(assumption)

    def condition(self, assumption: Any) -> Var:
        """An assumption as a bool that the graph computes."""
        return make(self.shapes.create_symboolnode(assumption))

    def drop_pending(self) -> None:
        """Forget symbols that an operator created whose node was removed."""
        if self._shapes is not None:
            self._shapes.pending_fresh_unbacked_symbols.clear()

    # ---- unbacked numbers ----
    @property
    def makes_numbers(self) -> bool:
        """Whether reading a number from a tensor here yields an unbacked number instead of a graph break."""
        return config.capture_scalar_outputs and self._makes()

    @property
    def makes_sizes(self) -> bool:
        """Whether an operator with a data-dependent result size stays in the graph here."""
        return config.capture_dynamic_output_shape_ops and self._makes()

    def _makes(self) -> bool:
        """False in functions that torch.func transforms, and in a loop of the user's once a break in it is known to be
        needed anyway, or if it reads many numbers: a break makes its body a graph of its own that serves all
        iterations. Loops of libraries are never captured on their own."""
        tx = self._tx
        if self._history.concrete or self._stack.in_transform:
            return False
        if tx.options.fullgraph or self._stack.is_nested:
            return True
        own = True  # whether the frame is the user's innermost one, or one of a library below it
        for frame in reversed(tx.frames):
            in_loop = any(frame.at in members for members in loops_of(frame.code).values())
            of_library = skipped_file(frame.code.co_filename)
            many = own and self._created > MOST_IN_LOOP
            if in_loop and not of_library and (many or not self._history.makes_in_loops):
                return False
            self.made_in_loop = self.made_in_loop or in_loop
            own = own and of_library
        return True

    def unbacked_argument(self) -> Var:
        """An unbacked int that is an argument of the nested graph."""
        return self.unbacked_int(self._stack.argument(None))

    def unbacked_int(self, node: fx.Node) -> Var:
        """A new unbacked int, which `node` computes."""
        sym = node.meta["val"] = self.shapes.create_unbacked_symint()
        self._register(sym, functools.partial(_itself, node))
        return make(sym)

    def computed_float(self, tree: Tree) -> Any:
        """A new unbacked SymFloat for what a node computes of unbacked numbers by `tree`."""
        sym = self.shapes.create_unbacked_symfloat()
        self.shapes.pending_fresh_unbacked_symbols.clear()
        node = self.node(tree)
        node.meta["val"] = sym
        self._register(sym, functools.partial(_itself, node))
        return sym

    def register_new(self, node: fx.Node, result: Any) -> bool:
        """Register the unbacked numbers that the operator of `node` created; False if there are none."""
        if self._shapes is None:
            return False
        known = len(self.values)
        self._shapes.pending_fresh_unbacked_symbols.clear()
        for dim, value in new_numbers(result, self._shapes.is_new):
            self._register(value, functools.partial(_itself, node) if dim is None else size_of(node.graph, node, dim))
        if isinstance(result, torch.SymBool) and (symbol := self._shapes.new_truth(result)) is not None:
            self._register(symbol, truth_as_int(node.graph, node))
        return len(self.values) > known

    def _register(self, value: Any, build: Callable[[], fx.Node]) -> None:
        """Register `value`, a new symbol, as the result of the node that `build` creates."""
        self._created += 1
        holder = LazyUnbackedNode(self._stack.current, value, build)
        source = UnbackedSource(len(self.shapes.source_of), holder, f"{value}")
        self.shapes.source_of[value.node.expr] = source
        self.values[source] = value

    def refuse_new(self, label: str, result: Any) -> None:
        """Break the graph if an operator created unbacked numbers where these are not allowed."""
        if self._shapes is None:
            return
        for part in result if isinstance(result, tuple | list) else (result,):
            sizes = isinstance(part, torch.Tensor)
            new = next(new_numbers(part, self._shapes.is_new), None) is not None
            truth = isinstance(part, torch.SymBool) and self._shapes.new_truth(part) is not None
            if sizes and new and not self.makes_sizes:
                what = f"{label} returns a tensor whose size depends on the data"
                self._tx.graph_break("data-dependent-shape", what)
            if not sizes and (new or truth) and not self.makes_numbers:
                self._tx.graph_break("tensor-to-python", f"{label} reads a value of a tensor")


def _itself(node: fx.Node) -> fx.Node:
    return node


def _about(guard: Guard, source: Source) -> bool:
    return guard.kind == "RELATION" and source in sources(guard.payload)
