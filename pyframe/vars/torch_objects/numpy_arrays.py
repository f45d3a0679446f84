"""Traces programs that use NumPy arrays: a tensor that shares an array's memory represents it, and functions of
`torch._numpy` replace NumPy's.

An array that exists before the frame becomes a graph input through `torch.from_numpy`; a result becomes an array again
through `Tensor.numpy`. A NumPy function becomes a node that calls the function of the same name in `torch._numpy`.
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
from ..containers.iterator import ItemsIteratorVar
from ..containers.sequence import SequenceVar, SliceVar, TupleVar, is_plain
from ..numbers.dynamic import wrap_tensor
from ..numbers.numpy_scalars import NUMPY_FUNCTIONS, NUMPY_NUMBERS, NumpyFunctionVar, NumpyNumberVar
from ..objects.originals import as_first_seen, guard_parts
from ..protocol import slots
from ..protocol.base import NotConstant, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import BINARY, COMPARE, UNARY, ConstVar, MethodVar, make
from ..registry import Args, Kwargs, register
from ..tracer import Tracer
from . import tensor_class
from .numpy_examples import Returned, compare_with_numpy, example_of, storage_of
from .overrides import leaves_of
from .tensor import INPLACE, TensorVar, tensor_and_args

try:
    import numpy
except ImportError:  # torch also works without NumPy
    numpy = None  # type: ignore[assignment]

_ABOUT_TYPES = frozenset("can_cast result_type issubdtype isscalar broadcast_shapes min_scalar_type".split())
_TO_PYTHON = frozenset("item tolist tobytes tofile dump dumps data ctypes flat view setflags byteswap".split())
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
    except TypeError:
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
        return self._dtype().type if self.scalar else numpy.ndarray

    def describe(self) -> str:
        return str(self.source) if self.source else "an array of numpy"

    def _dtype(self) -> Any:
        return torch.empty(0, dtype=self.tensor.fake.dtype, device="cpu").numpy().dtype

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name == "shape":
            return TupleVar([make(size) for size in self.tensor.fake.shape])
        if name == "dtype":
            return ConstVar(self._dtype())
        if name == "__class__":
            return make(self.python_type())
        if name in _METADATA:
            fake = self.tensor.fake
            return make({"ndim": fake.dim, "size": fake.numel, "itemsize": fake.element_size}.get(name, fake.numel)()
                        * (fake.element_size() if name == "nbytes" else 1))  # fmt: skip
        if name in ("T", "real", "imag"):
            return _node(tx, f"get_{name}", operator.attrgetter(name), [self], {})
        found = lookup(self.python_type(), name)
        if found is MISSING:
            tx.raise_(AttributeError, f"'{_module_name(self.python_type())}' object has no attribute {name!r}")
        if not callable(found):  # of the array's own memory, as `base`, `strides` and `flags`
            return self.unsupported(tx, f"attribute {name!r}")
        return MethodVar(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name in _TO_PYTHON:
            return tx.graph_break("tensor-to-python", f".{name}() of {self.describe()}")
        if name.startswith("__"):
            return self.unsupported(tx, f"method {name!r}")
        if name == "fill":
            self.setitem(tx, ConstVar(Ellipsis), args[0])
            return ConstVar(None)
        if not hasattr(_numpy().ndarray, name):
            return self.unsupported(tx, f"method {name!r}")
        return _node(tx, f"call_{name}", _method(name), [self, *args], kwargs)

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
        if not _operand(other):
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
        return _node(tx, COMPARE[op].__name__, COMPARE[op], [self, other], {}) if _operand(other) else None

    def truth(self, tx: Tracer) -> bool:
        return bool(tx.graph_break("data-dependent-branch", f"the truth of {self.describe()} decides a branch"))

    def length(self, tx: Tracer) -> Var:
        if self.tensor.fake.dim() == 0:
            tx.raise_(TypeError, "len() of unsized object")
        return make(self.tensor.fake.shape[0])

    def getitem(self, tx: Tracer, key: Var) -> Var:
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


def _module_name(kind: type) -> str:
    return f"numpy.{kind.__name__}"


def _operand(other: Var) -> bool:
    return isinstance(other, NdArrayVar) or isinstance(
        slots.constant_or(other, None), (int, float, complex, *NUMPY_NUMBERS)
    )


def _result(var: Var, returned: Sequence[Returned] | None) -> Var:
    """The result of a node, with tensors converted to arrays, or to scalars where NumPy returns scalars."""
    if isinstance(var, TensorVar):
        scalar = var.fake.dim() == 0 if returned is None else returned[0].scalar
        return NdArrayVar(var, None, scalar)
    if is_plain(var):
        each = [None] * len(var.items) if returned is None else [[item] for item in returned]
        return type(var)([_result(item, found) for item, found in zip(var.items, each, strict=True)])
    return var


# ---- nodes ----
@functools.cache
def _numpy() -> Any:
    import torch._numpy  # deferred until first use

    return torch._numpy


@functools.cache
def _method(name: str) -> Callable[..., Any]:
    return lambda array, *args, **kwargs: getattr(array, name)(*args, **kwargs)


@functools.cache
def _target(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, a function of arrays, as a function of tensors."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return _as_tensors(fn(*map(_as_arrays, args), **{key: _as_arrays(value) for key, value in kwargs.items()}))

    run.__name__ = run.__qualname__ = f"numpy_{name.replace('.', '_')}"
    return run


def _as_arrays(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _numpy().ndarray(value)
    return type(value)(map(_as_arrays, value)) if type(value) in (list, tuple) else value


def _as_tensors(value: Any) -> Any:
    if isinstance(value, _numpy().ndarray):
        return value.tensor
    return type(value)(map(_as_tensors, value)) if type(value) in (list, tuple) else value


def _node(
    tx: Tracer,
    name: str,
    fn: Callable[..., Any],
    args: Sequence[Var],
    kwargs: Mapping[str, Var],
    original: Callable[..., Any] | None = None,
) -> Var:
    """Call `fn`, a function of `torch._numpy`, as a node. `original`: NumPy's function, if it differs from `fn`."""
    if not tensor_class.as_at_import():  # torch._numpy calls tensor methods
        tx.graph_break("unsupported-object", f"numpy.{name}, while attributes of torch.Tensor are the program's own,")
    values = [_node_argument(tx, arg) for arg in args]
    named = {key: _node_argument(tx, value) for key, value in kwargs.items()}
    target = _target(name, fn)
    returned, difference = compare_with_numpy(original or fn, target, args, kwargs, _example)
    if difference is not None:
        tx.graph_break("unsupported-torch-op", f"torch's implementation of numpy.{name} {difference}")
    known = set(tx.graph.graph.nodes)
    result = tx.graph.call(target, values, named)
    if returned is None:
        return _result(result, None)
    tensors = _tensors(result)
    found = [torch.empty(0, dtype=tensor.fake.dtype, device="cpu").numpy().dtype for tensor in tensors]
    expected = [each.dtype for each in returned]
    if expected != found:
        tx.graph.forget(known)
        tx.graph_break("unsupported-torch-op", f"numpy.{name} returns {expected}, torch's implementation {found}")
    given = {storage_of(x.fake) for x in _tensors(TupleVar([*values, *named.values()]))}
    copies = []
    for tensor, each in zip(tensors, returned, strict=True):
        shares = storage_of(tensor.fake) in given
        if each.shares and (each.reversed or not shares):
            tx.graph.forget(known)
            tx.graph_break("unsupported-torch-op", f"numpy.{name} returns a view, torch's implementation a copy")
        if shares and each.shares is False:
            copies.append(tensor)
    return _result(_copied(tx, result, copies), returned)


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
    return var.constant()


