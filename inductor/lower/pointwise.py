"""Lowerings of elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ..errors import Unsupported
from ..ir.handler import ops
from ..ir.nodes import Pointwise, TensorValue, compute_dtype
from ..ir.real import Real
from ..ir.size import Size
from .common import derived, is_value, overflows, pointwise, stored, wrapped
from .registry import LoweringGraph, Unlowered, lowering

# Operators that are one op of the loop IR; the numbers are rough costs relative to an addition.
_CHEAP, _DEAR = 1, 6

_FLOAT_UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh sigmoid erf erfc"
)
_ROUNDING = "floor ceil round trunc"
_SAME_UNARY = "neg abs sign relu"
_BINARY = "atan2 fmod remainder maximum minimum bitwise_and bitwise_or bitwise_xor"
_COMPARE = "eq ne lt le gt ge"
_LOGICAL = "logical_and logical_or logical_xor"
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_BOOL_FORM = {"add": "bitwise_or", "mul": "bitwise_and", "maximum": "bitwise_or", "minimum": "bitwise_and"}


def _fn(name: str) -> Callable[..., Any]:
    return lambda *args: getattr(ops, name)(*args)


def common_dtype(*args: Any) -> torch.dtype:
    """The compute dtype of the dtype to which torch promotes these operands."""
    return compute_dtype(_result_type(*args))


def _result_type(*args: Any) -> torch.dtype:
    """`torch.result_type` of values of the graph and numbers."""
    samples = [
        torch.empty([1] * len(a.size), dtype=a.dtype, device="meta") if is_value(a) else _like_number(a)
        for a in args
    ]
    samples = [s.reshape(()) if isinstance(s, torch.Tensor) and s.dim() == 0 else s for s in samples]
    return torch.result_type(samples[0], samples[1]) if len(samples) > 1 else samples[0].dtype


def _converted(a: Any, b: Any, near_zero: bool = True, numbers: bool = True) -> tuple[Any, Any]:
    """The operands of a discontinuous operator, rounded as by `stored`. If their common dtype has half precision, torch
    converts both to it and so rounds integer tensors and, on the CPU, Python numbers. `numbers=False` is for operators
    whose kernels take numbers and 0-d tensors in a wider dtype."""
    dtype = _result_type(a, b)
    if dtype not in (torch.float16, torch.bfloat16):
        return stored(a, near_zero), stored(b, near_zero)
    device = next(x.device for x in (a, b) if is_value(x))

    def convert(x: Any) -> Any:
        if not numbers and not (is_value(x) and x.size):
            return stored(x, near_zero)
        if is_value(x) and x.dtype not in (dtype, torch.bool):
            return derived(x, lambda v: ops.as_stored(ops.to_dtype(v, torch.float32), dtype), dtype, 0)
        if isinstance(x, int | float) and not isinstance(x, bool) and device.type == "cpu":
            return torch.tensor(x, dtype=torch.float64).to(dtype).item()
        return stored(x, near_zero)

    return convert(a), convert(b)


def _like_number(x: Any) -> Any:
    """A sample int or float in place of a Size or Real."""
    return 1 if isinstance(x, Size) else 1.0 if isinstance(x, Real) else x


def _reject_complex(graph: LoweringGraph) -> None:
    vals = graph.val if isinstance(graph.val, tuple | list) else (graph.val,)
    if any(getattr(v, "dtype", torch.float32).is_complex for v in vals):
        raise Unlowered


def elementwise(graph: LoweringGraph, fn: Callable[..., Any], *inputs: Any, work: int = _CHEAP) -> Pointwise:
    """`fn` of the inputs, computed in the compute dtype of the node's result. Unlowered for complex numbers."""
    _reject_complex(graph)
    if any(is_value(x) and x.dtype.is_complex for x in inputs):
        raise Unlowered
    return pointwise(fn, inputs, compute_dtype(graph.val.dtype), graph.val, work)


def floats_only(graph: LoweringGraph) -> None:
    """Unlowered if the result is not of a floating-point dtype: ATen then computes it or raises the error."""
    if not graph.val.dtype.is_floating_point:
        raise Unlowered


def check_divisor(graph: LoweringGraph, b: Any) -> None:
    """Unlowered for integers divided by the number zero on the CPU, where ATen raises an error, and for truth values.
    Kernels check the elements of a tensor."""
    zero = not is_value(b) and b == 0
    on_cpu, dtype = graph.val.device.type == "cpu", graph.val.dtype
    if on_cpu and (dtype == torch.bool or (dtype in _INTEGERS and zero)):
        raise Unlowered


