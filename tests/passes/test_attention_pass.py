"""Attention whose mask is known when compiling has none, and one whose mask is not keeps it."""

import pytest
import torch
import torch.nn.functional as F

import pyframe
from inductor.passes.attention import without_known_masks

torch.manual_seed(0)
Q = torch.randn(2, 3, 8, 16)
sdpa = F.scaled_dot_product_attention


def everything(q):
    return sdpa(q, q, q, attn_mask=torch.ones(8, 8, dtype=torch.bool).expand(2, 1, 8, 8))


def from_positions(q):
    at = torch.arange(q.shape[2])
    return sdpa(q, q, q, (at[None] >= 0)[None, None].expand(2, 1, 8, 8))


def lower(q):
    at = torch.arange(8)
    return sdpa(q, q, q, attn_mask=at[None, None, None, :] <= at[:, None])


def lower_in_place(q):
    mask = torch.zeros(8, 8)
    mask.masked_fill_(torch.ones(8, 8).triu(1).bool(), float("-inf"))
    return sdpa(q, q, q, attn_mask=mask)


def written_afterwards(q):
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask[0, 1:] = False
    return sdpa(q, q, q, attn_mask=mask)


def written_from_an_input(q):
    mask = torch.zeros(8, 8)
    mask.copy_(q[0, 0, :, :8])
    return sdpa(q, q, q, attn_mask=mask)


def written_through_a_view(q):
    mask = torch.ones(8, 8, dtype=torch.bool)
    row = mask[0]
    row[3:].fill_(False)
    return sdpa(q, q, q, attn_mask=mask)


def written_from_an_input_through_a_view(q):
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask.t().logical_and_(q[0, 0, :, :8] > 0)
    return sdpa(q, q, q, attn_mask=mask.index_fill_(1, torch.tensor([0]), True))


def written_by_an_activation(q):
    mask = torch.full((8, 8), -1.0)
    F.relu(mask, inplace=True)
    return sdpa(q, q, q, attn_mask=mask)


def written_by_an_activation_of_an_input(q):
    mask = torch.zeros(8, 8)
    one, other = torch.broadcast_tensors(q[0, 0, :, :8], mask)
    F.threshold(other.copy_(one), 0.5, -3.0, inplace=True)
    return sdpa(q, q, q, attn_mask=mask)


def written_after_its_use(q):
    mask = torch.zeros(8, 8)
    mask[0, 1:] = -3.0
    out = sdpa(q, q, q, attn_mask=mask)
    mask.zero_()
    return out


def causal_before_it_is_written(q):
    mask = torch.ones(8, 8, dtype=torch.bool).tril()
    out = sdpa(q, q, q, attn_mask=mask)
    mask.zero_()
    return out


def filled_through_views(q):
    keys = q.new_empty(2, 3, 8, 16)
    keys[..., :8].copy_(q[..., :8])
    torch.mul(q[..., 8:], 2, out=keys[..., 8:])
    return sdpa(q, keys, q, attn_mask=torch.ones(8, 8, dtype=torch.bool).tril())


def returned_with_its_writes(q):
    mask = torch.ones(8, 8).tril()
    mask.view(64).log_()
    return sdpa(q, q, q, attn_mask=mask) + mask.exp()[:, :1]


def running_statistics(q):
    mask = torch.zeros(8, 8)
    F.batch_norm(q.reshape(-1, 8) + 5, mask[0], torch.ones(8), training=True)
    return sdpa(q, q, q, attn_mask=mask)


def running_statistics_of_an_operator(q):
    mask = torch.zeros(8, 8)
    torch.ops.aten.native_batch_norm(q.reshape(-1, 8) + 5, None, None, mask[0], torch.ones(8), True, 0.1, 1e-5)
    return sdpa(q, q, q, attn_mask=mask)


def written_by_an_operator(q):
    mask = torch.zeros(8, 8)
    torch.ops.aten.copy_.default(mask, q[0, 0, :, :8])
    return sdpa(q, q, q, attn_mask=mask)


def windowed(q):
    at = torch.arange(8)
    return sdpa(q, q, q, attn_mask=(at[:, None] - at).abs() < 3)


def biased(q):
    return sdpa(q, q, q, attn_mask=torch.arange(64).view(8, 8) / 10)


def random(q):
    return sdpa(q, q, q, attn_mask=torch.rand(8, 8) > -1)


def given(q):
    return sdpa(q, q, q, attn_mask=q[0, 0, :, :8] > -1e9)


def rectangular(q):
    at = torch.arange(8)
    return sdpa(q[:, :, :4], q, q, attn_mask=at <= at[:4, None])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("fn, mask", [
    (written_by_an_activation, "all"), (written_by_an_activation_of_an_input, None), (written_after_its_use, None),
    (filled_through_views, "causal"),
    (causal_before_it_is_written, "causal"), (running_statistics, None), (running_statistics_of_an_operator, None),
    (written_by_an_operator, None),
    (everything, "all"), (from_positions, "all"), (lower, "causal"), (lower_in_place, "causal"),
    (written_afterwards, None), (written_from_an_input, None), (windowed, None), (biased, None), (random, None),
    (written_through_a_view, None), (written_from_an_input_through_a_view, None), (given, None), (rectangular, None),
])
def test_masks(fn, mask, mode):
    with mode():
        check_mask(fn, mask)


def test_writes_to_a_mask_that_is_used_elsewhere():
    with torch.no_grad():
        check_mask(returned_with_its_writes, "causal")


def check_mask(fn, mask):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm

    pyframe.compile(fn, backend=backend)(Q)
    (gm,) = graphs
    changed = without_known_masks(gm)
    (node,) = changed.graph.find_nodes(op="call_function", target=sdpa)
    if mask is None:
        assert changed is gm
    else:
        assert node.kwargs["attn_mask"] is None and node.kwargs["is_causal"] is (mask == "causal")
        (before,) = gm.graph.find_nodes(op="call_function", target=sdpa)
        assert len(before.args) > 3 or before.kwargs.get("attn_mask") is not None
        changed.graph.lint()
    torch.testing.assert_close(changed(Q)[0], fn(Q))
    torch.testing.assert_close(pyframe.compile(fn)(Q), fn(Q))
