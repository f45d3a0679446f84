"""How operators on complex numbers are computed from real and imaginary parts: one rule for each, for the pass
`complex_parts`.

Each rule does what ATen's kernels do, in their order of operations, so that NaN, infinities and signed zeros come out
alike: a real operand counts as a complex number with imaginary part 0, a product of infinite numbers may be NaN, and
division and absolute value scale their operands, so that no intermediate result overflows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import fx

from .common import aten

Pair: TypeAlias = "tuple[fx.Node, fx.Node]"
Part: TypeAlias = "fx.Node | float"


class Unmatched(Exception):
    """Raised by a rule for arguments that it does not support."""


class Arithmetic(ABC):
    """Adds the nodes that replace one node, `node`. `dtype` is that of its parts. Arithmetic on parts is done at once
    for two Python numbers, otherwise by nodes."""

    node: fx.Node
    dtype: torch.dtype

    @abstractmethod
    def emit(self, target: Any, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> fx.Node:
        """Adds a node whose result has the size of the replaced node's, and this dtype instead of `self.dtype`."""

    @abstractmethod
    def operand(self, x: Any) -> tuple[Part, Part]:
        """The parts of a tensor or number in the dtype of the result's parts."""

    def tensor(self, x: Any) -> Pair:
        """The parts of a complex tensor."""
        re, im = self.operand(x)
        if not isinstance(re, fx.Node) or not isinstance(im, fx.Node):
            raise Unmatched
        return re, im

    @abstractmethod
    def part_args(self, k: int) -> tuple[Any, ...]:
        """The replaced node's arguments, with part `k` of each complex tensor."""

    @abstractmethod
    def interleaved(self, x: Any) -> fx.Node:
        """The parts of a complex tensor along a new last dimension, in new memory."""

    def add(self, x: Part, y: Part) -> Part:
        """x + y."""
        if not isinstance(x, fx.Node):
            x, y = y, x
        return self.emit(aten.add.Tensor, x, y) if isinstance(x, fx.Node) else x + float(y)  # type: ignore[arg-type]

    def sub(self, x: Part, y: Part) -> Part:
        """x - y."""
        if isinstance(x, fx.Node):
            return self.emit(aten.sub.Tensor, x, y)
        return self.add(self.neg(y), x)

    def neg(self, x: Part) -> Part:
        """-x."""
        return self.emit(aten.neg.default, x) if isinstance(x, fx.Node) else -x

    def mul(self, x: Part, y: Part) -> Part:
        """x * y."""
        if not isinstance(x, fx.Node):
            x, y = y, x
        return self.emit(aten.mul.Tensor, x, y) if isinstance(x, fx.Node) else x * float(y)  # type: ignore[arg-type]

    def times(self, x: tuple[Part, Part], y: tuple[Part, Part]) -> tuple[Part, Part]:
        """The product of two complex numbers."""
        re = self.sub(self.mul(x[0], y[0]), self.mul(x[1], y[1]))
        return re, self.add(self.mul(x[0], y[1]), self.mul(x[1], y[0]))

    def where(self, test: fx.Node, x: Part, y: Part) -> fx.Node:
        """x where the test holds, else y."""
        if isinstance(x, fx.Node):
            if isinstance(y, fx.Node):
                return self.emit(aten.where.self, test, x, y)
            return self.emit(aten.where.ScalarOther, test, x, y)
        if isinstance(y, fx.Node):
            return self.emit(aten.where.ScalarSelf, test, x, y)
        return self.emit(aten.where.Scalar, test, x, y)

    def test(self, target: Any, *args: Any) -> fx.Node:
        """A node with a result of bools."""
        return self.emit(target, *args, dtype=torch.bool)

    def one(self, target: Any, x: fx.Node) -> fx.Node:
        """A node of one operand."""
        return self.emit(target, x)

    def hypot(self, re: fx.Node, im: fx.Node) -> fx.Node:
        """sqrt(re² + im²) without overflow; infinite if one of the two is, even if the other is NaN."""
        a, b = self.one(aten.abs.default, re), self.one(aten.abs.default, im)
        infinite = self.test(
            aten.logical_or.default, self.test(aten.eq.Scalar, a, math.inf), self.test(aten.eq.Scalar, b, math.inf)
        )
        return self.where(infinite, math.inf, self.length(a, b))

    def length(self, a: fx.Node, b: fx.Node) -> fx.Node:
        """`hypot` of finite numbers that are not negative. In float32 on the CPU, it is rounded from float64."""
        if self.dtype == torch.float32 and self.node.meta["val"].device.type == "cpu":
            wide = [self.emit(aten._to_copy.default, x, dtype=torch.float64) for x in (a, b)]
            for x in wide:
                x.kwargs = {"dtype": torch.float64}
            squares = [self.emit(aten.mul.Tensor, x, x, dtype=torch.float64) for x in wide]
            total = self.emit(aten.add.Tensor, *squares, dtype=torch.float64)
            narrow = self.emit(aten._to_copy.default, self.emit(aten.sqrt.default, total, dtype=torch.float64))
            narrow.kwargs = {"dtype": torch.float32}
            return narrow
        big, small = self.emit(aten.maximum.default, a, b), self.emit(aten.minimum.default, a, b)
        ratio = self.emit(aten.div.Tensor, small, big)
        root = self.one(aten.sqrt.default, self.emit(aten.add.Tensor, self.emit(aten.mul.Tensor, ratio, ratio), 1.0))
        return self.where(self.test(aten.eq.Scalar, big, 0.0), 0.0, self.emit(aten.mul.Tensor, big, root))


