"""The ways to compile something, and what is done with it afterwards."""

import copy
import functools
import io
import pickle
import threading
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from programs_support import program

import inductor

T = torch.randn


@program
def builtin_targets(C):
    x = T(3).abs()
    return (
        [
            C(g)(x)
            for g in (
                torch.sin,
                torch.nn.functional.relu,
                torch.Tensor.exp,
                torch.ops.aten.cos.default,
                torch.ops.aten.neg,
                abs,
                len,
                torch.sigmoid,
                list,
                tuple,
                torch.special.erf,
                F.softmax.__get__(None, object) if False else torch.sum,
                repr,
                str,
                type,
                id if False else bool if False else max,
            )
        ],
        C(torch.add)(x, x, alpha=2),
        C(torch.nn.functional.softmax)(x, dim=0),
        C(x.add)(1),
        C(x.__add__)(2),
        C(torch.max)(x, 0),
        C(torch.stack)([x, x]),
        C(sum)([x, x]),
        C(torch.nn.init.zeros_)(T(2)),
        C(torch.zeros)(2, 3),
        C(torch.tensor)([1.0, 2.0]),
        C(torch.from_numpy)(x.numpy()),
        C(torch.jit.annotate)(int, 3),
    )


@program
def partial_callables(C):
    class K:
        def __init__(self, k):
            self.k = k

        def __call__(self, x, y=0):
            return x * self.k + y

    x = T(3)
    k = K(3)
    p = C(functools.partial(torch.add, other=x, alpha=3))
    p2 = C(functools.partial(k, y=2))
    p3 = C(functools.partial(functools.partial(lambda a, b, c: a + b * c, 1.0), c=x))
    r = [p(x), p2(x), p3(x), C(k)(x), C(k.__call__)(x), C(lambda t: t * 2)(x), C(lambda *a, **k: (a, k))(x, q=x)]
    k.k = 4
    r += [C(k)(x), p2(x)]

    class M:
        @classmethod
        def cm(cls, x):
            return x + 1, cls.__name__

        @staticmethod
        def sm(x):
            return x + 2

        def im(self, x):
            return x + 3

    r += [C(M.cm)(x), C(M.sm)(x), C(M().im)(x), C(M.im)(M(), x), C(M().cm)(x)]
    return r


@program
def class_target(C):
    class P:
        def __init__(self, x):
            self.y = x + 1

    a = C(P)(T(3))
    L = nn.Linear
    torch.manual_seed(3)
    l = L(3, 4)
    return a.y, l(T(2, 3)), isinstance(l, nn.Linear), C(dict)(a=T(2)), C(nn.Sequential)(l, nn.ReLU())(T(2, 3))


@program
def module_forms(C):
    m = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.5))
    c = C(m)
    x = T(2, 3)
    r = [
        c(x),
        c.training,
        isinstance(c, nn.Module),
        isinstance(c, nn.Sequential),
        len(c),
        c[0].weight is m[0].weight,
        [n for n, _ in c.named_parameters()],
        list(c.state_dict()),
        sum(p.numel() for p in c.parameters()),
    ]
    c.eval()
    r += [m.training, c(x)]
    m.train()
    r += [c.training, c(x)]
    c.zero_grad()
    c.requires_grad_(False)
    r += [c(x).requires_grad, m[0].weight.requires_grad]
    c.double()
    r.append(c(x.double()))
    c.float()
    c.half()
    c.float()
    c[0] = nn.Linear(3, 5)
    r.append(c(x))
    c.add_module("x", nn.Linear(5, 2))
    r.append(c(x))
    r.append(repr(m))
    c.foo = 3
    r.append(m.foo)
    m.bar = 4
    r.append(c.bar)
    return r


@program
def module_compile_method(C):
    m = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    if C.compiled:
        m.compile(backend=inductor.compile_fx)
    x = T(2, 3)
    r = [m(x), m(x), m(T(3, 3))]
    m(x).sum().backward()
    sd = list(m.state_dict())
    m2 = copy.deepcopy(m)
    r.append(m2(x))
    return r, sd, m[0].weight.grad, list(m2.state_dict())