def _register_tables() -> None:
    def unary(name: str, work: int) -> None:
        lowering(name)(lambda graph, x: elementwise(graph, _fn(name), x, work=work))

    def same_unary(name: str) -> None:
        def lower(graph: LoweringGraph, x: TensorValue) -> TensorValue:
            if x.dtype != torch.bool:
                return elementwise(graph, _fn(name), x)
            if name != "sign":
                raise Unlowered  # an error in eager
            return clone(graph, x)  # a copy, since the caller may write to one of the two

        lowering(name)(lower)

    def rounding(name: str) -> None:
        def lower(graph: LoweringGraph, x: TensorValue, decimals: int | None = None) -> TensorValue:
            if decimals or x.dtype == torch.bool:  # an error in eager for bool
                raise Unlowered
            if decimals is not None and not x.dtype.is_floating_point:
                raise Unlowered  # an error in eager
            return elementwise(graph, _fn(name), stored(x)) if x.dtype.is_floating_point else clone(graph, x)

        lowering(name)(lower)

    def binary(name: str) -> None:
        def lower(graph: LoweringGraph, a: Any, b: Any) -> TensorValue:
            if name in ("fmod", "remainder"):
                check_divisor(graph, b)
                a, b = _converted(a, b)
            if name.startswith("bitwise") and graph.val.dtype.is_floating_point:
                raise Unlowered  # an error in eager
            return elementwise(graph, _fn(_bool_form(graph, name)), a, b)

        lowering(name)(lower)

    def compare(name: str) -> None:
        lowering(name)(lambda graph, a, b: _compare(graph, name, a, b))

    def logical(name: str) -> None:
        lowering(name)(
            lambda graph, a, b: pointwise(_fn(name), (stored(a, False), stored(b, False)), torch.bool, graph.val)
        )

    for name in _FLOAT_UNARY.split():
        unary(name, _CHEAP if name in ("sqrt", "reciprocal") else _DEAR)
    for name in _SAME_UNARY.split():
        same_unary(name)
    for name in _ROUNDING.split():
        rounding(name)
    for name in _BINARY.split():
        binary(name)
    for name in _COMPARE.split():
        compare(name)
    for name in _LOGICAL.split():
        logical(name)


def _bool_form(graph: LoweringGraph, name: str) -> str:
    if graph.val.dtype == torch.bool:
        return _BOOL_FORM.get(name, name)
    return name


def _compare(graph: LoweringGraph, name: str, a: Any, b: Any) -> TensorValue:
    if any(is_value(x) and x.dtype.is_complex for x in (a, b)):
        raise Unlowered
    zero = any(not is_value(x) and type(x) in (int, float) and x == 0 for x in (a, b))
    return pointwise(_fn(name), _converted(a, b, not zero), common_dtype(a, b), graph.val)


_register_tables()


def _scaled(graph: LoweringGraph, alpha: Any) -> Callable[[Any, torch.dtype], Any]:
    if overflows(alpha, graph.val.dtype):
        raise Unlowered  # ATen raises the error
    times = _fn(_bool_form(graph, "mul"))
    return lambda x, dtype: x if alpha == 1 else times(x, ops.constant(wrapped(alpha, dtype), dtype))


@lowering("add")
def add(graph: LoweringGraph, a: Any, b: Any, *, alpha: Any = 1) -> TensorValue:
    """a + alpha * b."""
    name, dtype = _bool_form(graph, "add"), compute_dtype(graph.val.dtype)
    scale = _scaled(graph, alpha)
    return elementwise(graph, lambda x, y: getattr(ops, name)(x, scale(y, dtype)), a, b)


def _refuse_bool(*operands: Any) -> None:
    if any(is_value(x) and x.dtype == torch.bool for x in operands):
        raise Unlowered  # an error in eager for bool


@lowering("sub")
def sub(graph: LoweringGraph, a: Any, b: Any, *, alpha: Any = 1) -> TensorValue:
    """a - alpha * b."""
    _refuse_bool(a, b)
    dtype, scale = compute_dtype(graph.val.dtype), _scaled(graph, alpha)
    return elementwise(graph, lambda x, y: ops.sub(x, scale(y, dtype)), a, b)


