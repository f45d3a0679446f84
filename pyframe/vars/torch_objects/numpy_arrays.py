"""Traces programs that use NumPy arrays: a tensor that shares an array's memory represents it.

An array that exists before the frame becomes a graph input through `torch.from_numpy`; a result becomes an array again
through `Tensor.numpy`. Operations on arrays become nodes that call `torch._numpy`; `numpy_functions` does the same for
NumPy's functions. Numbers computed from constants alone are constants.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...core.source import Source
from ..codegen import Codegen
from ..containers.iterator import ItemsIteratorVar
from ..containers.sequence import ListVar, SequenceVar, SliceVar, TupleVar, is_plain
from ..numbers.numpy_scalars import NUMPY_NUMBERS, NumpyArgumentVar, NumpyNumberVar
from ..numbers.symint import NumberVar
from ..objects.namedtuple import NamedTupleVar
from ..protocol import slots
from ..protocol.base import NotConstant, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import BINARY, COMPARE, UNARY, ConstVar, MethodVar, make
from ..tracer import Tracer
from . import tensor_class
from .numpy_examples import Returned, compare_with_numpy, example_of, storage_of
from .overrides import leaves_of
from .tensor import INPLACE, TensorVar, moves_view

try:
    import numpy
except ImportError:  # torch also works without NumPy
    numpy = None  # type: ignore[assignment]

_TO_PYTHON = frozenset("tobytes tofile dump dumps data ctypes flat setflags byteswap".split())
_READS = frozenset("item tolist __int__ __float__ __index__ __complex__".split())
_METADATA = frozenset("ndim size itemsize nbytes".split())


_from_numpy = torch.from_numpy  # torch's own, even if the program replaces it


def is_array(value: Any) -> bool:
    return numpy is not None and isinstance(value, numpy.ndarray)


def tensor_of(array: Any) -> torch.Tensor | None:
    """A tensor that shares the memory of an array; None if that is impossible."""
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        return None
    try:
        return _from_numpy(array)
    except (TypeError, ValueError):  # a dtype that torch lacks, or of another byte order
        return None


def array_of(tensor: torch.Tensor) -> Any:
    return tensor.numpy()


def number_of(tensor: torch.Tensor) -> Any:
    """The NumPy scalar that NumPy returns in place of an array without dimensions."""
    return tensor.numpy()[()]


class NdArrayVar(Var):
    """`tensor` shares the memory of the array. `scalar`: the value is not an array but a NumPy scalar known at run
    time."""

    __slots__ = ("attrs", "scalar", "tensor")

    def __init__(self, tensor: TensorVar, source: Source | None = None, scalar: bool = False) -> None:
        super().__init__(source)
        self.tensor, self.scalar = tensor, scalar
        self.attrs: dict[str, Var] = {}

    def python_type(self) -> type:
        return self.dtype().type if self.scalar else numpy.ndarray

    def describe(self) -> str:
        return str(self.source) if self.source else "an array of numpy"

    def dtype(self) -> Any:
        return torch.empty(0, dtype=self.tensor.fake.dtype, device="cpu").numpy().dtype

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name == "shape":
            return TupleVar([make(size) for size in self.tensor.fake.shape])
        if name == "dtype":
            return ConstVar(self.dtype())
        if name == "__class__":
            return make(self.python_type())
        if name in _METADATA:
            fake = self.tensor.fake
            return make({"ndim": fake.dim, "size": fake.numel, "itemsize": fake.element_size}.get(name, fake.numel)()
                        * (fake.element_size() if name == "nbytes" else 1))  # fmt: skip
        if name in ("T", "real", "imag"):
            return _node(tx, f"get_{name}", operator.attrgetter(name), [self], {})
        if name == "strides" and self.source is not None:
            size = self.tensor.fake.element_size()
            return TupleVar([make(stride * size) for stride in self.tensor.fake.stride()])
        found = lookup(self.python_type(), name)
        if found is MISSING:
            tx.raise_(AttributeError, f"'{_module_name(self.python_type())}' object has no attribute {name!r}")
        if not callable(found):  # of the array's own memory, as `base`, `strides` and `flags`
            return self.unsupported(tx, f"attribute {name!r}")
        return MethodVar(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name in _TO_PYTHON:
            return tx.graph_break("tensor-to-python", f".{name}() of {self.describe()}")
        if name in _READS:
            return self._read(tx, name, args)
        if name == "__abs__":
            return _node(tx, "absolute", torch_numpy().absolute, [self], {}, numpy.absolute)
        if name in ("__divmod__", "__rdivmod__") and len(args) == 1 and is_operand(args[0]):
            sides = [self, args[0]] if name == "__divmod__" else [args[0], self]
            return TupleVar([slots.binary(tx, op, *sides) for op in ("//", "%")])
        if name.startswith("__"):
            return self.unsupported(tx, f"method {name!r}")
        if name == "view":
            return _node(tx, "view", _view, [self, *args], kwargs, _view_of_array)
        if name == "astype" and (found := self._as_type(tx, args, kwargs)) is not None:
            return found
        if name == "fill":
            self.setitem(tx, ConstVar(Ellipsis), args[0])
            return ConstVar(None)
        if not hasattr(torch_numpy().ndarray, name):
            return self.unsupported(tx, f"method {name!r}")
        return _node(tx, f"call_{name}", _method(name), [self, *args], kwargs)

    def _read(self, tx: Tracer, name: str, args: Sequence[Var]) -> Var:
        """The elements as Python numbers."""
        fake = self.tensor.fake
        single = fake.dim() == 0 or name == "item" and isinstance(fake.numel(), int) and fake.numel() == 1
        if args or not (single or name == "tolist"):
            return tx.graph_break("tensor-to-python", f".{name}() of {self.describe()}")
        return self.tensor.method(tx, name, [], {})

    def _as_type(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var | None:
        """`array.astype(dtype, copy=False)`, which `torch._numpy` lacks; None for other calls."""
        if self.scalar or len(args) != 1 or kwargs.keys() != {"copy"}:
            return None
        if slots.constant_or(kwargs["copy"], True) is not False:
            return None
        dtype = dtype_of(args[0])
        if dtype is None:
            return None
        return self if dtype == self.dtype() else self.call_method(tx, "astype", [ConstVar(dtype)], {})

    def as_index(self, tx: Tracer) -> Var:
        if self.scalar and self.tensor.fake.dtype is not torch.bool:
            return self._read(tx, "__index__", [])
        return self.tensor

    # ---- slots ----
    def unary(self, tx: Tracer, op: str) -> Var:
        return _node(tx, UNARY[op].__name__, UNARY[op], [self], {})

    def _as_number(self, tx: Tracer, op: str, other: TensorVar) -> Var:
        """A NumPy scalar next to a tensor, as the number that torch converts it to."""
        if not self.scalar:
            return self.unsupported(tx, f"{op} with {other.describe()}")
        return tx.graph.call_method("item", [self.tensor], {})

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if isinstance(other, TensorVar) and not op.endswith("="):
            number = self._as_number(tx, op, other)
            return slots.binary(tx, op, other, number) if reflected else slots.binary(tx, op, number, other)
        if not is_operand(other):
            return None
        if op in INPLACE:
            if reflected or self.scalar:
                return None
            _node(tx, INPLACE[op].__name__, INPLACE[op], [self, other], {})
            return self
        sides = [other, self] if reflected else [self, other]
        return _node(tx, BINARY[op].__name__, BINARY[op], sides, {})

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if isinstance(other, TensorVar):
            return slots.compare(tx, op, self._as_number(tx, op, other), other)
        return _node(tx, COMPARE[op].__name__, COMPARE[op], [self, other], {}) if is_operand(other) else None

    def truth(self, tx: Tracer) -> bool:
        if self.tensor.fake.dim() == 0 and (value := tx.graph.known.value_of(self.tensor)) is not None:
            return bool(value)
        return bool(tx.graph_break("data-dependent-branch", f"the truth of {self.describe()} decides a branch"))

    def length(self, tx: Tracer) -> Var:
        if self.tensor.fake.dim() == 0:
            tx.raise_(TypeError, "len() of unsized object")
        return make(self.tensor.fake.shape[0])

    def getitem(self, tx: Tracer, key: Var) -> Var:
        if not self.scalar and _is_view_at_varying(key):
            view = self.tensor.getitem(tx, key)
            scalar = isinstance(view, TensorVar) and view.fake.dim() == 0
            view = view.call_method(tx, "clone", [], {}) if scalar else view
            assert isinstance(view, TensorVar)
            return NdArrayVar(view, None, scalar)
        return _node(tx, "getitem", operator.getitem, [self, key], {})

    def setitem(self, tx: Tracer, key: Var, value: Var | None) -> None:
        if value is None:
            tx.raise_(ValueError, "cannot delete array elements")
        if isinstance(value, NdArrayVar) and storage_of(value.tensor.fake) == storage_of(self.tensor.fake):
            copied = value.tensor.call_method(tx, "clone", [], {})  # NumPy allows the two to overlap in memory
            assert isinstance(copied, TensorVar)
            value = NdArrayVar(copied, None, value.scalar)
        _node(tx, "setitem", operator.setitem, [self, key, value], {})

    def unpack(self, tx: Tracer) -> list[Var]:
        if self.tensor.fake.dim() == 0:
            tx.raise_(TypeError, "iteration over a 0-d array")
        return [self.getitem(tx, ConstVar(at)) for at in range(self.tensor.fake.shape[0])]

    def iterate(self, tx: Tracer) -> Var:
        return ItemsIteratorVar(self.unpack(tx))

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(number_of if self.scalar else array_of)
        cg.call_top(lambda: cg.load(self.tensor))


def _is_view_at_varying(key: Var) -> bool:
    """Whether indexing with `key` yields a view, or an element, whose place depends on a number that varies. Tensors
    have no views in reverse order."""
    keys = key.items if isinstance(key, TupleVar) else [key]
    parts = [part for each in keys for part in (each.parts if isinstance(each, SliceVar) else [each])]
    steps = [slots.constant_or(each.step, 0) for each in keys if isinstance(each, SliceVar)]
    if not all(step is None or isinstance(step, int) and step > 0 for step in steps):
        return False
    varies = any(isinstance(part, NumpyArgumentVar | NumberVar) and not _is_known(part) for part in parts)
    return varies and all(map(moves_view, keys))


def _is_known(var: Var) -> bool:
    return isinstance(var, NumberVar) and (var.is_constant() or var.example is None)


def _module_name(kind: type) -> str:
    return f"numpy.{kind.__name__}"


def is_operand(other: Var) -> bool:
    return isinstance(other, NdArrayVar | NumpyArgumentVar | NumberVar) or isinstance(
        slots.constant_or(other, None), (int, float, complex, *NUMPY_NUMBERS)
    )


def _result(tx: Tracer, var: Var, returned: Sequence[Returned] | None) -> Var:
    """The result of a node, with tensors converted to arrays, or to scalars where NumPy returns scalars."""
    if isinstance(var, TensorVar):
        scalar = var.fake.dim() == 0 if returned is None else returned[0].scalar
        value = tx.graph.known.value_of(var) if scalar else None
        return NdArrayVar(var, None, scalar) if value is None else NumpyNumberVar(number_of(value))
    if is_plain(var):
        each = [None] * len(var.items) if returned is None else [[item] for item in returned]
        return type(var)([_result(tx, item, found) for item, found in zip(var.items, each, strict=True)])
    return var


def dtype_of(var: Var) -> Any:
    """The dtype that NumPy makes of an argument such as "f4", `numpy.float32` or `float`; None if it is None, is not
    known while tracing, or is not a dtype of the machine's byte order."""
    value = slots.constant_or(var, None)
    try:
        dtype = None if value is None else numpy.dtype(value)
    except TypeError:
        return None
    return dtype if dtype is not None and dtype.isnative else None


