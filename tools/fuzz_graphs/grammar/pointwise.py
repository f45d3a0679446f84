"""Pointwise operators, casts, and tensors created with the sizes of another one."""

from __future__ import annotations

from ..generate import Grammar
from .expressions import adding_to, parts

ROWS: Grammar = []
op = adding_to(ROWS)


UNARY = parts("""
    {x}.neg(); {x}.abs(); {x}.clamp(-3, 3).exp(); {x}.sin(); {x}.cos(); {x}.tanh(); {x}.sigmoid(); {x}.relu();
    F.gelu({x}); F.gelu({x}, approximate='tanh'); ({x}.abs() + 0.5).sqrt(); {x}.abs().log1p();
    ({x}.abs() + 1).reciprocal(); {x}.square(); {x}.floor(); {x}.ceil(); {x}.round(); {x}.trunc(); {x}.sign();
    {x}.erf(); F.silu({x}); F.softplus({x}); {x}.clamp(-1, 1); {x}.clamp(min=0); {x}.nan_to_num(); {x}.isnan();
    {x}.isinf(); {x}.logical_not(); {x}.bitwise_not(); {x}.clamp(-3, 3).expm1(); ({x}.abs() + 1).rsqrt();
    {x}.frac(); F.hardtanh({x}); F.leaky_relu({x}, 0.1); F.elu({x}); F.hardswish({x}); {x}.atan(); {x}.asinh();
    F.mish({x}); F.logsigmoid({x}); {x}.sgn(); {x}.signbit(); F.threshold({x}, 0.5, -1);
    {x}.abs().clamp(0, 5).log2(); {x}.clamp(-0.9, 0.9).atanh(); {x}.heaviside({x}); {x}.deg2rad(); F.relu6({x});
    F.tanhshrink({x}); F.hardsigmoid({x}); {x}.positive(); torch.zeros_like({x}); torch.ones_like({x}) + {x};
    torch.full_like({x}, 2); {x}.logit(0.1); {x}.sinc(); {x}.abs().clamp(0.1).lgamma()
""")


@op(10, "pointwise")
def unary(g):
    return g.rng.choice(UNARY).format(x=g.pick())


BINARY = parts("""
    {x} + {y}; {x} - {y}; {x} * {y}; {x} / ({y}.abs() + 1); torch.maximum({x}, {y}); torch.minimum({x}, {y});
    {x} > {y}; {x} == {y}; {x} <= {y}; torch.atan2({x}, {y}.abs() + 1); torch.logical_and({x}, {y});
    torch.logical_or({x}, {y}); torch.logical_xor({x}, {y}); {x} & {y}; {x} | {y}; {x} ^ {y};
    torch.add({x}, {y}, alpha=2); torch.sub({x}, {y}, alpha=-1); torch.rsub({x}, {y}); {x}.copysign({y});
    torch.hypot({x}, {y}); {x} // ({y}.abs() + 1); {x} % ({y}.abs() + 1); torch.fmod({x}, {y}.abs() + 1);
    torch.fmax({x}, {y}); torch.fmin({x}, {y}); torch.xlogy({x}, {y}.abs() + 1); torch.addcmul({x}, {y}, {x});
    torch.addcdiv({x}, {x}, {y}.abs() + 1); torch.lerp({x}, {y}, 0.3); torch.clamp({x}, max={y});
    torch.logaddexp({x}, {y}); {x} << ({y}.abs() % 3); {x} >> ({y}.abs() % 3); ({x} + {y}) * ({x} - {y});
    torch.div({x}, {y}.abs() + 1, rounding_mode='floor'); torch.div({x}, {y}.abs() + 1, rounding_mode='trunc');
    F.mse_loss({x}, {y}, reduction='none'); torch.dist({x}, {y}); {x}.type_as({y});
    torch.where({x} > {y}, {x}, {y}); F.smooth_l1_loss({x}, {y}, reduction='none')
""")


@op(10, "pointwise")
def binary(g):
    x = g.pick()
    return g.rng.choice(BINARY).format(x=x, y=g.like(x))


SCALAR = parts("""
    {x} + {s}; {x} * {s}; {s} - {x}; {x} > {s}; {x} == {s}; {x} / 3; {x} // 2; {x} % 3; {x} ** 2;
    2 ** {x}.clamp(0, 3); {x} ** 3; {x}.add(1, alpha=3); {s} / ({x}.abs() + 1); {x}.fmod(2); {x}.remainder(-3);
    {x} & 3; {x} | 1; torch.where({x} > 0, {s}, {x}); {x}.clamp(max={s}); {x} - True; {x} * 1.0;
    {x}.float_power(2); {x}.addcmul({x}, {x}, value=0.5)
""")


@op(5, "pointwise")
def with_scalar(g):
    return g.rng.choice(SCALAR).format(x=g.pick(), s=g.scalar())


@op(4, "pointwise")
def cast(g):
    x = g.pick()
    to = g.dtype()
    if g.of(x).is_floating_point() and to in ("int64", "int32", "uint8", "int16", "int8"):
        return f"{x}.nan_to_num(0, 0, 0).clamp(0, 100).to(torch.{to})"
    if to in ("uint8", "int8", "int16", "int32") and not g.of(x).is_floating_point():
        return f"{x}.to(torch.{to})"
    return f"{x}.to(torch.{to})"


@op(2, "pointwise")
def create(g):
    x = g.pick()
    n = g.of(x).dim()
    kind = g.rng.randrange(6)
    if kind == 0 and n:
        return f"torch.arange({g.size(x, g.rng.randrange(n))}, device={x}.device)"
    if kind == 1 and n:
        return f"torch.linspace(0, 1, {g.size(x, n - 1)}, device={x}.device)"
    if kind == 2 and n:
        return f"torch.eye({g.size(x, n - 1)}, device={x}.device)"
    if kind == 3:
        return f"{x}.new_full({x}.shape, {g.rng.choice(('2', '0.5', '-1'))})"
    if kind == 4:
        return f"torch.tensor({g.rng.choice(('2.5', '3', '[1, 2, 3]', 'True'))}, device={x}.device)"
    return f"{x}.new_zeros({x}.shape)"
