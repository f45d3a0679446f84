"""Helpers of the operator modules: the decorator that adds an operator to a table, and functions that write a part of
an expression, such as an index, a slice, a view, a mask, or the dimensions of a reduction."""

from __future__ import annotations

from collections.abc import Callable

from ..generate import Generator, Grammar, Reject

Make = Callable[[Generator], str | None]


def adding_to(rows: Grammar) -> Callable[[float, str], Callable[[Make], Make]]:
    """The decorator `op(weight, kind)` of one module, which adds a function to the operators in `rows`."""

    def op(weight: float, kind: str) -> Callable[[Make], Make]:
        def register(make: Make) -> Make:
            rows.append((weight, kind, make))
            return make

        return register

    return op


def parts(text):
    """The expressions of a list that is separated by semicolons."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


def floating(g: Generator, low: int = 1, high: int = 5) -> str:
    """A value of floating point dtype with elements."""
    return g.pick(lambda t: t.is_floating_point() and low <= t.dim() <= high and t.numel() > 0)


def dtype_of(g: Generator, x: str) -> str:
    return str(g.of(x).dtype)[6:]


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


def axes(g, x):
    dims = g.dim_list(x)
    return str(dims[0]) if len(dims) == 1 and g.chance(0.6) else str(dims)
