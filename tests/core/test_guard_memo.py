"""Guard programs that remember calls that passed, over modules and tensors: every change of either is noticed.

`tests/frame/checks_memo.py` has the same for what needs no torch.
"""

from __future__ import annotations

import random
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pyframe
from pyframe import _C
from pyframe.core.guard import Guard, TensorMeta
from pyframe.core.guard_program import lower
from pyframe.core.source import InstanceDictSource, LocalSource, ModuleAttrSource, SeqItemSource, TypeSource


def function(module: Any, items: Any) -> Any:
    return module


MODULE, ITEMS = LocalSource("module", 0), LocalSource("items", 1)


def meta_of(tensor: torch.Tensor) -> TensorMeta:
    return TensorMeta(
        type(tensor), tensor.dtype, tensor.device, tuple(tensor.shape), tuple(tensor.stride()), tensor.requires_grad,
        torch._C._dispatch_keys(tensor).raw_repr(),
    )  # fmt: skip


class Block(nn.Module):
    kind = "block"

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self.register_buffer("shift", torch.ones(2, 3, 4))
        self.scale, self.rates = 2, [1, 2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x)) * self.scale + self.shift.sum() * self.rates[0]


def tree(depth: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(depth)))


def tensors(module: nn.Module) -> list[tuple[Any, torch.Tensor]]:
    found = []
    for name, block in module._modules.items():
        source = ModuleAttrSource(MODULE, "_modules", name)
        for inner, layer in block._modules.items():
            at = ModuleAttrSource(source, "_modules", inner)
            found += [(ModuleAttrSource(at, "_parameters", n), p) for n, p in layer._parameters.items() if p is not None]
        found.append((ModuleAttrSource(source, "_buffers", "shift"), block.shift))
    return found


