"""Operators that move elements or choose between them: views, padding, concatenation, rolls and flips, masks."""

from __future__ import annotations

from ..generate import Grammar
from .expressions import a_slice, a_view, adding_to, axis_mask

ROWS: Grammar = []
op = adding_to(ROWS)


@op(14, "view")
def view(g):
    return a_view(g, g.pick())


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

    related = [x]
    for _ in range(g.rng.randint(1, 3)):
        kind = g.rng.randrange(8)
        if kind < 3:
            related.append(g.pick(fits))
        elif kind == 3:
            related.append(f"{x}.flip({d})")
        elif kind == 4:
            related.append(x + "[" + ":, " * d + a_slice(g, x, d) + "]")
        elif kind == 5:
            related.append(f"{x}.roll({g.rng.randint(1, 2)}, {g.rng.randrange(n)})")
        elif kind == 6:
            related.append(f"F.pad({x}, [{'0, 0, ' * (n - 1 - d)}{g.rng.randint(0, 1)}, 1])")
        elif n > 1:
            e = g.rng.randrange(n)
            related.append(
                f"F.pad({x}{'[' + ':, ' * e + '1:]'}, [{'0, 0, ' * (n - 1 - e)}{g.rng.choice(('0, 1', '1, 0'))}])"
            )
    g.rng.shuffle(related)
    return related


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
