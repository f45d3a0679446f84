"""Convolutions with channels innermost: same values, same strides of results, no copies in between."""

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

import inductor.lower.convolution as depthwise
from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.ir.buffer import ExternKernel
from inductor.ir.interp import run_graph
from inductor.lower import lower_graph
from inductor.passes import depthwise as filters
from inductor.passes import layout, run_passes

torch.manual_seed(0)
aten = torch.ops.aten


class Block(nn.Module):
    """Convolution, batch norm and activation, with a residual."""

    def __init__(self, c, groups=1, act=F.relu, bias=False):
        super().__init__()
        self.one, self.bn1 = nn.Conv2d(c, c, 1, bias=bias), nn.BatchNorm2d(c)
        self.three, self.bn2 = nn.Conv2d(c, c, 3, padding=1, groups=groups, bias=bias), nn.BatchNorm2d(c)
        self.act = act
        for bn in (self.bn1, self.bn2):
            bn.running_mean.normal_(0, 0.2)
            bn.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return self.act(self.bn2(self.three(self.act(self.bn1(self.one(x))))) + x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.blocks = nn.Sequential(Block(16), Block(16, groups=16, act=F.hardswish, bias=True))
        self.head = nn.Linear(16 * 16, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        return self.head(F.avg_pool2d(self.blocks(x), 2).flatten(1))


class Squeeze(nn.Module):
    """Weights for channels from their means."""

    def __init__(self):
        super().__init__()
        self.conv, self.down, self.up = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)

    def forward(self, x):
        x = self.conv(x)
        return x * F.hardsigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))


def image(*size):
    return torch.randn(*size)


def weights(*size):
    return nn.Parameter(torch.randn(*size) / 4)


W = weights(16, 3, 3, 3)
MODULES = {
    "net": (Net(), image(2, 3, 32, 32)),
    "squeeze": (Squeeze(), image(2, 3, 9, 9)),
    "features": (nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU()), image(1, 3, 8, 8)),
    "already": (nn.Conv2d(16, 16, 3), image(2, 16, 8, 8).to(memory_format=torch.channels_last)),
    "transposed": (nn.Sequential(nn.ConvTranspose2d(16, 3, 3, 2)), image(2, 16, 5, 5)),
    "grouped": (nn.Conv2d(16, 16, 3, groups=4), image(2, 16, 8, 8)),
    "dilated": (nn.Conv2d(16, 32, 3, dilation=2, groups=16), image(2, 16, 8, 8)),
    "one_channel": (nn.Conv2d(1, 16, 3), image(2, 1, 8, 8)),
    "one_pixel": (nn.Sequential(nn.Conv2d(16, 8, 1), nn.ReLU(), nn.Conv2d(8, 16, 1)), image(2, 16, 1, 1)),
    "strided_input": (nn.Conv2d(16, 16, 3), image(2, 8, 8, 32)[..., ::2].permute(0, 3, 2, 1)),
}


def conv(x):
    return F.conv2d(x, W)


FUNCTIONS = {
    "flatten": lambda x: conv(x).flatten(1) + 1,
    "reshape": lambda x: conv(x).reshape(2, 4, 4, -1).transpose(1, 2).reshape(2, 8, -1),
    "view_of_slice": lambda x: conv(x)[:, 2:8],
    "part": lambda x: (conv(x)[:, 2:8, 1:] * 2)[0],
    "tokens": lambda x: F.layer_norm(conv(x).flatten(2).transpose(1, 2), (16,)).softmax(-1),
    "permuted": lambda x: F.layer_norm(conv(x).permute(0, 2, 3, 1), (16,)).permute(0, 3, 1, 2) + 1,
    "as_strided": lambda x: conv(x).as_strided((4, 4), (4, 1), 5) + 1,
    "unfold": lambda x: F.unfold(conv(x), 2),
    "diagonal": lambda x: conv(x).diagonal(dim1=2, dim2=3) * 2,
    "cumsum": lambda x: conv(x).cumsum(1),
    "cat": lambda x: torch.cat([conv(x), conv(x * 2), x[:, :1, 1:-1, 1:-1]], 1),
    "split": lambda x: [part * k for k, part in enumerate(conv(x).chunk(4, 1))],
    "topk": lambda x: conv(x).topk(3, 1),
    "upsample": lambda x: F.interpolate(conv(x), scale_factor=2, mode="nearest"),
    "pad": lambda x: F.pad(conv(x), (1, 2, 0, 1)).relu(),
    "pools": lambda x: (F.max_pool2d(conv(x), 2, return_indices=True), F.adaptive_avg_pool2d(conv(x), (2, 3))),
    "group_norm": lambda x: F.group_norm(conv(x), 4).relu(),
    "same_twice": lambda x: (lambda y: [y, y * 2, y.view(2, -1)])(conv(x)),
    "with_input": lambda x: (x, x[:, 0], conv(x).exp()),
    "full_like": lambda x: torch.zeros_like(conv(x)) + torch.full_like(conv(x), 2),
    "conv1d": lambda x: F.conv1d(conv(x).flatten(2), torch.ones(3, 16, 2)),
}  # fmt: skip


def graph_of(fn, *args, force=True):
    gm = fx.symbolic_trace(fn) if not isinstance(fn, fx.GraphModule) else fn
    with torch.no_grad():
        made = to_aten(gm, args, decompositions())
        return run_passes(made.graph, made.shared, force), made, [*args, *(v.detach() for v in made.attributes)]


