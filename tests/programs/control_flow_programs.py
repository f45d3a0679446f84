"""What functions of users do with loops, branches, generators and exceptions around their tensors."""

import contextlib
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from programs_support import program

T = torch.randn


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
def async_and_misc(C):
    import asyncio

    @C
    async def co(x):
        await asyncio.sleep(0)
        return x + 1

    return asyncio.run(co(T(2)))