@program
def deepcopy_pickle(C):
    m = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    c = C(m)
    x = T(2, 3)
    r = [c(x)]
    d = copy.deepcopy(c)
    d[0].weight.data.zero_()
    r += [d(x), c(x)]
    s = copy.copy(c)
    r.append(s(x))
    f = C(helper)
    f(x)
    r.append(copy.deepcopy(f)(x))
    p = pickle.loads(pickle.dumps(m))
    r.append(C(p)(x))
    q = pickle.loads(pickle.dumps(c))
    r.append(q(x))
    b = io.BytesIO()
    torch.save(m, b)
    b.seek(0)
    r.append(torch.load(b, weights_only=False)(x))
    b = io.BytesIO()
    torch.save(c, b)
    b.seek(0)
    r.append(torch.load(b, weights_only=False)(x))
    return r


def helper(x):
    return x * 2 + 1


@program
def nested_compile(C):
    inner = C(lambda x: x.sin() + 1)
    mod = C(nn.Linear(3, 3))

    @C
    def outer(x):
        return inner(x) * 2 + mod(x) + C(helper)(x)

    x = T(2, 3)

    @C
    def g(x):
        h = C(lambda t: t + x)
        return h(x * 2)

    return outer(x), outer(T(4, 3)), C(C(helper))(x), C(outer)(x), g(x), g(x + 1)


@program(rng=False)
def threads(C):
    m = C(nn.Sequential(nn.Linear(4, 4), nn.GELU()))
    fs = [C((lambda k: lambda x: (x * k).softmax(-1) + m(x))(k)) for k in range(4)]
    xs = {(k, n): torch.arange(float(n * 4)).view(n, 4) for k in range(4) for n in (2, 3, 5)}
    out = {}
    errs = []

    def work(k, n):
        try:
            with torch.no_grad():
                out[k, n] = fs[k](xs[k, n])
        except Exception as e:
            errs.append(repr(e))

    ts = [threading.Thread(target=work, args=key) for key in xs]
    [t.start() for t in ts]
    [t.join() for t in ts]
    return {k: out.get(k) for k in sorted(xs)}, errs


@program
def options_forms(C):
    x = T(4, 3)
    r = []
    for kw in (
        dict(dynamic=True),
        dict(dynamic=False),
        dict(fullgraph=True),
        dict(mode="default"),
        dict(mode="reduce-overhead"),
        dict(mode="max-autotune"),
        dict(mode="max-autotune-no-cudagraphs"),
        dict(disable=True),
        dict(dynamic=True, fullgraph=True),
    ):
        f = C(lambda t, k=1: (t * k).cos().sum(0), **kw)
        r += [f(x), f(T(5, 3)), f(x, 2), f(x, k=3)]
    return r


@program
def decorators(C):
    @C
    @torch.no_grad()
    def a(x):
        return x * 2

    @torch.no_grad()
    @C
    def b(x):
        return x * 2

    @torch.inference_mode()
    @C
    def c(x):
        return x * 2

    @C
    @torch.inference_mode()
    def d(x):
        return x * 2

    @C
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def e(x):
        return x @ x

    @C()
    def g(x):
        return x + 1

    @C(dynamic=True)
    @torch.enable_grad()
    def h(x):
        return x * 2

    x = T(2, 2, requires_grad=True)
    r = []
    for f in (a, b, c, d, e, g, h):
        for i in range(2):
            y = f(x)
            r.append((y.requires_grad, y.is_inference(), y.detach().clone()))
    with torch.no_grad():
        r.append([f(x).requires_grad for f in (a, g, h)])
    with torch.inference_mode():
        r.append([(f(x).is_inference(), f(x).requires_grad) for f in (a, b, g)])
    return r, a.__name__, b.__name__, g.__name__, g.__doc__


