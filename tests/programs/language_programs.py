"""What functions of users do with functions, arguments, containers and classes of Python around their tensors."""

import collections
import dataclasses
import functools
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn as nn
from programs_support import program


def thrice(f, *argss):
    return [f(*a) for a in argss]


T = torch.randn


@dataclass
class Batch:
    x: torch.Tensor
    mask: torch.Tensor | None = None
    meta: dict = field(default_factory=dict)

    def total(self):
        return self.x.sum() + (0 if self.mask is None else self.mask.sum())


class Pt(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor
    n: int = 3


@program
def dataclass_inputs(C):
    @C
    def f(b):
        out = b.total() * 2
        b.meta["seen"] = b.meta.get("seen", 0) + 1
        return Batch(b.x + 1, mask=out, meta={"k": b.x.shape[0]}), dataclasses.replace(b, x=b.x * 2)

    b = Batch(T(3), T(3))
    c = Batch(T(4))
    return [f(b), f(b), f(c), f(c), b, c]


@program
def namedtuple_inputs(C):
    @C
    def f(p, *rest, k=None, **kw):
        a, b, n = p
        s = p.a * n + b
        for r in rest:
            s = s + r
        if k is not None:
            s = s * k
        return p._replace(a=s), Pt(s, b, n=n + 1), {key: v + 1 for key, v in kw.items()}, p._asdict(), p._fields

    x, y = T(3), T(3)
    return [f(Pt(x, y)), f(Pt(x, y, 5), x, y, k=2.0), f(Pt(x, y, 4), x, k=T(3), z=y, w=1), f(Pt(a=y, b=x))]


@program
def defaults_kwonly(C):
    @C
    def f(x, y=2, /, z=None, *args, w=torch.ones(3), **kw):
        r = x * y
        if z is not None:
            r += z
        return r + w + sum(args) + len(kw)

    x = T(3)
    return [f(x), f(x, 3), f(x, 3, x), f(x, 3, x, 1, 2, w=x, q=1), f(x, z=4.0), f(x, z=x, a=1, b=2)]


@program
def dict_mutation(C):
    state = {"n": 0, "sum": torch.zeros(3)}
    cfg = collections.OrderedDict(a=1, b=2)
    dd = collections.defaultdict(list)

    @C
    def f(x):
        state["n"] += 1
        state["sum"] = state["sum"] + x
        cfg.move_to_end("a")
        cfg["c"] = x.shape
        dd["k"].append(x * 2)
        dd[len(dd)] = []
        state.setdefault("new", x)
        state.update(last=x.mean())
        return {"out": x * state["n"], **{f"k{i}": x + i for i in range(2)}}

    return [f(T(3)), f(T(3)), f(T(3)), state, cfg, dict(dd)]


COUNTER = 0
HISTORY = []


@program
def global_counter(C):
    global COUNTER
    COUNTER = 0
    HISTORY.clear()

    @C
    def f(x):
        global COUNTER
        COUNTER += 1
        HISTORY.append(COUNTER * x.sum())
        if COUNTER % 2 == 0:
            return x * COUNTER
        return x + COUNTER

    return [f(T(3)) for _ in range(5)], COUNTER, list(HISTORY)


@program
def closures(C):
    def make(n):
        count = 0

        def inner(x):
            nonlocal count
            count += 1
            return x * n + count

        def get():
            return count

        return inner, get

    i, g = make(3)
    ci = C(i)
    i2, g2 = make(4)
    c2 = C(i2)

    @C
    def outer(x):
        acc = []

        def add(v):
            acc.append(v)
            return v + 1

        y = functools.reduce(lambda a, b: a + b, [add(x), add(x * 2)])
        return y, acc, (lambda z: z * len(acc))(x)

    x = T(2)
    return ci(x), ci(x), g(), c2(x), g2(), outer(x), outer(x + 1)


@program
def recursion(C):
    def fib(x, n):
        return x if n < 2 else fib(x, n - 1) + fib(x, n - 2) * 0.5

    f = C(fib)

    @C
    def tree(t):
        if isinstance(t, dict):
            return {k: tree(v) for k, v in t.items()}
        if isinstance(t, (list, tuple)):
            return type(t)(tree(v) for v in t)
        return t.sin() if isinstance(t, torch.Tensor) else t

    return f(T(3), 6), f(T(3), 3), f(T(3), 4), tree({"a": [T(2), (T(3), 1)], "b": {"c": "s", "d": None}}), tree([T(2)])


@program
def inplace_inputs(C):
    @C
    def f(x, y, d):
        x.add_(1)
        x[0] = 7
        y[:, 1].mul_(2)
        d["t"].copy_(x)
        y += x[0]
        x.t_() if x.dim() == 2 else None
        d["t"][d["t"] > 5] = 0
        x.clamp_(max=3)
        return x, y.view(-1), x.sum()

    x, y, d = T(3), T(3, 3), {"t": torch.zeros(3)}
    r = [f(x, y, d), f(x, y, d)]
    z = T(2, 3)
    w = T(2, 3)

    @C
    def g(z, w):
        z.resize_(3, 2) if False else None
        z.transpose_(0, 1)
        w.unsqueeze_(0)
        z.mul_(2)
        return z.shape

    @C
    def h(a):
        b = a[1:]
        c = a[:-1]
        b += c.clone()
        a.zero_() if a.sum() > 1e9 else a.neg_()
        return b, c

    q = T(5)
    return r, x, y, d, g(z, w), z, w, h(q), q


@program
def aliasing_outputs(C):
    m = nn.Linear(2, 2)
    buf = torch.zeros(3)

    @C
    def f(x):
        v = x.view(-1)
        return x, v, x, v[1:], x.t(), m.weight, m.weight.t(), buf, buf + 1, (x,), [v, v]

    x = T(2, 2)
    r = f(x)
    r = f(x)
    ids = (
        r[0] is x,
        r[2] is x,
        r[1]._base is x,
        r[5] is m.weight,
        r[7] is buf,
        r[9][0] is x,
        r[10][0] is r[10][1],
        r[10][0] is r[1],
        r[1].data_ptr() == x.data_ptr(),
        r[3].data_ptr() - x.data_ptr(),
        r[6]._base is m.weight,
    )
    r[3].fill_(9.0)
    buf.add_(1)

    @C
    def g(x):
        y = x + 1
        return y, y, y.view(2, 2), y[0], y.detach(), y.data, y.unbind()

    o = g(T(2, 2))
    o = g(T(2, 2))
    ids += (
        o[0] is o[1],
        o[2].data_ptr() == o[0].data_ptr(),
        o[4].data_ptr() == o[0].data_ptr(),
        len(o[6]),
    )
    o[0].mul_(0)
    y = T(3, requires_grad=True)

    @C
    def h(y):
        return y, y.detach(), y.view(3, 1), y * 1

    q = h(y)
    q = h(y)
    ids += (q[0] is y, q[1].requires_grad, q[2]._base is y, q[2]._is_view())
    return r, ids, x, o, q


@program
def classes_in_function(C):
    class Vec:
        __slots__ = ("t", "n")

        def __init__(self, t, n=0):
            self.t, self.n = t, n

        def __add__(self, o):
            return Vec(self.t + (o.t if isinstance(o, Vec) else o), self.n + 1)

        __radd__ = __add__

        def __getitem__(self, i):
            return self.t[i]

        def __len__(self):
            return len(self.t)

        def __iter__(self):
            return iter(self.t)

        def __call__(self, k):
            return self.t * k

        def __eq__(self, o):
            return self.n == o.n

        def __hash__(self):
            return hash(self.n)

        def __bool__(self):
            return self.n > 0

        def __contains__(self, v):
            return v == self.n

        @property
        def norm(self):
            return self.t.norm()

        @norm.setter
        def norm(self, v):
            self.t = self.t / self.t.norm() * v

        @classmethod
        def zeros(cls, n):
            return cls(torch.zeros(n))

        @staticmethod
        def dot(a, b):
            return (a.t * b.t).sum()

        def __repr__(self):
            return f"Vec({self.n})"

    class Sub(Vec):
        def __init__(self, t):
            super().__init__(t, 5)
            self.norm = 2.0

        def __getattr__(self, k):
            return k + "!"

    @C
    def f(x):
        v = Vec(x)
        w = v + 1 + Vec.zeros(len(x))
        u = 2 + w
        s = Sub(x)
        u.norm = 3.0

        class Local(Vec):
            extra = 7

        l = Local(x, n=Local.extra)
        return (
            u.norm,
            Vec.dot(v, w),
            list(s),
            s(3),
            w == u,
            v in {v: 1},
            bool(v),
            5 in s,
            s.foo,
            repr(u),
            l.t * l.n,
            isinstance(l, Vec),
            type(s).__mro__[1] is Vec,
            [a for a in w],
            getattr(s, "t"),
            hasattr(v, "zz"),
        )

    v = Vec(T(3))

    @C
    def g(v):
        v.n += 1
        v.t = v.t * 2
        return v(1)

    g(v)
    g(v)
    return f(T(3)), f(T(3)), v.n, v.t


@program
def module_like_state(C):
    class Model:
        instances = []

        def __init__(self):
            self.w = T(3, 3)
            self.calls = 0
            self.cache = {}
            self.fn = torch.tanh
            Model.instances.append(1)

        def __call__(self, x):
            self.calls += 1
            key = x.shape[0]
            if key not in self.cache:
                self.cache[key] = x @ self.w
            self.__dict__["last"] = x
            setattr(self, f"attr{self.calls}", self.calls)
            return self.fn(self.cache[key]) + self.helper(x)

        def helper(self, x):
            return x.sum()

        @C
        def compiled_method(self, x):
            self.calls += 10
            return x * self.calls

    m = Model()
    c = C(m)
    r = [
        c(T(2, 3)),
        c(T(2, 3)),
        c(T(4, 3)),
        m.compiled_method(T(2)),
        m.compiled_method(T(2)),
        C(m.helper)(T(3)),
        C(Model.__call__)(m, T(5, 3)),
    ]
    r.append(C(Model)().calls)
    return r, m.calls, sorted(m.__dict__), m.attr2, m.cache, len(Model.instances)


@program
def star_nested(C):
    @C
    def f(tree):
        from torch.utils import _pytree as pt

        leaves, spec = pt.tree_flatten(tree)
        out = pt.tree_unflatten([l * 2 if isinstance(l, torch.Tensor) else l for l in leaves], spec)
        return (
            out,
            pt.tree_map(lambda t: t + 1 if isinstance(t, torch.Tensor) else t, tree),
            pt.tree_map_only(torch.Tensor, torch.sum, tree),
        )

    t = {"a": [T(2), (T(3), None)], "b": collections.OrderedDict(c=T(1), d="s"), "p": Pt(T(1), T(2))}
    return f(t), f(t)


@program
def default_mutable(C):
    @C
    def f(x, acc=[]):
        acc.append(x.sum())
        return torch.stack(acc)

    return f(T(2)), f(T(2)), f(T(2))
