"""Gathers and scatters: operators that take a tensor of indices."""

from __future__ import annotations

from ..generate import Grammar
from .expressions import a_slice, adding_to, colons

ROWS: Grammar = []
op = adding_to(ROWS)


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
