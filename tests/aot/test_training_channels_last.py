"""Convolutional networks in training with channels innermost: eager's losses, gradients and strides."""

import copy

import pytest
import torch
import torch.nn.functional as F
from test_layout_pass import Block, Net, Squeeze
from torch import fx, nn

import inductor
from inductor.aot import batch_norm
from inductor.aot import training_decompositions as rewritten
from inductor.aot.joint import to_joint
from inductor.passes import layout, run_joint_passes

aten = torch.ops.aten
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


def network():
    """Every kind of convolution, and what reads the results in the old layout."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(16), Block(16, groups=16),
        nn.Conv2d(16, 32, 1, stride=2), nn.GroupNorm(4, 32), nn.ConvTranspose2d(32, 16, 2, 2), nn.GELU(),
        nn.Conv2d(16, 8, 1), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5),
    )  # fmt: skip


class Returned(nn.Module):
    """Results of convolutions that the caller sees, one of them a view."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 1)

    def forward(self, x):
        y = self.one(x)
        z = self.two(y.sin())
        return y, z[:, 2:5], z.flatten(1).softmax(-1)


MODULES = {
    "network": network,
    "net": Net,
    "squeeze": Squeeze,
    "returned": Returned,
    "filters_only": lambda: nn.Sequential(nn.Conv2d(3, 16, 1, bias=False), nn.Hardswish()),
}


def leaves(out):
    return torch.utils._pytree.tree_leaves(out)


def strides(x):
    return [s for n, s in zip(x.shape, x.stride()) if n > 1]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("image_grad", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_gradients(name, image_grad, device, monkeypatch):
    monkeypatch.setattr(layout, "_pays", lambda *args: True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    mine, x = MODULES[name]().to(device), torch.randn(2, 3, 32, 32, device=device, requires_grad=image_grad)
    theirs = copy.deepcopy(mine)
    call = inductor.compile_fx(fx.symbolic_trace(mine), [x], options={"strict": True, "cache": False})
    seen = []
    for fn, module in ((call, mine), (theirs, theirs)):
        x.grad = None
        for _ in range(2):
            out = leaves(fn(x))
            sum(F.mse_loss(y, torch.ones_like(y)) for y in out).backward()
        gradients = [p.grad for p in module.parameters()] + [x.grad] * image_grad
        seen.append(([*out, *gradients], dict(module.named_buffers())))
    (got, buffers), (want, eager_buffers) = seen
    torch.testing.assert_close(got, want, rtol=2e-4, atol=2e-4)
    torch.testing.assert_close(buffers, eager_buffers, rtol=1e-4, atol=1e-4)
    assert [strides(x) for x in got] == [strides(x) for x in want]


def joint_graph(module, x, monkeypatch):
    monkeypatch.setattr(batch_norm, "_rewritten", lambda x: True)  # batch norm, as on a GPU
    joint = to_joint(fx.symbolic_trace(module), [x], rewritten.training_decompositions()).graph
    run_joint_passes(joint, force=True)
    return joint


def nodes(graph, target):
    return graph.graph.find_nodes(op="call_function", target=target)


def test_only_images_and_filters_are_copied(monkeypatch):
    net = nn.Sequential(nn.Conv2d(3, 16, 3, bias=False), Block(16), Block(16))
    graph = joint_graph(net, torch.randn(2, 3, 9, 9), monkeypatch)
    for node in nodes(graph, aten.convolution_backward.default):
        assert all(layout.is_channels_last(x.meta["val"]) for x in node.args[:3])
    # the image, three filters and their gradients, the result; nothing between two layers
    assert len(nodes(graph, aten.clone.default)) == 1 + 3 + 3 + 1


def test_one_tap_is_a_product(monkeypatch):
    graph = joint_graph(Block(16), torch.randn(2, 16, 9, 9, requires_grad=True), monkeypatch)
    assert len(nodes(graph, aten.convolution.default)) == len(nodes(graph, aten.convolution_backward.default)) == 1
    assert len(nodes(graph, aten.mm.default)) == 3


def test_what_a_product_of_gradients_lacks_stays_a_convolution(monkeypatch):
    strided = joint_graph(nn.Conv2d(16, 8, 1, stride=2), torch.randn(2, 16, 8, 8), monkeypatch)
    assert len(nodes(strided, aten.convolution_backward.default)) == 1 and not nodes(strided, aten.mm.default)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_step_under_autocast():
    torch.manual_seed(0)
    mine, x = network().cuda(), torch.randn(8, 3, 64, 64, device="cuda")
    exact, theirs = copy.deepcopy(mine).double(), copy.deepcopy(mine)
    seen = []
    for module, compiled in ((exact, False), (theirs, False), (mine, True)):
        given = x.to(next(module.parameters()).dtype)
        with torch.autocast("cuda", torch.bfloat16, enabled=module is not exact):
            call = inductor.compile_fx(fx.symbolic_trace(module), [x], options={"strict": True}) if compiled else module
            call(given).float().square().mean().backward()
        gradients = torch.cat([p.grad.flatten().double() for p in module.parameters()])
        seen.append((gradients, module[1].running_var.double()))
    (want, running), (eager, _), (got, mine_running) = seen
    assert (got - want).norm() <= 1.5 * (eager - want).norm()
    torch.testing.assert_close(mine_running, running, rtol=2e-2, atol=2e-2)
