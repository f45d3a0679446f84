"""Small models trained through compiled forward and backward: eager is the oracle."""

import copy

import forked_python
import pytest
import torch
from torch import fx, nn
from torch._decomp import core_aten_decompositions
from torch.nn import functional as F
from training_support import plain, record, set_grad

import inductor
from inductor.aot.autograd import compile_training
from inductor.aot.joint import to_joint
from inductor.aot.memory import is_random

TABLES = [None, core_aten_decompositions()]


class Loss(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, y):
        return (F.mse_loss(self.body(x), y),)


def fresh(inputs):
    return [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]


def compare_training(model, inputs, table=None, steps=2, tolerance=None):
    """A few steps of SGD each way from the same seed: losses, gradients, parameters, buffers."""
    mine, theirs = model, copy.deepcopy(model)
    compiled = compile_training(fx.symbolic_trace(mine), fresh(inputs), plain, table)
    close = lambda a, b, name: torch.testing.assert_close(
        a, b, rtol=tolerance, atol=tolerance, msg=lambda m: f"{name}: {m}"
    )
    losses = []
    for call, module in ((compiled, mine), (theirs, theirs)):
        torch.manual_seed(3)
        optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
        losses.append([])
        for step in range(steps):
            optimizer.zero_grad()
            given = fresh(inputs)
            out = call(*given)
            out[0].backward()
            losses[-1].append([x.detach().clone() for x in out] + [x.grad for x in given])
            if step < steps - 1:
                optimizer.step()
    close(losses[0], losses[1], "results")
    for (name, a), (_, b) in zip(mine.named_parameters(), theirs.named_parameters()):
        close(a, b, name)
        assert a.requires_grad == b.requires_grad and (a.grad is None) == (b.grad is None)
        close(a.grad, b.grad, f"{name}.grad")
    close(dict(mine.named_buffers()), dict(theirs.named_buffers()), "buffers")
    return compiled


class Block(nn.Module):
    def __init__(self, width=16, heads=2, dropout=0.0):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = 2, 5, 16
        q, k, v = self.qkv(self.first(x)).split(c, 2)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(a.transpose(1, 2).reshape(b, t, c)), self.dropout, True)
        return x + F.dropout(self.down(F.gelu(self.up(self.second(x)))), self.dropout, True)


class GPT(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 16), nn.Embedding(5, 16)
        self.blocks = nn.ModuleList(Block(dropout=dropout) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 11, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("positions", torch.arange(5), persistent=False)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.places(self.positions)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, 11), targets.view(-1)), logits


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3, stride=2), nn.BatchNorm2d(8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(8, 4),
        )  # fmt: skip

    def forward(self, x, y):
        return (F.cross_entropy(self.body(x), y),)


def ids(seed):
    return torch.randint(0, 11, (2, 5), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("table", TABLES, ids=["aten", "core"])
def test_linear_relu_loss(table):
    model = Loss(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    compare_training(model, [torch.randn(3, 4, requires_grad=True), torch.randn(3, 2)], table)


@pytest.mark.parametrize("table", TABLES, ids=["aten", "core"])
def test_gpt_with_tied_embeddings(table):
    torch.manual_seed(0)
    compare_training(GPT(), [ids(0), ids(1)], table, tolerance=1e-4)


@pytest.mark.parametrize("table", TABLES, ids=["aten", "core"])
def test_batch_norm_and_convolutions(table):
    torch.manual_seed(0)
    inputs = [torch.randn(4, 3, 10, 10), torch.tensor([0, 1, 2, 3])]
    compare_training(ConvNet(), inputs, table, tolerance=1e-4)


def test_batch_norm_in_eval_mode_reads_its_statistics():
    torch.manual_seed(0)
    model = ConvNet().eval()
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
    compare_training(model, [torch.randn(4, 3, 10, 10, requires_grad=True), torch.arange(4)], tolerance=1e-4)


@pytest.mark.parametrize("table", TABLES, ids=["aten", "core"])
def test_dropout_draws_eagers_masks(table):
    torch.manual_seed(0)
    compare_training(GPT(dropout=0.3), [ids(0), ids(1)], table, tolerance=1e-4)


def test_random_operators_are_not_decomposed():
    fn = lambda x: (F.dropout(x, 0.5), torch.rand_like(x) + x, x + torch.randn_like(x))
    gm = to_joint(fx.symbolic_trace(fn), [torch.randn(3, requires_grad=True)], core_aten_decompositions()).graph
    assert sum(is_random(node.target) for node in gm.graph.nodes) == 3


def noisy(x):
    torch.rand_like(x)
    a = F.dropout(x, 0.5) * torch.rand_like(x)
    b = F.alpha_dropout(x, 0.2, True) + torch.randn_like(x) + F.rrelu(x, training=True)
    return a, b, torch.bernoulli(x.sigmoid()), torch.normal(x, 1.0) + torch.feature_dropout(x, 0.4, True)


def test_random_operators_come_in_eagers_order_even_if_nobody_uses_them():
    x = torch.randn(40, 30, requires_grad=True)
    call = compile_training(fx.symbolic_trace(noisy), [x], plain)
    seen = []
    for fn in (call, noisy):
        torch.manual_seed(11)
        out = fn(x)
        seen.append((out, torch.autograd.grad(sum(y.sum() for y in out), x), torch.get_rng_state()))
    torch.testing.assert_close(*seen)


def test_frozen_parts_get_no_gradient():
    torch.manual_seed(0)
    model = Loss(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)))
    model.body[0].requires_grad_(False)
    model.body[3].bias.requires_grad_(False)
    compare_training(model, [torch.randn(3, 4), torch.randn(3, 2)])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight
        self.c = self.a

    def forward(self, x, y):
        return (F.mse_loss(self.c(self.b(self.a(x).relu()).relu()), y),)


