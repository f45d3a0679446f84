"""How programs of users index, convert, transform and write tensors, beyond the other tables: masks, indices and `None`
mixed in one subscript, in-place methods of index operators, integers that overflow and divide, constants in both
branches of `where`, function transforms, gradients within the program, batch norms that update their buffers."""

from __future__ import annotations

from ..generate import Generator, Grammar, Reject
from .expressions import a_view, adding_to, axis_mask, dtype_of, floating, parts

ROWS: Grammar = []
op = adding_to(ROWS)

# ---- subscripts

# `i`, `j`: indices along the first and the last dimension, `k`: the same number as an int, `m`: a mask of x's shape,
# `r`: a mask of its first dimension, `n`: its first size
SUBSCRIPTS = parts("""
    {x}[{i}, None]; {x}[None, {i}]; {x}[..., None, {j}]; {x}[{i}, ..., None]; {x}[{i} - {n}]; {x}[{i}[:, None], ..., {j}];
    {x}[[0, -1]]; {x}[[0, -1], ..., [0, -1]]; {x}[{r}]; {x}[{r}].sum(0); {x}[{r}, ..., 0].sum(); {x}[{m}].sum(); {x}[{m}, None].amax();
    {x}[{i}][:, ::2]; {x}[::2][..., {j}]; {x}[-1, ...]; {x}[..., -1, None]; {x}[{i}, 1:]; {x}[1:, ..., {j}]; {x}[{i}, 0]; {x}[0][..., {j}];
    {x}[{i}.tolist()]; {x}[{i}[0]]; {x}[{i}[0], ..., {j}[-1]]; {x}[({i} > 0).long()]; {x}[{x}.argmax(0).flatten()[:2] % {n}];
    {x}[torch.arange({n}, device=DEVICE).flip(0)]; {x}[None, ..., None, 0]; {x}[True]; {x}[False].shape[0] + {x}; {x}[..., {j}, None] * 2;
    {x}.index_select(-1, {j}).mT; {x}.flatten()[{i}]; {x}[{i}].index_add(0, {i} * 0, {x}[{i}]); {x}[{i}, ..., {j}].cumsum(0);
    torch.where({r})[0] + {x}.shape[-1]; {x}.take({i} - {n}); torch.isin({i}, {j}); {x}[{i} % 1]; {x}[:, None][{i}]; {x}[slice(None, None, 2), ..., {j}]
""")  # noqa: E501


@op(4, "index")
def subscript(g: Generator) -> str:
    x = g.ranked(2, 4)
    return g.rng.choice(SUBSCRIPTS).format(**places(g, x))


def places(g: Generator, x: str) -> dict[str, str]:
    """The arguments of SUBSCRIPTS and ASSIGNMENTS."""
    shape, count = g.of(x).shape, g.rng.randint(1, 3)
    if not g.of(x).numel():
        raise Reject
    rows = f"(torch.arange({g.size(x, 0)}, device={x}.device) % {g.rng.choice((2, 3))} == {g.rng.randrange(2)})"
    return {
        "x": x, "i": g.index(shape[0], (count,)), "j": g.index(shape[-1], (count,)), "n": g.size(x, 0), "r": rows,
        "m": f"({axis_mask(g, x)}.expand_as({x}))",
    }  # fmt: skip