class Watched:
    """A guard program over a module's tensors; each answer is compared with that of one that never ran."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        reads = tensors(module)
        self.guards = [Guard(InstanceDictSource(MODULE), "DICT_LACKS", "forward", None)]
        self.guards += [Guard(source, "TENSOR", meta_of(tensor), None) for source, tensor in reads]
        self.guards += [Guard(SeqItemSource(ITEMS, 0), "TENSOR", meta_of(torch.ones(4)), None)]
        self.guards += [Guard(TypeSource(MODULE), "ID", type(module), None)]
        self.inputs = [SeqItemSource(ITEMS, 0), *(source for source, _ in reads)]
        self.guards += [Guard(None, "DISTINCT", tuple(self.inputs), None)]
        self.program = lower(self.guards, self.inputs).program

    def __call__(self, item: torch.Tensor | None = None) -> int:
        arguments = (self.module, (torch.ones(4) if item is None else item,))
        index, results = self.program.check(function, arguments)
        other, expected = lower(self.guards, self.inputs).program.check(function, arguments)
        assert index == other
        assert len(results) == len(expected) and all(a is b for a, b in zip(results, expected, strict=True))
        return index


def change_class(tensor: torch.Tensor) -> None:
    tensor.__class__ = type("Other", (type(tensor),), {})


TENSOR_CHANGES: tuple[Callable[[torch.Tensor], Any], ...] = (
    lambda t: t.requires_grad_(not t.requires_grad),
    lambda t: setattr(t, "data", t.data.double()),
    lambda t: setattr(t, "data", t.data.bfloat16()),
    lambda t: setattr(t, "data", t.data.to(torch.complex64).conj()),
    lambda t: setattr(t, "data", torch.empty(5, 4)[1:].mT),
    lambda t: setattr(t, "data", t.data[None]),
    lambda t: setattr(t, "data", t.data.reshape(-1)),
    lambda t: setattr(t, "data", t.data[..., None]),
    lambda t: setattr(t, "data", torch.ones((1,) * 7)),
    lambda t: setattr(t, "data", t.data.clone()),
    lambda t: t.data.mul_(2),
    lambda t: torch.utils.swap_tensors(t, nn.Parameter(torch.ones(7))),
    lambda t: t.detach().resize_(3, 3),
    lambda t: t.detach().set_(torch.ones(2, 2).untyped_storage(), 0, (2, 2)),
    change_class,
)
BUFFER_CHANGES: tuple[Callable[[torch.Tensor], Any], ...] = (
    lambda t: t.resize_(1, 2, 3, 4),
    lambda t: t.transpose_(0, 1),
    lambda t: t.squeeze_().unsqueeze_(0),
    lambda t: t.as_strided_((2, 3, 4), (0, 0, 1)),
    lambda t: t.set_(torch.ones(2, 3, 4, dtype=torch.float32)),
    lambda t: t.mul_(torch.ones(1, requires_grad=True)),
)


@pytest.mark.parametrize("change", range(len(TENSOR_CHANGES)))
def test_a_parameter_changes(change: int) -> None:
    module = tree(2)
    for index, (_, tensor) in enumerate(tensors(module)):
        if index % 3 == change % 3 and isinstance(tensor, nn.Parameter):
            watched = Watched(module)
            for _ in range(3):
                assert watched() == -1
            assert watched.program.n_residual < 8 < watched.program.n_ops
            TENSOR_CHANGES[change](tensor)
            first = watched()
            assert watched() == first == watched()


@pytest.mark.parametrize("change", range(len(BUFFER_CHANGES)))
def test_a_buffer_changes(change: int) -> None:
    module = tree(2)
    watched = Watched(module)
    for _ in range(3):
        assert watched() == -1
    BUFFER_CHANGES[change](module[1].shift)
    first = watched()
    assert watched() == first == watched()


def test_the_changing_argument_is_checked() -> None:
    module = tree(2)
    watched = Watched(module)
    for _ in range(3):
        assert watched() == -1
    assert watched(torch.ones(5)) >= 0 and watched(torch.ones(4).double()) >= 0
    assert watched(module[0].a.bias) >= 0 and watched(torch.ones(4, requires_grad=True)) >= 0
    bias = torch.ones(4)
    module[0].a.register_parameter("bias", nn.Parameter(bias, requires_grad=True))
    assert watched() == -1 == watched() == watched()
    assert watched(module[0].a.bias) >= 0 and watched(torch.ones(4)) == -1


def test_dlpack_alone_does_not_tell_words() -> None:
    watched = Watched(tree(2))
    _C.tensor_route("dlpack")
    try:
        for _ in range(4):
            assert watched() == -1
        watched.module[0].a.weight.requires_grad_(False)
        assert watched() >= 0
    finally:
        _C.tensor_route("handle")


CHANGES: tuple[Callable[[nn.Module, nn.Module], Any], ...] = (
    lambda net, block: vars(block).update(scale=3),
    lambda net, block: vars(block).update(forward=lambda x: x + 9),
    lambda net, block: setattr(block, "__dict__", {**vars(block), "scale": 5}),
    lambda net, block: block.rates.insert(0, 7),
    lambda net, block: setattr(block, "rates", [8]),
    lambda net, block: setattr(Block, "forward", lambda self, x: x - 9),
    lambda net, block: delattr(Block, "forward"),
    lambda net, block: setattr(block, "__class__", type("Other", (Block,), {"forward": lambda self, x: x * 7})),
    lambda net, block: net.requires_grad_(False),
    lambda net, block: block.a.weight.requires_grad_(False),
    lambda net, block: setattr(block.a.weight, "data", torch.full((4, 4), 2.0)),
    lambda net, block: setattr(block.a.weight, "data", torch.full((5, 4), 2.0)[1:].T),
    lambda net, block: net.half(),
    lambda net, block: net.eval(),
    lambda net, block: block.a.register_forward_hook(lambda module, args, output: output * 3),
    lambda net, block: block.b.register_forward_pre_hook(lambda module, args: (args[0] * 3,)),
    lambda net, block: nn.modules.module.register_module_forward_hook(lambda module, args, output: output + 1),
    lambda net, block: block._parameters.update(new=None),
    lambda net, block: block.a._parameters.update(weight=nn.Parameter(torch.zeros(4, 4))),
    lambda net, block: block.a._parameters.update(bias=None),
    lambda net, block: block._buffers.update(shift=torch.zeros(1)),
    lambda net, block: block.shift.zero_().resize_(3),
    lambda net, block: block._modules.update(a=nn.Identity()),
    lambda net, block: net.append(nn.Tanh()),
    lambda net, block: net.__delitem__(1),
    lambda net, block: net._modules.move_to_end("0") if hasattr(net._modules, "move_to_end")
    else net._modules.update({"0": net._modules.pop("0")}),
    lambda net, block: setattr(nn.Linear, "forward", lambda self, x: x * 11),
    lambda net, block: block.__setattr__("a", block.b),
)  # fmt: skip


def program_of(**names: Any) -> types.FunctionType:
    """A function with code of its own that calls the global `net`."""
    return types.FunctionType((lambda x: net(x)).__code__.replace(), names, "program")  # noqa: F821


def outcome(fn: Any, x: torch.Tensor) -> Any:
    try:
        result = fn(x)
    except (AttributeError, KeyError, RuntimeError, TypeError, NotImplementedError) as error:
        return type(error).__name__
    return result.dtype, result.requires_grad, tuple(result.shape), result.tolist()


@pytest.fixture
def untouched() -> Any:
    forward, linear = Block.forward, nn.Linear.forward
    hooks = nn.modules.module._global_forward_hooks
    before = dict(hooks)
    yield
    Block.forward, nn.Linear.forward = forward, linear
    hooks.clear()
    hooks.update(before)


@pytest.mark.parametrize("change", range(len(CHANGES)))
def test_a_module_tree_changes(change: int, untouched: None) -> None:
    net = tree()
    program = program_of(net=net)
    compiled = pyframe.compile(program, backend="eager")
    x = torch.arange(4.0)
    for _ in range(12):  # until it is learnt that the argument is new in each call
        assert outcome(compiled, x.clone()) == outcome(net, x)
    (entry,) = _C.entries(program)
    assert 0 < entry.guards.n_memos <= 4 and entry.guards.n_residual < entry.guards.n_ops / 3
    CHANGES[change](net, net[1])
    for _ in range(3):
        assert outcome(compiled, x.clone()) == outcome(net, x)


@pytest.mark.parametrize("seed", range(6))
def test_random_changes_of_tensors(seed: int) -> None:
    rng = random.Random(seed)
    module = tree(3)
    watched = Watched(module)
    for _ in range(25):
        for _ in range(rng.randrange(1, 4)):
            watched()
        _, tensor = rng.choice(tensors(module))
        before = tensor.data, tensor.requires_grad
        change = rng.choice(TENSOR_CHANGES[:11])
        change(tensor)
        watched()
        if rng.random() < 0.8:
            tensor.data = before[0]
            tensor.requires_grad_(before[1])


def test_globals_that_change_at_each_call_do_not_cost_the_memo() -> None:
    program = program_of(net=tree(), count=0)
    names = program.__globals__
    compiled = pyframe.compile(program, backend="eager")
    for _ in range(30):
        names["result"] = compiled(torch.ones(4))
        names["count"] += 1
    (entry,) = _C.entries(program)
    assert entry.guards.n_memos <= 3 and entry.guards.n_residual < entry.guards.n_ops / 3
    names["net"] = nn.Tanh()
    assert compiled(torch.ones(4)).equal(torch.ones(4).tanh())


def test_an_argument_that_is_new_in_each_call_is_soon_known_to_be() -> None:
    """The allocator gives a new tensor the address of the one before."""
    net = tree()
    program = program_of(net=net)
    compiled = pyframe.compile(program, backend="eager")
    for _ in range(12):
        compiled(torch.ones(4))
    (entry,) = _C.entries(program)
    taken = entry.guards.n_memos
    for _ in range(12):
        compiled(torch.ones(4))
    assert entry.guards.n_memos == taken and entry.guards.n_residual < entry.guards.n_ops / 3
