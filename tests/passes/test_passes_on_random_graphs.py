"""Each pass gives a graph that computes what the graph it was given computes: random graphs, run by ATen in float64.

Also that passes leave strides of results as they were, and that no pass of the list goes without being exercised.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import inductor.lower.convolution as loops
from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.aot.joint import to_joint
from inductor.aot.training_decompositions import training_decompositions
from inductor.passes import depthwise, epilogue, run_joint_passes, run_passes
from inductor.passes.bias import biases_apart
from inductor.passes.convolution import without_bias
from inductor.passes.depthwise import filters_by_tap
from inductor.passes.duplicates import without_duplicates
from inductor.passes.epilogue import activated_products
from inductor.passes.layout import channels_last
from inductor.passes.matmul import products_of_convolutions, products_of_gradients
from inductor.passes.stem import blocks_of_pixels

SEEDS = 8


class Program:
    """A random chain of image operators, with weights of its own; any earlier value may be used again."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.inputs: list[torch.Tensor] = [self.tensor(2, self.draw.choice([3, 4, 16]), 9, self.draw.choice([8, 11]))]
        self.steps: list[Callable[..., Any]] = []  # (values so far, inputs) -> the next value
        values: list[Any] = [self.inputs[0]]
        while len(self.steps) < self.draw.randint(3, 9):
            at = self.draw.choice([-1, -1, -1, self.draw.randrange(len(values))]) % len(values)
            step = self.step(values[at], at, values)
            self.steps.append(step)
            values.append(step(values, self.inputs))
        self.kept = sorted({len(values) - 1, self.draw.randrange(1, len(values))})

    def tensor(self, *size: int) -> torch.Tensor:
        return torch.randn(*size, generator=self.generator, dtype=torch.float64)

    def weight(self, *size: int) -> int:
        """The number of a new input of that size."""
        self.inputs.append(self.tensor(*size) / 4)
        return len(self.inputs) - 1

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        values: list[Any] = [inputs[0]]
        for step in self.steps:
            values.append(step(values, inputs))
        return [values[k] for k in self.kept]

    def step(self, x: torch.Tensor, at: int, values: list[Any]) -> Callable[..., Any]:
        if x.dim() == 4 and min(x.shape) > 0:
            return self.convolution(x, at) if self.draw.random() < 0.5 else self.image(x, at, values)
        return self.rows(x, at)

    def convolution(self, x: torch.Tensor, at: int) -> Callable[..., Any]:
        draw, channels = self.draw, x.shape[1]
        groups = draw.choice([1, 1, 1, channels])
        filters = draw.choice([16, 8, 3]) if groups == 1 else channels
        most = min(x.shape[2:])
        taps = [draw.choice([k for k in (1, 1, 2, 3, 4) if k <= most]) for _ in range(2)]
        taps = draw.choice([taps, [taps[0]] * 2, [1, 1]])
        bias = self.weight(filters) if draw.random() < 0.5 else None
        stride, padding = draw.choice([1, 1, 2]), draw.choice([0, 0, 1])
        if draw.random() < 0.15 and groups == 1:
            w = self.weight(channels, filters, *taps)
            return lambda v, i: F.conv_transpose2d(v[at], i[w], bias if bias is None else i[bias], stride)
        w = self.weight(filters, channels // groups, *taps)
        return lambda v, i: F.conv2d(v[at], i[w], bias if bias is None else i[bias], stride, padding, 1, groups)

    def image(self, x: torch.Tensor, at: int, values: list[Any]) -> Callable[..., Any]:
        channels = x.shape[1]
        same = [k for k, v in enumerate(values) if v.shape == x.shape]
        other = self.draw.choice(same)
        scale = self.weight(channels)
        axis = self.draw.randrange(4)
        choices: list[Callable[..., Any]] = [
            lambda v, i: v[at].relu(),
            lambda v, i: v[at] + v[other],
            lambda v, i: v[at] * i[scale].view(-1, 1, 1),
            lambda v, i: v[at].mean((2, 3), keepdim=True).sigmoid() * v[at],
            lambda v, i: F.batch_norm(v[at], None, None, i[scale], training=True),
            lambda v, i: F.layer_norm(v[at].permute(0, 2, 3, 1), (channels,), i[scale]).permute(0, 3, 1, 2),
            lambda v, i: torch.cat([v[at], v[other] * 2], 1)[:, 1 : channels + 1],
            lambda v, i: F.pad(v[at], (1, 0, 2, 1)),
            lambda v, i: v[at][:, :, ::2].contiguous(),
            lambda v, i: v[at].flatten(2).transpose(1, 2),
            lambda v, i: v[at].flatten(1),
            lambda v, i: v[at].transpose(2, 3).softmax(-1),
            lambda v, i: v[at].contiguous(memory_format=torch.channels_last),
            lambda v, i: v[at].sum(axis),
        ]
        if min(x.shape[2:]) >= 3:
            choices.append(lambda v, i: F.max_pool2d(v[at], 3, 2, 1))
        return self.draw.choice(choices)

    def rows(self, x: torch.Tensor, at: int) -> Callable[..., Any]:
        last = x.shape[-1] if x.dim() else 0
        w, b = self.weight(5, last), self.weight(5)
        choices: list[Callable[..., Any]] = [
            lambda v, i: F.linear(v[at], i[w], i[b]).relu(),
            lambda v, i: F.linear(v[at], i[w], i[b]),
            lambda v, i: F.linear(v[at], i[w], i[b]).softmax(-1) + 1,
            lambda v, i: F.linear(v[at], i[w]).tanh(),
            lambda v, i: F.linear(v[at], i[w], i[b]).transpose(-1, -2).relu(),
        ]
        return self.draw.choice(choices) if last else lambda v, i: v[at].exp()


def traced(program: Program) -> fx.GraphModule:
    return fx.experimental.proxy_tensor.make_fx(program)(*program.inputs)


def targets(gm: fx.GraphModule) -> list[str]:
    return [f"{n.op} {n.target} {n.args}" for n in gm.graph.nodes]


def in_channels_last(gm: fx.GraphModule, after: Callable[[fx.GraphModule], Any] | None = None) -> None:
    channels_last(gm, force=True)
    if after is not None:
        after(gm)


PASSES: dict[str, Callable[[fx.GraphModule], Any]] = {
    "biases_apart": biases_apart,
    "activated_products": activated_products,
    "without_bias": without_bias,
    "channels_last": in_channels_last,
    "products_of_convolutions": lambda gm: in_channels_last(gm, products_of_convolutions),
    "blocks_of_pixels": lambda gm: in_channels_last(gm, blocks_of_pixels),
    "filters_by_tap": lambda gm: in_channels_last(gm, filters_by_tap),
    "run_passes": lambda gm: run_passes(gm, (), force=True),
}
JOINT_PASSES: dict[str, Callable[[fx.GraphModule], Any]] = {
    "products_of_gradients": lambda gm: in_channels_last(gm, products_of_gradients),
    "run_joint_passes": lambda gm: run_joint_passes(gm, force=True),
}


@pytest.fixture(autouse=True)
def passes_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that only pay there."""
    monkeypatch.setattr(epilogue, "DEVICES", ("cuda", "cpu"))
    for module in (loops, depthwise):
        monkeypatch.setattr(module, "loops_pay", lambda val, weight, groups: weight[1] == 1 and groups > 1)


def compare(gm: fx.GraphModule, run: Callable[[fx.GraphModule], Any], inputs: list[torch.Tensor]) -> bool:
    """Whether the pass changed the graph; an error where it changed what the graph computes."""
    leaves = torch.utils._pytree.tree_leaves
    with torch.no_grad():
        want, before = leaves(gm(*inputs)), targets(gm)
        run(gm)
        gm.graph.eliminate_dead_code()
        gm.graph.lint()
        gm.recompile()
        got = leaves(gm(*inputs))
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert (a is None) == (b is None)
        if b is not None:
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
            assert all(n <= 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride()))
    for node in gm.graph.nodes:  # passes say what their nodes are
        if node.op == "call_function" and isinstance(val := node.meta.get("val"), torch.Tensor):
            assert val.dtype == torch.float64 or not val.is_floating_point()
    return targets(gm) != before


@pytest.mark.parametrize("name", PASSES)
def test_pass(name: str) -> None:
    changed = 0
    for seed in range(SEEDS):
        program = Program(seed)
        with torch.no_grad():
            gm = to_aten(traced(program), program.inputs, decompositions()).graph
        changed += compare(gm, PASSES[name], program.inputs)
    assert changed >= 1  # else this checks nothing


@pytest.mark.parametrize("name", JOINT_PASSES)
def test_joint_pass(name: str) -> None:
    changed = 0
    for seed in range(100, 100 + SEEDS):
        program = Program(seed)
        inputs = [x.clone().requires_grad_() for x in program.inputs]
        joint = to_joint(traced(program), inputs, training_decompositions())
        tangents = [torch.randn(x.shape, dtype=x.dtype).as_strided(x.shape, x.stride()) for x in joint.tangents]
        given = [x.detach() for x in (*inputs, *joint.attributes)]
        changed += compare(joint.graph, JOINT_PASSES[name], [*given, *tangents])
    assert changed >= 1


def test_values_that_are_computed_again_are_found() -> None:
    changed = 0
    for seed in range(SEEDS):
        program = Program(seed)

        def twice(*inputs: torch.Tensor, program: Program = program) -> list[torch.Tensor]:
            return [a + b for a, b in zip(program(*(x.tanh() for x in inputs)), program(*(x.tanh() for x in inputs)))]

        with torch.no_grad():
            gm = make_fx(twice)(*program.inputs)
        changed += compare(gm, without_duplicates, program.inputs)
    assert changed == SEEDS
