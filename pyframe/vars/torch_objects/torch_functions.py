"""Calls of torch functions. Depending on the function, a call becomes a graph node, is folded to a constant, is handled
by a model registered for it, or breaks the graph."""

from __future__ import annotations

import functools
import inspect
import operator
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from inductor import torch_compat

from ...core.source import CallSource, ConstSource
from ...core.trace_reliances import note_call
from ..codegen import Codegen
from ..containers.sequence import SequenceVar
from ..numbers.symint import NumberVar
from ..numbers.unbacked import check
from ..objects.originals import as_first_seen, in_torch
from ..polyfills.foreach import WITH_FLOATS, WITH_TENSOR_SCALARS
from ..protocol import arity
from ..protocol.base import HeldVar, NotConstant, Var
from ..protocol.const import ConstVar, fold, make
from ..registry import Handler, call_model, is_overridable, register
from ..tracer import Tracer
from . import process_settings
from .comparisons import compare
from .contexts import EXIT_ATTENTION
from .filled import fill
from .number_tensors import of_number
from .numpy_arrays import dtype_of_scalars, from_array
from .object_arguments import with_fields
from .overrides import OPERATORS, leaves_of
from .stacked import stack
from .tensor import TensorVar
from .torch_directions import is_allowed, is_disallowed, is_disallowed_node
from .torch_queries import ABOUT_ATTENTION, QUESTIONS

GRAPH_MODULES = (
    "torch", "torch._C", "torch._C._nn", "torch._C._VariableFunctions", "torch.nn.functional", "torch._C._linalg",
    "torch._C._fft", "torch._C._special", "torch._C._sparse", "torch.functional", "torch._VF", "torch.special",
    "torch.linalg", "torch.fft", "torch.nn._reduction", "torch._C._nested",
)  # fmt: skip
FOLD = {
    torch.is_grad_enabled, torch.is_inference_mode_enabled, torch.get_default_dtype, torch.finfo, torch.iinfo,
    torch.is_autocast_enabled, torch.is_autocast_cpu_enabled, torch.promote_types, torch.can_cast,
    torch.broadcast_shapes, torch.device, torch.cuda.is_available, torch.cuda.device_count, torch.get_default_device,
    torch.get_autocast_dtype,
    torch.are_deterministic_algorithms_enabled, torch._C._get_tracing_state, torch._C._is_tracing,
    torch.jit.is_scripting, torch.jit.is_tracing,
    torch.get_num_threads, torch.is_deterministic_algorithms_warn_only_enabled, torch.compiler.is_exporting,
}  # fmt: skip
# Classes whose instances are constants.
CONSTANT_CLASSES = (torch.finfo, torch.iinfo, torch.device, torch.nn.attention.SDPBackend)
CHECKS = {torch._check, torch._check_value, torch._check_index, torch._check_type, torch._check_is_size}
COMPILING = {torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, torch._utils.is_compiling}
# Queries about the thread's dispatch modes. Frames are not captured under such a mode, and those that are active while
# tracing belong to the tracer.
DISPATCH_MODES: dict[Any, Any] = {torch._C._len_torch_dispatch_stack: 0, torch._C._get_dispatch_mode: None}
# Functions with models in `control_flow` and `contexts`.
MODELLED = {torch.cond, torch.while_loop, torch._C._set_grad_enabled}
_OVERRIDABLE = tuple(getattr(torch._C, name) for name in ("_nn", "_linalg", "_fft", "_special", "_sparse", "_nested"))
IN_GRAPH: weakref.WeakSet[Any] = weakref.WeakSet()  # allow_in_graph
ON_FAKE = {torch.is_tensor, torch.is_floating_point, torch.is_complex, torch.numel, torch.is_storage, torch.is_nonzero}
MAKES_SIZES = (torch.nonzero, torch.unique, torch.masked_select)
# With fake tensors these return something else.
MAKES_QUANTIZED = (torch.quantize_per_tensor, torch.quantize_per_channel, torch.quantize_per_tensor_dynamic)
BREAKS: dict[Callable[..., Any], str] = {
    **dict.fromkeys(torch_compat.GRAPH_BREAKS, "explicit-break"),
    **dict.fromkeys((torch.compiler.reset, torch.compiler.set_stance), "compiler-switch"),
    **dict.fromkeys(MAKES_SIZES, "data-dependent-shape"),
    **dict.fromkeys(MAKES_QUANTIZED, "unsupported-torch-op"),
    **dict.fromkeys(torch_compat.SKIP_ONE_HOP, "unsupported-object"),
    torch.save: "builtin-side-effect",
    torch.load: "builtin-side-effect",
}