@lowering("rsub")
def rsub(graph: LoweringGraph, a: Any, b: Any, alpha: Any = 1) -> TensorValue:
    """b - alpha * a."""
    _refuse_bool(a, b)
    dtype, scale = compute_dtype(graph.val.dtype), _scaled(graph, alpha)
    return elementwise(graph, lambda x, y: ops.sub(y, scale(x, dtype)), a, b)


@lowering("mul")
def mul(graph: LoweringGraph, a: Any, b: Any) -> TensorValue:
    """a * b."""
    return elementwise(graph, _fn(_bool_form(graph, "mul")), a, b)


@lowering("div", "true_divide")
def div(graph: LoweringGraph, a: Any, b: Any, *, rounding_mode: str | None = None) -> TensorValue:
    """a / b, rounded as `rounding_mode` says."""
    names = {None: "div", "floor": "floordiv", "trunc": "truncdiv"}
    check_divisor(graph, b)
    if rounding_mode is not None:
        a, b = _converted(a, b, numbers=False)
    return elementwise(graph, _fn(names[rounding_mode]), a, b)


@lowering("floor_divide")
def floor_divide(graph: LoweringGraph, a: Any, b: Any) -> TensorValue:
    """a / b rounded down."""
    check_divisor(graph, b)
    return elementwise(graph, _fn("floordiv"), *_converted(a, b, numbers=False))


@lowering("square")
def square(graph: LoweringGraph, x: TensorValue) -> TensorValue:
    """x * x."""
    return elementwise(graph, lambda v: ops.mul(v, v), x)


@lowering("pow")
def pow_(graph: LoweringGraph, a: Any, b: Any) -> TensorValue:
    """a ** b. Small constant exponents become multiplications."""
    if not is_value(b):
        if overflows(b, graph.val.dtype):
            raise Unlowered  # ATen raises the error
        if isinstance(b, int) and b < 0 and is_value(a) and not (a.dtype.is_floating_point or a.dtype.is_complex):
            raise Unsupported("integers to a negative power, which is an error")
        if b == 1:
            return elementwise(graph, lambda x: x, a)
        if b in (2, 3, 4):
            return elementwise(graph, lambda x: _power(x, int(b)), a)
        if b == 0.5:
            return elementwise(graph, ops.sqrt, a)
        if b == -0.5:
            return elementwise(graph, ops.rsqrt, a)
        if b == -1:
            return elementwise(graph, ops.reciprocal, a)
    if not graph.val.dtype.is_floating_point:
        raise Unlowered
    return elementwise(graph, ops.pow, a, b, work=_DEAR)


def _power(x: Any, n: int) -> Any:
    if n == 2:
        return ops.mul(x, x)
    return ops.mul(x, ops.mul(x, x)) if n == 3 else _power(ops.mul(x, x), 2)


@lowering("isnan")
def isnan(graph: LoweringGraph, x: TensorValue) -> TensorValue:
    """Whether x is nan."""
    return _class(graph, "isnan", x)


@lowering("isinf")
def isinf(graph: LoweringGraph, x: TensorValue) -> TensorValue:
    """Whether x is infinite."""
    return _class(graph, "isinf", x)


def _class(graph: LoweringGraph, name: str, x: TensorValue) -> TensorValue:
    if x.dtype.is_complex:
        raise Unlowered
    if not x.dtype.is_floating_point:
        return pointwise(lambda: ops.constant(False, torch.bool), (), torch.bool, graph.val)
    return pointwise(_fn(name), (stored(x) if name == "isinf" else x,), compute_dtype(x.dtype), graph.val)


@lowering("logical_not")
def logical_not(graph: LoweringGraph, x: TensorValue) -> TensorValue:
    """not x."""
    return pointwise(ops.logical_not, (x,), torch.bool, graph.val)


@lowering("bitwise_not")
def bitwise_not(graph: LoweringGraph, x: TensorValue) -> TensorValue:
    """~x."""
    if x.dtype.is_floating_point:
        raise Unlowered  # an error in eager
    return elementwise(graph, ops.logical_not if x.dtype == torch.bool else ops.bitwise_not, x)


@lowering("bitwise_left_shift", "__lshift__")
def left_shift(graph: LoweringGraph, x: Any, by: Any) -> TensorValue:
    """x << by, for a constant `by`."""
    return _shifted(graph, ops.bitwise_left_shift, x, by)


