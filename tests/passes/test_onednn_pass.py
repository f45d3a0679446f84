"""Products and convolutions on the CPU as calls of oneDNN, with the bias, activation or residual that follows."""

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from inductor import compile_fx
from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.passes import onednn, run_passes

torch.manual_seed(0)
aten, mkldnn = torch.ops.aten, torch.ops.mkldnn
LINEAR, CONV = mkldnn._linear_pointwise.default, mkldnn._convolution_pointwise.default

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")


@pytest.fixture(autouse=True)
def small_products(monkeypatch):
    monkeypatch.setattr(onednn, "mkl_lacks_avx512", lambda: True)
    monkeypatch.setattr(onednn, "LEAST_WORK", 1)


def traced(fn, args):
    return fx.experimental.proxy_tensor.make_fx(fn)(*args)


def graph_of(fn, *args):
    with torch.no_grad():
        made = to_aten(traced(lambda *xs: [fn(*xs)], args), args, decompositions())
        return run_passes(made.graph, made.shared)


def targets(graph):
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


def check(fn, *args):
    """The rewritten graph, whose results are those of `fn`."""
    graph = graph_of(fn, *args)
    want = fn(*args)
    torch.testing.assert_close(graph(*args)[0], want, rtol=1e-5, atol=1e-5)
    compiled = compile_fx(traced(fn, args), args, options={"strict": True, "cache": False})
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), want, rtol=1e-5, atol=1e-5)
    return graph


X, W, B = torch.randn(6, 8), torch.randn(5, 8), torch.randn(5)
ACTIVATIONS = {
    "relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid, "relu6": F.relu6, "hardtanh": lambda x: F.hardtanh(x, -0.5, 2.0),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
}  # fmt: skip


def binary(x, w, b):
    return torch.addmm(b, x, w)


PRODUCTS = {
    "mm": (lambda x, w: x @ w.t(), X, W),
    "weight_across": (lambda x, w: x @ w, X, torch.randn(8, 5)),
    "rows_apart": (lambda x, w: x @ w.t(), torch.randn(6, 20)[:, :8], W),
    "left_across": (lambda x, w: x.t() @ w.t(), torch.randn(8, 6), W),
    "bias": (F.linear, X, W, B),
    "bias_of_one": (binary, X, torch.randn(8, 5), torch.randn(1)),
    "bias_of_rows": (binary, X, torch.randn(8, 5), torch.randn(6, 1)),
    "matrices": (F.linear, torch.randn(2, 3, 8), W, B),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    fn, *args = PRODUCTS[name]
    assert LINEAR in targets(check(fn, *args))


def test_other_products_remain():
    double = [x.double() for x in (X, W, B)]
    scaled = graph_of(lambda x, w, b: torch.addmm(b, x, w.t(), alpha=2), X, W, B)
    assert LINEAR not in [*targets(graph_of(F.linear, *double)), *targets(scaled)]
    assert LINEAR not in targets(graph_of(F.linear, X[:2], W, B))  # of two rows


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_products(name):
    graph = check(lambda x, w, b: ACTIVATIONS[name](F.linear(x, w, b)), X.view(2, 3, 8), W, B)
    (product,) = graph.graph.find_nodes(op="call_function", target=LINEAR)
    assert product.args[-3] != "none" and not {aten.relu.default, aten.gelu.default} & set(targets(graph))


def test_an_activation_of_a_result_that_is_used_twice_remains():
    graph = check(lambda x, w, b: (lambda y: y.relu() + y)(F.linear(x, w, b)), X, W, B)
    assert aten.relu.default in targets(graph)


# ---- convolutions


def image(channels=16, size=9):
    return torch.randn(2, channels, size, size)


CONVOLUTIONS = {
    "dense": nn.Conv2d(16, 24, 3, padding=1), "one_pixel": nn.Conv2d(16, 32, 1, bias=False),
    "depthwise": nn.Conv2d(16, 16, 3, groups=16), "strided": nn.Conv2d(16, 16, 5, stride=2, padding=(1, 2)),
    "dilated": nn.Conv2d(16, 16, 3, dilation=2),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_in_channels_last(name):
    conv = CONVOLUTIONS[name].requires_grad_(False)
    settings = conv.stride, conv.padding, conv.dilation, conv.groups
    bias = torch.zeros(len(conv.weight)) if conv.bias is None else conv.bias
    graph = check(lambda x, w, b: F.relu(F.conv2d(x, w, b, *settings)), image(), conv.weight, bias)
    (node,) = graph.graph.find_nodes(op="call_function", target=LINEAR if name == "one_pixel" else CONV)
    assert node.args[-3] == "relu" and aten.relu.default not in targets(graph)


@pytest.mark.parametrize("last", [lambda x: x, torch.relu], ids=["sum", "relu"])
def test_residual_sums(last):
    def block(x, w, v):
        y = F.conv2d(x, w, padding=1).relu()
        return last(F.conv2d(y, v, padding=1) + y)

    graph = check(block, image(), torch.randn(16, 16, 3, 3), torch.randn(16, 16, 3, 3))
    (node,) = graph.graph.find_nodes(op="call_function", target=mkldnn._convolution_pointwise.binary)
    assert node.args[-3] == (None if last is not torch.relu else "relu")
    assert not {aten.add.Tensor, aten.relu.default} & set(targets(graph))


def test_a_sum_of_a_result_with_itself_or_with_other_sizes_remains():
    w = torch.randn(16, 16, 1, 1)
    check(lambda x, w: (lambda y: y + y)(F.conv2d(x, w)), image(), w)
    check(lambda x, w, b: F.conv2d(x, w) + b, image(), w, torch.randn(16, 1, 1))
    check(lambda x, w: torch.add(F.conv2d(x, w), x, alpha=2), image(), w)


def test_networks_return_the_strides_of_eager():
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Hardswish(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, groups=16), nn.BatchNorm2d(32), nn.ReLU6(),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        for module in net:
            if isinstance(module, nn.BatchNorm2d):
                module.running_var.uniform_(0.5, 2.0), module.running_mean.normal_()
        want = net(x)
        got = compile_fx(fx.symbolic_trace(net), (x,), options={"strict": True, "cache": False})(x)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert got.stride() == want.stride()
