"""nn.Module in a traced program: containers, hooks, parametrizations, state changed in forward, torch.nn.utils."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import forked_python
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from util import same

import pyframe
from pyframe.metrics import counters


def agree(make: Callable[[], nn.Module], *args: Any, breaks: int | None = 0, calls: int = 3) -> None:
    """Calls in a row give what eager gives and leave parameters, buffers and attributes as eager does."""
    pyframe.reset()
    torch.manual_seed(0)
    eager = make()
    captured = copy.deepcopy(eager)
    compiled = pyframe.compile(captured, backend="eager")
    for turn in range(calls):
        torch.manual_seed(turn)
        want = eager(*copy.deepcopy(args))
        torch.manual_seed(turn)
        got = compiled(*copy.deepcopy(args))
        assert same(want, got), f"call {turn}: eager {want}, captured {got}"
        state(captured, eager)
    if breaks is not None:
        assert sum(counters["graph_breaks"].values()) == breaks, counters["graph_breaks"]


def state(got: nn.Module, want: nn.Module) -> None:
    """Two module trees hold the same."""
    torch.testing.assert_close(dict(got.state_dict()), dict(want.state_dict()), rtol=0, atol=0)
    assert [n for n, _ in got.named_modules()] == [n for n, _ in want.named_modules()]
    for mine, its in zip(got.modules(), want.modules(), strict=True):
        assert mine.training == its.training
        assert set(mine.__dict__) == set(its.__dict__)
        for name, value in its.__dict__.items():
            if isinstance(value, int | float | str):
                assert mine.__dict__[name] == value, name
            elif isinstance(value, torch.Tensor):
                torch.testing.assert_close(mine.__dict__[name], value, rtol=0, atol=0)


def module(forward: Callable[..., Any], **parts: Any) -> Callable[[], nn.Module]:
    """A maker of modules with these attributes (called with no arguments where they are makers) and this forward."""

    def make() -> nn.Module:
        made = type(forward.__name__, (nn.Module,), {"forward": forward})()
        for name, part in parts.items():
            setattr(made, name, part() if callable(part) and not isinstance(part, nn.Module) else part)
        return made

    return make


def buffer(*shape: int) -> Callable[[], nn.Buffer]:
    return lambda: nn.Buffer(torch.zeros(shape))


def linear(inputs: int = 4, outputs: int = 4) -> Callable[[], nn.Module]:
    return lambda: nn.Linear(inputs, outputs)


def layers(count: int = 3) -> Callable[[], nn.Module]:
    return lambda: nn.ModuleList(nn.Linear(4, 4) for _ in range(count))


X = torch.arange(8.0).reshape(2, 4) / 8


# ---- containers ----
def slices_of_list(self, x):
    for layer in self.layers[:-1]:
        x = layer(x)
    for layer in reversed(self.layers[1:]):
        x = layer(x)
    return self.layers[-1](x), len(self.layers), len(self.layers[::2])


def list_by_enumerate(self, x):
    for i, (a, b) in enumerate(zip(self.layers, self.layers[1:], strict=False)):
        x = a(x) + b(x) * i
    return x


def list_by_index(self, x):
    for i in range(len(self.layers)):
        x = self.layers[i](x)
    return x, self.layers[0] in self.layers


def whole_sequential(self, x):
    return self.seq(x), self.seq[0](x), self.seq[1:](x), [type(m).__name__ for m in self.seq], len(self.seq)


def named_sequential(self, x):
    return self.seq.first(x) + self.seq(x)


def items_of_dict(self, x):
    for name, layer in self.named.items():
        x = layer(x) * len(name)
    for name in self.named:
        x = self.named[name](x)
    for layer in self.named.values():
        x = layer(x)
    return x, "b" in self.named, "c" in self.named, list(self.named.keys())


def parameter_containers(self, x):
    for p in self.weights:
        x = x * p
    for name, p in self.table.items():
        x = x + p * len(name)
    return x + self.weights[0] + self.table["b"], len(self.weights), "b" in self.table


def walks_the_tree(self, x):
    total = x.sum()
    for name, p in self.named_parameters():
        total = total + p.sum() * len(name)
    for m in self.modules():
        if isinstance(m, nn.Linear):
            total = total + m.weight.mean()
    for name, child in self.named_children():
        total = total * (len(name) + len(list(child.parameters())))
    for b in self.buffers():
        total = total + b.sum()
    return total


def by_path(self, x):
    return self.get_submodule("seq.0")(x) + self.get_parameter("seq.1.bias")


def extra_names(self, x):
    return x + len(self._modules) + len(self._parameters), [k for k in self._modules]


def named_tensors(self, x):
    return {k: v.mean() for k, v in self.state_dict().items()}


CONTAINERS = [
    module(slices_of_list, layers=layers()),
    module(list_by_enumerate, layers=layers()),
    module(list_by_index, layers=layers()),
    module(whole_sequential, seq=lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))),
    module(named_sequential, seq=lambda: nn.Sequential(OrderedDict(first=nn.Linear(4, 4), second=nn.Tanh()))),
    module(items_of_dict, named=lambda: nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.ReLU()})),
    module(
        parameter_containers,
        weights=lambda: nn.ParameterList([torch.ones(4), torch.full((4,), 2.0)]),
        table=lambda: nn.ParameterDict({"a": torch.ones(4), "b": torch.zeros(4)}),
    ),
    module(walks_the_tree, a=linear(), bb=lambda: nn.BatchNorm1d(4)),
    module(by_path, seq=lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))),
    module(extra_names, a=linear(), w=lambda: nn.Parameter(torch.ones(4))),
]


@pytest.mark.parametrize("make", CONTAINERS, ids=lambda make: make().__class__.__name__)
def test_containers_are_one_graph(make):
    agree(make, X)
    assert counters["graphs"] == 1


def test_a_layer_chosen_by_a_number_of_the_caller():
    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers()()

        def forward(self, x, i):
            return self.layers[i](x)

    for i in (0, -1, 2):
        agree(Chosen, X, i)


# ---- hooks ----
def test_forward_hooks_of_every_kind():
    def make() -> nn.Module:
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        net[0].register_forward_hook(lambda m, args, out: out * 2)
        net[0].register_forward_pre_hook(lambda m, args: (args[0] + 1,))
        net[1].register_forward_pre_hook(lambda m, args, kwargs: ((args[0] - 1,), kwargs), with_kwargs=True)
        net[1].register_forward_hook(lambda m, args, kwargs, out: out + args[0], with_kwargs=True)
        net[1].register_forward_hook(lambda m, args, out: out.tanh(), prepend=True)
        net[1].register_forward_hook(lambda m, args, out: None, always_call=True)
        return net

    agree(make, X, breaks=None)


def test_a_hook_that_keeps_what_it_sees():
    class Seen(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 4)
            self.kept = {}
            self.net.register_forward_hook(self.keep)

        def keep(self, module, args, out):
            self.kept["out"] = out.detach()

        def forward(self, x):
            self.net(x)
            return self.kept["out"] + 1

    agree(Seen, X)


def test_hooks_added_and_removed_between_calls():
    net = nn.Linear(4, 4)
    compiled = pyframe.compile(net, backend="eager")
    plain = compiled(X)
    handle = net.register_forward_hook(lambda m, args, out: out * 2)
    torch.testing.assert_close(compiled(X), plain * 2)
    handle.remove()
    torch.testing.assert_close(compiled(X), plain)


def test_global_hooks_run():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = pyframe.compile(net, backend="eager")
    plain = compiled(X)
    seen: list[str] = []

    def hook(module: nn.Module, args: Any, out: torch.Tensor) -> torch.Tensor:
        seen.append(type(module).__name__)
        return out + 1

    handle = torch.nn.modules.module.register_module_forward_hook(hook)
    try:
        want = net(X)
        expected = list(seen)
        seen.clear()
        torch.testing.assert_close(compiled(X), want)
        assert seen == expected
    finally:
        handle.remove()
    torch.testing.assert_close(compiled(X), plain)


def test_backward_hooks_run():
    def gradients(compile_: bool) -> tuple[Any, list[Any]]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        seen: list[Any] = []
        net[0].register_full_backward_hook(lambda m, gi, go: seen.append(go[0].sum().item()))
        net[1].register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
        fn = pyframe.compile(net, backend="eager") if compile_ else net
        fn(X.clone().requires_grad_()).sum().backward()
        return net[0].weight.grad, seen

    torch.testing.assert_close(gradients(True), gradients(False))


# ---- parametrizations and torch.nn.utils ----
class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


def symmetric() -> nn.Module:
    net = nn.Linear(4, 4)
    parametrize.register_parametrization(net, "weight", Symmetric())
    return net


@pytest.mark.parametrize(
    "make",
    [
        symmetric,
        lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
        lambda: parametrizations.spectral_norm(nn.Linear(4, 4)).eval(),
        lambda: parametrizations.spectral_norm(nn.Linear(4, 4)),
        lambda: parametrizations.orthogonal(nn.Linear(4, 4)),
        lambda: nn.utils.spectral_norm(nn.Linear(4, 4)),
    ],
    ids=["own", "weight_norm", "spectral_norm_eval", "spectral_norm", "orthogonal", "old_spectral"],
)
def test_parametrized_weights(make):
    agree(make, X, breaks=None)


def test_vectors_of_parameters_and_clipping():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 4)

        def forward(self, x):
            return nn.utils.parameters_to_vector(self.net.parameters()).sum() + self.net(x)

    agree(Flat, X)


def test_packed_sequences():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(4, 4, batch_first=True)

        def forward(self, x):
            packed = nn.utils.rnn.pack_padded_sequence(x, [3, 2], batch_first=True)
            out, last = self.gru(packed)
            return nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0], last

    agree(Packed, torch.randn(2, 3, 4), breaks=None)


def test_lazy_modules_are_made_on_the_first_call():
    agree(lambda: nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2)), X, breaks=None)


# ---- state changed in forward ----
def counts(self, x):
    self.n += 1
    self.total = self.total + x.sum()
    self.steps.add_(1)
    return x * self.n + self.total


def adds_attributes(self, x):
    self.last = x
    self.name = "seen"
    return x + len(self.name)


def adds_and_removes(self, x):
    self.scratch = x * 2
    y = self.scratch + 1
    del self.scratch
    return y, hasattr(self, "scratch")


def switches_mode(self, x):
    self.drop.eval()
    y = self.drop(x)
    self.drop.train(True)
    return y + self.drop(x)


def replaces_parameter(self, x):
    self.w = nn.Parameter(self.w.detach() * 2)
    return x * self.w


def swaps_parameters(self, x):
    self.a, self.b = self.b, self.a
    return x * self.a


def replaces_submodule(self, x):
    self.active = self.first if self.active is not self.first else self.second
    return self.active(x)


def parameter_to_none(self, x):
    self.w = None
    return x if self.w is None else x * self.w


def registers_buffer(self, x):
    self.register_buffer("seen", x * 2)
    return self.seen + 1


def registers_parameter(self, x):
    if not hasattr(self, "scale"):
        self.register_parameter("scale", nn.Parameter(torch.ones(4) * 3))
    return x * self.scale


def writes_table(self, x):
    kept = self._parameters["w"]
    self._parameters["w"] = kept * 2
    y = x * self.w
    self._parameters["w"] = kept
    return y + self.w


def writes_dict(self, x):
    self.__dict__["n"] = self.n + 1
    return x * self.n


def writes_vars(self, x):
    vars(self).update(n=5)
    return x * self.n


def deletes_buffer(self, x):
    if hasattr(self, "total"):
        del self.total
    return x + int(hasattr(self, "total"))


def assigns_data(self, x):
    self.w.data = self.w.data * 2
    return x * self.w


def updates_in_place(self, x):
    with torch.no_grad():
        self.w.mul_(2)
        self.w.copy_(self.w + 1)
        self.w[0] = 7
    return x * self.w


def makes_modules(self, x):
    return nn.ReLU()(x - 0.5) + nn.Dropout(0.0)(x) + nn.Softmax(dim=-1)(x) + nn.Identity()(x)


def makes_layers(self, x):
    torch.manual_seed(3)
    return nn.Linear(4, 2)(x)


def makes_own_module(self, x):
    return Symmetric()(x @ x.T) * 2


CHANGES = [
    (module(counts, n=0, total=buffer(), steps=buffer()), 0),
    (module(adds_attributes), None),
    (module(adds_and_removes), 0),
    (module(switches_mode, drop=lambda: nn.Dropout(0.5)), 0),
    (module(replaces_parameter, w=lambda: nn.Parameter(torch.ones(4))), None),
    (module(swaps_parameters, a=lambda: nn.Parameter(torch.ones(4)), b=lambda: nn.Parameter(torch.zeros(4))), None),
    (module(replaces_submodule, first=linear(), second=linear(), active=linear()), None),
    (module(parameter_to_none, w=lambda: nn.Parameter(torch.ones(4))), None),
    (module(registers_buffer), None),
    (module(registers_parameter), None),
    (module(writes_table, w=lambda: nn.Parameter(torch.ones(4))), 0),
    (module(writes_dict, n=0), None),
    (module(writes_vars, n=0), None),
    (module(deletes_buffer, total=buffer()), None),
    (module(assigns_data, w=lambda: nn.Parameter(torch.ones(4))), None),
    (module(updates_in_place, w=lambda: nn.Parameter(torch.ones(4))), 0),
    (module(makes_modules), 0),
    (module(makes_layers), None),
    (module(makes_own_module), 0),
]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("make", "breaks"), CHANGES, ids=lambda m: m().__class__.__name__ if callable(m) else "")
def test_state_changed_in_forward(make, breaks):
    agree(make, X, breaks=breaks)


def test_train_and_eval_between_calls():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.9), nn.BatchNorm1d(4))
    eager = copy.deepcopy(net)
    compiled = pyframe.compile(net, backend="eager")
    for training in (True, False, True):
        net.train(training)
        eager.train(training)
        torch.manual_seed(1)
        want = eager(X)
        torch.manual_seed(1)
        torch.testing.assert_close(compiled(X), want, rtol=0, atol=0)
        state(net, eager)


def test_changes_from_outside_are_seen():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.scale = nn.Linear(4, 4), 2

        def forward(self, x):
            return self.net(x) * self.scale + getattr(self, "late", 0)

    net = Plain()
    compiled = pyframe.compile(net, backend="eager")

    def check() -> None:
        torch.testing.assert_close(compiled(X), Plain.forward(net, X), rtol=0, atol=0)

    check()
    net.scale = 3
    check()
    net.late = 1.5
    check()
    net.net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    check()
    net.net[0].weight = nn.Parameter(torch.ones(4, 4))
    check()
    net.net[0].bias = None
    check()
    net.net[0].forward = lambda x: x * 100
    check()
    net.net = nn.Identity()
    check()


# ---- the ways of calling ----
def test_shared_parameters_and_modules():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight
            self.again = self.head

        def forward(self, ids):
            return self.head(self.embed(ids)), self.again is self.head, self.head.weight is self.embed.weight

    agree(Tied, torch.tensor([0, 3, 1]))
    tied = Tied()
    compiled = pyframe.compile(tied, backend="eager")
    ids = torch.tensor([1, 2])
    compiled(ids)
    tied.head.weight = nn.Parameter(torch.ones(5, 4))
    assert compiled(ids)[2] is False
    torch.testing.assert_close(compiled(ids)[0], tied(ids)[0])


class Calls(nn.Linear):
    def __call__(self, x, *rest, **named):
        return super().__call__(x, *rest, **named) + 1


class Reads(nn.Module):
    def __getattr__(self, name):
        if name == "virtual":
            return self.net
        return super().__getattr__(name)

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x):
        return self.virtual(x) + self.net(x)


class Writes(nn.Module):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "n":
            super().__setattr__("doubled", value * 2)

    def __init__(self):
        super().__init__()
        self.n = 1

    def forward(self, x):
        self.n = self.n + 1
        return x * self.doubled


class Properties(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(4))

    @property
    def half(self):
        return self.w / 2

    @classmethod
    def double(cls, x):
        return x * 2

    @staticmethod
    def triple(x):
        return x * 3

    def forward(self, x):
        return self.double(x) + self.triple(x) * self.half


class Fallback(nn.Module):
    """What a missing property inside a property becomes is left to nn.Module.__getattr__."""

    @property
    def broken(self):
        return self.missing

    def forward(self, x):
        return x + hasattr(self, "broken") + getattr(self, "other", 2)


class Subclassed(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + len(self)


@pytest.mark.parametrize(
    "make",
    [lambda: Calls(4, 4), Reads, Properties, Fallback, lambda: Subclassed(nn.Linear(4, 4), nn.ReLU())],
    ids=["call", "getattr", "properties", "fallback", "subclass"],
)
def test_ways_of_calling_and_reading(make):
    agree(make, X)


def test_own_setattr():
    agree(Writes, X, breaks=None)


def test_forward_set_on_the_instance():
    def make() -> nn.Module:
        net = nn.Linear(4, 4)
        plain = net.forward
        net.forward = lambda x: plain(x) * 2
        return net

    pyframe.reset()
    net = make()
    torch.testing.assert_close(pyframe.compile(net, backend="eager")(X), net(X), rtol=0, atol=0)


def test_modules_as_arguments_and_results():
    class Chooser(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers()()

        def forward(self, x, deep=False):
            return (self.layers if deep else self.layers[0]), x + 1

    net = Chooser()
    got, _ = pyframe.compile(net, backend="eager")(X)
    assert got is net.layers[0]


def test_functional_call_with_other_weights():
    class Swapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

        def forward(self, x):
            doubled = {name: p * 2 for name, p in self.net.named_parameters()}
            return torch.func.functional_call(self.net, doubled, (x,)), self.net(x)

    class ReadBefore(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 4)

        def forward(self, x):
            swapped = torch.func.functional_call(self.net, {"weight": self.net.weight * 2}, (x,))
            return swapped, self.net(x)

    agree(Swapped, X, breaks=None)
    agree(ReadBefore, X, breaks=None)


def test_layers_of_torch_are_one_graph():
    nets: list[tuple[Callable[[], nn.Module], tuple[Any, ...]]] = [
        (lambda: nn.Embedding(5, 4, padding_idx=0), (torch.tensor([0, 2]),)),
        (lambda: nn.EmbeddingBag(5, 4, mode="sum"), (torch.tensor([[0, 2], [1, 3]]),)),
        (lambda: nn.LayerNorm(4), (X,)),
        (lambda: nn.RMSNorm(4), (X,)),
        (lambda: nn.GroupNorm(2, 4), (X,)),
        (lambda: nn.Bilinear(4, 4, 2), (X, X)),
        (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), (X, torch.tensor([0, 1]))),
        (lambda: nn.MSELoss(), (X, X + 1)),
        (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (torch.randn(1, 2, 3, 3),)),
        (lambda: nn.PixelShuffle(2), (torch.randn(1, 4, 3, 3),)),
        (lambda: nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), (torch.randn(1, 2, 6),)),
        (lambda: nn.MultiheadAttention(4, 2, batch_first=True), (X[None], X[None], X[None])),
        (lambda: nn.Unfold(2), (torch.randn(1, 2, 3, 3),)),
        (lambda: nn.GRU(4, 3, num_layers=2, bidirectional=True), (torch.randn(5, 2, 4),)),
        (lambda: nn.GRUCell(4, 4), (X, X)),
        (lambda: nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True), (X[None], X[None])),
        (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2]).eval(), (X, torch.tensor([0, 1]))),
    ]
    for make, args in nets[:-1]:
        agree(make, *args)
        assert counters["graphs"] == 1, make()
    agree(nets[-1][0], *nets[-1][1], breaks=None)


def test_functional_forms():
    def forward(self, x):
        y = F.dropout(F.gelu(F.linear(x, self.w)), 0.5, self.training)
        y = F.layer_norm(y, (4,)) + F.pad(x, (0, 0), value=1.0) + F.one_hot(torch.tensor([0, 1]), 4)
        return F.cross_entropy(y, torch.tensor([0, 1])), F.cosine_similarity(x, y), F.softmax(y, dim=-1, dtype=torch.float64)

    agree(module(forward, w=lambda: nn.Parameter(torch.randn(4, 4))), X)


# ---- one object under two names ----
class Box:
    def __init__(self, n):
        self.n = n


def writes_both(a, b, x):
    a.n = 1
    b.n += 2
    return x + a.n


def appends_to_one(a, b, x):
    a.append(1)
    return x + len(b)


def fills_one(a, b, x):
    a["k"] = 5
    return x + len(b)


def compares(a, b, x):
    return x + (a is b)


@pytest.mark.parametrize(
    ("fn", "make"),
    [(writes_both, lambda: Box(0)), (appends_to_one, lambda: [1]), (fills_one, dict), (compares, lambda: Box(0))],
    ids=lambda v: v.__name__,
)
def test_a_capture_of_two_objects_is_not_used_for_one(fn, make):
    compiled = pyframe.compile(fn, backend="eager")
    for both in (make(), None, make()):
        args = (make(), make()) if both is None else (both, both)
        want = fn(*copy.deepcopy(args), X)
        torch.testing.assert_close(compiled(*args, X), want, rtol=0, atol=0)


def test_modules_are_made_after_torch_compile_was_used():
    """It leaves wrappers round Module.__init__ behind, for good: hence a process of its own."""
    program = """
import torch, pyframe
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Softmax(-1))(x)
fast = pyframe.compile(Net(), fullgraph=True, backend="eager")
x = torch.randn(3)
torch.testing.assert_close(fast(x), Net()(x))
"""
    done = forked_python.run(program)
    assert done.returncode == 0, done.stderr
