"""Exported programs give what eager gives: in this process, loaded from a file, and printed and executed."""

import collections
import dataclasses
import functools
from typing import Any

import pytest
import torch
from export_checks import check
from torch import nn
from torch.nn import functional as F

import pyframe

Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Fields:
    x: Any
    y: Any = None


def rand(*sizes):
    return torch.randn(*sizes)


def in_place(x, y):
    x.add_(1)
    x[0] = 5
    return x, x.view(-1), x[0], y.mul(2)


@torch.no_grad()
def without_gradients(x):
    return x * 2


def cast(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        return x @ w


def stacked(x):
    return torch.stack([x[i] * i for i in range(x.shape[0])])


PROGRAMS = {
    "nested": (lambda d, items, pair: {"o": [d["k"][0] + items[1], (pair.a * pair.b,)], "z": None, "i": 3},
               ({"k": (rand(3),)}, [rand(3), rand(3)], Pair(rand(3), rand(3)))),
    "dataclasses": (lambda fields: Fields(fields.x + 1, {"q": fields.y * 2}), (Fields(rand(3), rand(3)),)),
    "named tuple": (lambda x: Pair(x + 1, x), (rand(3),)),
    "ordered dict": (lambda d: collections.OrderedDict(a=d["p"] + 1), (collections.OrderedDict(p=rand(3)),)),
    "in place": (in_place, (rand(3, 2), rand(3))),
    "aliases": (lambda x: (x, x.t(), x[0], x.detach()), (rand(3, 2),)),
    "ints": (lambda x, n: x.view(n, -1) * n, (rand(4, 3), 4)),
    "strings": (lambda x, mode: x + 1 if mode == "a" else x - 1, (rand(3), "a")),
    "loop": (stacked, (rand(3, 2),)),
    "no gradients": (without_gradients, (rand(3).requires_grad_(),)),
    "autocast": (cast, (rand(4, 4), rand(4, 4))),
    "gradient": (lambda x: torch.autograd.grad((x * x).sum(), x)[0], (rand(3).requires_grad_(),)),
    "constants": (lambda x: (torch.tensor([1.0, 2.0]), torch.arange(3), 5, x.dtype, x.device), (rand(3),)),
    "no arguments": (lambda: torch.ones(3), ()),
    "nothing": (lambda x: None, (rand(3),)),
    "only a size": (lambda x, n: (x.shape[0] + n, "text"), (rand(3), 4)),
    "default dict": (lambda x: collections.defaultdict(list, {"a": [x + 1], 3: (x, 2.0)}), (rand(3),)),
    "identity": (lambda x: x, (rand(3),)),
    "infinity": (lambda x: x.masked_fill(x > 0, float("-inf")), (rand(4),)),
    "formats": (lambda x: x.to(torch.float16).to("cpu", memory_format=torch.preserve_format), (rand(4),)),
    "complex": (lambda x: x * 1j, (rand(4),)),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (rand(2, 2, 4, 8),) * 3),
    "partial": (functools.partial(lambda a, b: a - b, rand(3)), (rand(3),)),
    "random": (lambda x: x + torch.rand(3) + torch.randn_like(x), (rand(3),)),
    "dropout": (nn.Dropout(0.5), (rand(8),)),
    "lstm": (nn.LSTM(4, 5, batch_first=True), (rand(2, 3, 4),)),
    "self-attention": (nn.MultiheadAttention(8, 2, batch_first=True).eval(), (rand(2, 3, 8),) * 3),
    "encoder": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (rand(2, 3, 8),)),
    "batch norm": (nn.BatchNorm2d(3), (rand(4, 3, 5, 5),)),
    "batch norm in eval": (nn.BatchNorm2d(3).eval(), (rand(4, 3, 5, 5),)),
    "names of modules": (lambda torch, constants, operator: torch + constants * operator, (rand(3), rand(3), rand(3))),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, tmp_path):
    function, args = PROGRAMS[name]
    check(function, *args, path=tmp_path / "p")


def test_positional_keyword_and_starred_parameters(tmp_path):
    check(lambda *a, **k: a[0] + a[1] * k["z"], rand(3), rand(3), z=rand(3), path=tmp_path / "p")
    check(lambda x, *, scale: x * scale, rand(3), scale=rand(3), path=tmp_path / "p")
    scope: dict[str, Any] = {}
    exec("def f(x, /, y=2, *, z=3): return x * y * z", scope)
    exported = check(scope["f"], rand(3), z=4, path=tmp_path / "p")
    assert torch.equal(exported(torch.ones(3), 2, z=4), torch.full((3,), 8.0))
    with pytest.raises(pyframe.UserError, match="made without the argument y, so it must be 2"):
        exported(torch.ones(3), 3, z=4)
    with pytest.raises(pyframe.UserError, match="z == 4, its value in the example, not 5"):
        exported(torch.ones(3), z=5)


