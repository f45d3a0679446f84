"""Operators, dtypes, layouts, sizes and random numbers."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from programs_support import program

T = torch.randn


def each(C, fs, *argsets, **kw):
    r = []
    for i, f in enumerate(fs):
        c = C(f, **kw)
        for a in argsets:
            a = [t.clone() if isinstance(t, torch.Tensor) else t for t in a]
            r.append((i, c(*a)))
    return r


def grads(C, fs, *argsets):
    r = []
    for i, f in enumerate(fs):
        c = C(f)
        for a in argsets:
            a = [
                t.clone().requires_grad_()
                if isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex())
                else t
                for t in a
            ]
            o = c(*a)
            (o.abs() if o.is_complex() else o).square().sum().backward() if not o.is_complex() else (
                o * torch.arange(1.0, 1 + o.numel()).view(o.shape)
            ).abs().sum().backward()
            r.append((i, o, [t.grad for t in a if isinstance(t, torch.Tensor)]))
    return r


@program
def rope_complex(C):
    def precompute(dim, end, theta=10000.0):
        freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
        t = torch.arange(end)
        return torch.polar(torch.ones(end, dim // 2), torch.outer(t, freqs))

    def apply(xq, xk, freqs):
        a = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
        b = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
        f = freqs.view(1, a.shape[1], 1, a.shape[-1])
        return torch.view_as_real(a * f).flatten(3).type_as(xq), torch.view_as_real(b * f).flatten(3).type_as(xk)

    c = C(apply)
    r = []
    for n in (5, 5, 7):
        q, k = T(2, n, 2, 8, requires_grad=True), T(2, n, 2, 8, requires_grad=True)
        a, b = c(q, k, C(precompute)(8, n))
        (a * b).sum().backward()
        r += [a, b, q.grad, k.grad]
    return r


@program(tol=1e-4)
def stft_istft(C):
    def spec(x):
        return torch.stft(x, 16, 4, 16, torch.hann_window(16), return_complex=True, center=True)

    def mag(x):
        return spec(x).abs().clamp_min(1e-5).log()

    def rt(x):
        return torch.istft(spec(x), 16, 4, 16, torch.hann_window(16), length=x.shape[-1])

    return each(C, [spec, mag, rt], (T(2, 64),), (T(3, 48),)), grads(C, [mag, rt], (T(2, 64),))


T_ = torch.arange(16.0).view(4, 4).cos()


@program
def zero_dim(C):
    fs = [
        lambda x: x + 1,
        lambda x: x * x.item(),
        lambda x: x.sum(),
        lambda x: x.view(1, 1),
        lambda x: x.expand(3),
        lambda x: x.unsqueeze(0) @ x.unsqueeze(0),
        lambda x: torch.stack([x, x]),
        lambda x: x.softmax(0),
        lambda x: x.max(),
        lambda x: x.reshape(-1).cumsum(0),
        lambda x: T_ * x,
        lambda x: T_[0, 0] + x.double(),
        lambda x: x.int() + 1.5,
        lambda x: x.flatten(),
        lambda x: x.clamp(0, 1),
        lambda x: x.argmax(),
        lambda x: x.squeeze().t(),
        lambda x: torch.tensor(3.0) + x,
        lambda x: x.sin_(),
    ]
    return each(C, fs, (torch.tensor(0.5),), (torch.tensor(2.0),)), grads(
        C, [f for i, f in enumerate(fs) if i not in (1, 15, 12, 18)], (torch.tensor(0.5),)
    )


@program
def noncontiguous(C):
    fs = [
        lambda x: x + x.flip(0),
        lambda x: x.sum(0),
        lambda x: x @ x.transpose(-1, -2),
        lambda x: x.reshape(-1),
        lambda x: F.gelu(x) * 2,
        lambda x: x.softmax(-1),
        lambda x: x.clone(),
        lambda x: torch.empty_like(x).fill_(2),
        lambda x: x.contiguous(),
        lambda x: x.add_(1),
        lambda x: x[1:] * 2,
        lambda x: torch.where(x > 0, x, -x),
        lambda x: F.layer_norm(x, (x.shape[-1],)),
        lambda x: x.double(),
        lambda x: x.view(x.shape),
        lambda x: torch.zeros_like(x) + 1,
        lambda x: x.cumsum(-1),
        lambda x: torch.rand_like(x),
    ]
    a = T(4, 6, 5)
    return [
        each(C, fs, (v,))
        for v in (
            a.transpose(0, 2),
            a[:, ::2],
            a[..., 1:4],
            a.permute(1, 2, 0),
            a[:1].expand(3, 6, 5),
            a[..., :1],
            a.flatten()[1:121].view(4, 6, 5) if False else a.flatten()[2:118:2].view(2, 29, 1),
            torch.empty(2, 3, 4).copy_(a[:2, :3, :4]).to_sparse().to_dense(),
        )
    ]


@program
def factories_rng(C):
    @C
    def f(n):
        return (
            torch.randn(n),
            torch.rand(n, 2, dtype=torch.float64),
            torch.randint(0, 10, (n,)),
            torch.randperm(n),
            torch.normal(0.0, 1.0, (n,)),
            torch.normal(torch.zeros(n), 2.0),
            torch.bernoulli(torch.full((n,), 0.5)),
            torch.multinomial(torch.ones(4), 2),
            torch.empty(n).uniform_(-1, 1),
            torch.empty(n).normal_(),
            torch.empty(n).exponential_(),
            torch.empty(n).log_normal_(),
            torch.empty(n).geometric_(0.3),
            torch.empty(n).cauchy_(),
            torch.empty(n, dtype=torch.long).random_(5),
            torch.poisson(torch.ones(n)),
            F.dropout(torch.ones(n)),
            F.feature_dropout(torch.ones(1, n, 2)) if hasattr(F, "feature_dropout") else 0,
            torch.nn.init.xavier_uniform_(torch.empty(n, n)),
            torch.randn(n, dtype=torch.bfloat16),
            torch.randn(n, dtype=torch.complex64),
            torch.binomial(torch.ones(n) * 5, torch.ones(n) * 0.5),
            torch.nn.init.trunc_normal_(torch.empty(n)),
            torch.nn.init.orthogonal_(torch.empty(n, n)),
            torch.randint_like(torch.ones(n), 5),
        )

    @C
    def g():
        return (
            torch.arange(3),
            torch.arange(0, 1, 0.3),
            torch.linspace(0, 1, 4),
            torch.logspace(0, 1, 3),
            torch.eye(2, 3),
            torch.full((2,), True),
            torch.full((2,), 3),
            torch.tensor([[1, 2]]),
            torch.tensor(1.5),
            torch.ones(2, requires_grad=True),
            torch.tril_indices(3, 3),
            torch.hann_window(4),
            torch.tensor([True]),
            torch.tensor([1, 2.5]),
            torch.zeros(2, dtype=torch.int8),
            torch.scalar_tensor(3),
            torch.empty(0),
            torch.as_tensor([1]),
            torch.triu(torch.ones(3, 3)),
            torch.tensor([]),
            torch.hamming_window(5),
            torch.asarray([1.0, 2.0]),
            torch.tensor(2**40),
            torch.arange(5, 1, -2),
            torch.arange(2.0),
            torch.blackman_window(3),
        )

    @C
    def h(x, gen):
        return x + torch.randn(3, generator=gen), torch.rand(2, generator=gen)

    gen = torch.Generator().manual_seed(3)
    r = [f(4), f(4), f(6), g(), g(), h(T(3), gen), h(T(3), gen)]

    @C
    def k(x):
        torch.manual_seed(7)
        a = torch.rand(2)
        s = torch.get_rng_state()
        b = torch.rand(2)
        torch.set_rng_state(s)
        return a, b, torch.rand(2), torch.initial_seed()

    r.append(k(1))
    r.append(k(1))
    return r


@program
def dropout_reproducible(C):
    m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    c = C(m)
    x = T(3, 4)
    r = []
    for s in (1, 2, 1):
        torch.manual_seed(s)
        r.append(c(x))
    return r, torch.equal(r[0], r[2]), torch.equal(r[0], r[1])


@program
def distributions(C):
    import torch.distributions as D

    @C
    def f(mu, s, x):
        n = D.Normal(mu, s)
        c = D.Categorical(logits=mu)
        b = D.Bernoulli(logits=mu)
        r = n.rsample()
        k = D.kl_divergence(n, D.Normal(torch.zeros_like(mu), torch.ones_like(s)))
        return (
            n.log_prob(x),
            n.entropy(),
            r,
            k,
            c.log_prob(torch.tensor(1)),
            c.entropy(),
            c.sample(),
            b.log_prob((x > 0).float()),
            n.cdf(x),
            D.Independent(n, 1).log_prob(x),
        )

    @C
    def g(a, x):
        return (
            D.Beta(a, a + 1).log_prob(x),
            D.Gamma(a, a).log_prob(x),
            D.Dirichlet(a).log_prob(x / x.sum()),
            D.Laplace(a, a).log_prob(x),
            D.Exponential(a).rsample(),
            D.Uniform(a * 0, a).rsample(),
            D.LogNormal(a, a).log_prob(x),
            D.StudentT(a).log_prob(x),
            D.Poisson(a).log_prob(x.round()),
            D.MultivariateNormal(a, torch.eye(3)).log_prob(x),
            D.Gumbel(a, a).log_prob(x),
            D.TransformedDistribution(D.Normal(a, a), [D.TanhTransform()]).rsample(),
            D.OneHotCategorical(a).sample(),
            D.MixtureSameFamily(D.Categorical(a), D.Normal(a, a)).log_prob(x[0]),
            D.RelaxedOneHotCategorical(torch.tensor(0.5), a).rsample(),
        )

    r = []
    for _ in range(2):
        mu, s = T(3, requires_grad=True), T(3).exp().requires_grad_()
        o = f(mu, s, T(3))
        sum(t.sum() for t in o if t.requires_grad).backward()
        r += [o, mu.grad, s.grad]
        r.append(g(torch.rand(3) + 0.5, torch.rand(3) * 0.8 + 0.1))
    return r


@program
def sparse_tensors(C):
    i = torch.tensor([[0, 1, 1], [2, 0, 2]])
    v = torch.tensor([3.0, 4.0, 5.0])

    @C
    def f(v, d):
        s = torch.sparse_coo_tensor(i, v, (2, 3))
        return torch.sparse.mm(s, d), s.to_dense() + 1, (s @ d).relu(), torch.sparse.sum(s)

    @C
    def g(s, d):
        return s @ d, s.coalesce().values() * 2, s * 2

    s = torch.sparse_coo_tensor(i, v, (2, 3))
    r = [f(v, T(3, 2)), f(v, T(3, 2)), g(s, T(3, 4)), g(s, T(3, 4))]
    vg = v.clone().requires_grad_()
    o = f(vg, T(3, 2))
    o[0].sum().backward()
    r.append(vg.grad)
    csr = torch.eye(3).to_sparse_csr()
    r.append(C(lambda a, b: a @ b)(csr, T(3, 2)))
    return r


@program
def quantized_style(C):
    @C
    def fq(x, scale, zp):
        return torch.fake_quantize_per_tensor_affine(x, scale, zp, 0, 255), torch.clamp(
            torch.round(x / scale) + zp, 0, 255
        ).to(torch.uint8)

    @C
    def ste(x):
        return x + (x.round() - x).detach()

    @C
    def int8mm(a, b, s):
        return (a.to(torch.int32) @ b.to(torch.int32)).float() * s

    x = T(5, requires_grad=True)
    o = fq(x, 0.1, 128)
    o[0].sum().backward()
    y = T(4, requires_grad=True)
    p = ste(y)
    p.sum().backward()
    return (
        o,
        x.grad,
        p,
        y.grad,
        int8mm(
            torch.randint(-128, 127, (3, 4), dtype=torch.int8), torch.randint(-128, 127, (4, 2), dtype=torch.int8), 0.1
        ),
        C(lambda x: (x.to(torch.float8_e4m3fn).float(), x.to(torch.float8_e5m2).float()))(T(8)),
    )


@program
def dynamic_batches(C):
    m = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    )
    c = C(m)
    r = []
    for b, s in ((2, 8), (3, 8), (5, 10), (1, 8), (7, 13), (2, 9)):
        o = c(T(b, 3, s, s))
        r.append(o)
        if b > 1:
            F.cross_entropy(o, torch.arange(b) % 3).backward()
    f = C(lambda x, n: x[:n].reshape(n, -1).repeat(1, n).sum(0) / n)
    r += [f(T(6, 4), n) for n in (2, 3, 5, 1, 6)]
    g = C(lambda xs: torch.cat(xs).cumsum(0)[:: max(1, len(xs) - 1)])
    r += [g([T(n, 2) for n in ns]) for ns in ((1, 2), (3, 4), (2, 5), (1, 2, 3), (0, 2), (6, 6))]
    h = C(lambda x: x.view(x.shape[0] // 2, 2, -1).mean(1) if x.shape[0] % 2 == 0 else x)
    r += [h(T(n, 3)) for n in (4, 5, 6, 8, 7, 2, 1)]
    return r, {k: p.grad for k, p in m.named_parameters()}, dict(m.named_buffers())


@program
def attention_from_scratch(C):
    class Attn(nn.Module):
        def __init__(self, d, h):
            super().__init__()
            self.h = h
            self.qkv = nn.Linear(d, 3 * d)
            self.o = nn.Linear(d, d)
            self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))
            self.d = nn.Dropout(0.1)

        def forward(self, x, pad=None, past=None):
            B, L, D = x.shape
            q, k, v = (t.view(B, L, self.h, D // self.h).transpose(1, 2) for t in self.qkv(x).split(D, dim=2))
            if past is not None:
                k = torch.cat([past[0], k], 2)
                v = torch.cat([past[1], v], 2)
            S = k.shape[2]
            a = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
            a = a.masked_fill(self.mask[:, :, S - L : S, :S] == 0, float("-inf"))
            if pad is not None:
                a = a.masked_fill(pad[:, None, None, :], torch.finfo(a.dtype).min)
            a = self.d(a.softmax(-1))
            return self.o((a @ v).transpose(1, 2).reshape(B, L, D)), (k, v)

    m = Attn(8, 2)
    c = C(m)
    r = []
    for n in (4, 4, 6):
        o, kv = c(T(2, n, 8))
        o.square().sum().backward()
        r.append(o)
    m.eval()
    r.append({k: p.grad.clone() for k, p in m.named_parameters()})
    with torch.no_grad():
        x = T(2, 3, 8)
        o, kv = c(x)
        for _ in range(4):
            o, kv = c(o[:, -1:], past=kv)
            r.append(o)
        r.append(c(x, pad=torch.tensor([[0, 0, 1], [0, 1, 1]]).bool())[0])
    return r
