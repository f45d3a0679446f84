"""What functions of users do with Python around their tensors."""

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import logging
import operator
import random
import typing
import warnings
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
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
def generators(C):
    def gen(x, n):
        for i in range(n):
            got = yield x * i
            if got is not None:
                x = x + got

    @C
    def f(x):
        g = gen(x, 4)
        a = next(g)
        b = g.send(10.0)
        rest = list(g)

        def chunked(it, n):
            it = iter(it)
            while chunk := list(itertools.islice(it, n)):
                yield chunk

        out = [torch.stack(c).sum() for c in chunked(x, 2)]

        def deleg():
            r = yield from gen(x, 2)
            yield r

        z = [i for i in deleg()]
        return (
            a,
            b,
            rest,
            out,
            z,
            sum(t.sum() for t in x.split(1)),
            max((t for t in x.tolist()), key=lambda v: -v),
            {i: v for i, v in enumerate(x)},
        )

    def genf(x):
        for i in range(3):
            yield x + i

    return f(T(5)), f(T(5)), f(T(3)), list(C(genf)(T(2)))


@program
def try_except_finally(C):
    log = []

    class MyErr(ValueError):
        pass

    def risky(x, n):
        if n == 1:
            raise MyErr("one", n)
        if n == 2:
            raise KeyError("two")
        return x / 2

    @C
    def f(x, n):
        try:
            y = risky(x, n)
        except MyErr as e:
            log.append(e.args)
            y = x * 10
        except KeyError as e:
            log.append(repr(e))
            try:
                raise RuntimeError("inner") from e
            except RuntimeError as r:
                y = x + len(str(r))
                log.append(type(r.__cause__).__name__)
        else:
            y = y + 1
        finally:
            log.append(n)
        return y

    @C
    def g(x, n):
        try:
            return f(x, n)
        finally:
            log.append("g")

    @C
    def h(x):
        try:
            x.view(7)
        except RuntimeError as e:
            return str(e)[:30], x + 1

    @C
    def k(x):
        for i in range(3):
            try:
                if i == 1:
                    continue
                if i == 2:
                    break
                x = x + 1
            finally:
                x = x * 2
        return x

    x = T(3)
    return [f(x, i) for i in range(3)], [g(x, i) for i in range(3)], h(x), h(x), k(x), log


@program
def exceptions_out(C):
    @C
    def f(x, n):
        y = x + 1
        if n == 0:
            raise ValueError(f"bad shape {tuple(y.shape)}")
        if n == 1:
            return x.view(7)
        if n == 2:
            return x @ torch.ones(9, 9)
        if n == 3:
            assert x.sum() > 1e6, "too small"
        if n == 4:
            return {}["k"]
        if n == 5:
            return x[10]
        if n == 6:
            return torch.cat([x, torch.ones(2, 2)])
        if n == 7:
            return x.foo
        if n == 8:
            return F.cross_entropy(torch.ones(2, 3), torch.tensor([0, 7]))
        if n == 9:
            return torch.ones(2, dtype=torch.int) // torch.zeros(2, dtype=torch.int)
        if n == 10:
            return nn.Linear(3, 4)(torch.ones(2, 5))
        if n == 11:
            raise StopIteration
        if n == 12:
            return F.embedding(torch.tensor([5]), torch.ones(3, 2))
        if n == 13:
            return x.index_select(0, torch.tensor([99]))
        if n == 14:
            return torch.linalg.cholesky(-torch.eye(3))
        if n == 15:
            return x.to("nonexist")
        if n == 16:
            return torch.zeros(3).requires_grad_().add_(1)
        if n == 17:
            return x[torch.tensor([7])]
        if n == 18:
            return torch.empty(0).max()
        if n == 19:
            return next(iter([]))
        if n == 20:
            return torch.randint(5, 2, (3,))
        if n == 21:
            return x.item()
        if n == 22:
            return bool(x > 0)
        if n == 23:
            return int("q")
        if n == 24:
            return torch.stack([torch.ones(2), torch.ones(3)])
        if n == 25:
            return torch.arange(3).float().backward()
        if n == 26:
            return F.conv2d(torch.ones(1, 3, 4, 4), torch.ones(2, 4, 3, 3))
        if n == 27:
            return torch.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(4, 5))
        if n == 28:
            return x.expand(2, 5)
        if n == 29:
            return torch.gather(x, 0, torch.tensor([9]))
        if n == 30:
            return torch.ones(3, dtype=torch.int).mean()
        if n == 31:
            return F.softmax(x, dim=3)
        if n == 32:
            return x + "s"
        if n == 33:
            return torch.tensor([1, "a"])


    r = []
    for i in range(34):
        for rep in range(2):
            try:
                r.append((i, f(T(3), i)))
            except Exception as e:
                r.append((i, type(e).__name__, str(e).split("\n")[0]))
    return r