Rule: TypeAlias = "Callable[[Arithmetic, fx.Node], Pair]"
RealRule: TypeAlias = "Callable[[Arithmetic, fx.Node], fx.Node]"
PAIRS: dict[Any, Rule] = {}  # rules for complex results: the two parts
REALS: dict[Any, RealRule] = {}  # rules for real results of complex operands
# Operators whose result's parts are the results for the parts.
VIEWS = frozenset({
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.permute.default, aten.transpose.int,
    aten.t.default, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
    aten.expand.default, aten.slice.Tensor, aten.select.int, aten.alias.default, aten.detach.default,
})  # fmt: skip
_LINEAR = (
    aten.neg.default, aten.where.self, aten.sum.default, aten.sum.dim_IntList,
    aten.mean.default, aten.mean.dim, aten.clone.default, aten.lift_fresh_copy.default, aten.flip.default,
    aten.roll.default, aten.repeat.default, aten.index.Tensor, aten.index_select.default, aten.gather.default,
    aten.slice_scatter.default, aten.select_scatter.default, aten.tril.default, aten.triu.default,
    aten.embedding.default, aten.copy.default,
)  # fmt: skip


def rule(*targets: Any) -> Callable[[Rule], Rule]:
    """Registers a rule for complex results."""

    def register(fn: Rule) -> Rule:
        PAIRS.update(dict.fromkeys(targets, fn))
        return fn

    return register


def real_rule(*targets: Any) -> Callable[[RealRule], RealRule]:
    """Registers a rule for real results of complex operands."""

    def register(fn: RealRule) -> RealRule:
        REALS.update(dict.fromkeys(targets, fn))
        return fn

    return register


@rule(*VIEWS, *_LINEAR)
def _by_parts(b: Arithmetic, node: fx.Node) -> Pair:
    if node.kwargs.get("dtype") is not None:
        raise Unmatched
    re, im = (b.emit(node.target, *b.part_args(k), dtype=None) for k in range(2))
    re.kwargs = im.kwargs = node.kwargs
    return re, im


@rule(aten.cat.default, aten.stack.default)
def _joined(b: Arithmetic, node: fx.Node) -> Pair:
    if node_device(node).type == "cpu":
        raise Unmatched  # ATen copies whole numbers faster than loops do their parts
    return _by_parts(b, node)