# The values written are the same for equal indices.
ASSIGNMENTS = parts("""
    {x}[{i}] = {s}; {x}[{i}, ..., {j}] = {s}; {x}[..., {j}] = {s}; {x}[{i}] *= 2; {x}[{r}] = {s}; {x}[{r}, ..., 0] = {s}; {x}[{m}] += 1; {x}[{m}] = {x}[{m}] * 2;
    {x}[{i}, 0] = {s}; {x}[{i} - {n}] = {s}; {x}[[0, -1]] = {s}; {x}[..., None, 0] = {s}; {x}[1:, ..., {j}] = {s}; {x}[:, ::2] = {s}; {x}[{i}[0]] = {x}[-1].clone();
    {x}[0], {x}[-1] = {x}[-1].clone(), {x}[0].clone(); {x}[:] = {x}.flip(0); {x}[1:] = {x}[:-1].clone(); {x}[..., 1:] += {x}[..., :-1].clone(); {x}[...] = {s};
    {x}.index_put_(({i},), {x}[0], accumulate=True); {x}[:, {j} % {x}.shape[1]] = {x}[:, :1].clone(); {x}.index_copy_(0, {i}.unique(), {x}[:1].expand({i}.unique().shape[0], *{x}.shape[1:]));
    {x}.scatter_(0, {i}.reshape(-1, *[1] * ({x}.dim() - 1)), {s}); {x}.scatter_add_(0, ({x} > 0).long() % {n}, {x}.clone()); {x}.scatter_reduce_(0, ({x} > 0).long() % {n}, {x}.clone(), 'amax');
    {x}.masked_scatter_({m}, {x}.flip(0)); {x}.masked_fill_({m}, {s}); {x}.put_({i}, {x}.flatten()[0] * {i}.to({x}.dtype) * 0); {x}.fill_diagonal_(2); {x}.tril_(); {x}.triu_(1);
    {x}.index_add_(-1, {j}, {x}[..., :1].expand(*{x}.shape[:-1], {j}.shape[0]).clone()); {x}.index_reduce_(0, {i}, {x}[:1].expand({i}.shape[0], *{x}.shape[1:]).clone(), 'amin')
""")  # noqa: E501


@op(5, "write")
def assignment(g: Generator) -> str:
    x = g.pick(lambda t: 2 <= t.dim() <= 4 and (not t.is_leaf or not t.requires_grad))
    s = g.rng.choice(("2", "-1", "True", "0", f"{x}.sum().to({x}.dtype)", f"{x}[0, ..., :1].clone()"))
    return g.rng.choice(ASSIGNMENTS).format(**places(g, x), s=s)


UPDATES = parts("""
    {p} //= 2; {p} %= 3; {p} **= 2; {p} /= 2; {p} &= 3; {p} |= 1; {p} ^= 1; {p} <<= 1; {p} >>= 1; {p} -= {y}; {p} *= {y}; {p}.lerp_({y}, 0.5); {p}.addcmul_({y}, {y});
    {p}.addcdiv_({y}, {y}.abs() + 1, value=0.5); {p}.clamp_min_(0); {p}.clamp_(max={y}); {p}.div_({y}.abs() + 1, rounding_mode='floor'); {p}.remainder_(2); {p}.fmod_(2);
    {p}.copysign_({y}); {p}.hypot_({y}); {p}.square_(); {p}.floor_(); {p}.round_(); {p}.trunc_(); {p}.sign_(); {p}.reciprocal_(); {p}.tanh_(); {p}.nan_to_num_(); {p}.eq_({y});
    {p}.gt_(0); {p}.logical_and_({y}); F.relu({p}, inplace=True); F.leaky_relu({p}, 0.1, inplace=True); F.elu({p}, inplace=True); F.silu({p}, inplace=True); F.hardtanh({p}, inplace=True);
    F.dropout({p}, 0.0, inplace=True); F.threshold({p}, 0, -1, inplace=True); {p}.cumprod_(-1); {p}.sub_({y}, alpha=2); {p}.double().float_power_(2); {p}.fill_({y}.amax()); {p}.copy_({y}.flip(0));
    {p}.detach().add_(1); {p}.data.mul_(2); {p}.mul_({p}); {p}.add_({p}.flip(-1)); {p}.copy_({p}.roll(1, 0)); {p}.renorm_(2, 0, 1.0); {p}.addcmul_({p}, {p}, value=-1); {p}.xlogy_({y}.abs() + 1)
""")  # noqa: E501


@op(4, "write")
def update(g: Generator) -> str:
    x = g.pick(lambda t: t.dim() > 0 and (not t.is_leaf or not t.requires_grad))
    text, place = g.rng.choice(UPDATES), x if g.chance(0.4) else a_view(g, x)
    if "= " in text.split("(")[0] and "(" in place:
        raise Reject
    return text.format(p=place, y=g.like(x) if g.chance(0.5) else x)


# ---- integers, constants, conversions

