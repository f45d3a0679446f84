"""What functions of users do with the standard library and NumPy around their tensors."""

import collections
import enum
import functools
import itertools
import logging
import operator
import random
import typing
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from language_programs import Batch
from programs_support import program

T = torch.randn


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