@program
def with_blocks(C):
    log = []

    class CM:
        def __init__(self, n, swallow=False):
            self.n, self.s = n, swallow

        def __enter__(self):
            log.append(("in", self.n))
            return self

        def __exit__(self, t, v, tb):
            log.append(("out", self.n, t and t.__name__))
            return self.s

    @contextlib.contextmanager
    def cm(n):
        log.append(n)
        try:
            yield n * 2
        finally:
            log.append(-n)

    @C
    def f(x):
        with CM(1) as a, cm(5) as n:
            y = x * n
            with CM(2, True):
                raise ValueError
            with contextlib.suppress(KeyError):
                {}["a"]
            print("hello", a.n)
            y = y + 1
        with torch.no_grad():
            z = y * 2
        with torch.enable_grad(), torch.autograd.set_grad_enabled(True):
            w = y * 2
        with torch.inference_mode():
            q = x.detach() * 3
        with contextlib.ExitStack() as st:
            st.enter_context(CM(3))
            st.callback(log.append, "cb")
            u = y.sin()
        with contextlib.nullcontext(3) as t3:
            u = u + t3
        return y, z, w, u, q.sum()

    x = T(3, requires_grad=True)
    r = [f(x), f(x)]
    return r, log


@program
def fstrings_prints(C):
    @C
    def f(x, name="n"):
        print(f"shape {x.shape} dtype {x.dtype} {name!r:>5} {3.14159:.2f}")
        y = x * 2
        print("sum is", y.sum().item(), end="|\n")
        s = f"{x.size(0)}-{x.ndim}"
        print(y)
        print(f"{y.mean():.3f} {y[0].item():8.2e}")
        return y + len(s), s, f"{x.shape[0]}:{name}", "%d %s" % (x.shape[0], name)  # noqa: UP031

    return f(T(3)), f(T(3), "other"), f(T(4))


@program
def logging_calls(C):
    logger = logging.getLogger("attack")
    msgs = []

    class H(logging.Handler):
        def emit(self, r):
            msgs.append(r.getMessage())

    h = H()
    logger.addHandler(h)
    logger.setLevel(logging.INFO)

    @C
    def f(x):
        logger.info("in f %s", x.shape)
        logger.debug("nope")
        y = x + 1
        logger.warning("y %d", y.shape[0])
        warnings.warn("careful")
        return y * 2

    r = f(T(3)), f(T(3)), f(T(5))
    logger.removeHandler(h)
    return r, msgs


@program
def numpy_interop(C):
    @C
    def f(x):
        a = x.numpy() * 2
        b = np.sin(a) + np.ones(3, dtype=np.float32)
        t = torch.from_numpy(b)
        t2 = torch.as_tensor(np.arange(3))
        return t + t2, a, a.shape, np.float32(3) * x, torch.tensor(np.array([1.0, 2.0])), np.mean(a), float(a.max())

    @C
    def g(a):
        return np.where(a > 0, a, -a).sum(axis=0), a.T @ a, torch.tensor(a).sum(), a.astype(np.int32), a[1:, ::2].copy()

    @C
    def h(x):
        y = x.detach().cpu().numpy()
        y += 1
        return x * 2, y

    z = torch.zeros(3)
    return (
        f(T(3)),
        f(T(3)),
        g(np.random.randn(4, 3)),
        g(np.random.randn(5, 3)),
        h(z),
        z,
        np.asarray(C(lambda t: t + 1)(T(2))),
    )


@program
def random_mix(C):
    @C
    def f(x):
        p = random.random()
        i = random.randint(0, 5)
        q = np.random.rand()
        n = np.random.randint(10)
        c = random.choice(["a", "b", "c"])
        s = random.sample(range(10), 3)
        l = [1, 2, 3, 4]
        random.shuffle(l)
        u = random.uniform(1, 2)
        g = random.gauss(0, 1)
        y = x + torch.rand(3) * p if p > 0.5 else x - torch.randn(3)
        return y * i, q, n, c, s, l, u, g, np.random.permutation(4), torch.randperm(5), np.random.normal(size=2)

    return [f(T(3)) for _ in range(4)], random.random(), np.random.rand(), torch.rand(2)


