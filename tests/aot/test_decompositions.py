"""The table of decompositions leaves out composite operators of torch's table that a trace decomposes by itself."""

import torch
from torch._C import DispatchKey
from torch._decomp import core_aten_decompositions

from inductor.aot.decompositions import core_decompositions

DEVICES = (DispatchKey.CPU, DispatchKey.CUDA)


def decomposed_by_the_trace(op):
    """As `torch.utils._python_dispatch.autograd_would_have_decomposed`: a composite operator without kernels of its
    own for a device."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(op.name(), DispatchKey.CompositeImplicitAutograd) and not any(
        has_kernel(op.name(), device) for device in DEVICES
    )


def test_nothing_else_is_left_out():
    ours, torchs = core_decompositions(), dict(core_aten_decompositions().items())
    left_out = torchs.keys() - ours.keys()
    assert len(left_out) > 100  # else this module has no reason
    assert not [op for op in left_out if not decomposed_by_the_trace(op)]
    assert not ours.keys() - torchs.keys()


def test_the_others_are_torchs():
    ours, torchs = core_decompositions(), core_aten_decompositions()
    composite = torch.ops.aten.native_channel_shuffle.default  # torch has a function of its own for its kernel in C++
    assert not [op for op in ours if ours[op] is not torchs[op] and op is not composite]


def test_composite_operators_are_decomposed_without_the_table():
    from inductor.aot.decompositions import decompositions
    from inductor.aot.fake import make_fx

    def fn(x):
        return torch.ops.aten.std_mean.dim(x, [-1])[0] + torch.ops.aten.pairwise_distance(x, x * 2)

    assert torch.ops.aten.pairwise_distance.default not in decompositions()
    with torch.inference_mode():  # autograd, which decomposes composites, is skipped
        graph = make_fx(fn, decomposition_table=decompositions())(torch.ones(3, 4)).graph
    called = {node.target for node in graph.nodes if node.op == "call_function"}
    assert torch.ops.aten.pairwise_distance.default not in called
    assert torch.ops.aten.std_mean.dim not in called