# `z`: integers of any dtype that overflow in it, `y`: other integers
INTEGERS = parts("""
    {z}.sum(0, dtype=torch.{t}); {z}.sum(0, dtype=torch.{t}).sum(); {z}.cumsum(0, dtype=torch.{t}); {z}.cumprod(-1, dtype=torch.{t}); {z}.prod(0, dtype=torch.{t}); {z} * {z}; {z} * {y} + {z};
    {z} // ({y}.abs() + 1); {z} // -({y}.abs() + 1); {z} % -({y}.abs() + 1); torch.fmod({z}, -({y}.abs() + 1)); torch.div({z}, {y}.abs() + 1, rounding_mode='trunc'); {z} / ({y}.abs() + 1);
    torch.div({z}, -3, rounding_mode='floor'); {z} ** 2; {z} ** 3; {z} << 3; {z} >> 1; ({z} * 3).amax(0); -{z}; ({z} - {y}).abs(); {z}.neg().amin(); torch.gcd({z}, {y}); torch.lcm({z} % 7, {y} % 5);
    {z}.bitwise_not() & {y}; {z} ^ {y}; {z}.to(torch.{t}) + {y}; {z}.to(torch.{t}).float() / 2; ({z} + {y}) > {z}; torch.maximum({z}, {y} * 5); {z}.clamp(-3, 100) * 2; {z}.float().mean(0).to(torch.{t});
    {z}.argmax(0); {z}.sort(0)[0]; {z}.unique().sum(); torch.bitwise_left_shift({z}, 2); {z}.sum() // 7; {z}.square().sum(-1); ({z} == {y}).sum(0, dtype=torch.{t}); {z}.view(torch.{same})
""")  # noqa: E501


@op(3, "pointwise")
def integers(g: Generator) -> str:
    wide = ("int64", "int32", "uint8", "int16", "int8")
    x = g.pick(lambda t: t.dim() >= 1 and str(t.dtype)[6:] in (*wide, "float32", "float64"))
    factor = g.rng.choice(("", " * 37", " * 100"))
    kind = dtype_of(g, x) if not g.of(x).is_floating_point() and g.chance(0.5) else g.rng.choice(wide)
    z = f"({x}.nan_to_num(0, 0, 0).clamp(-99, 99).to(torch.int64){factor}).to(torch.{kind})"
    y = f"{x}.nan_to_num(0, 0, 0).clamp(-99, 99).to(torch.{g.rng.choice(wide)})"
    other = {"int8": "uint8", "uint8": "int8", "int16": "int16", "int32": "float32", "int64": "float64"}[kind]
    return g.rng.choice(INTEGERS).format(z=z, y=f"({y})", t=g.rng.choice(wide), same=other)


CONSTANTS = parts("""
    torch.where({x} > 0, 1, 0); torch.where({x} > 0, 1.0, 0); torch.where({x} > 0, True, False); torch.where({x} > 0, 0.5, -1) * {x}; torch.where({x} > 0, {x}, 2.5); torch.where({x} > 0, torch.tensor(1.0, dtype=torch.float64), {x});
    torch.where({x} > 0, float('inf'), {x}).amin(0); {x}.masked_fill({x} > 0, -float('inf')).exp(); {x} + torch.tensor(1.5); {x} * torch.tensor(2); {x} + torch.ones((), dtype=torch.float64, device=DEVICE); {x} * True;
    {x}.half().sum(0); {x}.bfloat16() * 3; {x}.double().mean(-1); {x}.float() + {x}; {x}.bool().sum(-1); {x}.type(torch.float32) * 2; {x}.to({x}.dtype) + 1; {x}.to('cpu' if DEVICE.type == 'cpu' else DEVICE) * 2;
    {x}.sum() + 1; {x}.new_tensor([1, 2]) + {x}.sum(); torch.arange(0, 2, 0.5, device=DEVICE) + {x}.sum(); torch.arange(5, 0, -2, device=DEVICE) * {x}.flatten()[0]; torch.logspace(0, 1, 4, device=DEVICE); torch.full((3,), 2, device=DEVICE) / 3;
    torch.empty_like({x}).fill_(1) + {x}; torch.zeros_like({x}, dtype=torch.float64) + {x}; {x}.new_ones(2, 3) * 2; torch.scalar_tensor(2.0) * {x}; torch.as_tensor(3, device=DEVICE) + {x}; torch.result_type({x}, 1.5) == {x}.dtype or {x};
    {x}.clamp(torch.tensor(-1.0), None); torch.clip({x}, -0.5, 0.5); {x}.nan_to_num(1.0, 2.0, -2.0); torch.eq({x}, 0) + 0; {x}.isclose({x} * 1.00001); {x}.gt(0).to({x}.dtype).sub(0.5).sign(); ({x} > 0) * 1 - ({x} < 0) * 1;
    {x}.expand_as({x}).sum_to_size({x}.shape); torch.broadcast_to({x}, (2, *{x}.shape)).mean(0); {x}.diff(n=1, append={x}[..., :1]); torch.diagflat({x}.flatten()[:4]); {x}.ravel()[::2]; {x}.flatten().unflatten(0, {x}.shape) * 2;
    torch.vstack(({x}, {x})); {x}.moveaxis(0, -1).contiguous(); {x}.swapdims(0, -1) + 1; {x}.narrow_copy(0, 0, 1); {x}.select(-1, 0) * {x}.select(-1, -1); torch.hsplit({x}.flatten(), [1])[1] * 2; {x}.flipud().sum(0); torch.atleast_2d({x})[..., :1]
""")  # noqa: E501