def _nodes(b: Arithmetic, parts: tuple[Part, Part]) -> Pair:
    """Parts as nodes. A number, such as the imaginary part of a real tensor, becomes a tensor."""
    found = next((x for x in parts if isinstance(x, fx.Node)), None)
    if found is None:
        raise Unmatched
    re, im = (x if isinstance(x, fx.Node) else b.emit(aten.full_like.default, found, x) for x in parts)
    return re, im


def _alpha(node: fx.Node) -> complex:
    """The factor of the second operand."""
    alpha = node.kwargs.get("alpha", node.args[2] if len(node.args) > 2 else 1)  # noqa: PLR2004
    if not isinstance(alpha, int | float | complex):
        raise Unmatched
    return alpha


@rule(aten.add.Tensor, aten.sub.Tensor, aten.add.Scalar, aten.sub.Scalar)
def _add(b: Arithmetic, node: fx.Node) -> Pair:
    alpha = _alpha(node)
    x, y = b.operand(node.args[0]), b.operand(node.args[1])
    factor = b.operand(-alpha if node.target in (aten.sub.Tensor, aten.sub.Scalar) else alpha)
    scaled = b.times(y, factor)
    return _nodes(b, (b.add(x[0], scaled[0]), b.add(x[1], scaled[1])))


@rule(aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(b: Arithmetic, node: fx.Node) -> Pair:
    alpha = _alpha(node)
    x, y = b.operand(node.args[1]), b.times(b.operand(node.args[0]), b.operand(-alpha))
    return _nodes(b, (b.add(x[0], y[0]), b.add(x[1], y[1])))


@rule(aten.mul.Tensor, aten.mul.Scalar)
def _mul(b: Arithmetic, node: fx.Node) -> Pair:
    return _nodes(b, b.times(b.operand(node.args[0]), b.operand(node.args[1])))


def _over_number(b: Arithmetic, x: tuple[Part, Part], number: complex) -> tuple[Part, Part]:
    """x / number, scaled by the larger part of the number, each step rounded to the dtype of the parts."""
    c, d = (torch.tensor(part, dtype=b.dtype).item() for part in (number.real, number.imag))
    if not (math.isfinite(c) and math.isfinite(d) and (c or d)):
        raise Unmatched
    first = abs(c) >= abs(d)
    big, small = (c, d) if first else (d, c)
    rat = torch.tensor(small / big, dtype=b.dtype).item()
    scl = torch.tensor(1 / (big + small * rat), dtype=b.dtype).item()
    re, im = _numerators(b, x, rat, first)
    return b.mul(re, scl), b.mul(im, scl)


def _numerators(b: Arithmetic, x: tuple[Part, Part], rat: Part, first: bool) -> tuple[Part, Part]:
    """The parts of a quotient before the last step. `rat` is the smaller part of the divisor over the larger one;
    `first`: the larger one is the real part."""
    if first:
        return b.add(x[0], b.mul(x[1], rat)), b.sub(x[1], b.mul(x[0], rat))
    return b.add(b.mul(x[0], rat), x[1]), b.sub(b.mul(x[1], rat), x[0])


def _quotient(b: Arithmetic, x: tuple[Part, Part], divisor: Any) -> Pair:
    """x / divisor, scaled by the larger part of the divisor (Smith's algorithm)."""
    c, d = b.operand(divisor)
    if not isinstance(c, fx.Node):
        return _nodes(b, _over_number(b, x, complex(divisor)))
    p = b.one(aten.abs.default, c)
    if isinstance(d, fx.Node):
        q = b.one(aten.abs.default, d)
        first, zero = b.test(aten.ge.Tensor, p, q), b.test(aten.eq.Scalar, b.emit(aten.maximum.default, p, q), 0.0)
        big, small = b.where(first, c, d), b.where(first, d, c)
        rat = b.emit(aten.div.Tensor, small, big)
        scl = b.emit(aten.reciprocal.default, b.add(big, b.mul(small, rat)))
        sides = zip(_numerators(b, x, rat, True), _numerators(b, x, rat, False))
        top: list[Part] = [b.where(first, *side) for side in sides]
    else:  # of a real divisor, the real part is the larger one
        zero, scl = b.test(aten.eq.Scalar, c, 0.0), b.one(aten.reciprocal.default, c)
        rat = b.emit(aten.div.Tensor, b.emit(aten.full_like.default, c, 0.0), c)
        top = list(_numerators(b, x, rat, True))
    re, im = (b.where(zero, _over(b, part, p), b.mul(each, scl)) for part, each in zip(x, top))
    return re, im


def _over(b: Arithmetic, part: Part, zero: fx.Node) -> Part:
    """A part divided by zero: infinite, or NaN for zero and NaN."""
    return b.mul(part, b.one(aten.reciprocal.default, zero))


@rule(aten.div.Tensor, aten.div.Scalar)
def _div(b: Arithmetic, node: fx.Node) -> Pair:
    return _quotient(b, b.operand(node.args[0]), node.args[1])


@rule(aten.reciprocal.default)
def _reciprocal(b: Arithmetic, node: fx.Node) -> Pair:
    return _quotient(b, (1.0, 0.0), node.args[0])


@rule(aten._conj_physical.default)
def _conj(b: Arithmetic, node: fx.Node) -> Pair:
    re, im = b.tensor(node.args[0])
    return re, b.one(aten.neg.default, im)


@rule(aten.sgn.default)
def _sgn(b: Arithmetic, node: fx.Node) -> Pair:
    re, im = b.tensor(node.args[0])
    length = b.hypot(re, im)
    zero = b.test(aten.eq.Scalar, length, 0.0)
    parts = [b.where(zero, 0.0, b.emit(aten.div.Tensor, part, length)) for part in (re, im)]
    return parts[0], parts[1]


@rule(aten.exp.default)
def _exp(b: Arithmetic, node: fx.Node) -> Pair:
    """exp(re) * (cos(im), sin(im)), with the root of exp(re) applied twice: the product may be finite where exp(re) is
    not. The special values are those of C's cexp."""
    re, im = b.tensor(node.args[0])
    root = b.one(aten.exp.default, b.emit(aten.mul.Tensor, re, 0.5))
    parts = [b.mul(b.mul(root, b.one(fn, im)), root) for fn in (aten.cos.default, aten.sin.default)]
    real = b.test(aten.eq.Scalar, im, 0.0)
    lost = b.test(aten.ne.Scalar, b.emit(aten.sub.Tensor, im, im), 0.0)  # the imaginary part is infinite or NaN
    large = b.test(aten.logical_and.default, lost, b.test(aten.eq.Scalar, re, math.inf))
    none = b.test(aten.logical_and.default, lost, b.test(aten.eq.Scalar, re, -math.inf))
    first = b.where(none, 0.0, b.where(large, math.inf, b.where(real, b.mul(root, root), parts[0])))
    nothing = b.where(b.test(aten.lt.Scalar, im, 0.0), -0.0, 0.0)
    second = b.where(none, nothing, b.where(large, math.nan, b.where(real, im, parts[1])))
    return first, second


@rule(aten.polar.default)
def _polar(b: Arithmetic, node: fx.Node) -> Pair:
    length, angle = _nodes(b, (b.operand(node.args[0])[0], b.operand(node.args[1])[0]))
    parts = [b.emit(aten.mul.Tensor, length, b.one(fn, angle)) for fn in (aten.cos.default, aten.sin.default)]
    return parts[0], parts[1]


@rule(aten.complex.default)
def _complex(b: Arithmetic, node: fx.Node) -> Pair:
    return _nodes(b, (b.operand(node.args[0])[0], b.operand(node.args[1])[0]))


@rule(aten.view_as_complex_copy.default)
def _view_as_complex(b: Arithmetic, node: fx.Node) -> Pair:
    x = node.args[0]
    return b.emit(aten.select.int, x, -1, 0), b.emit(aten.select.int, x, -1, 1)


@rule(aten._to_copy.default)
def _to_copy(b: Arithmetic, node: fx.Node) -> Pair:
    if set(node.kwargs) - {"dtype", "memory_format"}:
        raise Unmatched
    options = {**node.kwargs, "dtype": b.dtype}
    re, im = b.operand(node.args[0])

    def copied(part: Part) -> Part:
        if not isinstance(part, fx.Node):
            return part
        copy = b.emit(aten._to_copy.default, part)
        copy.kwargs = options
        return copy

    return _nodes(b, (copied(re), copied(im)))


@rule(aten.pow.Tensor_Scalar)
def _pow(b: Arithmetic, node: fx.Node) -> Pair:
    x, exponent = b.operand(node.args[0]), node.args[1]
    if exponent not in (2, 3):
        raise Unmatched
    square = b.times(x, x)
    return _nodes(b, square if exponent == 2 else b.times(square, x))  # noqa: PLR2004


@rule(aten.scalar_tensor.default)
def _number(b: Arithmetic, node: fx.Node) -> Pair:
    return _filled(b, [], node.args[0])


@rule(aten.full.default)
def _full(b: Arithmetic, node: fx.Node) -> Pair:
    return _filled(b, node.args[0], node.args[1])


@rule(aten.zeros.default)
def _zeros(b: Arithmetic, node: fx.Node) -> Pair:
    return _filled(b, node.args[0], 0.0)


@rule(aten.new_zeros.default)
def _new_zeros(b: Arithmetic, node: fx.Node) -> Pair:
    return _filled(b, node.args[1], 0.0)


@rule(aten.ones.default)
def _ones(b: Arithmetic, node: fx.Node) -> Pair:
    return _filled(b, node.args[0], 1.0)


def _filled(b: Arithmetic, size: Any, value: Any) -> Pair:
    if not isinstance(value, int | float | complex):
        raise Unmatched
    number, parts = complex(value), []
    for part in (number.real, number.imag):
        parts.append(b.emit(aten.full.default, size, part))
        parts[-1].kwargs = {"dtype": b.dtype, "device": node_device(b.node)}
    return parts[0], parts[1]


def node_device(node: fx.Node) -> torch.device:
    """The device of a node's result."""
    return node.meta["val"].device


@rule(aten.full_like.default, aten.zeros_like.default, aten.ones_like.default)
def _like(b: Arithmetic, node: fx.Node) -> Pair:
    fixed: dict[Any, float] = {aten.zeros_like.default: 0.0, aten.ones_like.default: 1.0}
    value = fixed[node.target] if node.target in fixed else node.args[1]
    source = b.operand(node.args[0])[0]
    if not isinstance(value, int | float | complex):
        raise Unmatched
    number = complex(value)
    return b.emit(aten.full_like.default, source, number.real), b.emit(aten.full_like.default, source, number.imag)


@real_rule(aten.abs.default)
def _abs(b: Arithmetic, node: fx.Node) -> fx.Node:
    return b.hypot(*b.tensor(node.args[0]))


@real_rule(aten.angle.default)
def _angle(b: Arithmetic, node: fx.Node) -> fx.Node:
    re, im = b.tensor(node.args[0])
    return b.emit(aten.atan2.default, im, re)


@real_rule(aten.view_as_real_copy.default)
def _view_as_real(b: Arithmetic, node: fx.Node) -> fx.Node:
    return b.interleaved(node.args[0])


@real_rule(aten.eq.Tensor, aten.eq.Scalar)
def _eq(b: Arithmetic, node: fx.Node) -> fx.Node:
    return b.test(aten.logical_and.default, *_compared(b, node, aten.eq))


@real_rule(aten.ne.Tensor, aten.ne.Scalar)
def _ne(b: Arithmetic, node: fx.Node) -> fx.Node:
    return b.test(aten.logical_or.default, *_compared(b, node, aten.ne))


def _compared(b: Arithmetic, node: fx.Node, packet: Any) -> list[fx.Node]:
    x, y = b.operand(node.args[0]), b.operand(node.args[1])
    tests = []
    for left, right in zip(x, y):
        one, other = (left, right) if isinstance(left, fx.Node) else (right, left)
        if not isinstance(one, fx.Node):
            raise Unmatched
        tests.append(b.test(packet.Tensor if isinstance(other, fx.Node) else packet.Scalar, one, other))
    return tests
