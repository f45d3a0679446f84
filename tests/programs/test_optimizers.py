"""Compiled steps of `torch.optim`, alone and in a function that does a whole training step: five steps as eager's."""

import sys
import warnings

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import pyframe
from pyframe.metrics import counters

STEPS = 5
# What compiled steps compute in float32, where eager takes Python's floats: 1 - beta2 ** step.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-6}
VARIANTS = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "fused": True}),
    ("AdamW", {"foreach": False}), ("AdamW", {"foreach": True}), ("AdamW", {"fused": True, "maximize": True}),
    ("Adam", {"fused": True, "amsgrad": True, "weight_decay": 0.1}), ("Adagrad", {"fused": True, "lr_decay": 0.1}),
    ("NAdam", {"foreach": True}), ("RAdam", {"foreach": True}), ("Adamax", {}), ("Adadelta", {}), ("Rprop", {}),
    ("RMSprop", {"foreach": True, "centered": True, "momentum": 0.5}), ("ASGD", {"foreach": True}), ("Muon", {}),
    ("RAdam", {"foreach": False, "weight_decay": 0.1}), ("ASGD", {"foreach": False, "maximize": True}),
    ("RAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1, "maximize": True}), ("Adafactor", {}),
]  # fmt: skip


def train(name: str, options: dict, compiled: str) -> list[torch.Tensor]:
    """Parameters and state after the steps. `compiled`: "" for eager, "step", or "all" of a training step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False))
    optimizer = getattr(torch.optim, name)(model.parameters(), **options)
    step = pyframe.compile(optimizer.step) if compiled == "step" else optimizer.step

    def run(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        step()

    run = pyframe.compile(run) if compiled == "all" else run
    for k in range(STEPS):
        run(torch.randn(6, 4, generator=torch.Generator().manual_seed(k)))
    states = [value for p in model.parameters() for value in optimizer.state[p].values()]
    return [*model.parameters(), *(x for x in states if isinstance(x, torch.Tensor))]


def same(name: str, options: dict, compiled: str) -> None:
    want = train(name, options, "")
    pyframe.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing falls back
        got = train(name, options, compiled)
    # torch._dynamo, once it is imported, marks the fused steps as not to be compiled
    disabled = options.get("fused", False) and "torch._dynamo" in sys.modules
    assert (counters["graphs"] > 0 or disabled) and not counters["fallbacks"]
    assert len(want) == len(got)
    if name == "Muon":  # which orthogonalizes in bfloat16
        exact = without_bfloat16(name, options)
        allowed = 3 * max(float((x - z).detach().abs().max()) for x, z in zip(want, exact))
        assert allowed > 0
        assert all(float((y - z).detach().abs().max()) <= allowed for y, z in zip(got, exact))
        return
    for x, y in zip(want, got):
        torch.testing.assert_close(y, x, **TOLERANCE)


class _WithoutBfloat16(TorchDispatchMode):
    """Conversions to bfloat16 are copies, however torch asks for them."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.ops.aten._to_copy.default and kwargs.get("dtype") is torch.bfloat16:
            kwargs["dtype"] = args[0].dtype
        return func(*args, **kwargs)


def without_bfloat16(name: str, options: dict) -> list[torch.Tensor]:
    """What eager gives in float32 throughout."""
    with _WithoutBfloat16():
        return train(name, options, "")


@pytest.mark.parametrize("name, options", [v for v in VARIANTS if hasattr(torch.optim, v[0])])
def test_compiled_step(name, options):
    same(name, options, "step")


@pytest.mark.parametrize("name", ["Adam", "RAdam", "ASGD", "NAdam", "Rprop"])
@pytest.mark.parametrize("foreach", [False, True])
def test_two_captures_without_a_break(name, foreach):
    """The first step creates the state; all others are one capture, whatever the number of steps."""
    model = nn.Linear(3, 4)
    optimizer = getattr(torch.optim, name)(model.parameters(), foreach=foreach)
    step = pyframe.compile(optimizer.step, backend="eager", fullgraph=True)
    pyframe.reset()
    for _ in range(STEPS + 3):
        model(torch.ones(2, 3)).sum().backward()
        step()
    assert counters["graphs"] == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_radam_where_its_length_crosses_the_limit(dtype):
    """The rectification begins at the sixth step; before, float32 would lose the digits that decide it."""
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        param = nn.Parameter(torch.randn(3, 2, dtype=dtype))
        optimizer = torch.optim.RAdam([param], lr=0.1)
        step = pyframe.compile(optimizer.step, backend="eager", fullgraph=True) if compiled else optimizer.step
        seen = []
        for _ in range(9):
            param.grad = torch.randn(3, 2, dtype=dtype)
            step()
            seen.append(param.detach().clone())
        results.append(torch.stack(seen))
    torch.testing.assert_close(*results, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}])
def test_whole_training_step(options):
    same("AdamW", options, "all")


def test_fused_step_of_half_precision_with_a_gradient_scale():
    """Gradients are divided by the scale and written back; where one was infinite nothing is written."""
    def step(params, grads, averages, squares, steps, scale, found):
        torch._fused_adamw_(params, grads, averages, squares, [], steps, lr=0.1, beta1=0.9, beta2=0.99,
                            weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False, grad_scale=scale,
                            found_inf=found)  # fmt: skip

    for found in (0.0, 1.0):
        torch.manual_seed(0)
        tensors = [torch.rand(5) for _ in range(4)]
        pairs = []
        for run in (step, pyframe.compile(step)):
            lists = [[x.clone()] for x in tensors]
            run(*lists, [torch.tensor(3.0)], torch.tensor([4.0]), torch.tensor([found]))
            pairs.append([x for each in lists for x in each])
        for x, y, first in zip(*pairs, tensors):
            torch.testing.assert_close(y, x)
            assert torch.equal(y, first) == bool(found)


@pytest.mark.parametrize("name", ["addcdiv", "addcmul"])
def test_foreach_with_numbers_in_a_tensor(name):
    def run(x, a, b, scalars):
        made = getattr(torch, f"_foreach_{name}")(x, a, b, scalars * 2)
        getattr(torch, f"_foreach_{name}_")(x, a, b, scalars=scalars)
        return made

    torch.manual_seed(0)
    lists = [[torch.rand(3) + 1, torch.rand(2, 2) + 1] for _ in range(3)]
    copies = [[x.clone() for x in each] for each in lists]
    scalars = torch.tensor([0.5, -2.0])
    want, got = run(*lists, scalars), pyframe.compile(run, fullgraph=True)(*copies, scalars)
    assert type(want) is type(got)
    for x, y in zip([*want, *lists[0]], [*got, *copies[0]]):
        torch.testing.assert_close(y, x)