def _node_argument(tx: Tracer, var: Var) -> Var:
    """An argument as nodes take it: arrays as tensors, dtypes as their names."""
    if isinstance(var, NdArrayVar):
        return var.tensor
    if is_plain(var):
        return type(var)([_node_argument(tx, item) for item in var.items])
    if isinstance(var, TensorVar | SliceVar | SequenceVar):
        return var if not isinstance(var, TensorVar) else var.unsupported(tx, "use as an argument of a numpy function")
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


# ---- functions ----
class ArrayFunctionVar(NumpyFunctionVar):
    """A NumPy function. Called with numbers only, it is folded to a constant."""

    __slots__ = ()

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if not any(map(_has_array, (*args, *kwargs.values()))) and self.gives_number(args):
            return super().call(tx, args, kwargs)
        name = _functions().get(self.value)
        if name is None:
            return tx.graph_break("unknown-c-function", f"{self.value.__module__}.{self.value.__name__}")
        fn = operator.attrgetter(name)(_numpy())
        return _node(tx, name, fn, args, kwargs, self.value)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)


def _has_array(var: Var) -> bool:
    return isinstance(var, NdArrayVar) or is_plain(var) and any(map(_has_array, var.items))


@functools.cache
def _functions() -> dict[Any, str]:
    """NumPy functions that `torch._numpy` also has, with their names."""
    ours = _numpy()
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
    kinds = (types.FunctionType, types.BuiltinFunctionType, *NUMPY_FUNCTIONS)
    # The name of the module only saves the look-up in `_functions`, which imports torch._numpy; except for ufuncs: for
    # these it is the only record of who defined them.
    if not issubclass(cls, kinds) or not (getattr(value, "__module__", None) or "").startswith("numpy"):
        return None
    if not issubclass(cls, NUMPY_FUNCTIONS) and value not in _functions():
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
