"""Convolutions on the CPU that are computed as matrix products."""

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
LINEAR = mkldnn._linear_pointwise.default
CONVOLUTIONS = {aten.convolution.default, mkldnn._convolution_pointwise.default, mkldnn._convolution_pointwise.binary}

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")


@pytest.fixture(autouse=True)
def small_products(monkeypatch):
    monkeypatch.setattr(onednn, "mkl_lacks_avx512", lambda: True)
    monkeypatch.setattr(onednn, "LEAST_WORK", 1)


def checked(fn, *args, constant=()):
    """The operators of the rewritten graph, whose results are those of `fn` with its strides. `constant`: positions of
    the arguments whose values are computed once."""
    graph = fx.experimental.proxy_tensor.make_fx(lambda *xs: [fn(*xs)])(*args)
    with torch.no_grad():
        made = to_aten(graph, args, decompositions())
        inputs = made.graph.graph.find_nodes(op="placeholder")
        passed = run_passes(made.graph, made.shared, constant=[node for k, node in enumerate(inputs) if k in constant])
        want = fn(*args)
        torch.testing.assert_close(passed(*args)[0], want, rtol=1e-4, atol=1e-4)
        found = compile_fx(graph, args, options={"strict": True, "cache": False})(*args)[0]
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)
        assert found.stride() == want.stride()
    return {node.target for node in passed.graph.nodes if node.op == "call_function"}


def weight(filters, channels, *size):
    return torch.randn(filters, channels, *size) / (channels * torch.Size(size).numel()) ** 0.5


# The result has fewer pixels than there are filters.
PATCHES = {
    "padded": ((2, 8, 5, 5), (64, 8, 3, 3), {"padding": 1}),
    "not_square": ((1, 8, 6, 5), (64, 8, 3, 2), {"padding": (1, 0), "stride": (2, 1)}),
    "dilated": ((1, 8, 7, 7), (64, 8, 3, 3), {"dilation": 2}),
    "dilated_one_way": ((1, 8, 7, 7), (64, 8, 3, 3), {"dilation": (1, 3), "padding": (0, 2)}),
    "without_overlap": ((1, 3, 16, 16), (64, 3, 4, 4), {"stride": 4}),
    "strided_one_pixel": ((1, 16, 8, 8), (64, 16, 1, 1), {"stride": 2}),
}


@pytest.mark.parametrize("name", PATCHES)
@pytest.mark.parametrize("last", [lambda y: y, F.relu, lambda y: y.flatten(2).transpose(1, 2)], ids=["", "relu", "view"])
def test_few_pixels_and_many_filters(name, last):
    size, filters, settings = PATCHES[name]
    w, b = weight(*filters), torch.randn(filters[0])
    found = checked(lambda x, w, b: last(F.conv2d(x, w, b, **settings)), torch.randn(size), w, b)
    assert LINEAR in found and not found & CONVOLUTIONS


def test_filters_as_large_as_the_input():
    found = checked(lambda x, w, b: F.conv2d(x, w, b).relu(), torch.randn(5, 8, 7, 6), weight(12, 8, 7, 6), torch.randn(12))
    assert found & {LINEAR} and not found & {*CONVOLUTIONS, aten.relu.default}


def test_one_image_is_a_vector():
    found = checked(lambda x, w: F.conv2d(x, w), torch.randn(1, 8, 1, 1), weight(12, 8, 1, 1))
    assert aten.mm.default in found and not found & CONVOLUTIONS  # MKL


def test_inputs_in_channels_last():
    x = torch.randn(1, 8, 5, 5).to(memory_format=torch.channels_last)
    assert LINEAR in checked(lambda x, w: F.conv2d(x, w, padding=1), x, weight(64, 8, 3, 3))


def test_one_pixel_in_a_network_in_channels_last():
    def block(x, v, w, b):
        return F.conv2d(F.conv2d(x, v, padding=1), w, b).relu()

    args = torch.randn(2, 16, 9, 9), weight(16, 16, 3, 3), weight(32, 16, 1, 1), torch.randn(32)
    found = checked(block, *args)
    assert LINEAR in found and aten.relu.default not in found
    assert LINEAR not in checked(block, *args, constant=(2,))  # which is laid out once


@pytest.mark.parametrize(
    "args",
    [
        (torch.randn(2, 8, 5, 5), weight(64, 8, 3, 3).requires_grad_(False), {"groups": 1, "padding": 4}),
        (torch.randn(1, 8, 5, 5), weight(64, 4, 3, 3), {"groups": 2}),
        (torch.randn(1, 8, 5, 5).double(), weight(64, 8, 3, 3).double(), {}),
        (torch.randn(1, 8, 5), weight(64, 8, 3), {}),
    ],
    ids=["many_pixels", "groups", "double", "one_dimension"],
)
def test_other_convolutions_remain(args):
    x, w, settings = args
    assert checked(lambda x, w: (F.conv2d if x.dim() == 4 else F.conv1d)(x, w, **settings), x, w) & CONVOLUTIONS


def test_constant_weights_stay_with_their_convolutions():
    args = torch.randn(1, 8, 5, 5), weight(64, 8, 3, 3)
    assert LINEAR in checked(lambda x, w: F.conv2d(x, w, padding=1), *args)
    assert checked(lambda x, w: F.conv2d(x, w, padding=1), *args, constant=(1,)) & CONVOLUTIONS


def test_bfloat16_rounds_once():
    net = nn.Sequential(nn.Conv2d(16, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 128, 1)).bfloat16().eval()
    x = torch.randn(1, 16, 5, 5, dtype=torch.bfloat16)
    with torch.no_grad():
        exact = net.double()(x.double())
        net.bfloat16()
        eager, graph = net(x), fx.symbolic_trace(net)
        found = compile_fx(graph, (x,), options={"strict": True, "cache": False})(x)
    assert (found.double() - exact).norm() <= 1.2 * (eager.double() - exact).norm()
