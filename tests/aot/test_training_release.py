"""The backward releases each tensor that the forward saved after its last use."""


import pytest
import torch
from fake_gpu import on_gpu
from torch import fx, nn

import inductor
from inductor import build as building
from inductor.aot.fake import fake_mode, make_fx
from inductor.codegen import codegen
from inductor.codegen.plan import APART_BYTES
from inductor.lower import lower_graph
from inductor.runtime.plan_spec import Alloc, Arena, Free, Slot
from inductor.schedule import schedule


def test_large_saved_tensors_are_freed_on_the_way(monkeypatch):
    specs = []
    original = building.make_plan
    monkeypatch.setattr(building, "make_plan", lambda spec, *a, **k: specs.append(spec) or original(spec, *a, **k))
    model = nn.Sequential(nn.Linear(512, 1024), nn.Tanh(), nn.Linear(1024, 512), nn.Tanh(), nn.Linear(512, 4))
    x = torch.randn(1024, 512)
    call = inductor.compile_fx(fx.symbolic_trace(model), [x], options={"strict": True, "cache": False})
    forward, backward = specs
    freed = {step.buf for step in backward.steps if isinstance(step, Free)}
    large = {i for i, s in enumerate(backward.inputs) if s.kind == "tensor" and torch.Size(s.size).numel() >= 1 << 18}
    assert large and large <= freed
    at = [i for i, step in enumerate(backward.steps) if isinstance(step, Free) and step.buf in large]
    assert at[0] < len(backward.steps) // 2
    assert not any(isinstance(s, Free) and s.buf < len(forward.inputs) for s in forward.steps)

    out = call(x)
    out.pow(2).sum().backward(retain_graph=True)
    first = [p.grad.clone() for p in model.parameters()]
    out.pow(2).sum().backward()
    got = [p.grad for p in model.parameters()]
    model.zero_grad()
    model(x).pow(2).sum().backward()
    for a, b, want in zip(first, got, model.parameters()):
        torch.testing.assert_close(a, want.grad, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(b, 2 * want.grad, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("training", [False, True])
def test_large_intermediates_of_a_gpu_are_allocated_one_by_one_in_training(training):
    def half(x, w):
        small = (x[:4, :4] @ w).sin() @ w
        large = (x.t() @ x).cos() @ x.t()
        return [small.sum() + large.sum()]

    with fake_mode():
        graph = lower_graph(on_gpu(make_fx(half)(torch.empty(2048, 1024), torch.empty(4, 4))))
    _, spec = codegen(schedule(graph), graph, training=training)
    bytes_of = {s.buf: torch.Size(s.size).numel() * 4 for s in spec.steps if isinstance(s, (Alloc, Slot))}
    slots = {s.buf for s in spec.steps if isinstance(s, Slot)}
    freed = {s.buf for s in spec.steps if isinstance(s, Free)}
    large = {buf for buf, size in bytes_of.items() if size >= APART_BYTES}
    assert len(large) == 3 and len(slots - large) > 2
    assert (large <= freed - slots) if training else (large <= slots)
    (arena,) = [s for s in spec.steps if isinstance(s, Arena)]
    assert (arena.nbytes < APART_BYTES) == training
