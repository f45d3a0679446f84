"""How much memory lies between the forward and the backward, against eager autograd; on fake tensors, so of real sizes."""

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from inductor.aot.joint import to_joint
from inductor.aot.partition import partition
from inductor.aot.training_decompositions import training_decompositions
from inductor.fx_utils.arguments import output_of

B, T, D, HEADS, VOCAB = 4, 256, 384, 6, 5000
SHAPES = [(D,), (D,), (3 * D, D), (3 * D,), (D, D), (D,), (D,), (D,), (4 * D, D), (4 * D,), (D, 4 * D), (D,)]


def block(x, norm1, shift1, qkv_w, qkv_b, proj_w, proj_b, norm2, shift2, up_w, up_b, down_w, down_b):
    qkv = F.linear(F.layer_norm(x, (D,), norm1, shift1), qkv_w, qkv_b)
    q, k, v = qkv.split(D, dim=-1)
    q, k, v = (z.view(B, T, HEADS, D // HEADS).transpose(1, 2) for z in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + F.linear(y.transpose(1, 2).reshape(B, T, D), proj_w, proj_b)
    hidden = F.gelu(F.linear(F.layer_norm(x, (D,), norm2, shift2), up_w, up_b), approximate="tanh")
    return x + F.linear(hidden, down_w, down_b)


def six_blocks(x, *weights):
    for i in range(0, len(weights), len(SHAPES)):
        x = block(x, *weights[i : i + len(SHAPES)])
    return x


def head(x, table, targets):
    return F.cross_entropy(F.linear(x, table).flatten(0, 1), targets.flatten())


def convolutions(x, w1, w2, g1, b1, g2, b2, m1, v1, m2, v2):
    y = F.relu(F.batch_norm(F.conv2d(x, w1, padding=1), m1, v1, g1, b1, training=True))
    y = F.batch_norm(F.conv2d(y, w2, padding=1), m2, v2, g2, b2, training=True)
    return F.relu(y + x)


def saved(fn, inputs):
    """(node, value) of all that our partition keeps, but for parameters; and the two graphs."""
    with torch.autocast("cpu", torch.bfloat16):
        joint = to_joint(traced(fn, len(inputs)), inputs, training_decompositions())
        halves = partition(joint)
    results = output_of(halves.forward.graph).args[0]
    nodes = [results[k] for k in halves.saved.returned] + list(results[len(joint.origins) :])
    values = [(x, x.meta["val"]) for x in nodes]
    values += [(None, inputs[i]) for i in halves.saved.inputs if not inputs[i].is_leaf]
    return values, halves


def traced(fn, count):
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    inputs = [fx.Proxy(graph.placeholder(f"x{i}"), tracer) for i in range(count)]
    graph.output(fn(*inputs).node)
    return fx.GraphModule(nn.Module(), graph)


def eager_bytes(fn, inputs):
    """What autograd saves, each memory once, without parameters."""
    kept = {}

    def pack(x):
        kept[x.untyped_storage()._cdata] = x
        return x

    with torch.autocast("cpu", torch.bfloat16), torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        fn(*inputs)
    for x in inputs:
        if x.is_leaf and x.requires_grad:
            kept.pop(x.untyped_storage()._cdata, None)
    return sum(x.untyped_storage().nbytes() for x in kept.values())


def size(x):
    return x.numel() * x.element_size()


@pytest.fixture
def make():
    with FakeTensorMode():
        yield lambda *shape: torch.empty(shape).requires_grad_()


def compare(fn, inputs):
    kept, halves = saved(fn, inputs)
    mine, eagers = sum(size(x) for _, x in kept), eager_bytes(fn, inputs)
    assert mine <= eagers, (mine, eagers, [(n, x.dtype, tuple(x.shape)) for n, x in kept])
    return kept, halves, mine / eagers


def test_a_transformer_block_saves_less_than_eager(make):
    kept, halves, ratio = compare(block, [make(B, T, D) * 1, *(make(*shape) for shape in SHAPES)])
    assert ratio < 0.8
    # the input of GELU is saved in half precision, and neither what it computes on the way nor its result
    wide = [x for _, x in kept if x.numel() >= B * T * 4 * D]
    assert [x.dtype for x in wide] == [torch.bfloat16]
    # each matrix is rounded once: the backward uses what the forward made
    matrices = [shape for shape in SHAPES if len(shape) == 2]
    assert sorted(tuple(x.shape) for _, x in kept if tuple(x.shape) in matrices) == sorted(matrices)
    casts = [n for n in halves.backward.graph.nodes if n.target is torch.ops.aten._to_copy.default]
    assert not [n for n in casts if n.args[0].op == "placeholder" and tuple(n.meta["val"].shape) in matrices]


def test_a_residual_stream_is_not_added_up_from_the_start(make):
    weights = [make(*shape) for _ in range(6) for shape in SHAPES]
    _, halves, ratio = compare(six_blocks, [make(B, T, D) * 1, *weights])
    assert ratio < 0.8
    adds = [n for n in halves.backward.graph.nodes if n.target is torch.ops.aten.add.Tensor]
    again = [n for n in adds if n.name in {m.name for m in halves.forward.graph.nodes}]
    deep = [n for n in again if any(m.target is torch.ops.aten.add.Tensor and m in again for m in n.all_input_nodes)]
    assert again and not deep


def test_a_loss_saves_the_logits_as_they_are(make):
    targets = torch.zeros(B, T, dtype=torch.int64)
    kept, _, ratio = compare(head, [make(B, T, D) * 1, make(VOCAB, D), targets])
    assert [x.dtype for _, x in kept if x.numel() == B * T * VOCAB] == [torch.bfloat16] and ratio < 0.8


def test_convolutions_with_batch_norm(make):
    x = (make(4, 32, 16, 16) * 1).to(torch.bfloat16)
    inputs = [x, make(32, 32, 3, 3), make(32, 32, 3, 3), *(make(32) for _ in range(4))]
    kept, _, _ = compare(convolutions, [*inputs, *(make(32).detach() for _ in range(4))])
    assert {x.dtype for _, x in kept if x.numel() == 4 * 32 * 16 * 16} == {torch.bfloat16}
