"""`GraphBuilder`: builds the FX graph of one trace. Each operation runs on fake tensors as its node is added, so that
shapes, dtypes and errors are known at once; inputs, nested graphs, modes and unbacked sizes are handled here too."""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext, _device_constructors

from inductor.aot.fake import forget_tensors
from inductor.aot.in_place import check_out, run_in_place
from inductor.modes import Setting, graph_module
from inductor.overlap import memory_of
from inductor.process.uninterrupted_import import SYMBOLIC_SHAPES, import_whole

from .. import config
from ..core import symbolic
from ..core.expr import Number, Tree, sources
from ..core.guard import Guard, UserLine
from ..core.source import ModuleAttrSource, Source, UnbackedSource, is_drawn
from ..core.tracer import Tracer
from ..errors import Restart, SkipFrame, UserError
from ..vars.containers.mapping import DictVar
from ..vars.containers.sequence import ListVar, SliceVar, TupleVar
from ..vars.higher_order.derivatives import FunctionResultVar
from ..vars.numbers.dynamic import CaptureHistory, fake_of
from ..vars.numbers.numpy_scalars import NumpyNumberVar
from ..vars.numbers.symint import SYMBOLIC_OPS, NumberVar
from ..vars.objects.lookup import lookup
from ..vars.objects.namedtuple import NamedTupleVar
from ..vars.objects.originals import by_name, torchs_own
from ..vars.protocol.base import NotConstant, Var
from ..vars.protocol.const import ConstVar, make
from ..vars.protocol.graph_object import GraphObjectVar
from ..vars.torch_objects.process_settings import as_found
from ..vars.torch_objects.tensor import TAKES_FLOATS, TensorVar
from ..vars.torch_objects.wrapper_subclass import of_result
from .constant_eval import evaluate_constant
from .fake_tensor_logs import quiet
from .loops import loops_of
from .unbacked import LazyUnbackedNode, new_numbers, size_of, truth_as_int

# Calls whose nodes are kept although their results are unused.
_EFFECTFUL = {torch._C._set_grad_enabled}
_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_TAKE_TENSORS = {operator.getitem, operator.setitem}  # they treat ints unlike tensors
_FROM_OFFSET = {"as_strided", "as_strided_", "as_strided_copy"}  # their offsets count from the start of the storage
# Properties of a sparse tensor's entries, known only when it runs: a fake one has no entries.
_OF_ENTRIES = {
    "_nnz", "is_coalesced", "indices", "values", "_indices", "_values", "col_indices", "row_indices",
}  # fmt: skip
_NO_FAKE = "There was no fake impl registered"  # torch's message for a custom operator without one