@lowering("bitwise_right_shift", "__rshift__")
def right_shift(graph: LoweringGraph, x: Any, by: Any) -> TensorValue:
    """x >> by (arithmetic shift), for a constant `by`."""
    return _shifted(graph, ops.bitwise_right_shift, x, by)


def _shifted(graph: LoweringGraph, op: Callable[..., Any], x: Any, by: Any) -> TensorValue:
    integers = is_value(x) and graph.val.dtype == x.dtype and x.dtype in _INTEGERS
    if not integers or type(by) is not int or not 0 <= by < torch.iinfo(x.dtype).bits:
        raise Unlowered  # a count of the full width or more is undefined in C
    return elementwise(graph, op, x, by)


@lowering("where")
def where(graph: LoweringGraph, mask: Any, a: Any = None, b: Any = None) -> TensorValue:
    """a where mask, else b."""
    if a is None:
        raise Unlowered
    dtype = compute_dtype(graph.val.dtype)
    return pointwise(ops.where, (mask, a, b), dtype, graph.val, compute_of=(torch.bool, dtype, dtype))


@lowering("masked_fill")
def masked_fill(graph: LoweringGraph, x: TensorValue, mask: TensorValue, value: Any) -> TensorValue:
    """value where mask, else x."""
    if overflows(value, graph.val.dtype):
        raise Unlowered  # ATen raises the error
    dtype = compute_dtype(graph.val.dtype)
    return pointwise(ops.where, (mask, value, x), dtype, graph.val, compute_of=(torch.bool, dtype, dtype))


@lowering("clamp")
def clamp(graph: LoweringGraph, x: TensorValue, min: Any = None, max: Any = None) -> TensorValue:
    """x limited to min .. max."""
    bounds = [b for b in (min, max) if b is not None]
    if any(wrapped(b, graph.val.dtype) != b or overflows(b, graph.val.dtype) for b in bounds if not is_value(b)):
        raise Unlowered  # the dtype cannot hold the bound: depending on its version, torch wraps, ignores or rejects it

    def fn(v: Any, *given: Any) -> Any:
        rest = list(given)
        if min is not None:
            v = ops.maximum(v, rest.pop(0))
        return ops.minimum(v, rest.pop(0)) if max is not None else v

    return elementwise(graph, fn, x, *bounds)


@lowering("clamp_min")
def clamp_min(graph: LoweringGraph, x: TensorValue, min: Any) -> TensorValue:
    """x, at least min."""
    return clamp(graph, x, min)


@lowering("clamp_max")
def clamp_max(graph: LoweringGraph, x: TensorValue, max: Any) -> TensorValue:
    """x, at most max."""
    return clamp(graph, x, None, max)


@lowering("_to_copy")
def to_copy(graph: LoweringGraph, x: TensorValue | float, **kwargs: Any) -> TensorValue:
    """x converted to another dtype. Unlowered for copies to another device. Under nested vmap x may be a number."""
    if isinstance(x, int | float):
        return elementwise(graph, lambda v: v, x, work=0)
    if graph.val.device != x.device:
        return _number_on_gpu(graph, x)
    to = graph.val.dtype
    if not to.is_floating_point and not to.is_complex:
        return elementwise(graph, lambda v: v, stored(x, to != torch.bool), work=0)
    if to != x.dtype and not _is_part(graph.node):
        # The program asked for this rounding. Conversions inside a decomposition are rounded only by the final store.
        rounds = to in (torch.float16, torch.bfloat16)
        return elementwise(graph, lambda v: ops.as_stored(v, to) if rounds else v, stored(x), work=0)
    centered = _is_part(graph.node) and graph.node.meta["original_aten"]._schema.name in _CENTERED
    return elementwise(graph, lambda v: v, stored(x) if centered else x, work=0)


# Of these dtypes, kernels on a GPU take numbers as arguments.
_ARGUMENTS = (torch.float32, torch.float64, torch.int64, torch.int32)


def _number_on_gpu(graph: LoweringGraph, x: TensorValue) -> TensorValue:
    """A 0-d tensor of the CPU, copied to a GPU: kernels that read it get its value as an argument. Unlowered for copies
    of other tensors, and for copies that also convert."""
    scalar = not x.size and x.dtype == graph.val.dtype and x.dtype in _ARGUMENTS
    if not scalar or x.device.type != "cpu" or graph.val.device.type != "cuda":
        raise Unlowered
    return elementwise(graph, lambda v: v, x.realize(graph), work=0)


