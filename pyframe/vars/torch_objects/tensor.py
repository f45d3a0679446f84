"""`TensorVar`: a tensor of the traced program, represented by an FX node and a fake tensor. Decides for each attribute,
method and operator whether it becomes a node, is answered from the fake tensor, or breaks the graph."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from ...core.in_order import in_order
from ...core.source import AttrSource, CallSource, Source
from ...core.tensor_names import METADATA, METADATA_METHODS, TENSOR_PROPERTIES
from ..codegen import Codegen
from ..containers.iterator import ItemsIteratorVar, NotRebuilt
from ..containers.sequence import ListVar, SizeVar, SliceVar, TupleVar
from ..numbers.numpy_scalars import NUMPY_NUMBERS, NumpyArgumentVar
from ..numbers.symint import NestedIntVar, NumberVar, is_number, is_unbacked, place_from_start
from ..objects.originals import torchs_own
from ..protocol import arity, dunder
from ..protocol.base import NotConstant, Var
from ..protocol.class_reads import lookup
from ..protocol.const import BINARY, COMPARE, UNARY, ConstVar, MethodVar, fold, make
from ..registry import Args, method_model, setter_model
from ..tracer import Tracer

INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv,
    "//=": operator.ifloordiv, "%=": operator.imod, "**=": operator.ipow, "@=": operator.imatmul,
    "&=": operator.iand, "|=": operator.ior, "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift,
}  # fmt: skip
# Operators that accept numbers, with results whose sizes and dtypes do not depend on a float's value.
_WITH_FLOATS = (
    "add sub mul div true_divide multiply subtract divide rsub pow clamp clamp_min clamp_max lerp addcmul addcdiv "
    "where eq ne lt le gt ge masked_fill fill"
).split()
TAKES_FLOATS: set[Any] = {
    *BINARY.values(), *COMPARE.values(), *INPLACE.values(), operator.setitem,
    *_WITH_FLOATS, *(f"{name}_" for name in _WITH_FLOATS), *(f"__{name}__" for name in _WITH_FLOATS),
    *(getattr(torch, name) for name in _WITH_FLOATS if hasattr(torch, name)),
}  # fmt: skip
# Attributes that are read from the fake tensor.
TO_PYTHON = {
    "item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__complex__", "data_ptr",
    "__repr__", "__str__", "__format__", "__hash__", "__array__", "__dlpack__", "__reduce__", "__reduce_ex__",
    "is_shared", "is_pinned", "storage_type", "__contains__", "const_data_ptr", "mutable_data_ptr", "_use_count",
}  # fmt: skip
# Methods that return numbers: folded if the tensor's value is known, otherwise computed by the graph if possible.
TO_NUMBERS = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__complex__"}
READS_NUMBERS = {"item", "tolist", "__int__", "__float__", "__index__"}
# Methods that the trace answers itself, or of which it passes on only some arguments.
_ANSWERED = {*TO_NUMBERS, "size", "stride", "__len__", "__iter__", "__setitem__"}
MAX_ITEMS = 64  # elements that .tolist() reads one by one
# Methods that change the tensor object itself, and others that a graph cannot contain. They break the graph unless a
# model or VIEWS_IN_PLACE applies.
METADATA_MUTATION = {
    "resize_", "resize_as_", "t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "as_strided_",
    "set_", "backward", "register_hook", "retain_grad",
    "share_memory_", "pin_memory", "apply_", "map_", "register_post_accumulate_grad_hook", "untyped_storage", "storage",
}  # fmt: skip
# Methods that turn a tensor into a view of itself. If the graph created the tensor, nothing else sees the change.
VIEWS_IN_PLACE = {
    name: name.removesuffix("_")
    for name in ("t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "as_strided_")
}

_UNARY_METHODS = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}

_SCALARS = (int, float, complex, *NUMPY_NUMBERS)


def _is(key: Var, *values: Any) -> bool:
    return isinstance(key, ConstVar) and any(key.value is value for value in values)


def _keys(key: Var) -> list[Var]:
    """The index of each dimension; integers of numpy that vary as torch takes them."""
    keys = key.items if isinstance(key, TupleVar) else [key]
    return [each.number if isinstance(each, NumpyArgumentVar) else each for each in keys]


def _is_view_at_varying(key: Var) -> bool:
    """Whether indexing with `key` yields a view whose place depends on a number that varies."""
    keys = _keys(key)
    return any(map(_is_symbolic, keys)) and all(map(moves_view, keys))


def _is_symbolic(key: Var) -> bool:
    """Whether a key is an int that is not a constant of the capture."""
    return isinstance(key, NumberVar) and key.python_type() is int and not key.is_constant()


def moves_view(key: Var) -> bool:
    """Whether indexing with `key` yields a view: an int, a slice, None or an Ellipsis."""
    number = isinstance(key, NumpyArgumentVar) or is_number(key) and key.python_type() is int
    return number or isinstance(key, SliceVar) or _is(key, None, Ellipsis)


def _load_size(tensor: Var, dim: int, cg: Codegen) -> None:
    cg.load_const(torch.Tensor.size)
    cg.call_top(lambda: cg.load(tensor), lambda: cg.load_const(dim))


@in_order
def read_grad(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor.grad


class TensorVar(Var):
    """`fake` has the dtype, device, sizes and strides; `cls` is the Python class (Tensor or Parameter). `owner`: the
    Var of the subclass instance whose plain tensor this is. Operations for which `tx.overrides.may_override` holds are
    dispatched to the overrides first."""

    __slots__ = ("cls", "dropped", "fake", "function", "grad", "hooks", "node", "own", "owner")
    is_tensor = True

    def __init__(
        self, node: fx.Node, fake: torch.Tensor, source: Source | None = None, cls: type | None = None
    ) -> None:
        super().__init__(source)
        self.node, self.fake = node, fake
        self.grad: Var | None = None  # if the program has set it
        self.owner: Var | None = None
        self.own: dict[str, Var] = {}  # attributes that the program set
        self.dropped: frozenset[str] = frozenset()
        self.hooks: list[Var] = []  # handles of the hooks that the program registered
        self.function: GradFnVar | None = None
        self.cls: type = torch.Tensor if cls is None or not issubclass(cls, torch.nn.Parameter) else cls

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return str(self.source) if self.source else f"a tensor ({self.node.name})"

    # ---- attributes and methods ----
    def getattr_(self, tx: Tracer, name: str) -> Var:
        if tx.overrides.in_mode and isinstance(getattr(torch._C.TensorBase, name, None), types.GetSetDescriptorType):
            if name not in ("__class__", "__dict__"):
                return tx.overrides.get_attribute(self, name)
        if not torchs_own(lookup(torch.Tensor, name), name):
            return tx.graph_break("unsupported-object", f"torch.Tensor.{name}, which which the program has replaced,")
        if name == "shape":
            return self.sizes()
        if name == "_grad":  # an alias of .grad
            return self.getattr_(tx, "grad")
        if name in ("is_leaf", "grad_fn") and self.source is not None and self.fake.requires_grad:
            tx.guard(AttrSource(self.source, "is_leaf"), "EQUALS", self.fake.is_leaf)
        if name == "nbytes" and self.fake.layout is torch.strided:  # C++ code of torch that symbolic sizes do not pass
            return make(self.fake.numel() * self.fake.itemsize)
        if name in METADATA:
            tx.graph.metadata_read.add(name)
            return make(getattr(self.fake, name))
        if name in TENSOR_PROPERTIES:
            return tx.graph.call(getattr, [self, name], {})
        if name == "retains_grad" and self.source is None:
            return ConstVar(self.fake.retains_grad)
        if name == "data":  # unlike detach(), it has its own version counter
            return tx.graph.call(getattr, [self, name], {})
        if name == "__class__":
            return make(self.cls)
        if name in self.own:
            return self.own[name]
        original = self._original(tx)
        if name == "grad_fn" and not self.fake.is_leaf and not tx.graph.stack.is_nested:
            return self._grad_fn(tx)
        if name == "grad" and self.grad is not None:
            return self.grad
        if name in ("grad", "grad_fn", "_version"):
            if name == "grad" and original is not None and self.fake.is_leaf:
                return tx.wrap(original.grad, AttrSource(self.origin(), name))
            if name == "grad_fn" and self.fake.is_leaf or name == "grad" and not self.fake.requires_grad:
                return ConstVar(None)
            if name == "grad" and self.source is None and (self.fake.is_leaf or self.fake.retains_grad):
                return self._accumulated(tx)  # created here, and no backward pass has run
            self.unsupported(tx, f"attribute {name!r}")
        if original is not None and name in original.__dict__:
            return tx.wrap(original.__dict__[name], AttrSource(self.origin(), name))
        found = getattr(self.cls, name, None)
        if found is None:
            if original is not None:
                tx.guard(self.source, "NO_ATTR", name)
            tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        if callable(found):
            return MethodVar(self, name)
        return self.unsupported(tx, f"attribute {name!r}")

    def _accumulated(self, tx: Tracer) -> Var:
        """The gradient of a tensor created here, which backward passes of the graph add to."""
        if self.fake.grad is None:
            return ConstVar(None)
        if tx.graph.stack.is_nested:
            return self.unsupported(tx, "attribute 'grad'")
        self.grad = tx.graph.call(read_grad, [self], {})
        return self.grad

    def origin(self) -> Source:
        """The source of a tensor that exists before the frame."""
        assert self.source is not None
        return self.source

    def _original(self, tx: Tracer) -> torch.Tensor | None:
        """The tensor itself, if it existed before the frame."""
        return None if self.source is None else tx.graph.inputs.originals.get(self.source)

    def own_attributes(self, tx: Tracer) -> dict[str, Any]:
        """The attributes that the program has set on the tensor; guarded if there were none before the frame."""
        original = self._original(tx)
        if original is None:
            return self.own
        if not original.__dict__:
            tx.guard(AttrSource(self.origin(), "__dict__"), "LEN", 0)
        return {**original.__dict__, **self.own}

    def _grad_fn(self, tx: Tracer) -> GradFnVar:
        """The Var of `grad_fn`; an in-place operation replaces it."""
        if self.function is None or self.function.result is not self.node:
            self.function = GradFnVar(self, tx.steps)
        return self.function

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        if tx.overrides.in_mode and isinstance(getattr(torch._C.TensorBase, name, None), types.GetSetDescriptorType):
            tx.overrides.set_attribute(self, name, value)
            return
        name = "grad" if name == "_grad" else name
        if value is not None and (setter := setter_model(torch.Tensor, name)) is not None:
            setter(tx, [self, value], {})
        elif value is None or hasattr(torch.Tensor, name) or tx.graph.stack.is_nested:
            self.unsupported(tx, f"setting attribute {name!r}")
        else:
            self.own[name] = value
            tx.effects.add("ATTR", self, name, tx.user_line())

    def written(self, name: str) -> Var:
        return self.own[name]

    def setter(self, special: str, name: str) -> None:
        """None: the attributes of tensors are set normally."""

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if tx.overrides.may_override([self, *args], kwargs):
            return tx.overrides.method(name, [self, *args], kwargs)
        return self.method(tx, name, args, kwargs)

    def is_replaceable(self) -> bool:
        """Whether a view may replace this tensor: nothing outside the frame has the object, and it has no hooks or
        retained gradient, which would belong to its former value."""
        if self.source is not None or self.owner is not None:
            return False
        return not (self.fake.requires_grad and (self.fake.is_leaf or self.fake.retains_grad or self.hooks))

    def _may_become_a_view(self, tx: Tracer) -> bool:
        return self.is_replaceable() and not tx.graph.stack.is_nested and not tx.graph.is_candidate(self.fake)

    def method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """`self.name(*args, **kwargs)`, not overridden."""
        model = method_model(torch.Tensor, name)
        if model is not None or name in _ANSWERED:
            arity.of_kind(tx, torch.Tensor, self, name, args, kwargs)
        if name in TO_NUMBERS and (value := tx.graph.known.value_of(self)) is not None:
            return fold(tx, getattr(value, name), *(arg.constant() for arg in args))
        if name in READS_NUMBERS and not args and tx.graph.numbers.makes_numbers:
            return self._numbers(tx, name)
        if model is not None:
            return model(tx, [self, *args], dict(kwargs))
        if name in TO_PYTHON:
            tx.graph_break("tensor-to-python", f".{name}() of {self.describe()}")
        if name in VIEWS_IN_PLACE and self._may_become_a_view(tx):
            view = tx.graph.call_method(VIEWS_IN_PLACE[name], [self, *args], kwargs)
            assert isinstance(view, TensorVar)
            if self.fake.requires_grad:  # autograd may have saved it and must see that it changed
                tx.graph.call(torch.autograd.graph.increment_version, [self], {})
            self.node, self.fake = view.node, view.fake
            return self
        if name in METADATA_MUTATION:
            tx.graph_break("unsupported-object", f".{name}() changes what kind of tensor {self.describe()} is")
        if name == "size" or name == "stride":
            tx.graph.metadata_read.add(name)
            sizes = self.sizes().items if name == "size" else list(map(make, self.fake.stride()))
            dim = args[0] if args else kwargs.get("dim", ConstVar(None))
            if not _is(dim, None):
                at = dim.constant()
                known = isinstance(at, int) and -len(sizes) <= at < len(sizes)
                return sizes[at] if known else tx.graph.call_method(name, [self, *args], kwargs)
            return SizeVar(sizes) if name == "size" else TupleVar(sizes)
        if name == "storage_offset":
            tx.graph.guard_offset(self)
        if name == "_is_view" and (original := self._original(tx)) is not None:
            tx.guard(CallSource(self.origin(), torch.Tensor._is_view, name), "EQUALS", original._is_view())
            return ConstVar(original._is_view())
        if name in METADATA_METHODS and all(a.is_constant() for a in (*args, *kwargs.values())):
            tx.graph.metadata_read.add(name)
            values, named = [a.constant() for a in args], {k: v.constant() for k, v in kwargs.items()}
            return fold(tx, getattr(torch.Tensor, name), self.fake, *values, **named)
        if name == "__len__":
            return self.length(tx)
        if name == "__iter__":
            return self.iterate(tx)
        if not hasattr(torch.Tensor, name):
            tx.raise_(AttributeError, f"'Tensor' object has no attribute {name!r}")
        if name == "__setitem__":
            self.setitem(tx, args[0], args[1])
            return ConstVar(None)
        if name == "new" and len(args) == 1 and not kwargs and isinstance(args[0], SizeVar):
            name = "new_empty"  # graphs hold sizes as tuples, which `new` treats as data
        return tx.graph.call_method(name, [self, *args], kwargs)

    def _numbers(self, tx: Tracer, name: str) -> Var:
        """The elements as unbacked numbers of the graph."""
        if name == "tolist" and self.fake.dim():
            if any(isinstance(n, torch.SymInt) for n in self.fake.shape) or self.fake.numel() > MAX_ITEMS:
                return tx.graph_break("tensor-to-python", f".tolist() of {self.describe()}, whose items are too many")
            if not self.fake.numel():
                return make(torch.empty(self.fake.shape).tolist())
            return ListVar([part.call_method(tx, name, [], {}) for part in self.unpack(tx)])
        if name == "__index__" and (self.fake.is_floating_point() or self.fake.is_complex()):
            tx.raise_(TypeError, "only integer tensors of a single element can be converted to an index")
        whole = name in ("__int__", "__index__") and self.fake.dtype is torch.bool
        read = tx.graph.call_method("to", [self, torch.int64], {}) if whole else self
        found = tx.graph.call_method("item", [read], {})
        if name in ("__int__", "__float__"):
            return tx.call(tx.wrap(int if name == "__int__" else float, None), [found], {})
        return found

    # ---- slots ----
    def unary(self, tx: Tracer, op: str) -> Var:
        if tx.overrides.in_mode:
            return tx.overrides.method(_UNARY_METHODS[op], [self], {})
        return tx.graph.call(UNARY[op], [self], {})

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if tx.overrides.may_override([self, other]):
            return tx.overrides.operator(dunder.name_of(op, reflected), [self, other])
        other = getattr(other, "base", other)  # the number in an instance of a number subclass
        if not _operand(other):
            return None
        if op in INPLACE:
            return None if reflected else tx.graph.call(INPLACE[op], [self, other], {})
        return tx.graph.call(BINARY[op], [other, self] if reflected else [self, other], {})

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if tx.overrides.may_override([self, other]):
            return tx.overrides.operator(dunder.comparison(op), [self, other])
        other = getattr(other, "base", other)
        return tx.graph.call(COMPARE[op], [self, other], {}) if _operand(other) else None

    def truth(self, tx: Tracer) -> bool:
        if tx.overrides.in_mode:
            return bool(tx.overrides.method("__bool__", [self], {}).truth(tx))
        if isinstance(count := self.fake.numel(), int) and count != 1:
            tx.graph_break("exception-in-traced-code", "the truth of a tensor that does not have exactly one element")
        value = tx.graph.known.value_of(self, reads=True)
        if value is not None:
            return bool(value)
        return bool(tx.graph_break("data-dependent-branch", f"the truth of {self.describe()} decides a branch"))

    def truth_as_number(self, tx: Tracer) -> Var | None:
        """The truth of a tensor of one element as a number that the graph computes; None if it is known or must be."""
        count = self.fake.numel()
        if tx.overrides.in_mode or not tx.graph.numbers.makes_numbers or not isinstance(count, int) or count != 1:
            return None
        if tx.graph.known.is_known(self):
            return None
        truth = self if self.fake.dtype is torch.bool else tx.graph.call_method("ne", [self, ConstVar(0)], {})
        return tx.graph.call_method("item", [truth], {})

    def sizes(self) -> SizeVar:
        sizes = [make(size) for size in self.fake.shape]
        for dim, size in enumerate(sizes):
            if isinstance(size, NestedIntVar):
                sizes[dim] = NestedIntVar(size.value, functools.partial(_load_size, self, dim), (self, dim))
        return SizeVar(sizes)

    def length(self, tx: Tracer) -> Var:
        if tx.overrides.in_mode:
            return tx.overrides.method("__len__", [self], {})
        if self.fake.dim() == 0:
            tx.raise_(TypeError, "len() of a 0-d tensor")
        return make(self.fake.shape[0])

    def getitem(self, tx: Tracer, key: Var) -> Var:
        if tx.overrides.may_override([self, key]):
            return tx.overrides.method("__getitem__", [self, key], {})
        key = key.as_index(tx)
        if _is_view_at_varying(key):
            return self._viewed(tx, _keys(key))
        return tx.graph.call(operator.getitem, [self, key], {})

    def _viewed(self, tx: Tracer, keys: Sequence[Var]) -> Var:
        """`self[keys]`, one dimension at a time: torch's indexing does not accept unbacked ints, and specializes to the
        values of other symbolic ints."""
        view: Any = self
        dim, left = 0, self.fake.dim() - sum(not _is(each, None, Ellipsis) for each in keys)
        for each in keys:
            if _is(each, None):
                view = tx.graph.call(torch.unsqueeze, [view, dim], {})
            elif is_number(each):
                if is_unbacked(each) and not tx.graph_error_is_equivalent:
                    tx.graph_break("tensor-to-python", "an index read from a tensor may be out of range")
                at = place_from_start(tx, each, view.fake.shape[dim])
                view = tx.graph.call(torch.select, [view, dim, at], {})
                continue
            elif isinstance(each, SliceVar):
                before = [ConstVar(slice(None))] * dim
                view = tx.graph.call(operator.getitem, [view, TupleVar([*before, each])], {})
            dim += left if _is(each, Ellipsis) else 1
        return view

    def setitem(self, tx: Tracer, key: Var, value: Var | None) -> None:
        if value is None:
            tx.raise_(TypeError, "cannot delete tensor elements")
        if tx.overrides.may_override([self, key, value]):
            tx.overrides.method("__setitem__", [self, key, value], {})
            return
        key = key.as_index(tx)
        if _is_view_at_varying(key):
            tx.graph.call(operator.setitem, [self._viewed(tx, _keys(key)), ConstVar(Ellipsis), value], {})
            return
        tx.graph.call(operator.setitem, [self, key, value], {})

    def contains(self, tx: Tracer, item: Var) -> bool:
        if tx.overrides.may_override([self, item]):
            return bool(tx.overrides.method("__contains__", [self, item], {}).truth(tx))
        return bool(tx.graph_break("data-dependent-branch", f"`in` on {self.describe()}"))

    def unpack(self, tx: Tracer) -> list[Var]:
        if tx.overrides.in_mode:
            return tx.overrides.method("__iter__", [self], {}).unpack(tx)
        if self.fake.dim() == 0:
            tx.raise_(TypeError, "iteration over a 0-d tensor")
        parts = tx.graph.call_method("unbind", [self], {})
        assert isinstance(parts, ListVar | TupleVar)
        return list(parts.items)

    def iterate(self, tx: Tracer) -> Var:
        return ItemsIteratorVar(self.unpack(tx))


class GradFnVar(Var):
    """`tensor.grad_fn` of a tensor that requires gradients; the real object exists once the graph has run."""

    __slots__ = ("result", "step", "tensor")

    def __init__(self, tensor: TensorVar, step: int) -> None:
        super().__init__()
        self.tensor, self.result, self.step = tensor, tensor.node, step

    def describe(self) -> str:
        return f"{self.tensor.describe()}.grad_fn"

    def python_type(self) -> type:
        if self.tensor.source is not None:
            raise NotConstant("grad_fn")
        return type(self.tensor.fake.grad_fn)

    def truth(self, tx: Tracer) -> bool:
        return True

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "name" and not args and self.tensor.source is None and self.tensor.node is self.result:
            assert self.tensor.fake.grad_fn is not None
            return ConstVar(self.tensor.fake.grad_fn.name())
        if (model := method_model(torch.autograd.graph.Node, name)) is not None:
            return model(tx, [self, *args], dict(kwargs))
        return self.unsupported(tx, f"method {name!r}")

    def getattr_(self, tx: Tracer, name: str) -> Var:
        modelled = name == "name" or method_model(torch.autograd.graph.Node, name) is not None
        return MethodVar(self, name) if modelled else super().getattr_(tx, name)

    def reconstruct(self, cg: Codegen) -> None:
        if self.result is not self.tensor.node:
            raise NotRebuilt("the grad_fn of a tensor before a write", self.step, "unsupported-object")
        cg.load(self.tensor)
        cg.emit("LOAD_ATTR", "grad_fn")


def _operand(other: Var) -> bool:
    if isinstance(other, TensorVar):
        return True
    varies = isinstance(other, NumpyArgumentVar) or is_number(other)
    return varies or (isinstance(other, ConstVar) and isinstance(other.value, _SCALARS))


def tensor_and_args(args: Args) -> tuple[TensorVar, Args]:
    """The tensor of a method call or assignment, as a model receives it, and the other arguments."""
    tensor, *others = args
    assert isinstance(tensor, TensorVar)
    return tensor, others
