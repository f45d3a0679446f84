"""Reductions, searches for extremes, sorting, and operators along one dimension such as cumsum and softmax."""

from __future__ import annotations

from ..generate import Grammar
from .expressions import adding_to, axes

ROWS: Grammar = []
op = adding_to(ROWS)


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
