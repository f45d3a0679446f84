"""NumPy's functions and dtypes in captured code.

A function of arrays becomes a node that calls the function of the same name in `torch._numpy`, if it gives what NumPy's
gives for examples of the arguments. Calls with constants only, and questions about dtypes, are answered while tracing.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...core.source import CallSource, Source
from ..codegen import Codegen
from ..containers.sequence import TupleVar, is_plain
from ..numbers.dynamic import wrap_tensor
from ..numbers.numpy_calls import NUMPY_FUNCTIONS, NumpyFunctionVar
from ..objects.originals import as_first_seen, guard_parts
from ..protocol import slots
from ..protocol.base import NotConstant, Var
from ..protocol.const import ConstVar, fold
from ..registry import Args, Handler, Kwargs, call_model, register
from ..tracer import Tracer
from .numpy_arrays import Differs, NdArrayVar, dtype_of, numpy, tensor_of, torch_numpy, try_node
from .tensor import TensorVar, tensor_and_args

_ABOUT_TYPES = frozenset("can_cast result_type issubdtype isscalar broadcast_shapes min_scalar_type".split())
# A result of constants that has no more elements than this may become a constant of the graph.
MAX_FOLDED = 4096
MAX_QUANTILE = 16_000_000  # elements that torch.quantile takes


class ArrayFunctionVar(NumpyFunctionVar):
    """A NumPy function. Called with numbers only, it is folded to a constant."""

    __slots__ = ()

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if (model := call_model(self.value)) is not None:
            return model(tx, list(args), dict(kwargs))
        arrays = any(map(_has_array, (*args, *kwargs.values())))
        if not arrays and self.gives_number(args):
            return super().call(tx, args, kwargs)
        if self.value in _AS_ARRAY and args:
            if (found := _as_array(tx, self.value, args, kwargs)) is not None:
                return found
        if "where" in kwargs and type(self.value) is numpy.ufunc:
            return self._where(tx, args, dict(kwargs))
        result = self._node(tx, args, kwargs)
        out = kwargs.get("out")
        if type(self.value) is numpy.ufunc and len(args) == self.value.nin + 1:
            out = args[-1]
        return out if isinstance(out, NdArrayVar) else result  # NumPy returns `out` itself

    def _node(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        name = _functions().get(self.value)
        if name is None:
            found = _computed(tx, self.value, args, kwargs) if self.value in _OF_CONSTANTS else None
            what = f"{self.value.__module__}.{self.value.__name__}"
            return tx.graph_break("unknown-c-function", what) if found is None else found
        fn = _OWN.get(self.value) or operator.attrgetter(name)(torch_numpy())
        try:
            return try_node(tx, name, fn, args, kwargs, self.value)
        except Differs as difference:
            found = _computed(tx, self.value, args, kwargs)
            return tx.graph_break("unsupported-torch-op", str(difference)) if found is None else found

    def _where(self, tx: Tracer, args: Sequence[Var], kwargs: dict[str, Var]) -> Var:
        """A ufunc with `where` and `out`: computed everywhere, and written to `out` where the condition holds."""
        condition, out = kwargs.pop("where"), kwargs.pop("out", None)
        if out is not None and is_plain(out) and len(out.items) == 1:
            out = out.items[0]
        if not isinstance(out, NdArrayVar) or not isinstance(condition, NdArrayVar) or out.scalar:
            return tx.graph_break("unsupported-torch-op", f"numpy.{self.value.__name__} with `where` and without `out`")
        result = self._node(tx, args, kwargs)
        chosen = ArrayFunctionVar(numpy.where)._node(tx, [condition, result, out], {})
        out.setitem(tx, ConstVar(Ellipsis), chosen)
        return out

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """A method of a ufunc: `numpy.add.reduce(array)`."""
        if type(self.value) is numpy.ufunc and any(map(_has_array, args)):
            fn = _method_of_ufunc(self.value, name)
            if fn is not None:
                label = f"{self.value.__name__}.{name}"
                try:
                    return try_node(tx, label, fn, args, kwargs, getattr(self.value, name))
                except Differs as difference:
                    return tx.graph_break("unsupported-torch-op", str(difference))
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)


def _has_array(var: Var) -> bool:
    return isinstance(var, NdArrayVar) or is_plain(var) and any(map(_has_array, var.items))


def _computed(tx: Tracer, fn: Callable[..., Any], args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var | None:
    """The result of a NumPy function of constants, as constant arrays of the graph; None if an argument is not a
    constant or the result is not an array, or tuple of arrays, that the graph can hold."""
    try:
        values, named = [arg.plain() for arg in args], {key: arg.plain() for key, arg in kwargs.items()}
    except NotConstant:
        return None
    try:
        result = fn(*values, **named)
    except Exception:  # noqa: BLE001  the program gets what NumPy raises at the break
        return None
    if type(result) is tuple:
        return TupleVar([_constant_array(tx, each) for each in result]) if all(map(_is_small, result)) else None
    return _constant_array(tx, result) if _is_small(result) else None


def _is_small(array: Any) -> bool:
    """Whether a result is an array that a graph can hold as a constant."""
    if type(array) is not numpy.ndarray or not 0 < array.size <= MAX_FOLDED or array.dtype.kind not in "biufc":
        return False
    return array.flags.c_contiguous and tensor_of(array) is not None and array.dtype.isnative


def _constant_array(tx: Tracer, array: Any) -> Var:
    dtype = ConstVar(torch.from_numpy(array).dtype)
    made = tx.graph.call(torch.tensor, [array.tolist()], {"dtype": dtype})
    assert isinstance(made, TensorVar)
    return NdArrayVar(made)


def _pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    """`numpy.pad` with one number; `torch._numpy` reads the widths from a tensor."""
    if mode != "constant" or not isinstance(constant_values, int | float):
        raise NotImplementedError
    widths = numpy.broadcast_to(pad_width, (array.ndim, 2)).tolist()
    flat = [width for pair in reversed(widths) for width in pair]
    return torch_numpy().ndarray(torch.nn.functional.pad(array.tensor, flat, value=constant_values))


def _ordered(array: Any, axis: int | None, kinds: str) -> tuple[torch.Tensor, int]:
    """The tensor of an array and the dimension of which order statistics are taken; the array is made flat for none."""
    if array.dtype.kind not in kinds or array.dtype.itemsize < 4 or not (axis is None or type(axis) is int):
        raise NotImplementedError
    if array.size == 0 or array.ndim == 0:
        raise NotImplementedError
    return (array.tensor.reshape(-1), 0) if axis is None else (array.tensor, axis)


def _median(array: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """`numpy.median`: the mean of the two elements in the middle; torch's is the lower one."""
    tensor, dim = _ordered(array, axis, "if")
    ordered, size = tensor.sort(dim).values, tensor.size(dim)
    low, high, last = (ordered.narrow(dim, at, 1) for at in ((size - 1) // 2, size // 2, size - 1))
    if not tensor.is_floating_point():
        low, high = low.double(), high.double()
    found = low if size % 2 else (low + high) / 2
    found = torch.where(last.isnan(), last, found) if tensor.is_floating_point() else found
    return _shaped(found, array, axis, dim, keepdims)


def _quantile(array: Any, q: float, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """`numpy.quantile` with one number: interpolated in the type of the array, as by torch."""
    tensor, dim = _ordered(array, axis, "f")
    if not isinstance(q, int | float) or tensor.numel() > MAX_QUANTILE:
        raise NotImplementedError
    return _shaped(torch.quantile(tensor, float(q), dim, keepdim=True), array, axis, dim, keepdims)


def _percentile(array: Any, q: float, axis: int | None = None, *, keepdims: bool = False) -> Any:
    if not isinstance(q, int | float):
        raise NotImplementedError
    return _quantile(array, q / 100, axis, keepdims=keepdims)


def _shaped(found: torch.Tensor, array: Any, axis: int | None, dim: int, keepdims: bool) -> Any:
    """A result that has one element in dimension `dim`, in the shape that the caller of NumPy asked for."""
    if not keepdims:
        found = found.squeeze(dim)
    elif axis is None:
        found = found.reshape([1] * array.ndim)
    return torch_numpy().ndarray(found)


# Functions that replace NumPy's where `torch._numpy` has none that can be traced or gives other results, and functions
# without effects that are called while tracing if their arguments are constants.
_OWN: dict[Any, Callable[..., Any]] = {}
if numpy is not None:
    _OWN = {numpy.pad: _pad, numpy.median: _median, numpy.quantile: _quantile, numpy.percentile: _percentile}
_OF_CONSTANTS: frozenset[Any] = frozenset() if numpy is None else frozenset({numpy.ix_})


# ---- arrays of other things ----
_AS_ARRAY: frozenset[Any] = frozenset()
if numpy is not None:
    _AS_ARRAY = frozenset({numpy.array, numpy.asarray, numpy.asanyarray, numpy.ascontiguousarray})


def _as_array(tx: Tracer, fn: Callable[..., Any], args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var | None:
    """`fn(value)` for one of `_AS_ARRAY` where `torch._numpy` has no function for it: of an array that NumPy returns as
    it is, of a tensor, and of a list or tuple that contains arrays. None for other calls."""
    given, more = args[0], args[1:]
    if isinstance(given, TensorVar):
        array = given.call_method(tx, "numpy", [], {})
        return tx.call(ArrayFunctionVar(fn), [array, *more], kwargs)
    dtype = more[0] if more else kwargs.get("dtype")
    if len(more) > 1 or not kwargs.keys() <= {"dtype", "copy"}:
        return None
    if isinstance(given, NdArrayVar) and not given.scalar:
        copies = slots.constant_or(kwargs.get("copy", ConstVar(True)), True) and fn is numpy.array
        whole = fn is not numpy.ascontiguousarray or given.tensor.fake.dim() > 0 and given.tensor.fake.is_contiguous()
        wanted = None if dtype is None else dtype_of(dtype)
        same = dtype is None or slots.constant_or(dtype, fn) is None or wanted == given.dtype()
        if same and whole and not copies:
            return given
        if fn is numpy.asanyarray or (fn is numpy.asarray and wanted is not None):
            return given.call_method(tx, "astype", [ConstVar(wanted)], {}) if wanted is not None else None
    if is_plain(given) and given.items and any(map(_has_array, given.items)):
        stacked = _stacked(tx, given)
        return stacked if dtype is None else stacked.call_method(tx, "astype", [dtype], {})
    if fn in (numpy.asanyarray, numpy.ascontiguousarray) and not isinstance(given, NdArrayVar):
        made = tx.call(ArrayFunctionVar(numpy.asarray), args, kwargs)
        return made if fn is numpy.asanyarray or made.tensor.fake.dim() else None  # type: ignore[attr-defined]
    return None


def _stacked(tx: Tracer, var: Var) -> Var:
    """An array of the items of a list, some of which are arrays."""
    if not is_plain(var):
        return var
    parts = [_stacked(tx, item) for item in var.items]
    return ArrayFunctionVar(numpy.stack)._node(tx, [TupleVar(parts)], {})


# ---- methods of ufuncs ----
_REDUCE = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
}  # fmt: skip
_ACCUMULATE = {"add": "cumsum", "multiply": "cumprod"}


@functools.cache
def _method_of_ufunc(ufunc: Any, name: str) -> Callable[..., Any] | None:
    """A function of `torch._numpy`'s arrays that does what a method of a ufunc does; None if there is none."""
    library, own = torch_numpy(), ufunc.__name__
    if name == "outer" and ufunc.nin == 2 and hasattr(library, own):
        return lambda a, b: getattr(library, own)(a.reshape(a.shape + (1,) * b.ndim), b)
    function = {"reduce": _REDUCE, "accumulate": _ACCUMULATE}.get(name, {}).get(own)
    if function is None:
        return None
    return lambda array, axis=0, **named: getattr(library, function)(array, axis=axis, **named)


@functools.cache
def _functions() -> dict[Any, str]:
    """NumPy functions that `torch._numpy` also has, with their names."""
    ours = torch_numpy()
    found = {}
    modules = (("", numpy, ours), ("linalg.", numpy.linalg, ours.linalg), ("fft.", numpy.fft, ours.fft))
    for prefix, theirs, module in modules:
        for name in dir(module):
            fn = getattr(theirs, name, None)
            kinds = isinstance(fn, type) or name.startswith("_") or name in _ABOUT_TYPES
            if callable(fn) and not kinds and callable(getattr(module, name)):
                found[fn] = prefix + name
    return found


def wrap_array(tx: Tracer, value: Any, source: Source | None) -> Var | None:
    """The Var of an array; None if no tensor can share its memory."""
    tensor = tensor_of(value) if source is not None and type(value) is numpy.ndarray else None
    if source is None or tensor is None:
        return None
    tx.guard(source, "TYPE", numpy.ndarray)
    shared = wrap_tensor(tx, tensor, CallSource(source, tensor_of, "torch.from_numpy"))
    assert isinstance(shared, TensorVar)
    return NdArrayVar(shared, source)


def wrap_numpy(tx: Tracer, value: Any, source: Source | None) -> Var | None:
    """The Var of a NumPy array or function; None for other objects."""
    if numpy is None:
        return None
    cls: type = type(value)  # isinstance() might run the object's `__class__`
    if issubclass(cls, numpy.ndarray):
        return wrap_array(tx, value, source)
    if issubclass(cls, numpy.dtype):
        if value.isbuiltin != 1:
            return None
        tx.guard(source, "ID", value)  # there is one object of each builtin dtype
        return ConstVar(value, source)
    kinds = (types.FunctionType, types.BuiltinFunctionType, *NUMPY_FUNCTIONS)
    # The name of the module only saves the look-up in `_functions`, which imports torch._numpy; except for ufuncs: for
    # these it is the only record of who defined them.
    if not issubclass(cls, kinds) or not (getattr(value, "__module__", None) or "").startswith("numpy"):
        return None
    if not issubclass(cls, NUMPY_FUNCTIONS) and value not in _functions() and value not in _AS_ARRAY:
        return None
    tx.guard(source, "ID", value)
    written = getattr(value, "__wrapped__", value)  # inside the `__array_function__` dispatcher
    if isinstance(written, types.FunctionType):
        if not as_first_seen(written):
            return None
        guard_parts(tx, written)
    return ArrayFunctionVar(value, source)


@register(torch.Tensor, method="numpy")
def _tensor_numpy(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    """`tensor.numpy()`."""
    tensor, args = tensor_and_args(args)
    fake = tensor.fake
    if args or kwargs or fake.requires_grad or fake.device.type != "cpu" or fake.is_conj() or fake.is_neg():
        return tx.graph_break("tensor-to-python", f".numpy() of {tensor.describe()}")
    return NdArrayVar(tensor)


# ---- dtypes ----
def _constant(fn: Callable[..., Any]) -> Handler:
    """The model of a function of dtypes and numbers: called while tracing, with the dtypes of arrays in their place."""

    def run(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        def plain(var: Var) -> Any:
            return var.dtype() if isinstance(var, NdArrayVar) else var.plain()

        try:
            values, named = list(map(plain, args)), {key: plain(value) for key, value in kwargs.items()}
        except NotConstant:
            return tx.graph_break("unknown-c-function", f"numpy.{fn.__name__} of values known only at run time")
        return fold(tx, fn, *values, **named)

    return run


if numpy is not None:
    for _fn in (
        numpy.dtype, numpy.finfo, numpy.iinfo, numpy.issubdtype, numpy.result_type, numpy.promote_types,
        numpy.can_cast, numpy.min_scalar_type,
    ):  # fmt: skip
        register(_fn)(_constant(_fn))