def traced(fn, *args):
    def flat(*xs):
        return torch.utils._pytree.tree_leaves(fn(*xs))

    with torch.no_grad():
        return fx.experimental.proxy_tensor.make_fx(flat)(*args)


def check(module, *args):
    """The graph after the passes, as it is and lowered, gives what the module gives, in the same strides."""
    graph, made, values = graph_of(module, *args)
    with torch.no_grad():
        want = torch.utils._pytree.tree_leaves(module(*args))
        plain = graph(*values)
        lowered = run_graph(lower_graph(graph, made.shared), values)
    for got in (plain, lowered):
        assert len(got) == len(want)
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
            assert all(n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride()))
    return graph


def count(graph, target):
    return len(graph.graph.find_nodes(op="call_function", target=target))


@pytest.mark.parametrize("name", MODULES)
def test_module(name):
    module, x = MODULES[name]
    check(module.eval(), x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    x = image(2, 3, 6, 6)
    check(traced(FUNCTIONS[name], x), x)


def test_copies_only_at_the_ends():
    module, x = MODULES["net"]
    graph = check(module.eval(), x)
    # the image and its filters twice, a filter with more than one tap and channel, and the features at the end
    assert count(graph, aten.clone.default) == 6
    assert count(graph, aten.convolution.default) == 3


@pytest.mark.parametrize(
    ("taps", "padding", "size"),
    [(7, 3, (16, 16)), (3, 1, (9, 12)), ((2, 5), (0, 4), (7, 10)), (4, 0, (11, 5)), (6, "valid", (8, 8))],
)
def test_few_colours_become_blocks(taps, padding, size):
    for colours in (2, 3, 4):
        conv, x = nn.Conv2d(colours, 16, taps, 2, padding), image(2, colours, *size)
        graph = check(nn.Sequential(conv, nn.ReLU()), x)
        (node,) = graph.graph.find_nodes(op="call_function", target=aten.convolution.default)
        assert node.args[0].meta["val"].shape[1] == 16 and node.args[3] == [1, 1]
    for other in (nn.Conv2d(3, 16, 3), nn.Conv2d(8, 16, 3, 2), nn.Conv2d(3, 16, 3, 2, dilation=2)):
        graph = check(nn.Sequential(other), image(2, other.in_channels, 9, 9))
        (node,) = graph.graph.find_nodes(op="call_function", target=aten.convolution.default)
        assert node.args[3] == list(other.stride)


def test_one_tap_is_a_product():
    module, x = MODULES["one_pixel"]
    graph = check(module, x)
    assert count(graph, aten.convolution.default) == 0 and count(graph, aten.addmm.default) == 2
    strided, x = nn.Conv2d(16, 8, 1, stride=2), image(2, 16, 8, 8)
    assert count(check(strided, x), aten.convolution.default) == 1


def test_depthwise_convolution_is_a_loop(monkeypatch):
    monkeypatch.setattr(depthwise, "loops_pay", lambda val, weight, groups: weight[1] == 1)
    for conv in (nn.Conv2d(16, 32, (3, 5), (2, 1), (1, 2), groups=16), nn.Conv2d(16, 16, 3, dilation=2, groups=16)):
        x = image(2, 16, 9, 8)
        graph, made, values = graph_of(nn.Sequential(conv, nn.ReLU()), x)
        lowered = lower_graph(graph, made.shared)
        assert not any(isinstance(b, ExternKernel) for b in lowered.buffers)
        with torch.no_grad():
            torch.testing.assert_close(run_graph(lowered, values)[0], conv(x).relu(), rtol=1e-4, atol=1e-4)


def test_depthwise_filters_share_memory(monkeypatch):
    for module in (depthwise, filters):
        monkeypatch.setattr(module, "loops_pay", lambda val, weight, groups: weight[1] == 1)
    convs = [nn.Conv2d(16, 16, k, padding=k // 2, groups=16, bias=k > 3) for k in (3, 5, 3)]
    graph = check(nn.Sequential(*convs, nn.ReLU()), image(2, 16, 9, 8))
    assert count(graph, aten.cat.default) == 1
    for node in graph.graph.find_nodes(op="call_function", target=aten.convolution.default):
        assert node.args[1].meta["val"].stride(0) == 1


def test_left_alone():
    x = image(2, 3, 6, 6)
    for fn in (lambda x: x.exp(), lambda x: F.conv2d(x, W), lambda x: (lambda y: (y, y[0]))(F.conv2d(x, W))):
        force = len(torch.utils._pytree.tree_leaves(fn(x))) > 1  # two results in one piece of memory
        graph, _, _ = graph_of(traced(fn, x), x, force=force)
        assert count(graph, aten.clone.default) == 0


def test_when_it_pays(monkeypatch):
    monkeypatch.setattr(layout, "_on_tensor_cores", lambda val: True)

    def pays(*convs, channels=3):
        graph, _, _ = graph_of(nn.Sequential(*convs), image(2, channels, 12, 12), force=False)
        return count(graph, aten.clone.default) > 0

    assert pays(nn.Conv2d(3, 32, 3), nn.Conv2d(32, 32, 3, groups=32), nn.Conv2d(32, 64, 1))
    assert not pays(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3))
    assert not pays(nn.Conv2d(64, 64, 3, groups=2), channels=64)
    assert pays(nn.ConvTranspose2d(64, 32, 2, 2), channels=64)


def test_not_without_tensor_cores():
    assert not layout._on_tensor_cores(torch.empty(1))