@program
def train_eval_toggle(C):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 4)
            self.bn = nn.BatchNorm1d(4)
            self.d = nn.Dropout(0.5)
            self.mode = "a"
            self.register_buffer("steps", torch.tensor(0))
            self.scale = 1.0

        def forward(self, x):
            if self.training:
                self.steps += 1
            x = self.d(self.bn(self.l(x)))
            return x * self.scale if self.mode == "a" else -x

    m = M()
    c = C(m)
    r = []
    x = T(5, 4)
    for i in range(8):
        if i % 3 == 2:
            m.eval()
        else:
            m.train()
        if i == 4:
            m.mode = "b"
        if i == 5:
            m.scale = 2.5
        if i == 6:
            m.bn.eval()
            m.d.p = 0.1
        if i == 7:
            m.l.weight.requires_grad_(False)
        torch.manual_seed(i)
        o = c(x)
        r.append(o)
        if o.requires_grad:
            o.sum().backward()
    return r, dict(m.state_dict()), {k: p.grad for k, p in m.named_parameters()}


@program
def functional_bn_momentum(C):
    r = []
    for kw in (dict(momentum=None), dict(momentum=0.3), dict(track_running_stats=False), dict(affine=False)):
        m = nn.BatchNorm2d(3, **kw)
        c = C(m)
        for b in (2, 2, 3):
            r.append(c(T(b, 3, 4, 4)))
        m.eval()
        r.append(c(T(2, 3, 4, 4)))
        r.append(dict(m.state_dict()))
    i = nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
    c = C(i)
    r.append(c(T(2, 3, 4, 4)))
    r.append(dict(i.state_dict()))
    return r


@program
def weight_tying(C):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(7, 4)
            self.o = nn.Linear(4, 7, bias=False)
            self.o.weight = self.e.weight

        def forward(self, x):
            return self.o(self.e(x).tanh())

    m = M()
    c = C(m)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    r = []
    for b in (3, 3, 2):
        o = c(torch.arange(b))
        F.cross_entropy(o, torch.arange(b)).backward()
        opt.step()
        r.append(o)
    return r, m.e.weight.grad, m.o.weight is m.e.weight, dict(m.state_dict())


@program
def old_weight_norm_spectral(C):

    warnings.simplefilter("ignore")
    a = torch.nn.utils.weight_norm(nn.Linear(3, 4))
    b = torch.nn.utils.spectral_norm(nn.Conv1d(4, 3, 1))
    m = C(nn.Sequential(a, nn.Unflatten(1, (4, 1)), b))
    r = []
    for n in (2, 2, 3):
        o = m(T(n, 3))
        o.sum().backward()
        r.append(o)
    m.eval()
    r.append(m(T(2, 3)))
    return r, {k: (p, p.grad) for k, p in m.named_parameters()}, {k: p.detach() for k, p in m.named_buffers()}


@program
def compile_in_subclass(C):
    class Base(nn.Module):
        def forward(self, x):
            return self.impl(x) + 1

    class A(Base):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(T(3))

        @C
        def impl(self, x):
            return x * self.w

    class B(A):
        def impl(self, x):
            return super().impl(x) * 2

    b = C(B())
    a = A()
    x = T(2, 3)
    r = [b(x), a(x), b(T(4, 3))]
    b(x).sum().backward()
    return r, b.w.grad, list(b.state_dict())


@program
def containers(C):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.ls = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
            self.d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
            self.ps = nn.ParameterList([nn.Parameter(T(3)) for _ in range(2)])
            self.pd = nn.ParameterDict({"x": nn.Parameter(T(3))})

        def forward(self, x, which="a"):
            for i, l in enumerate(self.ls[:2]):
                x = l(x) + self.ps[i % 2]
            x = self.ls[-1](x)
            for k, m in self.d.items():
                if k == which:
                    x = m(x)
            for n, p in self.named_parameters():
                if n.endswith("bias"):
                    x = x + p.sum()
            return (
                x * self.pd["x"],
                len(self.ls),
                "a" in self.d,
                [type(m).__name__ for m in self.children()],
                sum(1 for _ in self.modules()),
                next(self.parameters()).device.type,
                self.ls[0] in self.ls,
            )

    m = M()
    c = C(m)
    x = T(2, 3)
    r = [c(x), c(x, "b"), c(T(3, 3), which="b")]
    r[0][0].sum().backward()
    m.ls.append(nn.Linear(3, 3))
    r.append(c(x))
    m.d["c"] = nn.Sigmoid()
    r.append(c(x, "c"))
    del m.ls[0]
    r.append(c(x))
    return r, {k: p.grad for k, p in m.named_parameters()}


