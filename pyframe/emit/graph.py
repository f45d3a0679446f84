"""`GraphBuilder`: builds the FX graph of one trace. Each operation runs on fake tensors as its node is added, so that
shapes, dtypes and errors are known at once."""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.utils._device import _device_constructors

from inductor.aot.fake import forget_tensors
from inductor.aot.in_place import ConvertedOut, check_out, run_in_place
from inductor.overlap import memory_of

from ..core import symbolic
from ..core.source import ModuleAttrSource, Source
from ..errors import SkipFrame
from ..vars.numbers.dynamic import CaptureHistory, fake_of
from ..vars.numbers.unbacked import checked
from ..vars.objects.originals import by_name, torchs_own
from ..vars.protocol.base import Var
from ..vars.protocol.class_reads import lookup
from ..vars.protocol.const import ConstVar
from ..vars.protocol.graph_object import GraphObjectVar
from ..vars.stdlib.warning_filters import issued_warnings
from ..vars.torch_objects.process_settings import as_found
from ..vars.torch_objects.tensor import TensorVar
from ..vars.tracer import Tracer
from .constant_eval import CHANGES, COUNTED_WRITES, changes
from .fake_tensor_logs import quiet
from .graph_inputs import GraphInputs
from .graph_modes import GraphModes
from .graph_numbers import GraphNumbers
from .graph_stack import GraphStack
from .graph_values import GraphValues, forget_values, tensors_in
from .known_tensors import KnownTensors
from .raising import call_may_raise
from .tracing_errors import call_method_of, check_not_ours, lacks_fake

