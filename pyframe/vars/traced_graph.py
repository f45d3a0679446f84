"""The interface through which Vars add to the FX graph of a trace.

The protocols here are implemented in `emit`: `TracedGraph` by `emit.graph.GraphBuilder`, its parts by the classes that
their docstrings name. So `vars` does not import `emit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ..core.expr import Tree
from ..core.source import Source

if TYPE_CHECKING:
    from .numbers.dynamic import CaptureHistory
    from .numbers.shapes import Shapes
    from .protocol.base import Var
    from .torch_objects.tensor import TensorVar


class NestedGraphs(Protocol):
    """The graph under construction and the graphs around it (`emit.graph_stack.GraphStack`)."""

    @property
    def is_nested(self) -> bool:
        """Whether the current graph is nested: an argument of an operator."""

    @property
    def in_transform(self) -> bool:
        """Whether the function being traced is one that torch.func transforms."""

    def enter(self, transform: bool = True) -> fx.Graph:
        """Begin a nested graph; `TracedGraph.end_nested` ends it. `transform`: it is for a function that torch.func
        transforms, whose tensor values cannot be read."""
        ...

    def tensor_argument(self, fake: torch.Tensor) -> TensorVar:
        """A tensor argument of the nested graph."""
        ...

    def lifted_fakes(self) -> list[torch.Tensor]:
        """The outer tensors that the nested graph has read so far."""
        ...

    def changes_lifted(self) -> bool:
        """Whether the nested graph writes to an outer tensor."""
        ...

    def attach(self, name: str, gm: fx.GraphModule) -> fx.Node:
        """Store a graph as a submodule and return the `get_attr` node that passes it to operators."""
        ...


class VaryingNumbers(Protocol):
    """Numbers of the graph that are not constants (`emit.graph_numbers.GraphNumbers`)."""

    values: dict[Source, Any]  # the numbers that vary in this capture: SymInts, and the values of floats
    promised: set[Source]  # the sizes that the user marked as dynamic

    @property
    def shapes(self) -> Shapes:
        """The symbolic sizes of this capture, created on first use."""
        ...

    @property
    def makes_numbers(self) -> bool:
        """Whether reading a number from a tensor here yields an unbacked number instead of a graph break."""

    @property
    def makes_sizes(self) -> bool:
        """Whether an operator with a data-dependent result size stays in the graph here."""

    def computed_float(self, tree: Tree) -> Any:
        """A new unbacked SymFloat for what a node computes of unbacked numbers by `tree`."""
        ...

    def unbacked_argument(self) -> Var:
        """An unbacked int that is an argument of the nested graph."""
        ...


class Modes(Protocol):
    """The modes and settings of torch that the program changes (`emit.graph_modes.GraphModes`). Each method makes the
    change while tracing and in the graph."""

    restores: list[Callable[[], Any]]  # functions that restore, at the end of the trace, what it changed
    patched: dict[tuple[int, str], Any]  # settings that a context has changed, by the id of their module and name
    written: dict[str, Any]  # by group, settings that the program wrote
    switched: dict[Any, Any]  # (setting, leading arguments) -> its value before the frame

    @property
    def has_device(self) -> bool:
        """Whether a default device is set, by the traced program or around it."""

    def enter(self, enter: Callable[..., Any], leave: Callable[[Any], Any], args: tuple[Any, ...]) -> Any:
        """Enter a mode; returns the token for `exit`."""

    def exit(self, mode: Any) -> None:
        """Exit a mode."""

    def is_entered(self, leave: Callable[[Any], Any]) -> bool:
        """Whether a mode that is exited with `leave` is active."""
        ...

    def enter_device(self, device: torch.device) -> None:
        """Make `device` the default device from here on."""

    def exit_device(self) -> None:
        """Restore the previous default device."""


class Inputs(Protocol):
    """The placeholders of the graph (`emit.graph_inputs.GraphInputs`)."""

    originals: dict[Source, torch.Tensor]  # the tensors that exist before the frame


class TensorValues(Protocol):
    """The tensors whose elements are known while tracing (`emit.known_tensors.KnownTensors`)."""

    def value_of(self, var: TensorVar, reads: bool = False) -> torch.Tensor | None:
        """The value of a tensor that depends only on constants, or None. `reads`: it may also depend on 0-d integer
        buffers of modules, which are then guarded."""

    def is_known(self, var: TensorVar) -> bool:
        """Whether `value_of(var, reads=True)` gives a value; without a guard."""
        ...


class Conversion(Protocol):
    """The conversion of Vars to arguments of nodes (`emit.graph_values.GraphValues`)."""

    only_constants: bool  # if set, numbers that vary break the graph

    def for_node(self, value: Any) -> Any:
        """`value` as an argument of a node."""


class TracedGraph(Protocol):
    """The FX graph of one trace, with the fake tensor of each tensor node."""

    history: CaptureHistory  # sizes and numbers of earlier captures

    @property
    def stack(self) -> NestedGraphs: ...

    @property
    def numbers(self) -> VaryingNumbers: ...

    @property
    def modes(self) -> Modes: ...

    @property
    def inputs(self) -> Inputs: ...

    @property
    def known(self) -> TensorValues: ...

    @property
    def values(self) -> Conversion: ...

    @property
    def graph(self) -> fx.Graph:
        """The graph that gets new nodes: the captured graph, or a nested one."""
        ...

    @property
    def fake_mode(self) -> FakeTensorMode:
        """The mode of all fake tensors of the trace."""
        ...

    error_may_be_handled: bool  # whether a node may raise, depending on elements, what the program handles
    registered_hooks: list[Any]  # of tensors: `higher_order.tensor_hooks.RegisteredHook`
    removes_hooks: bool  # whether the frame removes hooks of objects that existed before, after the graph
    pushed_hooks: list[Any]  # (mode, effect) of each `saved_tensors_hooks` in force, the innermost last
    metadata_read: set[str]  # what the program read of tensors besides values and `shape`: "dtype", "stride" and so on
    ran_backward: bool  # whether the graph runs a backward pass that sets gradients of leaves

    @property
    def in_mode(self) -> bool:
        """Whether an exception raised here by the graph would leave a mode switched, or the current graph is nested."""

    @staticmethod
    def writes(node: fx.Node) -> bool:
        """Whether an operation wrote to one of its arguments when it ran on fake tensors."""
        ...

    def size(self) -> int:
        """The number of nodes in all graphs under construction."""
        ...

    def call(self, target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Var:
        """Add `target(*args, **kwargs)` as a node; arguments are Vars or plain values."""
        ...

    def call_method(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Var:
        """Add `args[0].name(*args[1:], **kwargs)` as a node."""
        ...

    def effect(self, target: Callable[..., Any], *args: Any) -> None:
        """Add a node for its side effect only, such as switching grad mode or a check."""

    def call_for_effect(self, target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> fx.Node:
        """Add `target(*args, **kwargs)` as a node, without running it while tracing."""
        ...

    def record(self, target: Callable[..., Any], args: Sequence[Any], results: Sequence[Any]) -> list[Var]:
        """Add `target(*args)` as a node that returns a tuple. `results`: for each item its fake tensor, or None for an
        unbacked int."""
        ...

    def end_nested(
        self, nested: fx.Graph, outputs: Sequence[Var], transform: bool = True, single: bool = False
    ) -> tuple[fx.GraphModule, list[Var]]:
        """Finish the nested graph. Returns it with the outer values that must be passed after its arguments. `single`:
        the graph returns its only output itself, not a tuple."""
        ...

    def input(
        self, source: Source, tensor: torch.Tensor, layout: tuple[Any, Any] | None = None,
        fake: torch.Tensor | None = None,
    ) -> TensorVar:
        """A placeholder for a tensor that exists before the frame. `layout`: symbolic sizes and strides. `fake`: its
        fake tensor, if it was already created."""
        ...

    def fake_of_input(self, tensor: torch.Tensor, layout: tuple[Any, Any] | None = None) -> torch.Tensor:
        """The fake tensor for a tensor that exists before the frame. Propagates exceptions of its class's methods."""
        ...

    def forget(self, known: set[fx.Node]) -> None:
        """Remove the operations that are not in `known`. No value of the program may depend on them."""

    def note_choice(self, fake: torch.Tensor, candidates: Sequence[torch.Tensor]) -> None:
        """Note that a node returns one of its arguments. `fake`: the fake tensor of the result; `candidates`: those of
        the arguments. Writes to the result, or to a view of it, and changes of the state of any break the graph."""

    def is_candidate(self, fake: torch.Tensor) -> bool:
        """Whether the tensor may be the result of a choice (`note_choice`)."""
        ...

    def guard_offset(self, var: Any) -> None:
        """If a tensor shares memory with a graph input, guard that input's storage offset."""