@program
def forward_kwargs_dict_output(C):
    from collections import OrderedDict

    class Out(OrderedDict):
        def __getattr__(self, k):
            return self[k]

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(3, 3)

        def forward(self, input_ids=None, *, mask=None, labels=None, return_dict=True, **kw):
            h = self.l(input_ids)
            if mask is not None:
                h = h.masked_fill(mask, 0)
            loss = F.mse_loss(h, labels) if labels is not None else None
            return Out(loss=loss, h=h, extra=kw.get("extra")) if return_dict else (loss, h)

    c = C(M())
    x = T(2, 3)
    r = [c(x), c(input_ids=x, mask=x > 0), c(x, labels=x, extra=[1, x]), c(x, return_dict=False), c(x, labels=x).h]
    return r


@program
def register_hooks_global(C):
    log = []
    h = torch.nn.modules.module.register_module_forward_hook(lambda m, i, o: log.append(type(m).__name__))
    m = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    c = C(m)
    a = c(T(1, 2))
    h.remove()
    b = c(T(1, 2))
    return a, b, log


@program
def module_call_override(C):
    class M(nn.Linear):
        def __call__(self, x):
            return super().__call__(x) * 2

        def forward(self, x):
            return super().forward(x) + 1

        def extra(self, x):
            return self(x) + self.forward(x)

    m = M(3, 3)
    c = C(m)
    x = T(2, 3)
    return c(x), C(m.extra)(x), c.extra(x), C(m.forward)(x), C(M.forward)(m, x), C(type(m).__call__)(m, x)


@program
def script_and_trace_interplay(C):
    m = nn.Linear(3, 3)
    x = T(2, 3)

    warnings.simplefilter("ignore")
    tr = torch.jit.trace(m, x)
    f = C(lambda t: tr(t) + 1)
    from torch.fx import symbolic_trace

    g = symbolic_trace(nn.Sequential(m, nn.ReLU()))
    cg = C(g)
    ex = torch.export.export(nn.Sequential(m, nn.ReLU()), (x,)).module() if False else g
    return f(x), cg(x), C(ex)(x)


@program
def set_grad_between(C):
    f = C(lambda x, w: (x * w).sum())
    x = T(3)
    w = T(3, requires_grad=True)
    r = []
    for i in range(2):
        a = f(x, w)
        with torch.no_grad():
            b = f(x, w)
        c = f(x, w.detach())
        d = f(x.requires_grad_(i == 1), w)
        r += [a.requires_grad, b.requires_grad, c.requires_grad, d.requires_grad, d]
    d.backward()
    return r, x.grad, w.grad


@program
def return_types(C):
    @C
    def f(x):
        return (
            torch.max(x, 0),
            torch.sort(x),
            x.topk(2),
            torch.linalg.eigh(x @ x.T),
            torch.std_mean(x),
            x.shape,
            x.dtype,
            x.device,
            None,
            ...,
            x.size(),
            torch.finfo(x.dtype).max,
            torch.Size([1, 2]),
            torch.svd(x)[1],
            x.layout,
            x.is_contiguous(),
            x.requires_grad,
            x.T,
            x.mT,
            x.H,
            x.real,
            torch.return_types.max if False else 0,
        )

    a = f(T(3, 3))
    return a, [type(t).__name__ for t in a], a[0].values is a[0][0], a[3].eigenvalues
