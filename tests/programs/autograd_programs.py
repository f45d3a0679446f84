"""Gradients: of gradients, by functions of one's own, under hooks, modes and transforms."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from programs_support import program

T = torch.randn


@program
def double_backward(C):
    m = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    c = C(m)
    r = []
    for b in (4, 4, 2):
        x = T(b, 3, requires_grad=True)
        y = c(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        pen = ((g.norm(2, dim=1) - 1) ** 2).mean()
        (y.mean() + pen).backward()
        r += [g, pen, x.grad]
    return r, {k: p.grad for k, p in m.named_parameters()}


@program
def grad_in_function(C):
    m = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 1))

    @C
    def energy_force(pos):
        pos = pos.detach().requires_grad_()
        e = m(pos).sum()
        f = -torch.autograd.grad(e, pos, create_graph=True)[0]
        return e, f

    @C
    def gp(real, fake):
        a = torch.rand(real.size(0), 1)
        i = (a * real + (1 - a) * fake).requires_grad_(True)
        o = m(i)
        g = torch.autograd.grad(
            outputs=o, inputs=i, grad_outputs=torch.ones_like(o), create_graph=True, retain_graph=True
        )[0]
        return ((g.norm(2, dim=1) - 1) ** 2).mean()

    r = []
    for b in (4, 4, 2):
        e, f = energy_force(T(b, 3))
        (e + f.square().sum()).backward()
        l = gp(T(b, 3), T(b, 3))
        l.backward()
        r += [e, f, l]
    return r, {k: p.grad for k, p in m.named_parameters()}


class ScaleGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, s):
        ctx.s = s
        ctx.mark_non_differentiable()
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.s, None


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lo, hi):
        ctx.save_for_backward(x)
        ctx.lo, ctx.hi = lo, hi
        return x.clamp(lo, hi), (x > hi).sum()

    @staticmethod
    def backward(ctx, g, _):
        (x,) = ctx.saved_tensors
        return g * ((x > ctx.lo) & (x < ctx.hi)) + 0.1 * g, None, None


class Setup(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y if ctx.needs_input_grad[0] else None, g * x if ctx.needs_input_grad[1] else None


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Once(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].exp()


@program
def custom_functions(C):
    @C
    def f(x, y):
        a = ScaleGrad.apply(x, 0.5)
        b, n = Clip.apply(a * y, -1.0, 1.0)
        c = Setup.apply(b, y)
        d = InPlace.apply(c * 1)
        e = Once.apply(d)
        return e.sum(), n, d

    r = []
    for n in (3, 3, 5):
        x, y = T(n, requires_grad=True), T(n, requires_grad=True)
        l, k, d = f(x, y)
        l.backward()
        r += [l, k, d, x.grad, y.grad]
    x = T(3, requires_grad=True)
    l, k, d = f(x, T(3))
    l.backward()
    r += [x.grad]
    return r


@program
def tensor_hooks(C):
    log = []

    @C
    def f(x, w):
        y = x * w
        y.register_hook(lambda g: g * 2)
        y.retain_grad()
        return y.sum(), y

    x = T(3, requires_grad=True)
    w = T(3, requires_grad=True)
    x.register_hook(lambda g: log.append(g.clone()))
    w.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.clone()))
    r = []
    for _ in range(2):
        l, y = f(x, w)
        l.backward()
        r += [l, y.grad]
    return r, x.grad, w.grad, log


@program
def grad_accum_retain(C):
    m = nn.Linear(3, 2)
    c = C(m)
    r = []
    for _ in range(2):
        for k in range(3):
            (c(T(4, 3)).square().mean() / 3).backward()
        r.append(m.weight.grad.clone())
        m.zero_grad(set_to_none=False)
    y = c(T(2, 3))
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    r.append(m.weight.grad.clone())
    try:
        y.sum().backward()
    except RuntimeError as e:
        r.append(str(e)[:45])
    return r


@program
def partial_requires_grad(C):
    f = C(lambda a, b, c: ((a * b).sum(), b * c, (a + c).detach(), a > 0, c + 1))
    r = []
    for ra, rb, rc in ((1, 0, 0), (0, 1, 0), (1, 1, 1), (0, 0, 0), (0, 0, 1)):
        a, b, c = T(3, requires_grad=bool(ra)), T(3, requires_grad=bool(rb)), T(3, requires_grad=bool(rc))
        o = f(a, b, c)
        s = sum((t.sum() for t in o if t.requires_grad), torch.zeros(()))
        if s.requires_grad:
            s.backward()
        r += [o, a, b, c]
    return r


@program
def unused_and_multi(C):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.u = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return {"a": self.a(x), "b": [self.b(x), self.b(x).detach()], "n": None, "x": x}

    m = M()
    c = C(m)
    o = c(T(2, 3))
    o["a"].sum().backward()
    r = [{k: p.grad for k, p in m.named_parameters()}]
    o = c(T(2, 3))
    o["b"][0].sum().backward()
    r.append({k: p.grad for k, p in m.named_parameters()})
    r.append(torch.autograd.grad(c(T(2, 3))["a"].sum(), list(m.parameters()), allow_unused=True))
    return r, o


@program
def inplace_autograd(C):
    @C
    def f(x, w):
        y = x * w
        y[0] = 0
        y += 1
        y[1:].mul_(2)
        z = y.view(-1)
        z[-1] = w[0]
        y.relu_()
        return y.sum() + z.square().sum()

    @C
    def g(buf, x):
        buf[1:3] = x * 2
        return buf.sum()

    r = []
    for n in (3, 3, 4):
        x, w = T(n, requires_grad=True), T(n, requires_grad=True)
        l = f(x, w)
        l.backward()
        r += [l, x.grad, w.grad]
    x = T(2, requires_grad=True)
    b = torch.zeros(5)
    l = g(b, x)
    l.backward()
    r += [l, x.grad, b, b.requires_grad]

    @C
    def h(w):
        w.add_(1)
        return w

    try:
        h(T(2, requires_grad=True))
    except RuntimeError as e:
        r.append(str(e)[:60])

    @C
    def k(w):
        with torch.no_grad():
            w.add_(1)
            w.copy_(w * 2)
        return w * 2

    w = T(2, requires_grad=True)
    k(w).sum().backward()
    r += [w, w.grad]
    return r


@program
def backward_in_function(C):
    m = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    opt = torch.optim.Adam(m.parameters(), lr=0.01)

    @C
    def train(x, y):
        opt.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        return loss.detach()

    return (
        [train(T(b, 3), T(b, 1)) for b in (4, 4, 6, 3)],
        dict(m.state_dict()),
        {k: p.grad for k, p in m.named_parameters()},
    )


@program
def meta_learning_maml(C):
    from torch.func import functional_call, grad

    m = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))
    p = dict(m.named_parameters())

    @C
    def loss(p, xs, ys, xq, yq):
        def inner(q):
            return F.mse_loss(functional_call(m, q, (xs,)), ys)

        g = grad(inner)(p)
        new = {k: p[k] - 0.1 * g[k] for k in p}
        return F.mse_loss(functional_call(m, new, (xq,)), yq)

    r = []
    for b in (4, 4):
        l = loss(p, T(b, 1), T(b, 1), T(b, 1), T(b, 1))
        l.backward()
        r.append(l)
    return r, {k: v.grad for k, v in p.items()}


@program
def anomaly_and_modes(C):
    f = C(lambda x: (x * 2).exp().sum())
    r = []
    with torch.autograd.set_detect_anomaly(True):
        x = T(3, requires_grad=True)
        l = f(x)
        l.backward()
        r += [l, x.grad]
    with torch.autograd.graph.save_on_cpu():
        x = T(3, requires_grad=True)
        l = f(x)
        l.backward()
        r += [l, x.grad]
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), lambda a: torch.from_numpy(a)):
        x = T(3, requires_grad=True)
        l = C(lambda x: (x.detach() * 2 * x.detach()).sum() + 0 * x.sum())(x)
        l.backward()
        r += [l, x.grad]

    @C
    def g(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t * 1):
            return (x.sin() * x).sum()

    x = T(3, requires_grad=True)
    l = g(x)
    l.backward()
    r += [l, x.grad]
    with torch.autograd.profiler.profile():
        f(T(3))
    with torch.device("cpu"):
        r.append(C(lambda: torch.ones(2))())
    torch.set_default_dtype(torch.float64)
    r.append(C(lambda: torch.ones(2) * 1.5)())
    torch.set_default_dtype(torch.float32)
    r.append(C(lambda: torch.ones(2) * 1.5)())
    return r


@program
def straight_and_stop(C):
    @C
    def vq(z, e):
        d = (z**2).sum(1, keepdim=True) + (e**2).sum(1) - 2 * z @ e.t()
        i = d.argmin(1)
        q = F.embedding(i, e)
        l = F.mse_loss(q.detach(), z) + 0.25 * F.mse_loss(q, z.detach())
        q = z + (q - z).detach()
        oh = F.one_hot(i, e.shape[0]).float()
        p = oh.mean(0)
        return q, l, i, torch.exp(-(p * (p + 1e-10).log()).sum())

    r = []
    for n in (6, 6, 4):
        z, e = T(n, 3, requires_grad=True), T(5, 3, requires_grad=True)
        q, l, i, p = vq(z, e)
        (q.sum() + l).backward()
        r += [q, l, i, p, z.grad, e.grad]
    return r


@program
def checkpoint_inside_loop(C):
    from torch.utils.checkpoint import checkpoint

    class B(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 4)
            self.n = nn.LayerNorm(4)

        def forward(self, x, s=1.0):
            return x + F.dropout(self.l(self.n(x)), 0.2, self.training) * s

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.bs = nn.ModuleList(B() for _ in range(3))
            self.gc = True

        def forward(self, x):
            for b in self.bs:
                x = (
                    checkpoint(b, x, 0.5, use_reentrant=False, preserve_rng_state=True)
                    if self.gc and self.training
                    else b(x)
                )
            return x

    m = M()
    c = C(m)
    r = []
    for n in (2, 2, 3):
        o = c(T(n, 4))
        o.square().sum().backward()
        r.append(o)
    m.gc = False
    o = c(T(2, 4))
    o.sum().backward()
    r.append(o)
    return r, {k: p.grad for k, p in m.named_parameters()}


@program
def gradient_dtype_layout(C):
    f = C(lambda x, w: (F.conv2d(x.to(w.dtype), w).float().mean((2, 3))).sum())
    r = []
    x = T(2, 3, 5, 5).to(memory_format=torch.channels_last).requires_grad_()
    w = T(4, 3, 3, 3, dtype=torch.bfloat16, requires_grad=True)
    f(x, w).backward()
    r += [x.grad, w.grad]
    g = C(lambda a: (a.t() @ a).sum())
    a = T(3, 4).t().requires_grad_()
    g(a).backward()
    r.append(a.grad)
    h = C(lambda a: a.expand(3, 4).sum() + a.sum())
    a = T(1, 4, requires_grad=True)
    h(a).backward()
    r.append(a.grad)
    e = C(lambda t, i: t[i].sum() + F.embedding(i, t).prod())
    a = T(5, 2, requires_grad=True)
    e(a, torch.tensor([0, 0, 3])).backward()
    r.append(a.grad)
    return r


@program
def ddp_like_flat_buffers(C):
    m = nn.Linear(3, 2)
    flat = torch.nn.utils.parameters_to_vector(m.parameters()).detach().clone()

    @C
    def f(vec, x):
        w, b = vec[:6].view(2, 3), vec[6:]
        return F.linear(x, w, b).square().sum()

    v = flat.requires_grad_()
    f(v, T(4, 3)).backward()

    @C
    def ema(avg, new, d):
        for a, n in zip(avg, new):
            a.mul_(d).add_(n, alpha=1 - d)

    a = [p.detach().clone() for p in m.parameters()]
    n = [T(2, 3), T(2)]
    ema(a, n, 0.9)
    ema(a, n, 0.8)

    @C
    def foreach(ps):
        torch._foreach_mul_(ps, 2.0)
        s = torch._foreach_add(ps, 1.0)
        return s, torch._foreach_norm(ps)

    return v.grad, a, foreach(a), foreach(a), a
