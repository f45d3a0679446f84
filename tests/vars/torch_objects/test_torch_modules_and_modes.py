"""Modules, hooks, copies and modes of torch in one graph: results, gradients and state as in eager."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune
from torch_level_support import Table, agree, rand

whole = Table()
broken = Table()


@whole()
def hook_registered_and_removed():
    m = nn.Linear(4, 4)

    def f(x):
        handle = m.register_forward_hook(lambda mod, args, out: out * 2)
        y = m(x)
        handle.remove()
        return y, m(x), len(m._forward_hooks)

    return f, [(rand(2, 4),), (rand(2, 4),)]


@whole()
def hook_that_stays():
    m = nn.Linear(4, 4)

    def f(x):
        m.register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
        return m(x), len(m._forward_pre_hooks), [k in m._forward_pre_hooks for k in list(m._forward_pre_hooks)]

    return f, [(rand(2, 4),), (rand(2, 4),)]


@whole()
def handle_returned():
    class M(nn.Linear):
        def hooked(self):
            return self.register_forward_hook(lambda mod, args, out: out * 2, always_call=True)

    m = M(4, 4)

    def f(x, handles):
        handles.append(m.hooked())
        return m(x)

    handles = []
    return f, [(rand(2, 4), handles), lambda f: handles[0].remove(), (rand(2, 4), [])]


@whole()
def global_hook():
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def f(x):
        with torch.nn.modules.module.register_module_forward_hook(lambda mod, args, out: out * 2):
            y = m(x)
        return y, m(x)

    return f, [(rand(2, 4),), (rand(2, 4),)]


@whole()
def hook_on_a_module_made_here():
    def f(x):
        m = nn.ReLU()
        m.register_forward_hook(lambda mod, args, out: out + 1)
        return m(x)

    return f, [(rand(2, 4),), (rand(2, 4),)]


@whole()
def pruning():
    def f(x):
        m = nn.Linear(4, 4)
        prune.l1_unstructured(m, "weight", 4)
        return m(x)

    return f, [(rand(2, 4, grad=False),), (rand(2, 4, grad=False),)]


@whole()
def clipped_gradients():
    m = nn.Linear(4, 4)
    m(rand(2, 4)).sum().backward()

    def f(x):
        norm = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        nn.utils.clip_grad_value_(m.parameters(), 0.1)
        total = nn.utils.get_total_norm([p.grad for p in m.parameters()])
        return norm, total, m.weight.grad * 1

    return f, [(rand(2, 4, grad=False),), (rand(2, 4, grad=False),)]


@whole()
def copied_modules():
    m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    m.again = m[0]
    m(rand(2, 4)).sum().backward()

    def f(x):
        n = copy.deepcopy(m)
        with torch.no_grad():
            n[0].weight.mul_(2)
        d = copy.deepcopy(m).double()
        same = (n.again is n[0], n[0].weight is m[0].weight, n[0].weight.grad, copy.copy(m)[0] is m[0])
        return n(x), m(x), same, d[0].weight.dtype, n

    return f, [(rand(2, 4, grad=False),), (rand(3, 4, grad=False),)]


@whole((3, 4))
def copied_tensors(x):
    x.grad = x.detach() * 2
    y = copy.deepcopy(x)
    z = copy.copy(x.detach())
    z.add_(1)
    p = nn.Parameter(x.detach())
    q, r = copy.deepcopy([p, p]), copy.copy(p)
    return y * 2, y.grad, z, x.detach() * 1, q[0] is q[1], q[0] is p, type(r) is nn.Parameter, q[0] * 3


@broken((3, 4), grad=False)
def copied_views(x):
    d = copy.deepcopy({"a": x, "b": x[0]})
    d["a"].add_(1)
    return d


@torch.no_grad()
def without(x):
    return x * 2


@torch.autocast("cpu", dtype=torch.bfloat16)
def in_half(x):
    return x @ x.t()


@torch.set_grad_enabled(False)
def switched(x):
    return x * 3


@whole((3, 4))
def decorated(x):
    @torch.no_grad()
    def f(a):
        return a * 2

    @torch.inference_mode()
    def g(a):
        return a * 2

    @torch.set_grad_enabled(False)
    def h(a):
        return a * 2

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def k(a):
        return a @ a.t()

    @torch.profiler.record_function("range")
    def m(a):
        return a + 1

    bare = torch.no_grad(lambda a: a * 3)(x), torch.enable_grad()(lambda a: a + 1)(x)
    named = f.__name__, torch.is_grad_enabled()
    return f(x), g(x).is_inference(), h(x), k(x), m(x), bare, named, without(x), in_half(x), switched(x), x * 2


@whole((3, 4))
def entered_by_name(x):
    mode = torch.no_grad()
    mode.__enter__()
    a = x * 2
    mode.__exit__(None, None, None)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
        b = x @ x.t()
    torch._C._set_grad_enabled(False)
    c = x * 2
    torch._C._set_grad_enabled(True)
    with torch.autocast("cpu") as entered:
        d = x @ x.t()
    return a, b, c, d, x * 3, type(entered) is torch.autocast


@broken((3, 4))
def entered_over_a_break(x):
    mode, other = torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16)
    mode.__enter__()
    other.__enter__()
    a = x @ x.t()
    print(end="")
    b = x @ x.t()
    other.__exit__(None, None, None)
    mode.__exit__(None, None, None)
    return a, b, x * 2, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")


@broken((3, 4), grad=False)
def quantized(x):
    q = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    return q.dequantize(), q.int_repr(), q.is_quantized


@whole((3, 4))
def products_with_sparse(x):
    s = x.detach().relu().to_sparse()
    dense = torch.sparse.mm(s, x.t())
    return dense, torch.sparse.addmm(dense, s, x.t()), torch.sparse.softmax(s, 1).to_dense()


@broken((3, 4), grad=False)
def parts_of_sparse_and_nested(x):
    s = x.relu().to_sparse()
    n = torch.nested.nested_tensor([x[0], x[1, :2]])
    return torch.sparse.mm(s, x.t()), s.coalesce().values() * 2, n.size(0), n.is_nested, F.relu(x)


@pytest.mark.parametrize("build", whole.cases.values(), ids=whole.cases)
def test_one_graph(build):
    agree(build)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("build", broken.cases.values(), ids=broken.cases)
def test_right(build):
    agree(build, breaks=None)


def test_kernels():
    for name in ("copied_tensors", "hook_that_stays"):
        agree(whole.cases[name], "inductor")