def test_an_argument_that_was_passed_may_be_left_at_its_default():
    exported = pyframe.export(lambda x, mask=None: x if mask is None else x * mask)(rand(3), mask=None)
    assert torch.equal(exported(torch.ones(3)), torch.ones(3))


def test_tied_weights_stay_tied(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, ids):
            return self.out(self.embed(ids))

    exported = check(Tied(), torch.tensor([1, 2]), path=tmp_path / "p")
    for program in (exported, pyframe.export.load(tmp_path / "p")):
        assert list(program.constants) == ["embed.weight", "out.weight"]
        assert program.graph_module.embed.weight is program.graph_module.out.weight
        assert len(list(program.graph_module.parameters())) == 1


def test_data_dependent_numbers_sizes_and_control_flow(tmp_path):
    path = tmp_path / "p"
    check(lambda x: torch.zeros(int(x.max().item()) + 1), torch.tensor([3, 4]), other=[(torch.tensor([5, 7]),)], path=path)
    check(lambda x: x.nonzero() + 1, torch.tensor([3, 0, 4]), other=[(torch.tensor([0, 0, 1]),)], path=path)
    branches = [(-torch.ones(3),), (torch.ones(3),)]
    chosen = lambda x: torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))  # noqa: E731
    check(chosen, rand(3), other=branches, path=path)


def test_a_check_of_data_stays(tmp_path):
    def checked(x):
        if torch.isnan(x).any():
            raise ValueError("nan")
        return x + 1

    exported = check(checked, rand(3), path=tmp_path / "p")
    with pytest.raises(AssertionError, match="another path or raises"):
        exported(torch.full((3,), float("nan")))


def test_hooks_methods_and_state_of_functions(tmp_path):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(x) * 2

        def encode(self, x):
            return self.linear(x)

    model = Model()
    exported = check(model.encode, rand(2, 3), path=tmp_path / "p")
    assert list(exported.constants) == ["linear.weight", "linear.bias"]
    model.register_forward_hook(lambda module, args, result: result + 1)
    model.register_forward_pre_hook(lambda module, args: (args[0] * 3,))
    check(model, rand(2, 3), path=tmp_path / "p")
    exported = check(lambda x: model(x) - 1, rand(2, 3), path=tmp_path / "p")
    assert list(exported.constants) == ["model.linear.weight", "model.linear.bias"]
    assert isinstance(exported.graph_module.model.linear.weight, nn.Parameter)


def test_gradients_reach_parameters():
    model = nn.Linear(3, 2)
    exported = pyframe.export(model)(rand(4, 3))
    x = rand(4, 3)
    exported(x).sum().backward()
    assert torch.equal(model.bias.grad, torch.full((2,), 4.0))


def test_a_buffer_whose_value_is_read_is_not_taken_for_a_constant(tmp_path):
    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            self.n += 1
            return x * self.n.item()

    exported = check(Steps(), torch.ones(2), path=tmp_path / "p")
    assert [exported(torch.ones(2))[0].item() for _ in range(3)] == [1, 2, 3]


REFUSED = {
    "branch on data": (lambda x: x if x.sum() > 0 else -x, r"decides a branch(.|\n)*test_exported_programs\.py:\d+ in"),
    "print": (lambda x: print("hi") or x, r"print\(\) was called(.|\n)*test_exported_programs\.py:\d+ in"),
    "numpy result": (lambda x: x.numpy() + 1, "computed from a tensor outside of the graph"),
    "generator": (lambda x: (i for i in [x + 1]), "the result is a generator"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_program(name):
    function, why = REFUSED[name]
    with pytest.raises(pyframe.Unsupported, match=why):
        pyframe.export(function)(rand(3))


def test_side_effects_are_refused_with_their_line():
    def append(x, found):
        found.append(x)
        return x + 1

    with pytest.raises(pyframe.Unsupported, match=r"changes a list that existed before the call \(found\)(.|\n)*append\(x\)"):
        pyframe.export(append)(rand(3), [rand(3)])

    class Keeps(nn.Module):
        def forward(self, x):
            self.last = x
            return x + 1

    with pytest.raises(pyframe.Unsupported, match=r"assigns the attribute 'last'(.|\n)*self\.last = x"):
        pyframe.export(Keeps())(rand(3))


def test_handled_errors_are_refused():
    def handled(x):
        try:
            return x.view(5)
        except RuntimeError:
            return x + 1

    with pytest.raises(pyframe.Unsupported, match=r"exception-in-traced-code(.|\n)*x\.view\(5\)"):
        pyframe.export(handled)(rand(3))