@program
def item_branches(C):
    @C
    def f(x):
        if x.sum().item() > 0:
            y = x * 2
        else:
            y = x - 1
        n = int(x.abs().max().item()) + 1
        if x.mean() > 0.1:
            y = y + n
        v = x.tolist()
        k = x.argmax().item()
        return y, v, k, x[k], torch.zeros(n), [v[k]] * 2, float(x[0]), x[0] > 0 and x[1] > 0, not x[0]

    return [f(T(4) + i - 1) for i in range(4)]


@program
def shape_control_flow(C):
    @C
    def f(x):
        b, t, *rest = x.shape
        if t > 4:
            x = x[:, :4]
        elif t % 2:
            x = F.pad(x, (0, 1))
        if x.dim() == 3:
            x = x.mean(-1)
        n = x.numel() // b
        out = [x[:, i] * i for i in range(x.size(1))]
        if not len(rest):
            out.append(x.sum(1))
        return (
            torch.stack(out),
            n,
            x.shape,
            x.stride(),
            b * t,
            x.new_zeros(b, t).shape,
            len(x),
            x.nelement(),
            x.element_size(),
            x.shape[-1] == 4,
            tuple(x.shape) + (1,),
        )

    return [f(T(*s)) for s in ((2, 3), (2, 6), (3, 5), (4, 2), (2, 1), (1, 1), (5, 7), (9, 11))]


@program
def list_loops(C):
    @C
    def f(xs, n):
        acc = torch.zeros_like(xs[0])
        outs = []
        for i, (a, b) in enumerate(zip(xs, reversed(xs))):
            acc += a * b
            if i >= n:
                break
            outs.append(acc.clone())
        else:
            outs.append("done")
        xs.append(acc)
        xs[0] = acc + 1
        del xs[1]
        outs[1:1] = [None]
        a, *mid, z = xs
        i = 0
        while i < 3:
            i += 1
            if i == 2:
                continue
            z = z + i
        return (
            outs,
            acc,
            sorted(range(n), key=lambda v: -v),
            a,
            len(mid),
            z,
            [*xs, *outs][::-1],
            any(t is None for t in outs),
        )

    xs = [T(2) for _ in range(4)]
    return f(list(xs), 2), f(list(xs), 9), f(xs, 1), xs


@program
def while_tensor(C):
    @C
    def f(x):
        n = 0
        while x.norm() > 1:
            x = x / 2
            n += 1
        return x, n

    @C
    def g(x):
        i = torch.tensor(0)
        while i < 5:
            x = x + i
            i = i + 1
            if x.sum() > 20:
                break
        return x, i

    @C
    def newton(x):
        for _ in range(20):
            y = x - (x * x - 2) / (2 * x)
            if torch.allclose(x, y):
                return y
            x = y
        return x

    return (
        f(T(4) * 10),
        f(T(4) * 100),
        f(T(4) * 0.01),
        g(T(3)),
        g(T(3) + 3),
        newton(torch.tensor(1.0)),
        newton(torch.tensor(9.0)),
    )


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
def enum_match(C):
    class Mode(enum.Enum):
        A = "a"
        B = "b"

        @property
        def factor(self):
            return 2 if self is Mode.A else 3

    class Flag(enum.IntFlag):
        X = 1
        Y = 2

    @C
    def f(x, mode, opt):
        match opt:
            case {"k": int(v), **rest}:
                y = x * v + len(rest)
            case [a, b, *_]:
                y = x + a + b
            case Batch(x=t, mask=None):
                y = x + t
            case str() as s if len(s) > 2:
                y = x - 1
            case Mode.A | Mode.B:
                y = x * opt.factor
            case None:
                y = x
            case _:
                y = x.abs()
        return (
            y * mode.factor,
            mode is Mode.A,
            mode.name,
            Mode("b"),
            Flag.X | Flag.Y,
            (Flag.X & Flag.Y) == 0,
            [m.value for m in Mode],
        )

    x = T(3)
    return [f(x, Mode.A, o) for o in ({"k": 3, "z": 1}, [1, 2, 3], Batch(x), "string", "s", Mode.B, None, 3.0)] + [
        f(x, Mode.B, None)
    ]


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
def functools_itertools(C):
    @functools.lru_cache(None)
    def scale(n):
        return n * 2

    @functools.singledispatch
    def sd(v):
        return "obj"

    @sd.register
    def _(v: int):
        return "int"

    @sd.register(torch.Tensor)
    def _(v):
        return v + 1

    def deco(fn):
        @functools.wraps(fn)
        def w(*a, **k):
            return fn(*a, **k) * 2

        return w

    @deco
    def base(x, k=1):
        return x + k

    @C
    def f(x):
        p = functools.partial(torch.add, alpha=2)
        q = functools.partial(base, k=3)
        r = list(itertools.accumulate([x, x, x], operator.add))
        c = list(itertools.chain([x], (x + 1,)))
        pr = [a * b for a, b in itertools.product([x, x + 1], repeat=2)]
        z = list(itertools.zip_longest([x], [x, x], fillvalue=None))
        g = {k: list(v) for k, v in itertools.groupby([1, 1, 2])}
        return (
            p(x, x),
            q(x),
            r,
            c,
            pr,
            z,
            g,
            scale(3),
            sd(3),
            sd("s"),
            sd(x),
            list(map(lambda t: t + 1, [x])),
            list(filter(None, [0, 1])),
            operator.itemgetter(1)([x, x * 2]),
            operator.attrgetter("shape")(x),
            operator.methodcaller("sum")(x),
            list(itertools.starmap(torch.mul, [(x, x)])),
            list(itertools.combinations(range(3), 2)),
            base.__name__,
            list(itertools.pairwise([1, 2, 3])),
        )

    return f(T(3)), f(T(3)), f(T(4))