@op(4, "pointwise")
def constants(g: Generator) -> str:
    return g.rng.choice(CONSTANTS).format(x=g.ranked(1, 4))


# ---- transforms and gradients within the program; layers with buffers

TRANSFORMS = parts("""
    torch.func.grad(lambda t: (t.sin() * t).sum())({x}); torch.func.vmap(lambda t: t * t.sum())({x}); torch.func.vmap(lambda t: t.softmax(-1).cumsum(-1), in_dims=-1)({x}); torch.func.vmap(torch.func.grad(lambda t: t.tanh().sum()))({x});
    torch.func.jvp(torch.tanh, ({x},), (torch.ones_like({x}),))[1]; torch.func.vjp(lambda t: t.square().cumsum(0), {x})[1]({x})[0]; torch.func.jacrev(lambda t: t.sin().sum(0))({x}.flatten(1)[:3, :3]); torch.func.jacfwd(lambda t: t.exp().sum(0))({x}.flatten(1)[:3, :3].clamp(-2, 2));
    torch.func.grad(lambda t: torch.func.grad(lambda u: (u ** 3).sum())(t).sum())({x}); torch.func.hessian(lambda t: (t * t.tanh()).sum())({x}.flatten()[:3]); torch.func.vmap(lambda t, u: t @ u, in_dims=(0, None))({x}.flatten(1), {x}.flatten(1)[0]);
    torch.utils.checkpoint.checkpoint(lambda t: t.sin() * t.exp().clamp(max=9), {x}, use_reentrant=False); torch.func.vmap(lambda t: torch.where(t > 0, t, t.mean()))({x}); torch.func.functional_call(torch.nn.Softplus(), {{}}, ({x},));
    F.batch_norm({c}, {b}, {v}, training=True, momentum=0.3); F.batch_norm({c}, {b}, {v}, training=False); F.instance_norm({c}, {b}, {v}, momentum=0.5); F.layer_norm({x}, {x}.shape[1:]); F.group_norm({c}, 1, {b} + 1, {v})
""")  # noqa: E501


@op(3, "nn")
def transform(g: Generator) -> str:
    x = floating(g, 2, 4)
    text = g.rng.choice(TRANSFORMS)
    if g.dynamic and "func" in text:
        raise Reject
    channels = g.of(x).shape[1]
    b = g.new_input((channels,), dtype_of(g, x)) if "{b}" in text else ""
    v = g.new_input((channels,), dtype_of(g, x), "unit") if "{v}" in text else ""
    return text.format(x=x, c=f"{x}[..., None].flatten(2)", b=b, v=v)


DERIVATIVES = parts("""
    torch.autograd.grad({x}.sin().sum(), {x})[0]; torch.autograd.grad(({x} ** 3).sum(), {x}, create_graph=True)[0]; torch.autograd.grad({x}.tanh().mean(), {x}, create_graph=True)[0].square();
    torch.autograd.grad(({x}.softmax(-1) * {x}).sum(), {x}, create_graph=True)[0]; torch.autograd.grad(F.layer_norm({x}, {x}.shape[-1:]).square().sum(), {x}, create_graph=True)[0]; torch.autograd.grad({x}.cumsum(0), {x}, torch.ones_like({x}))[0]
""")  # noqa: E501


@op(1, "nn")
def derivative(g: Generator) -> str:
    x = g.pick(lambda t: t.is_floating_point() and t.dim() > 0 and t.requires_grad)
    return g.rng.choice(DERIVATIVES).format(x=x)