_PACKAGE = __name__.partition(".")[0]
# Steps of optimizers with `fused=True`. A learning rate that varies is a float64 tensor on the CPU in the graph; for
# the kernels, its value is the same number.
FUSED_STEPS = {torch._fused_adam_, torch._fused_adamw_, torch._fused_sgd_, torch._fused_adagrad_}
_AS_DOUBLE = {"dtype": torch.float64, "device": "cpu"}
# On a GPU, cuDNN runs these, under autocast in float16; with fake tensors ATen decomposes them into other operators.
RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
# Prefixes of torch functions that change process-wide state and must never run while tracing. Matching prefixes also
# catches functions of later releases, which would otherwise become nodes.
_MODE_SETTERS = (
    "set_", "_set_", "autocast_", "clear_autocast", "_push_", "_pop_", "_enter_", "_exit_", "use_deterministic",
)  # fmt: skip

# Functions of torch._C that, like the pure queries, change nothing that a program can see. Any other one breaks the
# graph: it is called while tracing, and again by a guard, and might change the process.
_WITHOUT_EFFECT = {
    torch._C._log_api_usage_once, torch._C._infer_size, torch._C._select_conv_backend, torch._C._demangle,
    torch._C._parse_dispatch_key, torch._C._functionalization_reapply_views_tls, torch._C._autocast_supported_devices,
    torch._C._meta_in_tls_dispatch_include, torch._C._current_autograd_node, torch._C._show_config,
    torch._C._parallel_info,
}  # fmt: skip


_breaks_of_torch = dict(BREAKS)


def changed_breaks() -> bool:
    """Whether the program has changed at which functions of torch graphs break."""
    return breaks_of_torch() != _breaks_of_torch


def breaks_of_torch() -> dict[Callable[..., Any], str]:
    """The rows of BREAKS but for pyframe's own functions."""
    return {fn: kind for fn, kind in BREAKS.items() if not str(getattr(fn, "__module__", "")).startswith(_PACKAGE)}


def is_in_graph(value: Any) -> bool:
    """Whether `allow_in_graph`, pyframe's or torch's, has marked a function or class."""
    return value in IN_GRAPH or is_allowed(value)


def is_torch_function(value: Any) -> bool:
    """Whether a callable becomes a graph node (or has a model here) instead of being traced."""
    cls: type = type(value)  # isinstance() might run the object's `__class__`
    if issubclass(cls, OPERATORS):
        return True
    known = issubclass(cls, types.FunctionType | types.BuiltinFunctionType | type)  # others may define __hash__
    if known and (
        value in FOLD or value in COMPILING or value in ON_FAKE or value in BREAKS or is_in_graph(value)
        or is_disallowed(value)
    ):
        return value not in ON_FAKE or not issubclass(cls, types.FunctionType) or as_first_seen(value)
    if known and value in MODELLED:
        return False
    if issubclass(cls, type) or not (known or issubclass(cls, types.MethodType)):
        return False
    owner = getattr(value, "__self__", None)
    if isinstance(owner, type) and f"{owner.__module__}.".startswith("torch._C."):
        return True
    module = getattr(value, "__module__", None) or ""
    if module not in GRAPH_MODULES:
        return False
    if issubclass(cls, types.FunctionType):
        own = inspect.unwrap(value)  # for example, `typing_extensions.deprecated` wraps torch's
        return isinstance(own, types.FunctionType) and in_torch(own.__code__) and as_first_seen(value)
    return issubclass(cls, types.BuiltinFunctionType | types.BuiltinMethodType)


def _is_overridable(value: Any) -> bool:
    """Whether `__torch_function__` can override a torch function written in C."""
    if isinstance(value, OPERATORS):
        return True
    name = getattr(value, "__name__", "")
    return getattr(value, "__self__", None) in _OVERRIDABLE or getattr(torch._C._VariableFunctions, name, None) is value


