"""Nested tensors with the layout `jagged`: one graph, for any lengths, whose results are eager's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import pyframe
from pyframe.metrics import counters
from pyframe.testing import CompileCounter

WEIGHT = torch.linspace(-1, 1, 12).reshape(3, 4)
LENGTHS = [(2, 3, 3), (3, 2, 3), (1, 4, 3), (2, 3), (5, 1, 1, 3), (2, 3, 3)]
BACKENDS = ["eager", "inductor"]


def jagged(*lengths, requires_grad=False):
    parts = [torch.arange(4.0 * n).reshape(n, 4).sin() for n in lengths]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=requires_grad)


def same(found, wanted):
    assert type(found) is type(wanted)
    if isinstance(wanted, tuple | list):
        assert len(found) == len(wanted)
        for each in zip(found, wanted, strict=True):
            same(*each)
    elif isinstance(wanted, torch.Tensor) and wanted.is_nested:
        assert found.requires_grad == wanted.requires_grad and found.dtype == wanted.dtype
        same(found.unbind(), wanted.unbind())
    else:
        torch.testing.assert_close(found, wanted)


PROGRAMS = {
    "pointwise": lambda x: x.sin() * 2 + x,
    "linear": lambda x: F.linear(x, WEIGHT).relu(),
    "matmul": lambda x: x @ WEIGHT.t(),
    "sum of rows": lambda x: x.sum(dim=1),
    "mean of rows": lambda x: x.mean(dim=1),
    "sum of columns": lambda x: x.sum(dim=-1),
    "softmax": lambda x: x.softmax(dim=-1),
    "layer norm": lambda x: F.layer_norm(x, (4,)),
    "cat": lambda x: torch.cat([x, x * 2], dim=-1),
    "chunk": lambda x: x.chunk(2, dim=-1)[1] * 2,
    "split": lambda x: x.split(3, dim=-1),
    "unbind": lambda x: x.unbind()[1] + 1,
    "values": lambda x: x.values() * 2,
    "offsets": lambda x: x.offsets() + 1,
    "from values": lambda x: torch.nested.nested_tensor_from_jagged(x.values() * 2, x.offsets()),
    "padded": lambda x: torch.nested.to_padded_tensor(x, 0.5) * 2,
    "broadcast": lambda x: torch.where(x > 0, x, x * 0.1) + torch.ones(4),
    "transposed": lambda x: (x.transpose(1, 2) * 2).transpose(1, 2),
    "unflatten": lambda x: x.unflatten(-1, (2, 2)) + 1,
    "like": lambda x: torch.zeros_like(x) + torch.ones_like(x),
    "other type": lambda x: x.to(torch.float64),
    "batch": lambda x: x * x.size(0) + x.shape[2] + x.dim(),
    "equal sizes": lambda x: x + 1 if (x * 2).shape == x.shape and x.shape[1] == x.sin().size(1) else x - 1,
    "ragged size as an argument": lambda x: x.reshape(x.shape[0], x.shape[1], 2, 2) * 2,
    "queries": lambda x: x + 1 if x.is_nested and x.layout is torch.jagged else x - 1,
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name, backend):
    program = PROGRAMS[name]
    fast = pyframe.compile(program, backend=backend, fullgraph=True)
    for lengths in LENGTHS:
        x = jagged(*lengths)
        found, wanted = fast(x), program(x)
        same(found, wanted)
        if isinstance(wanted, torch.Tensor) and wanted.is_nested and wanted.shape == x.shape:
            assert found.shape == x.shape
            same(found * x, wanted * x)  # they have the same offsets
    assert counters["graphs"] <= 5


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["pointwise", "linear", "softmax", "layer norm", "chunk", "from values", "padded"])
def test_gradients(name, backend):
    program = PROGRAMS[name]
    fast = pyframe.compile(program, backend=backend, fullgraph=True)
    for lengths in LENGTHS[:3]:
        gradients = []
        for fn in (fast, program):
            x = jagged(*lengths, requires_grad=True)
            y = fn(x)
            (y.values() if y.is_nested else y).sin().sum().backward()
            gradients.append(x.grad)
        same(*gradients)


@pytest.mark.parametrize("backend", BACKENDS)
def test_created_in_the_graph(backend):
    def program(a, b, values, offsets):
        x = torch.nested.nested_tensor([a, b], layout=torch.jagged)
        y = torch.nested.as_nested_tensor([a, b * 2], layout=torch.jagged)
        return x.sin().values(), y.cos(), torch.nested.nested_tensor_from_jagged(values, offsets) + 1

    jagged(1, 2).sin()  # loads the operators of nested tensors
    fast = pyframe.compile(program, backend=backend, fullgraph=True)
    for offsets in ([0, 2, 5, 8], [0, 1, 1, 8]):
        args = torch.ones(2, 4), torch.ones(3, 4), torch.arange(32.0).reshape(8, 4), torch.tensor(offsets)
        same(fast(*args), program(*args))


@pytest.mark.parametrize("backend", BACKENDS)
def test_ragged_sizes_are_those_of_the_call(backend):
    fast = pyframe.compile(lambda x: (x + 1, x.shape[1], x.size(), (x * 2).size(1)), backend=backend)
    for last in (3, 3, 4, 5):
        x = jagged(2, last)
        y, size, sizes, after = fast(x)
        assert y.shape == x.shape == sizes and size == x.shape[1] == after and type(size) is torch.SymInt


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: x + y if x.shape == y.shape else x - 1,
        lambda x, y: x + 1 if x.shape[1] == y.shape[1] else x - 1,
        lambda x, y: x.reshape(x.shape[0], x.shape[1], 2, 2) * 2,
        lambda x, y: (x + y).sin(),
    ],
    ids=["sizes", "ragged sizes", "ragged size as an argument", "operands"],
)
def test_ragged_sizes_of_several_tensors(program):
    fast = pyframe.compile(program, backend="eager")
    one, other = jagged(2, 3), jagged(2, 3)
    for x, y in ((one, one * 2), (one, other), (one, one.sin()), (other, one), (other, other)):
        found = []
        for fn in (fast, program):
            try:
                found.append(fn(x, y))
            except RuntimeError as error:
                found.append(str(error))
        if isinstance(found[1], str):
            assert found[0] == found[1]
        else:
            same(*found)


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes_and_modes(backend):
    def program(x):
        x.mul_(2)
        values = x.values()
        values.add_(1)
        with torch.no_grad():
            y = x.sin()
        return x + 1, y, y.requires_grad

    fast = pyframe.compile(program, backend=backend)
    for lengths in LENGTHS[:3]:
        inputs = jagged(*lengths), jagged(*lengths)
        same(fast(inputs[0]), program(inputs[1]))
        same(*inputs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention(backend):
    def program(x):
        heads = x.unflatten(-1, (2, 2)).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(-2)

    fast = pyframe.compile(program, backend=backend)
    for lengths in LENGTHS[:3]:
        same(fast(jagged(*lengths)), program(jagged(*lengths)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_modules(backend):
    torch.manual_seed(0)
    block = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 4))
    fast = pyframe.compile(block, backend=backend, fullgraph=True)
    for lengths in LENGTHS[:3]:
        gradients = []
        for fn in (fast, block):
            block.zero_grad()
            y = fn(jagged(*lengths))
            y.values().sin().sum().backward()
            gradients.append([parameter.grad.clone() for parameter in block.parameters()])
        same(*gradients)


def test_a_break_keeps_the_parts_in_graphs():
    def program(x):
        y = x.sin()
        pyframe.graph_break()
        return y + x

    counter = CompileCounter()
    fast = pyframe.compile(program, backend=counter)
    x = jagged(2, 3)
    same(fast(x), program(x))
    assert counter.frame_count == 2
