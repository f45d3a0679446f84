"""Statements that write to a value or to a view of one."""

from __future__ import annotations

from ..generate import Grammar
from .expressions import a_view, adding_to, axis_mask, parts

ROWS: Grammar = []
op = adding_to(ROWS)


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