# ---- nodes ----
@functools.cache
def torch_numpy() -> Any:
    import torch._numpy  # deferred until first use

    return torch._numpy


@functools.cache
def _method(name: str) -> Callable[..., Any]:
    def call(array: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(array, name)(*args, **kwargs)

    _DESCRIBED[call] = getattr(torch_numpy().ndarray, name)
    return call


@functools.cache
def _target(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, a function of arrays, as a function of tensors."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return _as_tensors(fn(*map(_as_arrays, args), **{key: _as_arrays(value) for key, value in kwargs.items()}))

    run.__name__ = run.__qualname__ = f"numpy_{name.replace('.', '_')}"
    return run


def _as_arrays(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch_numpy().ndarray(value)
    return type(value)(map(_as_arrays, value)) if type(value) in (list, tuple) else value


def _as_tensors(value: Any) -> Any:
    if isinstance(value, torch_numpy().ndarray):
        return value.tensor
    if isinstance(value, tuple):  # also torch.return_types.*
        return tuple(map(_as_tensors, value))
    return list(map(_as_tensors, value)) if type(value) is list else value


def _view(array: Any, dtype: Any = None) -> Any:
    tensor = array.tensor
    return torch_numpy().ndarray(tensor.view(tensor.shape) if dtype is None else tensor.view(_torch_dtype(dtype)))


def _view_of_array(array: Any, *dtype: Any) -> Any:
    return array.view(*dtype)


def _torch_dtype(name: str) -> torch.dtype:
    return torch.from_numpy(numpy.empty(0, name)).dtype


class Differs(Exception):
    """torch's implementation of a function differs from NumPy's; the text says how."""


def _node(
    tx: Tracer,
    name: str,
    fn: Callable[..., Any],
    args: Sequence[Var],
    kwargs: Mapping[str, Var],
    original: Callable[..., Any] | None = None,
) -> Var:
    """Call `fn`, a function of `torch._numpy`, as a node. `original`: NumPy's function, if it differs from `fn`. The
    graph breaks if the two differ."""
    try:
        return try_node(tx, name, fn, args, kwargs, original)
    except Differs as difference:
        return tx.graph_break("unsupported-torch-op", str(difference))


def try_node(
    tx: Tracer,
    name: str,
    fn: Callable[..., Any],
    args: Sequence[Var],
    kwargs: Mapping[str, Var],
    original: Callable[..., Any] | None = None,
) -> Var:
    """Like `_node`, but raises `Differs` where NumPy's function and torch's differ."""
    if not tensor_class.as_at_import():  # torch._numpy calls tensor methods
        tx.graph_break("unsupported-object", f"numpy.{name}, while attributes of torch.Tensor are the program's own,")
    args, kwargs = _with_dtypes(fn, args, kwargs)
    values = [_node_argument(tx, arg) for arg in args]
    named = {key: _node_argument(tx, value) for key, value in kwargs.items()}
    target = _target(name, fn)
    returned, difference, kind = compare_with_numpy(original or fn, target, args, kwargs, _example)
    if difference is not None:
        raise Differs(f"torch's implementation of numpy.{name} {difference}")
    known = set(tx.graph.graph.nodes)
    result = tx.graph.call(target, values, named)
    if returned is None:
        return _result(tx, result, None)
    tensors = _tensors(result)
    found = [torch.empty(0, dtype=tensor.fake.dtype, device="cpu").numpy().dtype for tensor in tensors]
    expected = [each.dtype for each in returned]
    if expected != found:
        tx.graph.forget(known)
        cast = _cast_operands(tx, original or fn, args)
        if cast is None or kwargs:
            raise Differs(f"numpy.{name} returns {expected}, torch's implementation {found}")
        return try_node(tx, name, fn, cast, kwargs, original)
    given = {storage_of(x.fake) for x in _tensors(TupleVar([*values, *named.values()]))}
    copies = []
    for tensor, each in zip(tensors, returned, strict=True):
        shares = storage_of(tensor.fake) in given
        if each.shares and (each.reversed or not shares):
            tx.graph.forget(known)
            raise Differs(f"numpy.{name} returns a view, torch's implementation a copy")
        if shares and each.shares is False:
            copies.append(tensor)
    made = _result(tx, _copied(tx, result, copies), returned)
    if not is_plain(made) or kind is None:
        return made
    if hasattr(kind, "_fields"):  # as numpy.linalg.svd
        return NamedTupleVar(kind, made.items)
    return _KINDS[kind](made.items) if kind in _KINDS else made


# `torch._numpy` returns tuples where NumPy returns lists, and the reverse.
_KINDS: dict[type | None, type[ListVar | TupleVar]] = {list: ListVar, tuple: TupleVar}
_UFUNCS = {} if numpy is None else {operator.truediv: numpy.true_divide, operator.pow: numpy.power}


def _cast_operands(tx: Tracer, fn: Callable[..., Any], args: Sequence[Var]) -> Sequence[Var] | None:
    """The arguments of a ufunc with arrays converted to the dtypes that NumPy computes with, such as those of integers
    to float64 for a square root, where torch computes in float32. None if nothing is to be converted."""
    ufunc = _UFUNCS.get(fn, fn)
    if type(ufunc) is not numpy.ufunc or len(args) != ufunc.nin or ufunc.signature is not None:
        return None
    given = [arg.dtype() if isinstance(arg, NdArrayVar) else type(slots.constant_or(arg, None)) for arg in args]
    if not all(isinstance(each, numpy.dtype) or each in (int, float, complex) for each in given):
        return None
    try:
        computed = ufunc.resolve_dtypes((*given, *[None] * ufunc.nout))
    except TypeError:
        return None
    cast = [
        arg.call_method(tx, "astype", [ConstVar(dtype)], {})
        if isinstance(arg, NdArrayVar) and arg.dtype() != dtype else arg
        for arg, dtype in zip(args, computed, strict=False)
    ]  # fmt: skip
    return cast if any(new is not arg for new, arg in zip(cast, args, strict=True)) else None


def _with_dtypes(
    fn: Callable[..., Any], args: Sequence[Var], kwargs: Mapping[str, Var]
) -> tuple[Sequence[Var], Mapping[str, Var]]:
    """The arguments with dtypes in any form ("f4", `numpy.float32`, `float`) as objects of `numpy.dtype`."""
    at = _dtype_at(fn)
    if at is not None and at < len(args) and (dtype := dtype_of(args[at])) is not None:
        args = [*args[:at], ConstVar(dtype), *args[at + 1 :]]
    if "dtype" in kwargs and (dtype := dtype_of(kwargs["dtype"])) is not None:
        kwargs = {**kwargs, "dtype": ConstVar(dtype)}
    return args, kwargs


@functools.cache
def _dtype_at(fn: Callable[..., Any]) -> int | None:
    """The position of the argument `dtype` of a function of `torch._numpy`, or of a method of its arrays; None if it
    has none."""
    try:
        names = list(inspect.signature(inspect.unwrap(_DESCRIBED.get(fn, fn))).parameters)
    except ValueError:  # operators
        return None
    return names.index("dtype") if "dtype" in names else None


# The methods of `torch._numpy.ndarray` that functions of `_method` call.
_DESCRIBED: dict[Callable[..., Any], Callable[..., Any]] = {}


def _tensors(var: Var) -> list[TensorVar]:
    if isinstance(var, TensorVar):
        return [var]
    return [each for item in var.items for each in _tensors(item)] if isinstance(var, SequenceVar) else []


def _copied(tx: Tracer, var: Var, tensors: Sequence[TensorVar]) -> Var:
    """`var` with copies of these tensors."""
    if isinstance(var, TensorVar):
        return var.call_method(tx, "clone", [], {}) if any(var is tensor for tensor in tensors) else var
    if tensors and is_plain(var):
        return type(var)([_copied(tx, item, tensors) for item in var.items])
    return var


def _example(var: Var, most: float, number: int) -> Any:
    """An argument for `compare_with_numpy`; arrays as `example_of` creates them."""
    if isinstance(var, NdArrayVar):
        array = example_of(var.tensor.fake, most, number)
        return array[()] if var.scalar else array
    if is_plain(var):
        return var.python_type()(_example(item, most, number) for item in var.items)
    if isinstance(var, SliceVar):
        return slice(*(_example(part, most, number) for part in var.parts))
    if isinstance(var, NumberVar) and var.example is not None:
        return var.python_type()(var.example)
    return var.example if isinstance(var, NumpyArgumentVar) else var.constant()


def _node_argument(tx: Tracer, var: Var) -> Var:
    """An argument as nodes take it: arrays as tensors, dtypes as their names."""
    if isinstance(var, NdArrayVar):
        return var.tensor
    if is_plain(var):
        return type(var)([_node_argument(tx, item) for item in var.items])
    if isinstance(var, TensorVar | SliceVar | SequenceVar):
        return var if not isinstance(var, TensorVar) else var.unsupported(tx, "use as an argument of a numpy function")
    if isinstance(var, NumpyArgumentVar):
        dtype = torch.from_numpy(numpy.zeros(1, var.python_type())).dtype
        empty = tx.graph.call(torch.empty, [()], {"dtype": ConstVar(dtype), "device": ConstVar(torch.device("cpu"))})
        return empty.call_method(tx, "fill_", [var.number], {})
    value = slots.constant_or(var, None)
    if isinstance(value, numpy.dtype) or isinstance(value, type) and issubclass(value, numpy.generic):
        return ConstVar(numpy.dtype(value).name)
    if isinstance(value, NUMPY_NUMBERS):  # NumPy scalars have a dtype, like an array without dimensions
        dtype = torch.from_numpy(numpy.zeros(1, type(value))).dtype
        number = ConstVar(numpy.asarray(value).item())
        return tx.graph.call(torch.tensor, [number], {"dtype": ConstVar(dtype)})
    if value in (float, int, bool, complex):
        return ConstVar(numpy.dtype(value).name)
    return var


# ---- tensors of arrays ----
def dtype_of_scalars(tx: Tracer, value: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Mapping[str, Var]:
    """The keyword arguments of a call of `torch.tensor`, `as_tensor` or `asarray`, which infer the dtype from numpy
    scalars in their data: nodes have plain numbers, so that the dtype becomes an argument."""
    if value not in _INFERS_DTYPE or len(args) > 1 or not _is_none(kwargs.get("dtype")):
        return kwargs
    data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
    if data is None or not any(isinstance(leaf, NumpyNumberVar) for leaf in leaves_of((data,))):
        return kwargs
    try:
        found = torch.tensor(data.plain(), device="cpu")
    except NotConstant:
        return tx.graph_break("tensor-to-python", "a tensor of numpy scalars and of values known only at run time")
    return {**kwargs, "dtype": ConstVar(found.dtype)}


_INFERS_DTYPE = (torch.tensor, torch.as_tensor, torch.asarray)


def _is_none(var: Var | None) -> bool:
    return var is None or isinstance(var, ConstVar) and var.value is None


def from_array(tx: Tracer, value: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var | None:
    """The result of `value(array)` for a torch function that shares an array's memory, or copies it (`torch.tensor`):
    another tensor at each call. None for other calls."""
    known = value in (_from_numpy, torch.as_tensor, torch.tensor)
    if not known or len(args) != 1 or not isinstance(args[0], NdArrayVar):
        return None
    if value is not _from_numpy and (tx.graph.modes.has_device or torch._C._get_default_device() != "cpu"):
        return None  # the tensor is created on the default device
    if value is torch.tensor and kwargs.keys() <= {"dtype"}:
        copied = args[0].tensor.call_method(tx, "clone", [], {})
        return copied.call_method(tx, "to", [], dict(kwargs)) if kwargs else copied
    return None if kwargs else args[0].tensor.call_method(tx, "detach", [], {})