@program
def collections_misc(C):
    @C
    def f(x):
        d = collections.deque([x], maxlen=2)
        d.append(x + 1)
        d.appendleft(x + 2)
        d.rotate(1)
        c = collections.Counter("abca")
        c.update(a=2)
        s = {1, 2} | {3}
        s.discard(2)
        fs = frozenset(s)
        cm = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
        st = slice(0, 2)
        u, (v, *w) = 1, (2, 3, 4)
        m = {**{"a": x}, "b": x * 2}
        m |= {"c": 3}
        k = list(m.items())
        pop = m.pop("a")
        x2 = x[st]
        ell = x[..., None]
        b = bytes([1, 2])
        ba = bytearray(b)
        ba.append(3)
        t = tuple(x.unbind())
        sw = (y := x + 1) * y
        return (
            list(d),
            c,
            c.most_common(1),
            s,
            fs,
            cm["b"],
            x2,
            ell,
            u,
            v,
            w,
            k,
            pop,
            m,
            bytes(ba),
            t,
            sw,
            divmod(7, 2),
            1 < 2 < 3,
            "ab".join(["x", "y"]),
            [1, 2] * 2,
            round(2.567, 1),
            sum([x, x], start=x),
            min(3, 1),
            all([]),
            list(range(5))[::-2],
            zip([1], [2]).__next__(),
            chr(97),
            hex(255),
            complex(1, 2),
            abs(-3.5),
            7 // -2,
            2**10,
            ~5,
            3 ^ 1,
            isinstance(x, (int, torch.Tensor)),
            callable(f),
            id(x) == id(x),
            type(x) is torch.Tensor,
            x is x,
            x is not None,
        )

    return f(T(3)), f(T(3))


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
def annotated_string_ops(C):
    @C
    def f(x, cfg: dict[str, typing.Any]) -> torch.Tensor:
        act = getattr(F, cfg.get("act", "relu"))
        dt = getattr(torch, cfg["dtype"])
        parts = cfg["shape"].split("x")
        y: torch.Tensor = act(x.reshape([int(p) for p in parts])).to(dt)
        name = "_".join(p.zfill(2) for p in parts).upper()
        assert name.startswith("0"), name
        del parts
        return y, name, eval("1+1"), __name__, f.__name__ if hasattr(f, "__name__") else None

    return (
        f(T(6), {"dtype": "float64", "shape": "2x3"}),
        f(T(6), {"dtype": "bfloat16", "shape": "3x2", "act": "gelu"}),
        f(T(8), {"dtype": "int32", "shape": "4x2"}),
    )


@program
def default_mutable(C):
    @C
    def f(x, acc=[]):
        acc.append(x.sum())
        return torch.stack(acc)

    return f(T(2)), f(T(2)), f(T(2))


@program
def async_and_misc(C):
    import asyncio

    @C
    async def co(x):
        await asyncio.sleep(0)
        return x + 1

    return asyncio.run(co(T(2)))