# Operators that subtract a mean from elements. Another kernel may have computed that mean from the stored elements.
_CENTERED = frozenset(
    f"aten::{name}"
    for name in "native_layer_norm_backward native_group_norm_backward native_batch_norm native_batch_norm_backward "
    "_native_batch_norm_legit _native_batch_norm_legit_functional _batch_norm_with_update".split()
)


def _is_part(node: fx.Node) -> bool:
    """Whether a node belongs to the decomposition of another operator.

    Operators are compared by name, since a copied graph holds a copy of `original_aten`.
    """
    whole, own = node.meta.get("original_aten"), node.target
    if not isinstance(whole, torch._ops.OpOverload) or not isinstance(own, torch._ops.OpOverload):
        return False
    return whole._schema.name != own._schema.name


@lowering("clone", "lift_fresh_copy")
def clone(graph: LoweringGraph, x: TensorValue, *, memory_format: Any = None) -> TensorValue:
    """A copy of x."""
    return elementwise(graph, lambda v: v, x, work=0)


@lowering("copy")
def copy(graph: LoweringGraph, x: TensorValue, source: TensorValue, non_blocking: bool = False) -> TensorValue:
    """`source` in x's size and dtype."""
    if source.device != x.device or source.dtype.is_complex != x.dtype.is_complex:
        raise Unlowered
    return elementwise(graph, lambda v: v, source, work=0)


class _In:
    """Creates constants of one dtype; a shorthand for the activations below."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def c(self, value: float) -> Any:
        return ops.constant(value, self.dtype)


def _activation(graph: LoweringGraph, fn: Callable[[Any, _In], Any], x: TensorValue, work: int = _DEAR) -> TensorValue:
    scope = _In(compute_dtype(graph.val.dtype))
    floats_only(graph)
    return elementwise(graph, lambda v: fn(v, scope), x, work=work)


@lowering("gelu")
def gelu(graph: LoweringGraph, x: TensorValue, *, approximate: str = "none") -> TensorValue:
    """x * Phi(x), or its tanh approximation."""

    def exact(v: Any, k: _In) -> Any:
        return ops.mul(v, ops.ndtr(v))

    def tanh(v: Any, k: _In) -> Any:
        cube = ops.mul(ops.mul(v, v), v)
        inner = ops.mul(k.c(math.sqrt(2 / math.pi)), ops.add(v, ops.mul(k.c(0.044715), cube)))
        return ops.mul(ops.mul(v, k.c(0.5)), ops.add(ops.tanh(inner), k.c(1.0)))

    return _activation(graph, tanh if approximate == "tanh" else exact, x, 12)


@lowering("special_ndtr")
def special_ndtr(graph: LoweringGraph, x: TensorValue) -> TensorValue:
    """The normal distribution function."""
    return elementwise(graph, ops.ndtr, x, work=_DEAR)


@lowering("silu")
def silu(graph: LoweringGraph, x: TensorValue) -> TensorValue:
    """x * sigmoid(x)."""
    return _activation(graph, lambda v, k: ops.mul(v, ops.sigmoid(v)), x)


@lowering("hardtanh")
def hardtanh(graph: LoweringGraph, x: TensorValue, min_val: float = -1, max_val: float = 1) -> TensorValue:
    """x limited to min_val .. max_val."""
    return clamp(graph, x, min_val, max_val)


@lowering("hardsigmoid")
def hardsigmoid(graph: LoweringGraph, x: TensorValue) -> TensorValue:
    """relu6(x + 3) / 6."""
    return _activation(graph, lambda v, k: ops.div(_clipped_to_six(v, k), k.c(6.0)), x, 3)


def _clipped_to_six(v: Any, k: _In) -> Any:
    return ops.minimum(ops.maximum(ops.add(v, k.c(3.0)), k.c(0.0)), k.c(6.0))


@lowering("hardswish")
def hardswish(graph: LoweringGraph, x: TensorValue) -> TensorValue:
    """x * relu6(x + 3) / 6, in this order: the largest numbers overflow as in ATen's kernels."""
    return _activation(graph, lambda v, k: ops.div(ops.mul(v, _clipped_to_six(v, k)), k.c(6.0)), x, 4)