_TAKE_TENSORS = {operator.getitem, operator.setitem}  # they treat ints unlike tensors
_FROM_OFFSET = {"as_strided", "as_strided_", "as_strided_copy"}  # their offsets count from the start of the storage
# Properties of a sparse tensor's entries, known only when it runs: a fake one has no entries.
_OF_ENTRIES = {
    "_nnz", "is_coalesced", "indices", "values", "_indices", "_values", "col_indices", "row_indices",
}  # fmt: skip
# Operators that raise a RuntimeError themselves unless what torch assumes about unbacked numbers while it runs them on
# fake tensors is true: sizes that are not negative, parts that add up to the whole.
_RAISE_UNLESS_ASSUMED = {
    "zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "eye", "linspace",
    "new_zeros", "new_ones", "new_empty", "new_full", "split", "split_with_sizes", "repeat_interleave",
    "narrow", "topk", "pad",
}  # fmt: skip
# What operators raise when they are run on fake tensors.
_FAILURES = (
    NotImplementedError, RuntimeError, TypeError, ValueError, IndexError, AttributeError, AssertionError,
    ArithmeticError, Warning, UnsupportedFakeTensorException,
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Operation:
    """A call of `GraphBuilder.add`: its arguments, the Var of its result, and the nodes that it added."""

    kind: str
    target: Any
    run: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: Var
    nodes: tuple[fx.Node, ...]


class GraphBuilder:
    """Builds the FX graph of the trace `tx`. `call` and `call_method` add nodes; each tensor node has its fake tensor
    in `meta['val']` and the user's line in `meta['stack_trace']`.

    `stack`: the graph under construction and those around it. `inputs`: its placeholders. `numbers`: numbers that
    vary. `modes`: modes and settings that the program changes. `known`: tensors whose values are known. `values`:
    conversion of arguments and results. `history`: sizes and numbers of earlier captures.
    """

    def __init__(
        self, make_mode: Callable[[], FakeTensorMode], history: CaptureHistory | None, tx: Tracer
    ) -> None:
        self._make_mode = make_mode
        self.tx = tx
        self.history = CaptureHistory() if history is None else history
        self.stack = GraphStack(tx)
        self.inputs = GraphInputs(self.stack.outermost)
        self.numbers = GraphNumbers(tx, self.stack, self.inputs, self.history, lambda: self.fake_mode)
        self.modes = GraphModes(self.call_for_effect)
        self.known = KnownTensors(tx, self.inputs, self.modes, self.history)
        self.values = GraphValues(tx, self.stack, self.inputs, self.numbers)
        # See `emit.eager_retry`: whether the program handles an operator's exception, or changed objects before it.
        self.errors_are_seen = self.follows_effects = False
        self.checks_sizes = False  # the frame has to run eagerly if a check of sizes fails
        self.guesses_sizes = False  # such a check may fail where the program works
        self.error_may_be_handled = self.ran_backward = False
        self.is_in_block = False  # whether an operator is in a block with a handler, of any kind
        self.metadata_read: set[str] = set()  # what the program read of tensors, such as "dtype" and "stride"
        self.registered_hooks: list[Any] = []
        self.removes_hooks = False
        self.pushed_hooks: list[Any] = []
        self._chosen: set[int] = set()  # the memory of results that are one of several tensors, see `note_choice`
        self._candidates: set[int] = set()  # the memory of these tensors
        self.note_operation: Callable[[Operation], None] | None = None  # is called after each operation
        self.required: Var | None = None  # a 0-d bool tensor, False if the results of the graph are not valid

    @property
    def graph(self) -> fx.Graph:
        """The graph that gets new nodes: the captured graph, or a nested one."""
        return self.stack.current

    @functools.cached_property
    def fake_mode(self) -> FakeTensorMode:
        return self._make_mode()

    def size(self) -> int:
        """The number of nodes in all graphs under construction."""
        return sum(len(graph.nodes) for graph in self.stack.under_construction())

    @property
    def in_mode(self) -> bool:
        """Whether an exception raised here by the graph would leave a mode switched, or the current graph is nested."""
        return self.modes.any_changed or self.stack.is_nested

    # ---- the captured graph ----
    def input(
        self, source: Source, tensor: torch.Tensor, layout: tuple[Any, Any] | None = None,
        fake: torch.Tensor | None = None,
    ) -> TensorVar:
        """A placeholder for a tensor that exists before the frame. `layout`: symbolic sizes and strides. `fake`: its
        fake tensor, if it was already created."""
        if fake is None:
            fake = self.fake_of_input(tensor, layout)
        self.inputs.originals[source] = tensor
        node = self.inputs.add(source, fake)
        node.meta["parameter"] = isinstance(source, ModuleAttrSource) or isinstance(tensor, torch.nn.Parameter)
        self.known.add_input(node, source, tensor)
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

    def finish(self, outputs: Sequence[Any]) -> fx.GraphModule | None:
        """The finished graph, which returns the tuple of `outputs` (TensorVars) and restores grad mode. None if there
        is nothing to run."""
        self.modes.exit_all()
        restore = as_found(self.modes)
        self.modes.restore_settings()
        self.modes.restore_grad_mode()
        if any(var.node.graph is not self.graph for var in outputs):
            raise SkipFrame("a tensor created inside a transformed function is used outside of it")
        self.inputs.move_drawn_last()
        if not outputs and not any(node.op.startswith("call") for node in self.graph.nodes):
            return None
        self.numbers.drop_pending()
        self.graph.output(tuple(var.node for var in outputs))
        self.graph.lint()
        return self.stack.module(self.graph, restore)

    def forget(self, known: set[fx.Node]) -> None:
        """Remove the operations that are not in `known`. No value of the program may depend on them."""
        for node in reversed(self.graph.nodes):
            if node.op != "placeholder" and node not in known:
                self.values.forget(node)
                self.graph.erase_node(node)

    @staticmethod
    def writes(node: fx.Node) -> bool:
        """Whether an operation wrote to one of its arguments when it ran on fake tensors."""
        return bool(node.meta.get(COUNTED_WRITES))

    def release(self) -> None:
        """Free everything when the capture is done: the nodes of a graph form a reference cycle, and so do a trace and
        its graph."""
        self.stack.release()
        if "fake_mode" in vars(self):
            forget_tensors(self.fake_mode)
        for part in (self.inputs, self.numbers, self.modes, self.known, self.values, self):
            vars(part).clear()

    # ---- nodes that are not run while tracing ----
    def effect(self, target: Callable[..., Any], *args: Any) -> None:
        """Add a node for its side effect only, such as switching grad mode or a check."""
        self.call_for_effect(target, args, {})

    def require(self, var: TensorVar, truth: bool) -> None:
        """Trace on under the assumption that the tensor `var`, of one element, has this truth value. The frame runs
        eagerly in calls in which it has not (`emit.eager_retry`)."""
        holds: Var = self.call_method("reshape", [var, ConstVar(())], {})
        if var.fake.dtype is not torch.bool:
            holds = self.call(torch.ne, [holds, ConstVar(0)], {})
        if not truth:
            holds = self.call(torch.logical_not, [holds], {})
        self.required = holds if self.required is None else self.call(torch.logical_and, [self.required, holds], {})

    def call_for_effect(self, target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> fx.Node:
        """Add `target(*args, **kwargs)` as a node, without running it while tracing."""
        values = tuple(self.values.for_node(arg) for arg in args)
        named = {name: self.values.for_node(value) for name, value in kwargs.items()}
        return self.stack.annotate(self.graph.call_function(target, values, named))

    def record(self, target: Callable[..., Any], args: Sequence[Any], results: Sequence[Any]) -> list[Var]:
        """Add `target(*args)` as a node that returns a tuple. `results`: for each item its fake tensor, or None for an
        unbacked int."""
        node = self.call_for_effect(target, args, {})
        found: list[Var] = []
        for index, result in enumerate(results):
            part = self.stack.annotate(self.graph.call_function(operator.getitem, (node, index)))
            if result is None:
                found.append(self.numbers.unbacked_int(part))
            else:
                part.meta["val"] = result
                found.append(TensorVar(part, result))
        return found

    def end_nested(
        self, nested: fx.Graph, outputs: Sequence[Var], transform: bool = True, single: bool = False
    ) -> tuple[fx.GraphModule, list[Var]]:
        """Finish the nested graph. Returns it with the outer values that must be passed after its arguments. `single`:
        the graph returns its only output itself, not a tuple."""
        nodes = tuple(self.values.for_node(var) for var in outputs)
        nested.output(nodes[0] if single else nodes)
        return self.stack.leave(nested, transform)

    # ---- operations ----
    def call(self, target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Var:
        """Add `target(*args, **kwargs)` as a node; arguments are Vars or plain values."""
        if isinstance(target, types.BuiltinFunctionType) and target.__module__ == "_operator":
            name = target.__name__.strip("_")
            self._needs_own(f"__{name}__", f"__r{name}__")
        return self._noted("call_function", by_name(target), target, args, kwargs)

    def call_method(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Var:
        """Add `args[0].name(*args[1:], **kwargs)` as a node."""
        if "from" in kwargs and len(args) == 1:  # torch.fx generates Python, where `from` is a keyword
            args, kwargs = [*args, kwargs["from"]], {k: v for k, v in kwargs.items() if k != "from"}

        def run(self_: Any, *rest: Any, **keywords: Any) -> Any:
            return call_method_of(self_, name, rest, keywords)

        self._needs_own(name)
        return self._noted("call_method", name, run, args, kwargs)

    def _noted(
        self, kind: str, target: Any, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Var:
        if self.note_operation is None:
            return self._add(kind, target, run, args, kwargs)
        return self.add(kind, target, run, args, kwargs).result

    def add(
        self, kind: str, target: Any, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Operation:
        """Add an operation, as `call` and `call_method` do. `run`: what runs it on fake tensors."""
        last = next(iter(reversed(self.graph.nodes)), None)
        result = self._add(kind, target, run, args, kwargs)
        added = list(itertools.takewhile(lambda node: node is not last, reversed(self.graph.nodes)))
        made = Operation(kind, target, run, args, kwargs, result, tuple(reversed(added)))
        if self.note_operation is not None:
            self.note_operation(made)
        return made

    def count_changes(self) -> int:
        """The number of operations so far that may have changed a tensor."""
        return sum(map(changes, self.graph.nodes))

    def _needs_own(self, *names: str) -> None:
        """Skip the frame if the program replaced one of these methods of torch.Tensor, because graphs call them by
        name."""
        for name in names:
            if not torchs_own(lookup(torch.Tensor, name), name):
                raise SkipFrame(f"torch.Tensor.{name} has been replaced by the program")

    def _add(
        self, kind: str, target: Any, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Var:
        values, tx = self.values, self.tx
        if self.known.has_buffers and target not in _TAKE_TENSORS:
            args = self.known.with_ints(args, functools.partial(self._accepts, run, kwargs))
        values.begin(target)
        fake_args = [values.for_fake(a) for a in args]
        fake_kwargs = {k: values.for_fake(v) for k, v in kwargs.items()}
        node_args = tuple(values.for_node(a) for a in args)
        node_kwargs = {k: values.for_node(v) for k, v in kwargs.items()}
        label = target if isinstance(target, str) else getattr(target, "__name__", repr(target))
        self._check_arguments(label, args, kwargs, fake_args)
        assumed = self.numbers.assertions()
        tensors = list(tensors_in((*args, *kwargs.values())))
        versions = [(each.fake, _version(each.fake)) for each in tensors]
        try:
            with issued_warnings(bool(tx.warning_contexts)) as issued:
                result = self._run(target, run, fake_args, fake_kwargs)
        except ConvertedOut as error:
            rest = {name: value for name, value in kwargs.items() if name != "out"}
            value = self._add(kind, target, run, args, rest if error.dtype is None else rest | {"dtype": error.dtype})
            return self.call_method("copy_", [kwargs["out"], value], {})
        except _FAILURES as error:
            if self._may_try_again(error):
                return self._add(kind, target, run, args, kwargs)
            self._break_for(error, target, label)
        if issued:  # the graph would issue them under the filters of the process
            tx.graph_break("unsupported-object", f"{label}, which issues a warning, in a warnings.catch_warnings")
        self._check_result(label, result, (*args, *kwargs.values()), assumed)
        if values.by_example:
            forget_values(result)
        device = self.modes.default_device
        if device is not None and target in _device_constructors() and node_kwargs.get("device") is None:
            node_kwargs["device"] = device
        if tensors and call_may_raise(target, node_args) and tx.program_handles_errors:
            if self.ran_backward:
                what = f"{label}, which may raise what the program handles, after backward()"
                tx.graph_break("unsupported-object", what)
            self.error_may_be_handled = True
        node = self.stack.annotate(self.graph.create_node(kind, target, node_args, node_kwargs))
        self.errors_are_seen = self.errors_are_seen or tx.error_is_observable
        self.follows_effects = self.follows_effects or len(tx.effects) > 0
        self.is_in_block = self.is_in_block or tx.is_in_block
        if all(version is not None for _, version in versions):
            node.meta[COUNTED_WRITES] = any(fake._version != version for fake, version in versions)
        node.meta[CHANGES] = changes(node)
        if node.meta[CHANGES]:
            _forget_constants(target, (*args, *kwargs.values()))
            self._refuse_change_of_choice(node, versions)
        for fake, version in versions if self.stack.is_nested else ():
            if result is fake and version is not None and fake._version == version:  # x.to(x.dtype), for one
                self.graph.erase_node(node)
                return next(tensor for tensor in tensors if tensor.fake is fake)
        if isinstance(result, str) and tensors and target != "type":
            tx.graph_break("tensor-to-python", f"{label} returns text that describes a tensor")
        return values.wrap(node, result, tensors)

    # ---- running operators on fake tensors ----
    def _run(self, target: Any, run: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        with (
            torch._C._PreserveDispatchKeyGuard(),  # an exception inside nested functorch transforms loses the keys
            quiet, self.fake_mode, self.numbers.kernels(), torch._C.DisableTorchFunctionSubclass(),
        ):  # fmt: skip
            if kwargs.get("out") is not None:
                check_out(run, args, kwargs)
            result = run_in_place(run, target, args, kwargs)
            if type(result) is torch.Tensor:  # torch.tensor(..., device="meta") is not fake even there
                result = self.fake_mode.from_tensor(result)
        return result

    def _accepts(self, run: Callable[..., Any], kwargs: Mapping[str, Any], args: Sequence[Var]) -> bool:
        """Whether an operator takes these arguments: some require tensors."""
        named = {name: self.values.for_fake(value) for name, value in kwargs.items()}
        try:
            with quiet, self.fake_mode, self.numbers.kernels():
                run(*(self.values.for_fake(arg) for arg in args), **named)
        except TypeError:
            return False
        return True

    def _may_try_again(self, error: BaseException) -> bool:
        """Whether an operator that failed may run with symbolic numbers, which this creates."""
        if isinstance(error, DataDependentOutputException):
            return self.numbers.begin_shapes(self.numbers.makes_numbers)
        if isinstance(error, DynamicOutputShapeException):
            return self.numbers.begin_shapes(self.numbers.makes_sizes)
        return False

    def _break_for(self, error: Exception, target: Any, label: str) -> NoReturn:
        """Break the graph because an operator raised, or restart without symbolic sizes if these may be the cause."""
        tx = self.tx
        if isinstance(error, DataDependentOutputException):
            tx.graph_break("tensor-to-python", f"{label} reads a value of a tensor ({error})")
        if isinstance(error, DynamicOutputShapeException):
            what = f"{label}: the size of the result of {error} depends on the data"
            tx.graph_break("data-dependent-shape", what)
        if isinstance(error, NotImplementedError | UnsupportedFakeTensorException | UnsupportedOperatorException):
            self.numbers.try_concrete()
            tx.graph_break("unsupported-torch-op", f"{label}: {error}")
        check_not_ours(error, target, label)
        if lacks_fake(target):
            tx.graph_break("unsupported-torch-op", f"{label} has no fake implementation")
        if isinstance(error, symbolic.data_dependent()):
            tx.graph_break("data-dependent-branch", f"{label}: depends on {getattr(error, 'cond', error)}")
        self.numbers.try_concrete()
        tx.graph_break("exception-in-traced-code", f"{label}: {type(error).__name__}: {error}")

    # ---- what fake tensors do not check ----
    def _check_arguments(
        self, label: str, args: Sequence[Any], kwargs: Mapping[str, Any], fake_args: Sequence[Any]
    ) -> None:
        """Break the graph, or add guards, for what operators read besides the metadata of fake tensors."""
        if label in _FROM_OFFSET and (len(args) > 3 or kwargs.get("storage_offset") is not None):
            self.guard_offset(args[0])
        if label in ("squeeze", "squeeze_") and _squeezes_unbacked(*fake_args, **kwargs):
            self.tx.graph_break("data-dependent-shape", f"{label} of a tensor whose sizes are not known")
        if label in _OF_ENTRIES and any(map(_is_sparse, fake_args[:1])):
            self.tx.graph_break("data-dependent-shape", f"{label} of a sparse tensor that the graph creates")

    def _check_result(self, label: str, result: Any, args: Sequence[Any], assumed: Any) -> None:
        """Break the graph for results that it must not contain. `assumed`: what torch had assumed about unbacked
        numbers before the operator ran."""
        self._refuse_generator(label, result, args)
        self.numbers.refuse_new(label, result)
        new = self.numbers.assumptions_since(assumed)
        rejects = self._rejects_bad_sizes(label, args)
        if new and (self.tx.error_is_observable or not rejects):
            # A handler may see the error, and other operators may also work where the assumption is false, with another
            # result, such as by broadcasting: the frame then runs eagerly.
            if not self.tx.graph.history.checks_sizes or self.ran_backward or self.stack.is_nested or self.tx.draws:
                self.tx.graph_break("data-dependent-shape", f"{label} assumes {self.numbers.text(new[-1])}")
            self.checks_sizes, self.guesses_sizes = True, self.guesses_sizes or not rejects
        for assumption in new:
            condition = self.numbers.condition(assumption)
            self.effect(checked, condition, "_check", f"{label} needs {self.numbers.text(assumption)}")

    @staticmethod
    def _rejects_bad_sizes(label: str, args: Sequence[Any]) -> bool:
        """Whether an operator raises a RuntimeError wherever torch's assumptions about its sizes are false."""
        if label != "repeat":
            return label in _RAISE_UNLESS_ASSUMED
        sizes = args[0].fake.shape if args and isinstance(args[0], TensorVar) else (0,)
        return all(isinstance(size, int) and size > 0 for size in sizes)  # an empty tensor repeats any number of times

    def _refuse_generator(self, label: str, result: Any, args: Sequence[Any]) -> None:
        """Break the graph if an operator gets a generator of another device, which fake tensors do not check."""
        generators = [arg.example for arg in args if isinstance(arg, GraphObjectVar)]
        devices = {each.device.type for each in generators if isinstance(each, torch.Generator)}
        if devices and not (isinstance(result, torch.Tensor) and {result.device.type} <= devices | {"meta"}):
            self.tx.graph_break("exception-in-traced-code", f"{label} with a generator on {devices}")

    def note_choice(self, fake: torch.Tensor, candidates: Sequence[torch.Tensor]) -> None:
        """Note that a node returns one of its arguments. `fake`: the fake tensor of the result; `candidates`: those of
        the arguments. Writes to the result, or to a view of it, and changes of the state of any break the graph."""
        self._chosen.add(memory_of(fake))
        self._candidates.update(map(memory_of, candidates))

    @property
    def choices(self) -> int:
        """How many tensors are results of choices, or may be."""
        return len(self._chosen) + len(self._candidates)

    def is_candidate(self, fake: torch.Tensor) -> bool:
        """Whether the tensor may be the result of a choice (`note_choice`)."""
        return memory_of(fake) in self._candidates

    def _refuse_change_of_choice(self, node: fx.Node, versions: Sequence[tuple[torch.Tensor, int | None]]) -> None:
        """Break the graph if a node that changes its arguments changes one of several tensors, see `note_choice`."""
        if not self._chosen:
            return
        if getattr(node.target, "in_order", False):
            changed, unknown = [fake for fake, _ in versions], self._chosen | self._candidates
        else:
            counted = node.meta.get(COUNTED_WRITES)
            changed = [fake for fake, version in versions if not counted or fake._version != version]
            unknown = self._chosen
        if any(memory_of(fake) in unknown for fake in changed):
            self.graph.erase_node(node)
            self.tx.graph_break("data-dependent-branch", f"{node.name} may change one of several tensors")

    def guard_offset(self, var: Any) -> None:
        """If a tensor shares memory with a graph input, guard that input's storage offset."""
        if not isinstance(var, TensorVar):
            return
        storage = memory_of(var.fake)
        for source, fake in zip(self.inputs.sources, self.inputs.examples, strict=True):
            if isinstance(fake, torch.Tensor) and memory_of(fake) == storage:
                offset = int(self.inputs.originals[source].storage_offset())
                if fake.storage_offset() != offset:  # fakes with symbolic sizes have offset 0
                    self.numbers.try_concrete()
                what = f"its storage offset is {offset}"
                self.tx.guard(source, "PREDICATE", (functools.partial(_has_offset, offset), (), what))


def _has_offset(offset: int, tensor: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return bool(tensor.storage_offset() == offset)


def _forget_constants(target: Any, args: Sequence[Var]) -> None:
    """Drop the values that fake tensors have for constants of one element, where they do not notice a write themselves:
    to items of a list, and by an assignment to `data`."""
    unnoticed = args if getattr(target, "in_order", False) else [a for a in args if not isinstance(a, TensorVar)]
    for tensor in tensors_in(unnoticed):
        constant = getattr(tensor.fake, "constant", None)
        if constant is not None:
            tensor.fake.fake_mode.fake_tensor_converter.invalidate_constant_aliases(constant)  # type: ignore[attr-defined]


def _version(tensor: torch.Tensor) -> int | None:
    """The version counter of a tensor; None for an inference tensor, which has none."""
    try:
        return tensor._version
    except RuntimeError:
        if not tensor.is_inference():
            raise
        return None


def _is_sparse(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout not in (torch.strided, torch._mkldnn)  # type: ignore[attr-defined]


def _squeezes_unbacked(tensor: Any, *dims: Any, **named: Any) -> bool:
    """Whether `squeeze` with these arguments may remove a dimension whose size is not known while tracing."""
    sizes: tuple[Any, ...] = tensor.shape if isinstance(tensor, torch.Tensor) else ()
    if len(dims) == 1 and type(dims[0]) is int and not named and -len(sizes) <= dims[0] < len(sizes):
        sizes = (sizes[dims[0]],)
    return any(isinstance(size, torch.SymInt) and symbolic.is_unbacked(size) for size in sizes)