def _takes_tensor_scalars(tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> bool:
    """Whether an operator on lists of tensors gets its scalars, after three lists, as a tensor or, in torch's own
    code, as a list of 0-d tensors."""
    scalars = args[3] if len(args) == 4 else kwargs.get("scalars")
    if isinstance(scalars, SequenceVar) and in_torch(tx.frames[-1].code):
        return all(isinstance(item, TensorVar) and item.fake.dim() == 0 for item in scalars.items)
    return isinstance(scalars, TensorVar)


def _takes_varying_float(args: Sequence[Var], kwargs: Mapping[str, Var]) -> bool:
    """Whether an operator on lists of tensors gets a float that varies: as last argument, or as factor of a list."""
    factor = kwargs.get("alpha", kwargs.get("value"))
    if not args or len(kwargs) != (factor is not None) or not all(isinstance(arg, SequenceVar) for arg in args[:-1]):
        return False
    number = args[-1] if factor is None else factor
    if factor is not None and not isinstance(args[-1], SequenceVar):
        return False
    return _is_varying_float(number)


def _is_varying_float(number: Var | None) -> bool:
    return isinstance(number, NumberVar) and number.python_type() is float and not number.is_constant()


def _any_requires_grad(args: Sequence[Var]) -> bool:
    leaves = (leaf for a in args for leaf in (a.items if isinstance(a, SequenceVar) else (a,)))
    return any(isinstance(leaf, TensorVar) and leaf.fake.requires_grad for leaf in leaves)


@functools.cache
def _bindings() -> frozenset[Any]:
    """The functions of torch._C itself, which bypass the dispatcher. Some access a tensor's memory, launch kernels on
    it or pass it to other libraries; a fake tensor has no memory."""
    of_metadata = (torch._C._group_tensors_by_device_and_dtype, torch._C._conv_determine_backend_memory_format)
    functions = (value for value in vars(torch._C).values() if isinstance(value, types.BuiltinFunctionType))
    return frozenset(functions).difference(of_metadata)


class TorchFunctionVar(HeldVar):
    """A function of torch, or an ATen operator."""

    __slots__ = ()

    def constant(self) -> Any:
        return self.value

    def describe(self) -> str:
        return f"{getattr(self.value, '__module__', 'torch')}.{getattr(self.value, '__name__', self.value)}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr_(self, tx: Tracer, name: str) -> Var:
        try:
            return tx.wrap(getattr(self.value, name), None)
        except AttributeError as error:
            return tx.raise_(AttributeError, *error.args)

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return self.call_keywords(tx, args, kwargs, bool(kwargs))

    def call_keywords(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var], as_dict: bool = True) -> Var:
        """`self(*args, **kwargs)`. As in CPython, a C function called with `**{}` receives a dict of keyword arguments,
        and so do its overrides (`as_dict`)."""
        if is_disallowed_node(self.value):
            tx.graph_break("disallowed-function", f"{self.describe()} was called")
        if (model := call_model(self.value)) is not None:
            if is_overridable(self.value) and tx.overrides.may_override(args, kwargs):
                return tx.graph_break("unsupported-object", f"{self.describe()}, which may be overridden here")
            arity.check(tx, self.value, args, kwargs)
            return model(tx, list(args), dict(kwargs))
        if not tx.overrides.may_override(args, kwargs):
            return self._run(tx, args, kwargs)

        def run(args: list[Var], kwargs: dict[str, Var]) -> Var:
            return self._run(tx, args, kwargs)

        value = self.value
        if value in FOLD or value in COMPILING or value in CHECKS or value in BREAKS and value not in MAKES_SIZES:
            seen = _is_overridable(value)
        elif isinstance(value, types.FunctionType):
            if is_in_graph(value):
                tx.graph_break("unsupported-object", f"{self.describe()}, allowed in the graph, might be overridden")
            if value not in ON_FAKE and tx.overrides.has_torch_function(leaves_of((*args, *kwargs.values()))):
                return tx.inline(value, args, kwargs)
            seen = False
        else:
            seen = _is_overridable(value)
        if seen:
            return tx.overrides.call(self, args, kwargs, run, as_dict)
        return tx.overrides.call_original(run, args, kwargs)

    def _run(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """A call that is not overridden."""
        value = self.value
        if value in COMPILING or value in ON_FAKE or value in CHECKS:
            arity.check(tx, value, args, kwargs)
        shared = from_array(tx, value, args, kwargs)
        if shared is not None:
            return shared
        if (filled := of_number(tx, value, args, kwargs)) is not None:
            return filled
        kwargs = dtype_of_scalars(tx, value, args, kwargs)
        if value in COMPILING or value is torch.compiler.is_exporting and tx.options.whole_program:
            return ConstVar(True)
        if value in DISPATCH_MODES:
            return ConstVar(DISPATCH_MODES[value])
        if value in CHECKS and args and not isinstance(args[0], TensorVar):
            return check(tx, value, args, kwargs)
        if value in BREAKS and not (value in MAKES_SIZES and tx.graph.numbers.makes_sizes):
            tx.graph_break(BREAKS[value], f"{self.describe()} was called")
        compiled = not tx.options.whole_program
        if value is torch.lstm and compiled and torch.is_grad_enabled() and _any_requires_grad(args):
            tx.graph_break("unknown-c-function", "an LSTM that records gradients keeps what no graph can describe")
        if value in RECURRENT and isinstance(args[0], TensorVar) and args[0].fake.device.type == "cuda":
            tx.graph_break("unsupported-torch-op", f"{self.describe()} runs with cuDNN, which fake tensors lack")
        if value in process_settings.WRITES:
            return process_settings.write(tx, value, args, kwargs)
        if (written := process_settings.read(tx, value, args)) is not None:
            return written
        if getattr(value, "__name__", "").startswith(_MODE_SETTERS):
            tx.graph_break("unsupported-context-manager", f"{self.describe()} changes a process-wide setting")
        if value in ON_FAKE and args:
            if value is torch.is_tensor or not isinstance(args[0], TensorVar):
                return ConstVar(isinstance(args[0], TensorVar))
            if value is not torch.is_nonzero:
                return make(value(args[0].fake))
        if value in FOLD:
            note_call(value)
            if any(isinstance(a, TensorVar) for a in args):
                return ConstVar(False)
            try:
                values, named = [a.constant() for a in args], {k: v.constant() for k, v in kwargs.items()}
            except NotConstant:
                return self.unsupported(tx, "a call with values known only at run time")
            return fold(tx, value, *values, **named)
        if value in _bindings():
            if any(isinstance(leaf, TensorVar) for leaf in leaves_of((*args, *kwargs.values()))):
                why = "is no operator: it needs the tensor's memory"
                tx.graph_break("unsupported-torch-op", f"{self.describe()} {why}")
            if value not in QUESTIONS and value not in _WITHOUT_EFFECT:
                tx.graph_break("unknown-c-function", f"{self.describe()} may change the state of the process")
        if value in WITH_TENSOR_SCALARS and _takes_tensor_scalars(tx, args, kwargs):
            return tx.inline(WITH_TENSOR_SCALARS[value], args, kwargs)
        if value in WITH_FLOATS and _takes_varying_float(args, kwargs):
            return tx.inline(WITH_FLOATS[value], args, kwargs)
        if value in FUSED_STEPS and _is_varying_float(kwargs.get("lr")):
            rate = tx.graph.call(torch.mul, [tx.graph.call(torch.ones, [()], _AS_DOUBLE), kwargs["lr"]], {})
            kwargs = {**kwargs, "lr": rate}
        for model in (compare, fill, stack):
            if (found := model(tx, value, args, kwargs)) is not None:
                return found
        if is_allowed(value):
            value, args = with_fields(tx, value, args)
        result = tx.graph.call(value, args, kwargs)
        if isinstance(result, ConstVar) and result.value is not None:
            self._guard_setting(tx, args, kwargs, result.value)
        return result

    def _guard_setting(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var], found: Any) -> None:
        """Guard the result of a query without tensor arguments, which may change between calls
        (`torch._C._get_flash_sdp_enabled`)."""
        if self.value in ABOUT_ATTENTION and tx.graph.modes.is_entered(EXIT_ATTENTION):  # changed since the start
            return
        try:
            read = functools.partial(
                self.value, *(a.constant() for a in args), **{k: v.constant() for k, v in kwargs.items()}
            )
        except NotConstant:
            return
        source = CallSource(ConstSource.of(read, self.describe()), operator.call, "call")
        tx.guard(source, "EQUALS" if isinstance(found, (int, float, str, *CONSTANT_CLASSES)) else "ID", found)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)


def _constant_of(cls: type) -> Handler:
    """A model of a class in CONSTANT_CLASSES: calls it while tracing."""

    def construct(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        try:
            values, named = [a.constant() for a in args], {k: v.constant() for k, v in kwargs.items()}
        except NotConstant as unknown:
            return tx.graph_break("unsupported-object", f"torch.{cls.__name__} of {unknown}")
        if cls is torch.device and tx.overrides.in_mode:
            return tx.overrides.call_overrides(make(cls), [], args, kwargs)
        return fold(tx, cls, *values, **named)

    return construct


for _cls in CONSTANT_CLASSES:
    register(_cls)(_constant_of(_cls))


class DisabledVar(HeldVar):
    """A function marked with pyframe.disable."""

    __slots__ = ()

    def constant(self) -> Any:
        return self.value

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return tx.graph_break("disabled-function", f"{getattr(self.value, '__name__', self.value)} is marked disabled")

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)
