"""The operators that programs are made of, each a function that writes one expression over the generator's values."""

from __future__ import annotations

from .generate import Generator, Grammar, Reject

ROWS: Grammar = []


def parts(text):
    """The expressions of a list that is separated by semicolons."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


def op(weight, kind):
    def register(make):
        ROWS.append((weight, kind, make))
        return make

    return register


def colons(g: Generator, name: str, d: int, item: str) -> str:
    """`[:, :, item]` with the item at dimension `d`."""
    n = g.of(name).dim()
    d %= n
    if g.chance(0.3) and d == n - 1 and n > 1:
        return f"[..., {item}]"
    return "[" + ":, " * d + item + "]"


def a_slice(g: Generator, name: str, d: int) -> str:
    n = g.of(name).shape[d]
    start = g.rng.randint(0, max(0, min(n - 1, 3)))
    kind = g.rng.random()
    if kind < 0.3:
        return f"{start}:"
    if kind < 0.5:
        return f":-{g.rng.randint(1, 2)}"
    if kind < 0.7:
        return f"{start}::{g.rng.choice((2, 2, 3))}"
    if kind < 0.8:
        return f"::{g.rng.choice((2, 3))}"
    return f"{start}:{start + g.rng.randint(0 if g.chance(0.1) else 1, max(1, n - start))}"


def a_view(g: Generator, x: str) -> str:
    """A view of a value, as an expression."""
    t = g.of(x)
    n = t.dim()
    if n == 0:
        return g.rng.choice((f"{x}.view(1)", f"{x}.expand(3)", f"{x}[None]"))
    d = g.dim(x)
    kind = g.rng.randrange(22)
    if kind == 0:
        return f"{x}.transpose({d}, {g.dim(x)})"
    if kind == 1:
        return f"{x}.permute({g.rng.sample(range(n), n)})"
    if kind in (2, 3, 4):
        return x + colons(g, x, d, a_slice(g, x, d))
    if kind == 5:
        return x + colons(g, x, d, str(g.rng.randint(-1, max(0, t.shape[d] - 1))))
    if kind == 6:
        return f"{x}.unsqueeze({g.rng.randint(-n - 1, n)})"
    if kind == 7:
        return f"{x}.squeeze()" if g.chance(0.3) else f"{x}.squeeze({d})"
    if kind == 8:
        return f"{x}.reshape(-1)" if g.chance(0.3) else f"{x}.flatten({g.rng.randrange(n)})"
    if kind == 9 and n > 1:
        i = g.rng.randrange(n - 1)
        sizes = [g.size(x, k) for k in range(n)]
        merged = [*sizes[:i], "-1" if t.numel() else f"{sizes[i]} * {sizes[i + 1]}", *sizes[i + 2 :]]
        return f"{x}.{g.rng.choice(('view', 'reshape'))}({', '.join(merged)})"
    if kind == 10:
        parts = [p for p in (2, 3, 4) if t.shape[d] % p == 0 and t.shape[d]]
        if not parts:
            raise Reject
        p = g.rng.choice(parts)
        return f"{x}.unflatten({d}, ({p}, -1))" if g.chance(0.5) else f"{x}.unflatten({d}, (-1, {p}))"
    if kind == 11:
        size = g.rng.randint(1, min(3, max(1, t.shape[d])))
        return f"{x}.unfold({d}, {size}, {g.rng.randint(1, 3)})"
    if kind == 12 and n > 1:
        a, b = g.rng.sample(range(n), 2)
        return f"{x}.diagonal({g.rng.randint(-1, 1)}, {a}, {b})"
    if kind == 13:
        count = g.rng.randint(1, 3)
        return f"{x}.{g.rng.choice(('chunk', 'tensor_split'))}({count + 1}, {d})[{g.rng.randrange(2)}]"
    if kind == 14:
        return f"{x}.split({g.rng.randint(1, 3)}, {d})[{g.rng.choice((0, 1, -1))}]"
    if kind == 15:
        return f"{x}.movedim({d}, {g.dim(x)})"
    if kind == 16:
        big = [g.size(x, k) if t.shape[k] != 1 else str(g.rng.choice((2, 3, 1))) for k in range(n)]
        front = [str(g.rng.choice((1, 2, 3)))] if g.chance(0.4) and n < 4 else []
        return f"{x}.expand({', '.join([*front, *big])})"
    if kind == 17 and not g.dynamic:
        rank = g.rng.randint(1, 3)
        size = [g.rng.randint(1, 4) for _ in range(rank)]
        stride = [g.rng.choice((0, 1, 1, 2, 3, 5)) for _ in range(rank)]
        return f"{x}.as_strided({size}, {stride}, {g.rng.choice((0, 0, 1, 2))})"
    if kind == 18:
        return f"{x}.narrow({d}, {g.rng.randint(0, 2)}, {g.rng.randint(1, max(1, t.shape[d] - 2))})"
    if kind == 19 and n > 1:
        return f"{x}.mT"
    if kind == 20:
        return f"{x}.unbind({d})[{g.rng.randrange(2)}]"
    return f"{x}.view_as({x})" if g.chance(0.3) else f"{x}[{'None, ' * g.rng.randint(0, 1)}..., None]"


@op(14, "view")
def view(g):
    return a_view(g, g.pick())


# ---- movement


@op(3, "move")
def pad(g):
    x = g.ranked()
    count = g.rng.randint(1, min(3, g.of(x).dim()))
    amounts = [g.rng.choice((0, 0, 1, 1, 2, -1)) for _ in range(2 * count)]
    if g.chance(0.2):
        mode = g.rng.choice(("reflect", "replicate", "circular"))
        return f"F.pad({x}, {[abs(a) for a in amounts]}, mode={mode!r})"
    return (
        f"F.pad({x}, {amounts})"
        if g.chance(0.6)
        else f"F.pad({x}, {amounts}, value={g.rng.choice(('1.0', '-2', '0.5'))})"
    )


def relatives(g, x, d):
    """Expressions that agree with `x` in every size but that of dimension `d`."""
    shape = g.of(x).shape
    n = len(shape)
    d %= n

    def fits(t):
        return t.dim() == n and all(a == b for k, (a, b) in enumerate(zip(t.shape, shape)) if k != d)

    made = [x]
    for _ in range(g.rng.randint(1, 3)):
        kind = g.rng.randrange(8)
        if kind < 3:
            made.append(g.pick(fits))
        elif kind == 3:
            made.append(f"{x}.flip({d})")
        elif kind == 4:
            made.append(x + "[" + ":, " * d + a_slice(g, x, d) + "]")
        elif kind == 5:
            made.append(f"{x}.roll({g.rng.randint(1, 2)}, {g.rng.randrange(n)})")
        elif kind == 6:
            made.append(f"F.pad({x}, [{'0, 0, ' * (n - 1 - d)}{g.rng.randint(0, 1)}, 1])")
        elif n > 1:
            e = g.rng.randrange(n)
            made.append(
                f"F.pad({x}{'[' + ':, ' * e + '1:]'}, [{'0, 0, ' * (n - 1 - e)}{g.rng.choice(('0, 1', '1, 0'))}])"
            )
    g.rng.shuffle(made)
    return made


@op(5, "move")
def cat(g):
    x = g.ranked()
    d = g.dim(x)
    return f"torch.cat([{', '.join(relatives(g, x, d))}], {d})"


@op(2, "move")
def stack(g):
    x = g.pick()
    t = g.of(x)
    others = [g.pick(lambda v: v.shape == t.shape) for _ in range(g.rng.randint(1, 2))]
    if t.dim() and g.chance(0.4):
        others.append(f"{x}.flip({g.dim(x)})")
    return f"torch.stack([{', '.join([x, *others])}], {g.rng.randint(-t.dim() - 1, t.dim())})"


@op(3, "move")
def roll(g):
    x = g.ranked()
    if g.chance(0.15):
        return f"{x}.roll({g.rng.randint(-3, 4)})"
    dims = g.dim_list(x)
    return f"{x}.roll({[g.rng.randint(-3, 4) for _ in dims]}, {dims})"


@op(3, "move")
def flip(g):
    x = g.ranked()
    return f"{x}.flip({g.dim_list(x)})"


@op(2, "move")
def repeat(g):
    x = g.ranked(1, 4)
    n = g.of(x).dim()
    kind = g.rng.randrange(4)
    if kind == 0:
        return f"{x}.repeat_interleave({g.rng.randint(1, 3)}, {g.dim(x)})"
    if kind == 1 and n > 1:
        return f"torch.rot90({x}, {g.rng.randint(-1, 3)}, {g.rng.sample(range(n), 2)})"
    counts = [g.rng.choice((1, 1, 2, 3)) for _ in range(n + (g.chance(0.3)))]
    return f"{x}.{'repeat' if kind == 2 or len(counts) > n else 'tile'}({counts})"


@op(2, "move")
def copy_of(g):
    how = ("clone()", "contiguous()", "detach()", "clone(memory_format=torch.contiguous_format)")
    return f"{g.pick()}.{g.rng.choice(how)}"


@op(2, "move")
def combine(g):
    x = g.ranked(1, 4)
    return f"torch.{g.rng.choice(('hstack', 'vstack', 'dstack', 'column_stack'))}([{x}, {g.same(x)}])"


# ---- masks


def axis_mask(g, x):
    """A comparison that varies along one axis of `x` (or two)."""
    n = g.of(x).dim()
    if n == 0:
        raise Reject
    d = g.rng.randrange(n)
    after = ", None" * (n - 1 - d)
    index = f"torch.arange({g.size(x, d)}, device={x}.device)"
    index += f"[:{after}]" if after else ""
    k = g.rng.randint(0, max(1, g.of(x).shape[d]))
    compare = g.rng.choice(("<", ">=", "==", "!=", ">", "<="))
    kind = g.rng.randrange(6)
    if kind == 0:
        return f"({index} % {g.rng.choice((2, 3))} == {g.rng.randint(0, 1)})"
    if kind == 1 and n > 1:
        e = g.rng.choice([k for k in range(n) if k != d])
        other = f"torch.arange({g.size(x, e)}, device={x}.device)[:{', None' * (n - 1 - e)}]"
        return f"({index} {compare} {other})"
    if kind == 2:
        return f"({index} // 2 {compare} {max(0, k // 2)})"
    return f"({index} {compare} {k})"


@op(5, "mask")
def where_axis(g):
    x = g.ranked()
    mask = axis_mask(g, x)
    kind = g.rng.randrange(5)
    if kind == 0:
        return f"{x}.masked_fill({mask}, {g.scalar()})"
    if kind == 1:
        return f"{x} * {mask}"
    if kind == 2:
        return f"torch.where({mask}, {x}, {g.scalar()})"
    if kind == 3:
        return f"torch.where({mask}, {x}, -{x})"
    return f"torch.where({mask}, {x}, {g.like(x)})"


@op(3, "mask")
def triangle(g):
    x = g.ranked(2, 5)
    return f"{x}.{g.rng.choice(('tril', 'triu'))}({g.rng.randint(-2, 2)})"


@op(3, "mask")
def where(g):
    x = g.pick()
    y = g.like(x)
    c = g.rng.choice((f"{x} > {g.rng.choice(('0', '0.5', '-1'))}", f"{x} != {y}", f"{y} <= {x}"))
    return f"torch.where({c}, {x}, {g.rng.choice((y, y, g.scalar()))})"


@op(1, "mask")
def where_mask(g):
    x = g.pick(lambda t: str(t.dtype) == "torch.bool")
    y = g.like(x)
    return f"torch.where({x}, {y}, {g.like(y)})"


# ---- reductions

SIMPLE = (
    "sum",
    "mean",
    "amax",
    "amin",
    "var",
    "std",
    "prod",
    "any",
    "all",
    "logsumexp",
    "norm",
    "count_nonzero",
    "nansum",
    "nanmean",
)


def axes(g, x):
    dims = g.dim_list(x)
    return str(dims[0]) if len(dims) == 1 and g.chance(0.6) else str(dims)


@op(8, "reduce")
def reduction(g):
    x = g.pick()
    name = g.rng.choice(SIMPLE)
    keep = g.rng.choice(("", "", ", keepdim=True"))
    if g.of(x).dim() == 0 or g.chance(0.08):
        return f"{x}.{name}()" if name != "logsumexp" else f"{x}.logsumexp(())"
    if name in ("prod", "any", "all"):
        return f"{x}.{name}({g.dim(x)}{keep})"
    if name in ("var", "std"):
        return f"{x}.{name}({axes(g, x)}, correction={g.rng.choice((0, 0, 1))}{keep})"
    if name == "norm":
        order = g.rng.choice(("2", "1", "3", "float('inf')", "0"))
        return f"{x}.norm({order}, {axes(g, x)}{keep})"
    if name == "count_nonzero":
        return f"{x}.count_nonzero({axes(g, x)})"
    if name == "sum" and g.chance(0.2):
        return f"{x}.sum({axes(g, x)}, dtype=torch.{g.dtype()}{keep})"
    return f"{x}.{name}({axes(g, x)}{keep})"


@op(3, "reduce")
def arg_reduction(g):
    x = g.pick(lambda t: str(t.dtype) != "torch.bool")
    name = g.rng.choice(
        (
            "argmax",
            "argmin",
            "max",
            "min",
            "median",
            "cummax",
            "cummin",
            "sort",
            "aminmax",
            "topk",
            "mode",
            "kthvalue",
            "argsort",
        )
    )
    if g.of(x).dim() == 0 or g.chance(0.1):
        return f"{x}.{g.rng.choice(('argmax', 'argmin', 'max', 'min'))}()"
    d, keep = g.dim(x), g.rng.choice(("", ", keepdim=True"))
    if name in ("argmax", "argmin"):
        return f"{x}.{name}({d}{keep})"
    if name in ("max", "min"):
        return f"{x}.{name}({d}{keep})[{g.rng.randrange(2)}]"
    if name == "aminmax":
        return f"{x}.aminmax(dim={d}{keep})[{g.rng.randrange(2)}]"
    if name == "sort":
        return f"{x}.sort({d}, stable=True)[{g.rng.randrange(2)}]"
    if name == "argsort":
        return f"{x}.argsort({d}, stable=True)"
    if name == "topk":
        return f"{x}.topk({g.rng.randint(1, max(1, g.of(x).shape[d]))}, {d})[0]"
    if name == "kthvalue":
        return f"{x}.kthvalue({g.rng.randint(1, max(1, g.of(x).shape[d]))}, {d})[0]"
    return f"{x}.{name}({d})[{0 if name in ('median', 'mode') else g.rng.randrange(2)}]"


@op(6, "reduce")
def along(g):
    x = g.ranked()
    name = g.rng.choice(
        (
            "cumsum",
            "cumsum",
            "softmax",
            "softmax",
            "log_softmax",
            "cumprod",
            "logcumsumexp",
            "diff",
            "normalize",
            "softmin",
        )
    )
    d = g.dim(x)
    if name in ("cumsum", "cumprod") and g.chance(0.15):
        return f"{x}.{name}({d}, dtype=torch.{g.dtype()})"
    if name in ("softmax", "log_softmax") and g.chance(0.2):
        return f"{x}.{name}({d}, dtype=torch.{g.rng.choice(('float32', 'float64'))})"
    if name == "diff":
        return f"torch.diff({x}, dim={d})"
    if name in ("normalize", "softmin"):
        return f"F.{name}({x}, dim={d})"
    return f"{x}.{name}({d})"


@op(1, "reduce")
def two_results(g):
    x = g.real()
    return f"torch.{g.rng.choice(('var_mean', 'std_mean'))}({x}, {axes(g, x)}, correction=0)[{g.rng.randrange(2)}]"


# ---- gathers and scatters


@op(5, "index")
def gathers(g):
    x = g.ranked()
    shape = tuple(g.of(x).shape)
    d = g.rng.randrange(len(shape))
    kind = g.rng.randrange(9)
    if kind == 0:
        small = tuple(g.rng.randint(1, n) if n else 0 for n in shape)
        return f"{x}.gather({d}, {g.index(shape[d], small)})"
    if kind == 1:
        return f"{x}.index_select({d}, {g.index(shape[d], (g.rng.randint(1, 6),))})"
    if kind == 2:
        return f"{x}{colons(g, x, d, g.index(shape[d], (g.rng.randint(1, 5),)))}"
    if kind == 3:
        index = g.index(shape[d], tuple(g.rng.randint(1, 5) if k == d else n for k, n in enumerate(shape)))
        return f"torch.take_along_dim({x}, {index}, {d})"
    if kind == 4 and len(shape) > 1:
        m = g.rng.randint(1, 5)
        i, j = g.index(shape[0], (m,)), g.index(shape[-1], (m,))
        return f"{x}[{i}, ..., {j}]" if g.chance(0.5) else f"{x}[{i}{', :' * (len(shape) - 2)}, {j}]"
    if kind == 5:
        return f"{x}[{g.index(shape[0], (g.rng.randint(1, 3), g.rng.randint(1, 4)))}]"
    if kind == 6:
        return f"torch.take({x}, {g.index(g.of(x).numel(), (g.rng.randint(1, 5), 2))})"
    if kind == 7 and shape[d]:
        items = [g.rng.randint(-shape[d], shape[d] - 1) for _ in range(g.rng.randint(1, 4))]
        return f"{x}{colons(g, x, d, str(items))}"
    # an index that the program computes
    i = g.pick(lambda t: t.dim() <= 2 and str(t.dtype) in ("torch.int64", "torch.int32"))
    return f"{x}[{i} % {g.size(x, 0)}]"


@op(5, "index")
def scatters(g):
    x = g.ranked()
    t = g.of(x)
    shape = tuple(t.shape)
    d = g.rng.randrange(len(shape))
    kind = g.rng.randrange(10)
    small = tuple(g.rng.randint(1, n) if n else 0 for n in shape)
    dtype = str(t.dtype)[6:]
    if kind == 0:
        return f"{x}.scatter_add({d}, {g.index(shape[d], small)}, {g.new_input(small, dtype)})"
    if kind == 1:
        m = g.rng.randint(1, 5)
        source = g.new_input(tuple(m if k == d else n for k, n in enumerate(shape)), dtype)
        return f"{x}.index_add({d}, {g.index(shape[d], (m,))}, {source}{g.rng.choice(('', ', alpha=2'))})"
    if kind == 2:
        reduce = g.rng.choice(("sum", "amax", "amin", "mean", "prod"))
        index, source = g.index(shape[d], small), g.new_input(small, dtype)
        return f"{x}.scatter_reduce({d}, {index}, {source}, {reduce!r}, include_self={g.chance(0.6)})"
    if kind == 3:
        index = g.index(shape[d], tuple(1 if k == d else n for k, n in enumerate(shape)))
        return f"{x}.scatter({d}, {index}, {g.scalar()})"
    if kind == 4:
        return f"{x}.index_fill({d}, {g.index(shape[d], (2,))}, {g.rng.choice(('2', '-1', '0'))})"
    if kind == 5:
        m = g.rng.randint(1, 5)
        return f"{x}.index_put(({g.index(shape[0], (m,))},), {g.new_input((m, *shape[1:]), dtype)}, accumulate=True)"
    if kind == 6:
        source = g.pick(lambda v: v.dtype == t.dtype and v.shape == t.select(d, 0).shape) if shape[d] else None
        return source and f"torch.select_scatter({x}, {source}, {d}, {g.rng.randrange(shape[d])})"
    if kind == 7:
        part = a_slice(g, x, d)
        slots = (part.split(":") + ["", ""])[:3]
        start, stop, step = slots[0] or "None", slots[1] or "None", slots[2] or "1"
        return f"torch.slice_scatter({x}, {x}.flip({d})[{':, ' * d}{part}], {d}, {start}, {stop}, {step})"
    if kind == 8 and len(shape) > 1:
        return f"torch.diagonal_scatter({x}, {x}.diagonal() * 2)"
    if kind == 9 and shape[d]:
        # distinct indices, so that the order of writes is of no matter
        return f"{x}.index_copy({d}, torch.arange({g.size(x, d)}, device={x}.device).flip(0), {g.same(x)})"
    return None


@op(1, "index")
def embedding(g):
    i = g.pick(lambda t: str(t.dtype) in ("torch.int64",) and t.dim() <= 2)
    n = g.rng.randint(3, 9)
    return f"F.embedding({i} % {n}, {g.new_input((n, g.rng.randint(1, 9)), 'float32')})"


@op(1, "index")
def one_hot_or_bucket(g):
    i = g.pick(lambda t: str(t.dtype) in ("torch.int64", "torch.int32") and t.dim() <= 2)
    if g.chance(0.5):
        return f"F.one_hot({i}.long() % 4, 4)"
    return f"({i}[..., None] % 5 == torch.arange(5, device={i}.device))"


# ---- pointwise

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


# ---- writes


WRITES = parts("zero_(); fill_(2); clamp_(-1, 1); neg_(); relu_(); abs_(); sigmoid_(); exp_(); logical_not_()")


@op(9, "write")
def write(g):
    x = g.pick(lambda t: not t.is_leaf or not t.requires_grad)
    t = g.of(x)
    whole = g.chance(0.3) or t.dim() == 0
    place = x if whole else a_view(g, x)
    kind = g.rng.randrange(12)
    if kind <= 2:
        sign = g.rng.choice(("+=", "*=", "-="))
        other = g.rng.choice((g.scalar(), g.like(x)))
        if place == x:
            return f"{x}.{ {'+=': 'add_', '*=': 'mul_', '-=': 'sub_'}[sign] }({other})"
        if place.endswith("]") and "(" not in place:
            return f"{place} {sign} {other}"
        return f"{place}.{ {'+=': 'add_', '*=': 'mul_', '-=': 'sub_'}[sign] }({other})"
    if kind == 3 and place.endswith("]") and "(" not in place:
        return f"{place} = {g.rng.choice((g.scalar(), g.like(x), place + ' * 2'))}"
    if kind == 4:
        return f"{place}.copy_({g.rng.choice((g.like(x), x))})"
    if kind == 5:
        return f"{place}.{g.rng.choice(WRITES)}"
    if kind == 6:
        return f"{x}.masked_fill_({axis_mask(g, x)}, {g.scalar()})"
    if kind == 7 and t.dim():
        m = g.rng.randint(1, 3)
        d = g.rng.randrange(t.dim())
        return f"{x}.index_fill_({d}, {g.index(t.shape[d], (m,))}, {g.rng.choice(('1', '0', '-2'))})"
    if kind == 8 and t.dim():
        return f"{x}[{g.index(t.shape[0], (g.rng.randint(1, 4),))}] = {g.scalar()}"
    if kind == 9 and t.dim():
        m = g.rng.randint(1, 4)
        source = g.new_input((m, *t.shape[1:]), str(t.dtype)[6:])
        return f"{x}.index_add_(0, {g.index(t.shape[0], (m,))}, {source})"
    if kind == 10:
        y = g.like(x)
        return f"{x}[{x} > {g.rng.choice(('0', y))}] = {g.scalar()}"
    if kind == 11 and t.dim():
        return (
            f"{x}.{g.rng.choice(('t_()', 'unsqueeze_(0)', 'squeeze_()', 'transpose_(0, -1)'))}"
            if g.chance(0.15)
            else f"{x}.cumsum_({g.dim(x)})"
        )
    return f"{place}.add_({g.like(x)})"


# ---- products, convolutions, pools


@op(2, "nn")
def product(g):
    x = g.pick(lambda t: t.is_floating_point() and 1 <= t.dim() <= 4 and t.numel() > 0)
    shape, dtype = tuple(g.of(x).shape), str(g.of(x).dtype)[6:]
    n = g.rng.randint(1, 6)
    kind = g.rng.randrange(6)
    if kind == 0:
        return f"F.linear({x}, {g.new_input((n, shape[-1]), dtype)}, {g.new_input((n,), dtype)})"
    if kind == 1 and len(shape) >= 2:
        return f"{x} @ {x}.mT"
    if kind == 2 and len(shape) == 3:
        return f"torch.bmm({x}, {g.new_input((shape[0], shape[2], n), dtype)})"
    if kind == 3 and len(shape) == 2:
        return f"torch.addmm({g.new_input((n,), dtype)}, {x}, {g.new_input((shape[1], n), dtype)})"
    if kind == 4 and len(shape) == 3:
        return f"torch.einsum('bij,bkj->bik', {x}, {x})"
    return f"{x} @ {g.new_input((shape[-1], n), dtype)}"


@op(2, "nn")
def spatial(g):
    x = g.pick(lambda t: t.is_floating_point() and t.dim() in (3, 4) and t.numel() > 0)
    shape, dtype = tuple(g.of(x).shape), str(g.of(x).dtype)[6:]
    two = len(shape) == 4
    kind = g.rng.randrange(10)
    if kind == 0 and dtype in ("float32", "float64"):
        k = g.rng.randint(1, 3)
        weight = g.new_input((g.rng.randint(1, 4), shape[1], *([k] * (len(shape) - 2))), dtype)
        return f"F.conv{len(shape) - 2}d({x}, {weight}, None, {g.rng.choice((1, 1, 2))}, {g.rng.choice((0, 1))})"
    if kind == 1:
        how = f"{g.rng.choice((1, 2))}, {g.rng.choice((0, 1))}, ceil_mode={g.chance(0.3)}"
        return f"F.max_pool{len(shape) - 2}d({x}, 2, {how})"
    if kind == 2:
        how = f"{g.rng.choice((1, 2))}, {g.rng.choice((0, 1))}, count_include_pad={g.chance(0.5)}"
        return f"F.avg_pool{len(shape) - 2}d({x}, 2, {how})"
    if kind == 3:
        return f"F.adaptive_avg_pool{len(shape) - 2}d({x}, {g.rng.randint(1, 3)})"
    if kind == 4:
        return f"F.interpolate({x}, scale_factor={g.rng.choice((2, 1.5, 0.5))}, mode='nearest')"
    if kind == 5:
        size, mode = [g.rng.randint(1, 6) for _ in shape[2:]], "bilinear" if two else "linear"
        return f"F.interpolate({x}, size={size}, mode={mode!r}, align_corners={g.chance(0.5)})"
    if kind == 6 and two:
        return f"F.unfold({x}, 2, padding={g.rng.choice((0, 1))})"
    if kind == 7:
        return f"F.group_norm({x}, 1)"
    if kind == 8:
        return f"F.batch_norm({x}, None, None, training=True)"
    if kind == 9:
        return f"F.adaptive_max_pool{len(shape) - 2}d({x}, {g.rng.randint(1, 3)})"
    return None


@op(2, "nn")
def normalization(g):
    x = g.pick(lambda t: t.is_floating_point() and t.dim() >= 2)
    n = g.of(x).shape[-1]
    dtype = str(g.of(x).dtype)[6:]
    kind = g.rng.randrange(5)
    if kind == 0:
        return f"F.layer_norm({x}, [{n}], {g.new_input((n,), dtype)})"
    if kind == 1:
        return f"F.layer_norm({x}, [{n}])"
    if kind == 2:
        return f"F.rms_norm({x}, [{n}])"
    if kind == 3 and g.of(x).dim() == 2:
        index, reduction = g.index(n, (g.of(x).shape[0],)), g.rng.choice(("mean", "none", "sum"))
        return f"F.cross_entropy({x}, {index}, reduction={reduction!r})"
    if n % 2 == 0:
        return f"F.glu({x}, -1)"
    return f"F.instance_norm({x})"