def test_tied_weights_get_one_gradient():
    compare_training(Tied(), [torch.randn(3, 4), torch.randn(3, 4)])


class Cast(nn.Module):
    """Autocast over part of the graph, one weight used twice, a region without gradients inside."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x, y):
        enter = record(x, torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, True)
        h = self.a(self.a(x).relu())
        set_grad(x, False)
        scale = self.b(h).softmax(-1).mean()
        set_grad(x, True)
        out = self.b(h) * scale
        if isinstance(x, fx.Proxy):
            x.tracer.create_proxy("call_function", torch.amp.autocast_mode._exit_autocast, (enter,), {})
        else:
            torch.amp.autocast_mode._exit_autocast(enter)
        return F.mse_loss(out.float(), y), h


def test_autocast_and_no_grad_regions():
    torch.manual_seed(0)
    compare_training(Cast(), [torch.randn(5, 8, requires_grad=True), torch.randn(5, 4)])


def test_autocast_around_the_call():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1), nn.Linear(8, 4))
    x = torch.randn(5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        call = compile_training(fx.symbolic_trace(model), [x], plain)
        got, want = call(x), model(x)
    torch.testing.assert_close(got, want)
    assert got.dtype == torch.bfloat16
    parameters = list(model.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(got.float().sum(), parameters), torch.autograd.grad(want.float().sum(), parameters)
    )


def test_nodes_keep_the_users_lines():
    gm = fx.symbolic_trace(lambda x: (x.sin() * x[0],))
    for node in gm.graph.nodes:
        node.meta["stack_trace"] = f"line of {node.name}"
    graph = to_joint(gm, [torch.randn(3, requires_grad=True)]).graph.graph
    lines = {node.name: node.meta.get("stack_trace") for node in graph.nodes}
    assert lines["sin"] == lines["cos"] == "line of sin"
    assert lines["select"] == lines["select_backward"] == "line of getitem"
    assert lines["mul"] == lines["mul_1"] == "line of mul"


def test_the_inputs_of_a_trace_are_left_alone():
    x, w = torch.randn(3, 4), torch.randn(4, 4, requires_grad=True)
    gm = fx.symbolic_trace(lambda x, w: (x.add_(1) @ w,))
    before, version = x.clone(), x._version
    compile_training(gm, [x, w], plain)
    torch.testing.assert_close(x, before)
    assert x._version == version and not x.requires_grad and w.grad is None


def test_the_peers_are_not_imported():
    code = (
        "import torch, sys\nfrom torch import fx\nfrom inductor.aot.autograd import compile_training\n"
        "x = torch.randn(3, 4, requires_grad=True)\n"
        "fn = lambda x: torch.nn.functional.dropout(x.relu() @ x.t()).sum()\n"
        "compile_training(fx.symbolic_trace(fn), [x], lambda gm: gm.forward)(x).backward()\n"
        "bad = [m for m in sys.modules if m.startswith(('torch._dynamo', 'torch._inductor', 'torch._functorch.aot'))]\n"
        "assert x.grad is not None and not bad, bad"
    )
    done = forked_python.run(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore:inductor")
def test_second_derivative_through_batch_norm_counts_once():
    torch.manual_seed(0)
    mine = Loss(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2)))
    theirs = copy.deepcopy(mine)
    x, y = torch.randn(6, 4, requires_grad=True), torch.randn(6, 2)
    call = compile_training(fx.symbolic_trace(mine), [x, y], plain)
    seen = []
    for fn, module in ((call, mine), (theirs, theirs)):
        (g,) = torch.autograd.grad(fn(x, y)[0], x, create_graph=True)
        seen.append((g, torch.autograd.grad(g.square().sum(), list(module.parameters())), dict(module.named_buffers())))
    torch.testing.assert_close(*seen, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("running", [True, False])
def test_batch_norm_under_autocast(running):
    """Statistics of a bfloat16 input are float32, whatever torch's own description of the operator says."""

    def fn(x, w, g, b, mean, var):
        y = F.conv2d(x, w)
        stats = (mean, var) if running else (None, None)
        return F.relu(F.batch_norm(y, *stats, g, b, training=True, momentum=0.3))

    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 3, 9, 9), (6, 3, 3, 3), (6,), (6,)]
    leaves = [torch.randn(s, generator=generator).requires_grad_() for s in shapes]
    seen = []
    for compiled in (True, False):
        inputs = [*leaves, torch.zeros(6), torch.ones(6)]
        with torch.autocast("cpu", torch.bfloat16):
            call = inductor.compile_fx(fx.symbolic_trace(fn), inputs, options={"strict": True}) if compiled else fn
            out = call(*inputs)
        seen.append((out, *torch.autograd.grad(out.float().square().sum(), leaves), *inputs[4:]))
    torch.testing.assert_close(*seen, rtol=3e-2, atol=3e-2)
