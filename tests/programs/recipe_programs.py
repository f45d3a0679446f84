"""Programs in the style of PyTorch's recipes: each uses one feature around a small model."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from programs_support import program


def grads(m):
    return {k: p.grad for k, p in m.named_parameters()}


@program
def custom_autograd_legendre(C):
    class P3(torch.autograd.Function):
        @staticmethod
        def forward(ctx, input):
            ctx.save_for_backward(input)
            return 0.5 * (5 * input**3 - 3 * input)

        @staticmethod
        def backward(ctx, g):
            (input,) = ctx.saved_tensors
            return g * 1.5 * (5 * input**2 - 1)

    x = torch.linspace(-math.pi, math.pi, 50)
    y = torch.sin(x)
    a, b, c, d = (torch.full((), v, requires_grad=True) for v in (0.0, -1.0, 0.0, 0.3))

    @C
    def step():
        y_pred = a + b * P3.apply(c + d * x)
        loss = (y_pred - y).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            for p in (a, b, c, d):
                p -= 5e-6 * p.grad
                p.grad = None
        return loss

    return [step() for _ in range(3)], a, b, c, d


@program
def per_sample_grads(C):
    from torch.func import functional_call, grad, vmap

    m = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 5))
    params = {k: v.detach() for k, v in m.named_parameters()}
    buffers = {k: v.detach() for k, v in m.named_buffers()}

    def compute_loss(params, buffers, sample, target):
        pred = functional_call(m, (params, buffers), (sample.unsqueeze(0),))
        return F.cross_entropy(pred, target.unsqueeze(0))

    f = C(vmap(grad(compute_loss), in_dims=(None, None, 0, 0)))
    r = []
    for b in (4, 4, 3):
        r.append(f(params, buffers, torch.randn(b, 1, 8, 8), torch.arange(b) % 5))

    @C
    def g(x, t):
        return vmap(grad(compute_loss), in_dims=(None, None, 0, 0))(params, buffers, x, t)

    r.append(g(torch.randn(2, 1, 8, 8), torch.tensor([1, 2])))
    return r


@program
def parametrizations(C):
    import torch.nn.utils.parametrize as P

    class Symmetric(nn.Module):
        def forward(self, X):
            return X.triu() + X.triu(1).transpose(-1, -2)

    class Exp(nn.Module):
        def forward(self, X):
            return torch.matrix_exp(X)

    class Skew(nn.Module):
        def forward(self, X):
            A = X.triu(1)
            return A - A.transpose(-1, -2)

    l = nn.Linear(3, 3)
    P.register_parametrization(l, "weight", Symmetric())
    l2 = nn.Linear(3, 3)
    P.register_parametrization(l2, "weight", Skew())
    P.register_parametrization(l2, "weight", Exp())
    l3 = torch.nn.utils.parametrizations.orthogonal(nn.Linear(4, 3))
    l4 = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 4), name="weight")
    l5 = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
    m = nn.Sequential(l, l2, l4, l3, l4, l5)
    cm = C(m)
    r = []
    for b in (2, 2, 5):
        o = cm(torch.randn(b, 3))
        o.sum().backward()
        r.append(o)
    with P.cached():
        r.append(cm(torch.randn(2, 3)))
    P.remove_parametrizations(l, "weight", leave_parametrized=True)
    r.append(cm(torch.randn(2, 3)))
    m.eval()
    r.append(cm(torch.ones(2, 3)))
    return r, grads(m), dict(m.state_dict())


@program
def pruning(C):
    import torch.nn.utils.prune as prune

    m = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 5))
    cm = C(m)
    x = torch.randn(2, 1, 8, 8)
    r = [cm(x)]
    prune.random_unstructured(m[0], name="weight", amount=0.3)
    r.append(cm(x))
    prune.l1_unstructured(m[0], name="bias", amount=1)
    r.append(cm(x))
    prune.ln_structured(m[3], name="weight", amount=0.5, n=2, dim=0)
    o = cm(x)
    o.sum().backward()
    r.append(o)
    prune.remove(m[0], "weight")
    r.append(cm(x))
    return r, grads(m), dict(m.state_dict())


@program
def hooks_tutorial(C):
    log = []
    m = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    acts = {}

    def get(name):
        def hook(model, input, output):
            acts[name] = output.detach()

        return hook

    h = m[0].register_forward_hook(get("fc0"))
    m[1].register_forward_hook(get("relu"))
    m[2].register_forward_pre_hook(lambda mod, inp: (inp[0] * 2,))
    cm = C(m)
    x = torch.randn(2, 3)
    r = [cm(x), dict(acts)]
    h.remove()
    acts.clear()
    r += [cm(x), dict(acts)]
    m[0].register_full_backward_hook(lambda mod, gi, go: log.append([g if g is None else g.clone() for g in gi + go]))
    o = cm(x)
    o.sum().backward()
    r.append(o)
    m[0].weight.register_hook(lambda g: g * 10)
    o = cm(x)
    o.sum().backward()
    return r, log, grads(m)


@program
def amp_gradscaler_cpu(C):
    m = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    cm = C(m)
    opt = torch.optim.SGD(m.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu")
    r = []
    for i in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            o = cm(torch.randn(5, 8))
            assert o.dtype is torch.bfloat16
            loss = F.mse_loss(o, torch.ones(5, 4))
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(m.parameters(), max_norm=0.1)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad(set_to_none=(i == 1))
        r += [loss, o, scaler.get_scale()]
    return r, dict(m.state_dict())


@program
def amp_inside(C):
    m = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.LayerNorm(8),
        nn.Linear(8, 4),
    )

    @C
    def f(x, y):
        with torch.amp.autocast("cpu", dtype=torch.bfloat16):
            o = m(x)
            with torch.autocast("cpu", enabled=False):
                o2 = o.float().softmax(-1)
            return F.cross_entropy(o, y), o, o2

    r = []
    for b in (2, 2, 4):
        l, o, o2 = f(torch.randn(b, 3, 8, 8), torch.arange(b))
        l.backward()
        r.append((l, o, o2))
    return r, dict(m.named_buffers())


@program
def optimizer_with_scheduler(C):
    m = nn.Linear(3, 2)
    opt = torch.optim.Adam(m.parameters(), lr=torch.tensor(0.01))
    sch = torch.optim.lr_scheduler.LinearLR(opt, total_iters=5)

    @C(fullgraph=False)
    def fn():
        opt.step()
        sch.step()

    x = torch.randn(4, 3)
    r = []
    for _ in range(4):
        opt.zero_grad(True)
        m(x).sum().backward()
        fn()
        r.append(opt.param_groups[0]["lr"].clone())
    opt2 = torch.optim.SGD(m.parameters(), lr=0.5)
    s2 = torch.optim.lr_scheduler.CosineAnnealingLR(opt2, 10)
    step = C(opt2.step)
    for _ in range(4):
        opt2.zero_grad(True)
        m(x).sum().backward()
        step()
        s2.step()
        r.append(opt2.param_groups[0]["lr"])
    return r, dict(m.state_dict())


@program
def checkpointing(C):
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential

    m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.GELU(), nn.Linear(4, 4))

    @C
    def f(x):
        return checkpoint(m, x, use_reentrant=False).sum() + checkpoint_sequential(m, 2, x, use_reentrant=False).mean()

    r = []
    for b in (2, 2, 5):
        x = torch.randn(b, 4, requires_grad=True)
        l = f(x)
        l.backward()
        r += [l, x.grad]
    g = C(m)
    x = torch.randn(3, 4, requires_grad=True)
    l = checkpoint(g, x, use_reentrant=False).sum()
    l.backward()
    r += [l, x.grad]
    x = torch.randn(3, 4, requires_grad=True)
    l = checkpoint(g, x, use_reentrant=True).sum()
    l.backward()
    r += [l, x.grad]
    return r, grads(m)


@program
def dataloader_loop(C):
    from torch.utils.data import DataLoader, Dataset

    class DS(Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, i):
            return {"x": torch.full((3,), float(i)), "y": i % 2, "name": f"s{i}"}

    m = nn.Linear(3, 2)
    cm = C(m)
    opt = torch.optim.Adam(m.parameters())
    r = []
    for ep in range(2):
        for batch in DataLoader(DS(), batch_size=4, shuffle=True):
            l = F.cross_entropy(cm(batch["x"]), batch["y"])
            opt.zero_grad()
            l.backward()
            opt.step()
            r.append((l.item(), batch["name"]))
    return r, dict(m.state_dict())


@program
def save_load(C):
    import io

    m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    cm = C(m)
    x = torch.randn(5, 3)
    r = [cm(x)]
    buf = io.BytesIO()
    torch.save(cm.state_dict(), buf)
    buf.seek(0)
    m2 = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    m2.load_state_dict(torch.load(buf, weights_only=True))
    c2 = C(m2)
    r.append(c2(x))
    r.append(list(cm.state_dict()))
    sd = {k: torch.zeros_like(v) for k, v in m.state_dict().items()}
    cm.load_state_dict(sd)
    r.append(cm(x))
    cm.load_state_dict(m2.state_dict(), assign=True)
    r.append(cm(x))
    return r, dict(m.state_dict())


@program
def ema_model(C):
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    ema = AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    cm = C(m)
    ce = C(ema)
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    r = []
    upd = C(ema.update_parameters)
    for _ in range(3):
        cm(torch.randn(4, 3)).square().mean().backward()
        opt.step()
        opt.zero_grad()
        upd(m)
    ema.eval()
    r.append(ce(torch.randn(2, 3)))
    return r, dict(ema.state_dict())


@program
def jacobians(C):
    from torch.func import grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

    W = torch.randn(3, 4)
    b = torch.randn(3)

    def predict(W, b, x):
        return F.linear(x, W, b).tanh()

    x = torch.randn(4)
    r = [
        C(jacrev(predict, argnums=0))(W, b, x),
        C(jacfwd(predict, argnums=2))(W, b, x),
        C(hessian(predict, argnums=2))(W, b, x),
    ]

    @C
    def f(x):
        out, fn = vjp(lambda t: predict(W, b, t), x)
        return out, fn(torch.ones_like(out)), jvp(lambda t: predict(W, b, t), (x,), (torch.ones_like(x),))

    r.append(f(x))
    r.append(f(x + 1))

    @C
    def h(xs):
        return vmap(hessian(lambda t: predict(W, b, t).sum()))(xs), vmap(grad_and_value(lambda t: (t**3).sum()))(xs)

    r.append(h(torch.randn(5, 4)))
    r.append(h(torch.randn(2, 4)))
    return r