@lowering("leaky_relu")
def leaky_relu(graph: LoweringGraph, x: TensorValue, negative_slope: float = 0.01) -> TensorValue:
    """x where x > 0, else x * negative_slope."""
    return _activation(
        graph, lambda v, k: ops.where(ops.gt(v, k.c(0.0)), v, ops.mul(v, k.c(negative_slope))), x, 2
    )


@lowering("elu")
def elu(
    graph: LoweringGraph, x: TensorValue, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> TensorValue:
    """scale * x where x > 0, else scale * alpha * expm1(input_scale * x)."""

    def fn(v: Any, k: _In) -> Any:
        negative = ops.mul(ops.expm1(ops.mul(v, k.c(input_scale))), k.c(alpha * scale))
        return ops.where(ops.gt(v, k.c(0.0)), ops.mul(v, k.c(scale)), negative)

    return _activation(graph, fn, x, 10)


@lowering("softplus")
def softplus(graph: LoweringGraph, x: TensorValue, beta: float = 1, threshold: float = 20) -> TensorValue:
    """log(1 + exp(beta * x)) / beta, or x where beta * x > threshold."""

    def fn(v: Any, k: _In) -> Any:
        scaled = ops.mul(v, k.c(beta))
        soft = ops.div(ops.log1p(ops.exp(scaled)), k.c(beta))
        return ops.where(ops.gt(scaled, k.c(threshold)), v, soft)

    return _activation(graph, fn, x, 14)


@lowering("threshold_backward")
def threshold_backward(graph: LoweringGraph, grad: TensorValue, x: TensorValue, threshold: float) -> TensorValue:
    """grad where x > threshold, else 0."""
    _refuse_bool(grad, x)
    dtype = compute_dtype(graph.val.dtype)
    return elementwise(
        graph,
        lambda g, v: ops.where(ops.le(v, ops.constant(threshold, dtype)), ops.constant(0, dtype), g),
        grad,
        x,
    )


@lowering("sigmoid_backward")
def sigmoid_backward(graph: LoweringGraph, grad: TensorValue, y: TensorValue) -> TensorValue:
    """grad * y * (1 - y)."""
    floats_only(graph)
    k = _In(compute_dtype(graph.val.dtype))
    return elementwise(graph, lambda g, v: ops.mul(g, ops.mul(v, ops.sub(k.c(1.0), v))), grad, y)


@lowering("tanh_backward")
def tanh_backward(graph: LoweringGraph, grad: TensorValue, y: TensorValue) -> TensorValue:
    """grad * (1 - y * y)."""
    floats_only(graph)
    k = _In(compute_dtype(graph.val.dtype))
    return elementwise(graph, lambda g, v: ops.mul(g, ops.sub(k.c(1.0), ops.mul(v, v))), grad, y)


@lowering("addcmul")
def addcmul(graph: LoweringGraph, x: Any, a: Any, b: Any, *, value: Any = 1) -> TensorValue:
    """x + value * a * b."""
    _refuse_bool(x, a, b)
    k = _In(compute_dtype(graph.val.dtype))
    return elementwise(graph, lambda v, p, q: ops.add(v, ops.mul(k.c(value), ops.mul(p, q))), x, a, b, work=3)


@lowering("addcdiv")
def addcdiv(graph: LoweringGraph, x: Any, a: Any, b: Any, *, value: Any = 1) -> TensorValue:
    """x + value * a / b."""
    _refuse_bool(x, a, b)
    k = _In(compute_dtype(graph.val.dtype))
    return elementwise(graph, lambda v, p, q: ops.add(v, ops.mul(k.c(value), ops.div(p, q))), x, a, b, work=3)


@lowering("lerp")
def lerp(graph: LoweringGraph, a: Any, b: Any, weight: Any) -> TensorValue:
    """a + weight * (b - a), computed from whichever end is nearer."""
    floats_only(graph)
    k = _In(compute_dtype(graph.val.dtype))

    def fn(x: Any, y: Any, w: Any) -> Any:
        near = ops.add(x, ops.mul(w, ops.sub(y, x)))
        far = ops.sub(y, ops.mul(ops.sub(y, x), ops.sub(k.c(1.0), w)))
        return ops.where(ops.lt(ops.abs(w), k.c(0.5)), near, far)

    return elementwise(graph, fn, a, b, weight, work=5)