class GraphBuilder:
    """Builds the FX graph. `call` and `call_method` add nodes; each tensor node has its fake tensor in `meta['val']`
    and the user's line in `meta['stack_trace']`. `inputs` lists the sources of the placeholders, in order.

    `history`: sizes and numbers of earlier captures. `numbers`: the numbers that vary in this capture, by source:
    SymInts, and the values of floats. `promised`: the sizes that the user marked as dynamic.
    """

    def __init__(self, make_mode: Callable[[], FakeTensorMode], history: CaptureHistory | None = None) -> None:
        self._make_mode = make_mode
        self.history = CaptureHistory() if history is None else history
        self.numbers: dict[Source, Any] = {}
        self.promised: set[Source] = set()
        self._shapes: Any = None
        self._number_nodes: dict[tuple[fx.Graph, Tree], fx.Node] = {}
        self._modules: dict[fx.Graph, torch.nn.Module] = {}  # holds the subgraphs that nodes of each graph take
        self._takes_floats = False
        self._by_example = False  # an argument is a float that varies, used by its example value
        self.graph = fx.Graph()
        self.inputs: list[Source] = []
        self.example_inputs: list[Any] = []
        self.originals: dict[Source, torch.Tensor] = {}
        self._kept: dict[fx.Node, Source] = {}  # inputs that are 0-d integer buffers of modules
        self.tx: Tracer | None = None
        self._last_placeholder: fx.Node | None = None
        self._grad_at_entry = torch.is_grad_enabled()
        self._modes: list[Any] = []
        self.restores: list[Callable[[], Any]] = []  # restore the settings that the trace changed
        self.written: dict[str, Any] = {}  # by group, settings that the program wrote; see `process_settings`
        self.switched: dict[Any, Any] = {}  # (setting, leading arguments) -> its value before the frame
        self.errors_are_seen = False  # whether the program handles an operator's exception, see `emit.eager_retry`
        self.only_constants = False  # if set, numbers that vary break the graph
        self._outer: list[fx.Graph] = []  # the graphs around the current nested graph, outermost first
        self._lifted: list[dict[fx.Node, Any]] = []  # per nested graph: placeholder -> value of an outer graph
        # For each node that returns one of its arguments: that tensor, and the node that represented it before.
        self._replaced: dict[fx.Node, tuple[TensorVar, fx.Node]] = {}
        self._transforms = 0  # how many of the nested graphs torch.func transforms

    def size(self) -> int:
        """The number of nodes in all graphs under construction."""
        return sum(len(graph.nodes) for graph in (self.graph, *self._outer))

    @functools.cached_property
    def fake_mode(self) -> FakeTensorMode:
        return self._make_mode()

    def finish(self, outputs: Sequence[Any]) -> fx.GraphModule | None:
        """The finished graph, which returns the tuple of `outputs` (TensorVars) and restores grad mode. None if there
        is nothing to run."""
        while self._modes:
            self.exit_mode(self._modes[-1])
        put_back = as_found(self)
        self._restore()
        if torch.is_grad_enabled() != self._grad_at_entry:
            torch._C._set_grad_enabled(self._grad_at_entry)
            self.effect(torch._C._set_grad_enabled, self._grad_at_entry)
        if any(var.node.graph is not self.graph for var in outputs):
            raise SkipFrame("a tensor created inside a transformed function is used outside of it")
        self._drawn_last()
        if not outputs and not any(node.op.startswith("call") for node in self.graph.nodes):
            return None
        if self._shapes is not None:  # left by an operator whose node was removed
            self._shapes.pending_fresh_unbacked_symbols.clear()
        self.graph.output(tuple(var.node for var in outputs))
        self.graph.lint()
        return self._module(self.graph, put_back)

    def _drawn_last(self) -> None:
        """Move inputs that are drawn at random after those that exist before the frame."""
        given = list(zip(self.graph.find_nodes(op="placeholder"), self.inputs, self.example_inputs, strict=True))
        ordered = sorted(given, key=lambda each: is_drawn(each[1]))
        for (before, _, _), (node, _, _) in itertools.pairwise(ordered):
            before.append(node)
        self.inputs[:] = [source for _, source, _ in ordered]
        self.example_inputs[:] = [example for _, _, example in ordered]

    def _module(self, graph: fx.Graph, settings: Sequence[Setting] = ()) -> fx.GraphModule:
        return graph_module(self._modules.pop(graph, torch.nn.Module()), graph, settings)

    # ---- inputs ----
    def input(
        self, source: Source, tensor: torch.Tensor, layout: tuple[Any, Any] | None = None,
        fake: torch.Tensor | None = None,
    ) -> TensorVar:
        """A placeholder for a tensor that exists before the frame. `layout`: symbolic sizes and strides. `fake`: its
        fake tensor, if it was already created."""
        if fake is None:
            fake = self.fake_of_input(tensor, layout)
        self.originals[source] = tensor
        node = self._placeholder(source, fake)
        if self._is_kept(source, tensor):
            self._kept[node] = source
        return TensorVar(node, fake, source, type(tensor))

    def fake_of_input(self, tensor: torch.Tensor, layout: tuple[Any, Any] | None = None) -> torch.Tensor:
        """The fake tensor for a tensor that exists before the frame. Propagates exceptions of its class's methods."""
        inference = tensor.is_inference()
        other = inference != torch.is_inference_mode_enabled()
        with torch.inference_mode(inference) if other else contextlib.nullcontext():
            if layout is None:
                return self.fake_mode.from_tensor(tensor, static_shapes=True)
            with self.fake_mode:
                return fake_of(tensor, *layout)

    def takes_subclasses(self) -> bool:
        """Whether an input's class may override operations of the graph."""
        given = (self.originals.get(source) for source in self.inputs)
        return any(tensor is not None and type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in given)

    def _placeholder(self, source: Source, example: Any) -> fx.Node:
        with self._after_placeholders():
            node = (self._outer[0] if self._outer else self.graph).placeholder(f"arg{len(self.inputs)}")
        self._last_placeholder = node
        node.meta["val"] = example
        node.meta["source"] = source.name
        self.inputs.append(source)
        self.example_inputs.append(example)
        return node

    def fake_examples(self) -> list[Any]:
        """The example inputs in their state before the graph runs. A write during the trace may have made one require
        gradients; such an example is detached."""
        examples = list(self.example_inputs)
        with torch._C.DisableTorchFunctionSubclass():  # the program's classes must not override this
            for i, (source, fake) in enumerate(zip(self.inputs, examples, strict=True)):
                given = self.originals.get(source)
                if given is not None and type(fake) is FakeTensor and fake.requires_grad and not given.requires_grad:
                    with self.fake_mode:
                        examples[i] = fake.detach()
        return examples

    def number(self, tree: Tree) -> Any:
        """The node that computes a number, or its value if it is constant."""
        if isinstance(tree, Number):
            return tree.value
        node = self._number_nodes.get((self.graph, tree))
        if node is None:
            if isinstance(tree, Source):
                node = self._given(tree)
            else:
                args = tuple(self.number(arg) for arg in tree.args)
                node = self._annotate(self.graph.call_function(SYMBOLIC_OPS[tree.op], args))
            self._number_nodes[self.graph, tree] = node
        return node

    def _given(self, source: Source) -> fx.Node:
        """The node of a number that is an input or the result of an operator, not computed from other numbers."""
        outermost = self._outer[0] if self._outer else self.graph
        if isinstance(source, UnbackedSource):
            node = source.holder.node
        elif (known := self._number_nodes.get((outermost, source))) is not None:
            node = known
        else:
            node = self._number_nodes[outermost, source] = self._placeholder(source, self.numbers[source])
        if node.graph is self.graph:
            return node
        sym = self.numbers[source]
        return self._lift(node, NumberVar(self.tx, source, sym), sym)

    @property
    def shapes(self) -> Any:
        """The symbolic sizes of this capture, created on first use."""
        if self._shapes is None:
            import_whole(SYMBOLIC_SHAPES)
            from ..vars.numbers.shapes import Shapes  # deferred: loads sympy

            tx = self.tx
            assert tx is not None
            self._shapes = Shapes(
                lambda: tx.user_line() if vars(tx).get("frames") else None,  # `release` has cleared a finished trace
                tx,
                config.capture_scalar_outputs and not self.history.concrete,
                config.capture_dynamic_output_shape_ops and not self.history.concrete,
            )
            self.fake_mode.shape_env = self._shapes
            self.fake_mode.static_shapes = False
        return self._shapes

    @property
    def makes_numbers(self) -> bool:
        """Whether reading a number from a tensor here yields an unbacked number instead of a graph break."""
        return config.capture_scalar_outputs and self._makes()

    @property
    def makes_sizes(self) -> bool:
        """Whether an operator with a data-dependent result size stays in the graph here."""
        return config.capture_dynamic_output_shape_ops and self._makes()

    def _makes(self) -> bool:
        """False in a loop, where a break makes the body a graph of its own that serves all iterations, and in functions
        that torch.func transforms."""
        tx = self.tx
        assert tx is not None
        if self.history.concrete or self._transforms:
            return False
        return tx.options.fullgraph or bool(self._outer) or not any(
            frame.at in members for frame in tx.frames for members in loops_of(frame.code).values()
        )

    def relations(self) -> list[Guard]:
        """The capture's assumptions about symbolic sizes and ints, as guards. Raises UserError if they fix a size that
        the user marked as dynamic."""
        if self._shapes is None:
            return []
        guards = list(self._shapes.relations())
        for source in self.promised:
            only = self._shapes.settled(source)
            if only is not None:
                why = [str(guard.payload) + f" at {guard.line}" for guard in guards if _about(guard, source)]
                raise UserError(
                    f"{source} was marked as dynamic, but the program requires it to be {only}: {'; '.join(why)}. "
                    "Change the code there that depends on the size, or use maybe_mark_dynamic, which allows a "
                    "constant."
                )
        return guards

    def _after_placeholders(self) -> Any:
        graph = self._outer[0] if self._outer else self.graph
        if self._last_placeholder is not None:
            return graph.inserting_after(self._last_placeholder)
        first = next(iter(graph.nodes), None)
        return graph.inserting_before(first)

    # ---- graphs of functions that operators take ----
    def enter_nested(self, transform: bool = True) -> fx.Graph:
        """Begin a nested graph. `transform`: it is for a function that torch.func transforms, whose tensor values
        cannot be read."""
        self._outer.append(self.graph)
        self._lifted.append({})
        self._transforms += transform
        self.graph = fx.Graph()
        return self.graph

    def nested_input(self, fake: torch.Tensor) -> TensorVar:
        """A tensor argument of the nested graph."""
        node = self.graph.placeholder(f"arg{len(self.graph.nodes)}")
        node.meta["val"] = fake
        return TensorVar(node, fake)

    def nested_number(self) -> Var:
        """An unbacked int that is an argument of the nested graph."""
        node = self.graph.placeholder(f"arg{len(self.graph.nodes)}")
        sym = node.meta["val"] = self.shapes.create_unbacked_symint()
        self._note(sym, lambda: node)
        return make(sym)

    def leave_nested(
        self, nested: fx.Graph, outputs: Sequence[Var], transform: bool = True, single: bool = False
    ) -> tuple[fx.GraphModule, list[Var]]:
        """Finish the nested graph. Returns it with the outer values that must be passed after its arguments. `single`:
        the graph returns its only output itself, not a tuple."""
        assert self.graph is nested
        nodes = tuple(self._value(var, fake=False) for var in outputs)
        nested.output(nodes[0] if single else nodes)
        lifted = self._lifted.pop()
        places = list(nested.find_nodes(op="placeholder"))
        self.graph = self._outer.pop()
        self._transforms -= transform
        nested.lint()
        ordered = sorted(lifted.items(), key=lambda pair: places.index(pair[0]))
        return self._module(nested), [var for _, var in ordered]

    def _node(self, var: TensorVar) -> fx.Node:
        """The node of a tensor in the current graph. In a nested graph, an outer tensor becomes an argument."""
        return var.node if var.node.graph is self.graph else self._lift(var.node, var, var.fake)

    def _lift(self, node: fx.Node, var: Var, value: Any) -> fx.Node:
        """The argument of the nested graph for an outer value."""
        tx = self.tx
        assert tx is not None
        if node.graph not in self._outer:
            return tx.graph_break(
                "unsupported-object", "a value created inside a transformed function and used outside of it"
            )
        for inside, known in self._lifted[-1].items():
            if known is var:
                return inside
        last = self.graph.find_nodes(op="placeholder")
        with self.graph.inserting_after(last[-1]) if last else self.graph.inserting_before():
            inside = self.graph.placeholder(f"lifted{len(self._lifted[-1])}")
        inside.meta["val"] = value
        if isinstance(value, torch.Tensor):
            inside.meta["version"] = value._version
        self._lifted[-1][inside] = var
        return inside

    def attach(self, name: str, gm: fx.GraphModule) -> fx.Node:
        """Store a graph as a submodule and return the `get_attr` node that passes it to operators."""
        root = self._modules.setdefault(self.graph, torch.nn.Module())
        number = sum(other.startswith(f"{name}_") for other, _ in root.named_children())
        setattr(root, f"{name}_{number}", gm)
        return self._annotate(self.graph.get_attr(f"{name}_{number}"))

    def lifted_fakes(self) -> list[torch.Tensor]:
        """The outer tensors that the nested graph has read so far."""
        return [var.fake for var in self._lifted[-1].values() if isinstance(var, TensorVar)]

    def changes_lifted(self) -> bool:
        """Whether the nested graph writes to an outer tensor."""
        lifted = self._lifted[-1].items()
        return any(isinstance(v, TensorVar) and v.fake._version != node.meta["version"] for node, v in lifted)

    def entered(self, leave: Callable[[Any], None]) -> bool:
        """Whether a mode that is exited with `leave` is active."""
        return self._entered(leave) is not None

    def _entered(self, leave: Callable[[Any], None]) -> Any:
        """The innermost active mode that is exited with `leave`; None if there is none."""
        return next((mode for mode in reversed(self._modes) if mode[2] is leave), None)

    @property
    def in_mode(self) -> bool:
        """Whether an exception raised here by the graph would leave a mode switched, or the current graph is nested."""
        return bool(self._modes or self._outer) or torch.is_grad_enabled() != self._grad_at_entry

    @property
    def is_nested(self) -> bool:
        """Whether the current graph is nested: an argument of an operator."""
        return bool(self._outer)

    @property
    def in_transform(self) -> bool:
        """Whether the function being traced is one that torch.func transforms."""
        return self._transforms > 0

    def record(self, target: Callable[..., Any], args: Sequence[Any], results: Sequence[Any]) -> list[Var]:
        """Add `target(*args)` as a node that returns a tuple. `results`: for each item its fake tensor, or None for an
        unbacked int."""
        node = self._annotate(self.graph.call_function(target, tuple(self._value(arg, fake=False) for arg in args)))
        found: list[Var] = []
        for index, result in enumerate(results):
            part = self._annotate(self.graph.call_function(operator.getitem, (node, index)))
            if result is not None:
                part.meta["val"] = result
                found.append(TensorVar(part, result))
                continue
            sym = part.meta["val"] = self.shapes.create_unbacked_symint()
            self._note(sym, functools.partial(_itself, part))
            found.append(make(sym))
        return found

    # ---- operations ----
    def call(self, target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Var:
        """Add `target(*args, **kwargs)` as a node; arguments are Vars or plain values."""
        if isinstance(target, types.BuiltinFunctionType) and target.__module__ == "_operator":
            name = target.__name__.strip("_")
            self._needs_own(f"__{name}__", f"__r{name}__")
        return self._add("call_function", by_name(target), target, args, kwargs)

    def call_method(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Var:
        """Add `args[0].name(*args[1:], **kwargs)` as a node."""
        if "from" in kwargs and len(args) == 1:  # torch.fx generates Python, where `from` is a keyword
            args, kwargs = [*args, kwargs["from"]], {k: v for k, v in kwargs.items() if k != "from"}

        def run(self_: Any, *rest: Any, **keywords: Any) -> Any:
            return getattr(self_, name)(*rest, **keywords)

        self._needs_own(name)
        return self._add("call_method", name, run, args, kwargs)

    def _needs_own(self, *names: str) -> None:
        """Skip the frame if the program replaced one of these methods of torch.Tensor, because graphs call them by
        name."""
        for name in names:
            if not torchs_own(lookup(torch.Tensor, name), name):
                raise SkipFrame(f"torch.Tensor.{name} has been replaced by the program")

    def effect(self, target: Callable[..., Any], *args: Any) -> None:
        """Add a node for its side effect only, such as switching grad mode or a check."""
        self.call_for_effect(target, args, {})

    def call_for_effect(self, target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> fx.Node:
        """Add `target(*args, **kwargs)` as a node, without running it while tracing."""
        values = tuple(self._value(arg, fake=False) for arg in args)
        named = {name: self._value(value, fake=False) for name, value in kwargs.items()}
        return self._annotate(self.graph.call_function(target, values, named))

    def _restore(self) -> None:
        """Restore the settings that the trace has changed."""
        while self.restores:
            self.restores.pop()()

    def enter_mode(self, enter: Callable[..., Any], leave: Callable[[Any], Any], args: tuple[Any, ...]) -> Any:
        """Enter a mode, while tracing and in the graph; returns the token for `exit_mode`."""
        mode = (enter(*args), self._annotate(self.graph.call_function(enter, args)), leave)
        self._modes.append(mode)
        return mode

    def exit_mode(self, mode: Any) -> None:
        """Exit a mode, while tracing and in the graph."""
        self._modes.remove(mode)
        token, node, leave = mode
        leave(token)
        if node is not None:
            self._annotate(self.graph.call_function(leave, (node,)))

    def enter_device(self, device: torch.device) -> None:
        """Make `device` the default device from here on. In the graph, nodes get it as an argument."""
        context = DeviceContext(device)
        context.__enter__()
        self._modes.append((context, None, _leave_device))

    @property
    def has_device(self) -> bool:
        """Whether a default device is set, by the traced program or around it."""
        return self._entered(_leave_device) is not None or any(
            isinstance(mode, DeviceContext) for mode in _get_current_function_mode_stack()
        )

    def exit_device(self) -> None:
        """Restore the previous default device."""
        self.exit_mode(self._entered(_leave_device))

    def unwind(self) -> None:
        """Exit every mode that the trace entered, when the trace ends or is abandoned."""
        while self._modes:
            token, _, leave = self._modes.pop()
            leave(token)
        self._restore()
        if torch.is_grad_enabled() != self._grad_at_entry:
            torch._C._set_grad_enabled(self._grad_at_entry)

    def release(self) -> None:
        """Free everything when the capture is done. The nodes of a graph form a reference cycle, which would be garbage
        if no GraphModule owns the graph."""
        for graph in (self.graph, *self._outer):
            if graph.owning_module is None:
                for node in (*graph.nodes, graph._root):
                    node._update_args_kwargs((), {})
                    node._prev = node._next = None
                vars(graph).clear()
        if "fake_mode" in vars(self):
            forget_tensors(self.fake_mode)
        vars(self).clear()

    def value_of(self, var: TensorVar, reads: bool = False) -> torch.Tensor | None:
        """The value of a tensor that depends only on constants, or None. `reads`: it may also depend on 0-d integer
        buffers of modules, which are then guarded."""
        constant: torch.Tensor | None = getattr(var.fake, "constant", None)  # set for one-element constants
        if constant is not None:
            return constant
        if self.written:  # operators would run under the current settings
            return None
        given = {node: self.originals[kept] for node, kept in self._kept.items() if reads}
        found, read = evaluate_constant(var.node, given)
        if found is not None and self.tx is not None:
            for kept in (self._kept[node] for node in read):
                value = self.originals[kept].item()
                self.tx.guard(kept, "PREDICATE", (functools.partial(_holds, value), (), f"its value is {value}"))
        return found

    def _is_kept(self, source: Source, tensor: torch.Tensor) -> bool:
        """Whether a tensor is a 0-d integer buffer of a module on the CPU whose value was the same in all captures."""
        if not (isinstance(source, ModuleAttrSource) and source.where == "_buffers" and tensor.dim() == 0):
            return False
        if tensor.device.type != "cpu" or tensor.dtype not in _WHOLE or type(tensor) is not torch.Tensor:
            return False
        return not self.history.number_varies(source, tensor.item())

    def forget(self, known: set[fx.Node]) -> None:
        """Remove the operations that are not in `known`. No value of the program may depend on them."""
        for node in reversed(self.graph.nodes):
            if node.op != "placeholder" and node not in known:
                if node in self._replaced:
                    tensor, before = self._replaced.pop(node)
                    tensor.node = before
                self.graph.erase_node(node)

    def _add(
        self, kind: str, target: Any, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Var:
        tx = self.tx
        assert tx is not None
        if self._kept and target not in _TAKE_TENSORS:
            args = self._with_numbers(run, args, kwargs)
        self._takes_floats, self._by_example = target in TAKES_FLOATS, False
        fake_args = [self._value(a, fake=True) for a in args]
        fake_kwargs = {k: self._value(v, fake=True) for k, v in kwargs.items()}
        node_args = tuple(self._value(a, fake=False) for a in args)
        node_kwargs = {k: self._value(v, fake=False) for k, v in kwargs.items()}
        label = target if isinstance(target, str) else getattr(target, "__name__", repr(target))
        if label in _FROM_OFFSET and (len(args) > 3 or kwargs.get("storage_offset") is not None):
            self.guard_offset(args[0])
        if label in ("squeeze", "squeeze_") and any(map(_has_unbacked_size, fake_args)):
            tx.graph_break("data-dependent-shape", f"{label} of a tensor whose sizes are not known")
        if label in _OF_ENTRIES and any(map(_is_sparse, fake_args[:1])):
            tx.graph_break("data-dependent-shape", f"{label} of a sparse tensor that the graph creates")
        assumed = () if self._shapes is None else self._shapes.assertions()
        tensors = list(_tensors((*args, *kwargs.values())))
        unwritten = [(tensor.fake, _version(tensor.fake)) for tensor in tensors] if self._outer else []
        try:
            with (
                torch._C._PreserveDispatchKeyGuard(),  # an exception inside nested functorch transforms loses the keys
                quiet, self.fake_mode, self._kernels(), torch._C.DisableTorchFunctionSubclass(),
            ):  # fmt: skip
                if fake_kwargs.get("out") is not None:
                    check_out(run, fake_args, fake_kwargs)
                result = run_in_place(run, target, fake_args, fake_kwargs)
                if type(result) is torch.Tensor:  # torch.tensor(..., device="meta") is not fake even there
                    result = self.fake_mode.from_tensor(result)
        except DataDependentOutputException as error:
            if self._begins(self.makes_numbers):
                return self._add(kind, target, run, args, kwargs)
            tx.graph_break("tensor-to-python", f"{label} reads a value of a tensor ({error})")
        except DynamicOutputShapeException as error:
            if self._begins(self.makes_sizes):
                return self._add(kind, target, run, args, kwargs)
            tx.graph_break("data-dependent-shape", f"{label}: the size of the result of {error} depends on the data")
        except (NotImplementedError, torch._subclasses.fake_tensor.UnsupportedFakeTensorException) as error:
            self._try_concrete()
            tx.graph_break("unsupported-torch-op", f"{label}: {error}")
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, AssertionError, Warning) as error:
            if _NO_FAKE in str(error):
                tx.graph_break("unsupported-torch-op", f"{label} has no fake implementation")
            if isinstance(error, symbolic.data_dependent()):
                tx.graph_break("data-dependent-branch", f"{label}: depends on {getattr(error, 'cond', error)}")
            self._try_concrete()
            tx.graph_break("exception-in-traced-code", f"{label}: {type(error).__name__}: {error}")
        self._refuse_generator(label, result, (*args, *kwargs.values()))
        if self._shapes is not None:
            self._refuse_new(label, result)
        if self._shapes is not None and (assumption := self._shapes.assumption_since(assumed)) is not None:
            # the operator may also work where this is false, with another result, such as by broadcasting
            tx.graph_break("data-dependent-shape", f"{label} assumes {assumption}")
        if self._by_example:
            _forget_values(result)
        default = self._entered(_leave_device)
        if default is not None and target in _device_constructors() and node_kwargs.get("device") is None:
            node_kwargs["device"] = default[0].device
        node = self._annotate(self.graph.create_node(kind, target, node_args, node_kwargs))
        self.errors_are_seen = self.errors_are_seen or tx.error_is_observable
        for given, version in unwritten:
            if result is given and version is not None and given._version == version:  # x.to(x.dtype), for one
                self.graph.erase_node(node)
                return next(tensor for tensor in tensors if tensor.fake is given)
        if isinstance(result, str) and tensors and target != "type":
            tx.graph_break("tensor-to-python", f"{label} returns text that describes a tensor")
        return self._wrap(node, result, tensors)

    def guard_offset(self, var: Any) -> None:
        """If a tensor shares memory with a graph input, guard that input's storage offset."""
        tx = self.tx
        assert tx is not None
        if not isinstance(var, TensorVar):
            return
        storage = memory_of(var.fake)
        for source, fake in zip(self.inputs, self.example_inputs, strict=True):
            if isinstance(fake, torch.Tensor) and memory_of(fake) == storage:
                offset = int(self.originals[source].storage_offset())
                if fake.storage_offset() != offset:  # fakes with symbolic sizes have offset 0
                    self._try_concrete()
                what = f"its storage offset is {offset}"
                tx.guard(source, "PREDICATE", (functools.partial(_lies_at, offset), (), what))

    def _with_numbers(
        self, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Sequence[Any]:
        """The arguments, with lists of sizes that contain tensors of known value (`pad(x, (module.left,
        module.right))`) converted to ints."""
        lists = [arg for arg in args if isinstance(arg, ListVar | TupleVar) and any(map(_is_whole, arg.items))]
        changed = {id(arg): self._numbers_in(arg) for arg in lists}
        if not lists or None in changed.values():
            return args
        numbers = [changed.get(id(arg), arg) for arg in args]
        named = {name: self._value(value, fake=True) for name, value in kwargs.items()}
        try:
            with quiet, self.fake_mode, self._kernels():
                run(*(self._value(arg, fake=True) for arg in numbers), **named)
        except TypeError:  # the operator requires tensors
            return args
        return numbers

    def _numbers_in(self, items: ListVar | TupleVar) -> TupleVar | None:
        """A list of sizes with tensors of known value converted to ints; None if a value is unknown."""
        found: list[Var] = []
        for item in items.items:
            value = self.value_of(item, reads=True) if isinstance(item, TensorVar) and _is_whole(item) else None
            if value is None and not (isinstance(item, ConstVar) and type(item.value) is int):
                return None
            found.append(item if value is None else ConstVar(value.item()))
        return TupleVar(found)

    def _begins(self, allowed: bool) -> bool:
        """After an operator failed without symbolic shapes: create them if allowed; True if the operator should be
        tried again."""
        if self._shapes is not None or not allowed:
            return False
        return self.shapes is not None

    def _refuse_generator(self, label: str, result: Any, args: Sequence[Any]) -> None:
        """Break the graph if an operator gets a generator of another device, which fake tensors do not check."""
        given = [arg.example for arg in args if isinstance(arg, GraphObjectVar)]
        devices = {each.device.type for each in given if isinstance(each, torch.Generator)}
        if devices and not (isinstance(result, torch.Tensor) and {result.device.type} <= devices | {"meta"}):
            assert self.tx is not None
            self.tx.graph_break("exception-in-traced-code", f"{label} with a generator on {devices}")

    def _refuse_new(self, label: str, result: Any) -> None:
        """Break the graph if an operator created unbacked numbers where these are not allowed."""
        tx = self.tx
        assert tx is not None
        for part in result if isinstance(result, tuple | list) else (result,):
            sizes = isinstance(part, torch.Tensor)
            new = next(new_numbers(part, self._shapes.is_new), None) is not None
            truth = isinstance(part, torch.SymBool) and self._shapes.new_truth(part) is not None
            if sizes and new and not self.makes_sizes:
                tx.graph_break("data-dependent-shape", f"{label} returns a tensor whose size depends on the data")
            if not sizes and (new or truth) and not self.makes_numbers:
                tx.graph_break("tensor-to-python", f"{label} reads a value of a tensor")

    def _note(self, value: Any, build: Callable[[], fx.Node]) -> Any:
        """Register `value`, a new symbol, as the result of the node that `build` creates."""
        holder = LazyUnbackedNode(self.graph, value, build)
        source = UnbackedSource(len(self.shapes.source_of), holder, f"{value}")
        self.shapes.source_of[value.node.expr] = source
        self.numbers[source] = value
        return holder

    def _note_new(self, node: fx.Node, result: Any) -> None:
        """Register the unbacked numbers that an operator created."""
        self._shapes.pending_fresh_unbacked_symbols.clear()
        for dim, value in new_numbers(result, self._shapes.is_new):
            self._note(value, (lambda: node) if dim is None else size_of(self.graph, node, dim))
        if isinstance(result, torch.SymBool) and (symbol := self._shapes.new_truth(result)) is not None:
            self._note(symbol, truth_as_int(self.graph, node))

    def _try_concrete(self) -> None:
        """After a failure that symbolic sizes may have caused: restart the trace without them."""
        if self._shapes is not None:
            self.history.concrete = True
            raise Restart()

    def _kernels(self) -> Any:
        """With symbolic sizes, operators use Python kernels where available, because C++ kernels may require concrete
        sizes."""
        return contextlib.nullcontext() if self._shapes is None else enable_python_dispatcher()

    def _annotate(self, node: fx.Node) -> fx.Node:
        if self.tx is not None:
            node.meta["stack_trace"] = "".join(map(_trace_line, self.tx.whole_stack()))
        return node

    def _value(self, value: Any, fake: bool) -> Any:
        if not isinstance(value, Var):
            return value
        if isinstance(value, TensorVar):
            return value.fake if fake else self._node(value)
        if isinstance(value, FunctionResultVar):
            if value.node.graph is not self.graph:
                assert self.tx is not None
                return self.tx.graph_break("unsupported-object", "an outer function used in a transformed function")
            return value.held if fake else value.node
        if isinstance(value, GraphObjectVar):
            return None if fake else self._object(value)  # generators: not all fake tensor kernels accept them
        if isinstance(value, NumberVar):
            if value.is_constant() or (value.sym is None and (self._outer or not self._takes_floats)):
                return value.constant()
            if self.only_constants:
                assert self.tx is not None
                self.tx.graph_break(
                    "unsupported-object", f"{value.describe()}, which varies between calls, in a transformed function"
                )
            if fake:
                self._by_example |= value.sym is None
                return value.example if value.sym is None else value.sym
            return self.number(value.tree)
        if isinstance(value, SliceVar):
            return slice(*(self._value(part, fake) for part in value.parts))
        if isinstance(value, ListVar):
            return [self._value(v, fake) for v in value.items]
        if isinstance(value, TupleVar):
            if value.is_constant() and not any(isinstance(item, NumpyNumberVar) for item in value.items):
                return value.constant()
            return tuple(self._value(v, fake) for v in value.items)
        if isinstance(value, DictVar):
            return {k: self._value(v, fake) for k, v in value.items.items()}
        if isinstance(value, NumpyNumberVar):
            return value.constant().item()  # as torch converts it
        try:
            found = value.constant()
            return _DTYPES.get(found, found) if isinstance(found, type) else found  # torch.fx cannot print classes
        except NotConstant:
            assert self.tx is not None
            return self.tx.graph_break("unsupported-object", f"{value.describe()} as an argument of a torch function")

    def _object(self, value: GraphObjectVar) -> fx.Node:
        """The node of an object that exists before the frame, or that another node creates."""
        if self._outer:
            assert self.tx is not None
            return self.tx.graph_break(
                "unsupported-object", f"{value.describe()} in a function that is the argument of an operator"
            )
        if value.node is None:
            assert value.source is not None
            value.node = self._placeholder(value.source, value.example)
        return value.node  # type: ignore[no-any-return]

    def _wrap(self, node: fx.Node, result: Any, args: Sequence[TensorVar]) -> Var:
        if isinstance(result, torch.Tensor):
            for arg in args:  # an in-place operation returns its argument, the same object
                if arg.fake is result:
                    if arg.node.graph is not self.graph:
                        assert self.tx is not None
                        self.tx.graph_break(
                            "unsupported-object", "a transformed function changes an outer tensor in place"
                        )
                    node.meta["val"] = result
                    self._replaced[node] = arg, arg.node
                    arg.node = node
                    return arg
            node.meta["val"] = result
            if self._shapes is not None:
                self._note_new(node, result)
            return of_result(TensorVar(node, result, None, type(result)))
        if isinstance(result, types.FunctionType | functools.partial):
            return FunctionResultVar(node, result, 0)
        if isinstance(result, (tuple, list)) and _holds_tensor(result):
            items = []
            for i, item in enumerate(result):
                part = self._annotate(self.graph.call_function(operator.getitem, (node, i)))
                items.append(self._wrap(part, item, args))
            if isinstance(result, list):
                return ListVar(items)
            if hasattr(type(result), "_fields"):
                return NamedTupleVar(type(result), items)
            if type(result) is not tuple:  # torch.return_types.*: fields have names and positions
                return NamedTupleVar(type(result), items)
            return TupleVar(items)
        if isinstance(result, dict) and _holds_tensor(result):
            found = _arranged(result, args)
            if found is None:
                assert self.tx is not None
                self.tx.graph_break("unsupported-torch-op", f"{node.target} returns a dict of new tensors")
            self.graph.erase_node(node)
            return found
        made = len(self.numbers)
        if self._shapes is not None:
            self._note_new(node, result)
        if len(self.numbers) > made:
            node.meta["val"] = result
        elif node.op == "call_function" and node.target not in _EFFECTFUL or node.op == "call_method":
            if not node.users and result is not None:
                self.graph.erase_node(node)
        return make(result) if not isinstance(result, (torch.dtype, torch.device)) else ConstVar(result)


# The dtypes that torch's operators use for these classes, whatever the default dtype is.
_DTYPES: dict[type, torch.dtype] = {
    float: torch.float64, int: torch.int64, bool: torch.bool, complex: torch.complex128,
}  # fmt: skip


def _leave_device(context: DeviceContext) -> None:
    context.__exit__(None, None, None)


def _is_whole(var: Var) -> bool:
    return isinstance(var, TensorVar) and var.fake.dim() == 0 and var.fake.dtype in _WHOLE


def _itself(node: fx.Node) -> fx.Node:
    return node


def _holds(value: float, tensor: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return tensor.item() == value


def _lies_at(offset: int, tensor: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return tensor.storage_offset() == offset


def _version(tensor: torch.Tensor) -> int | None:
    """The version counter of a tensor; None for an inference tensor, which has none."""
    return None if tensor.is_inference() else tensor._version


def _is_sparse(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout not in (torch.strided, torch._mkldnn)  # type: ignore[attr-defined]


def _has_unbacked_size(value: Any) -> bool:
    sizes = value.shape if isinstance(value, torch.Tensor) else ()
    return any(isinstance(size, torch.SymInt) and symbolic.is_unbacked(size) for size in sizes)


def _about(guard: Guard, source: Source) -> bool:
    return guard.kind == "RELATION" and source in sources(guard.payload)


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, tuple | list | dict):
        return any(map(_holds_tensor, value.values() if isinstance(value, dict) else value))
    return isinstance(value, torch.Tensor)


def _arranged(value: Any, args: Sequence[TensorVar]) -> Any:
    """The result of a function that only arranges its arguments in other containers; None if it created a tensor."""
    if isinstance(value, torch.Tensor):
        return next((arg for arg in args if arg.fake is value), None)
    if not _holds_tensor(value):
        return make(value)
    parts = [_arranged(part, args) for part in (value.values() if isinstance(value, dict) else value)]
    if any(part is None for part in parts):
        return None
    if isinstance(value, dict):
        return DictVar(dict(zip(value, parts, strict=True)))
    return ListVar(parts) if isinstance(value, list) else TupleVar(parts)


def _forget_values(result: Any) -> None:
    """Drop constant values that were computed from the example of a float that varies."""
    for item in result if isinstance(result, list | tuple) else (result,):
        if hasattr(item, "constant"):
            item.constant = None


def _tensors(values: Sequence[Any]) -> Iterator[TensorVar]:
    """The tensors among arguments, including those in lists and tuples."""
    for value in values:
        if isinstance(value, TensorVar):
            yield value
        elif isinstance(value, ListVar | TupleVar):
            yield from _tensors(value.items)


def _trace_line(line: UserLine) -> str:
    quoted = f"    {line.quoted}\n" if line.quoted else ""
    return f'  File "{line.filename}", line {line.lineno}, in {line.function}\n{quoted}'
