"""What model libraries do around their tensors."""
# ruff: noqa: UP006, UP035, UP045, UP007  the old spellings of annotations are what is tested

from __future__ import annotations

import collections.abc
import functools
import types
import typing
from typing import Any

import numpy as np
import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan, associative_scan_op

import pyframe
from pyframe.errors import Unsupported
from tests.vars.language_support import Table, X, agree

table = Table()


def _first(value: Any) -> str:
    return f"first {value}"


class Marker:
    pass


MARKER = Marker()
BY_TYPE: dict[Any, Any] = {
    typing.Union: "union", list: _first, collections.abc.Sequence: "sequence", types.UnionType: "pipe", _first: 3,
    list[int]: "ints", typing.Optional[int]: "maybe", len: "len", torch: "module", MARKER: "marker", (1, str): "pair",
}  # fmt: skip


@table(X)
def keys_of_any_kind(x):
    known = [BY_TYPE[key] for key in (typing.Union, types.UnionType, _first, list[int], len, torch, MARKER, (1, str))]
    asked = [BY_TYPE.get(key) for key in (typing.get_origin(typing.Union[int, str]), dict, 3, Marker(), typing.List)]
    return BY_TYPE[list](1), known, asked, int | None in BY_TYPE, len(BY_TYPE), x * BY_TYPE[_first]


@table(X)
def items_of_any_kind(x):
    return [(str(key), value) for key, value in BY_TYPE.items() if key is not MARKER and not callable(value)], x + 1


@table({MARKER: 1, "a": 2}, X)
def keys_that_are_objects(table, x):
    table["b"] = x + table["a"]
    (key, *_) = table
    table[key] = x * table.pop(key)
    return list(table.values())


class Box(typing.Generic[typing.TypeVar("T")]):
    def __init__(self, value):
        self.value = value

    @classmethod
    def made(cls, value):
        return cls(value)


@table(X)
def forms_of_annotations(x):
    maybe, ints, either = typing.Optional[int], list[int], int | str
    origins = [typing.get_origin(form) for form in (maybe, ints, either, typing.List[int], typing.Sequence[str])]
    others = typing.Callable[[int], str], typing.Literal["a"]
    parts = [typing.get_args(form) for form in (maybe, ints, either, *others)]
    tests = isinstance(3, either), isinstance("", int | None), isinstance([], typing.List), issubclass(bool, either)
    box = Box[int](x)
    made = list[int]((1, 2)), box.value + 1, box.__orig_class__, Box[int].made(4).value, type(Box[str](1))
    return origins, parts, tests, made, either | None, maybe == (int | None)


def _checked_setattr(self, name, value):
    object.__setattr__(self, name, f"checked {value}" if isinstance(value, int) else value)


class Strict:
    __setattr__ = _checked_setattr


@table(X)
def methods_under_another_name(x):
    obj = Strict()
    obj.number, obj.tensor = 3, x + 1
    return obj.number, obj.tensor


@table(torch.arange(12.0))
def tensors_that_are_constants(x):
    span = torch.tensor(min(x.shape[0], 5))
    narrow = x[6 - span : 6 + span.long()]
    if span * 2 > 9 and torch.tensor(True):
        narrow = narrow + span.item() + int(span) + float(torch.tensor([2.5]))
    return torch.clamp(narrow, 0, span * 2 - 1), [10, 20, 30][torch.tensor(1)], torch.tensor([7]).tolist(), range(span)


@table(X)
def dimensions_of_nested_arguments(x):
    def pairs(left, right, named):
        return left[0] * right[0] + left[1], right[1][0] - named["a"]

    nested = torch.vmap(pairs, in_dims=((0, None), (0, [1]), {"a": 0, "b": None}))
    return nested((x, x[0]), (x + 1, [x.T]), {"a": x * 2, "b": x})


@table(X)
def associative_scans(x):
    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    two = torch.cat([x, x[:, :1]], dim=1)[:, 2:]  # an empty half in the middle of the scan
    return [associative_scan(combine, (y, y + 1), dim=1, combine_mode="generic") for y in (x, two)]


def test_the_gradient_of_an_associative_scan():
    def combine(decay, state, next_decay, update):
        return decay * next_decay, next_decay * state + update

    def states(decay, update):
        return associative_scan_op(combine, [decay, update], additional_inputs=())[1]

    def one_by_one(decay, update):
        found = [update[0]]
        for k in range(1, len(decay)):
            found.append(decay[k] * found[-1] + update[k])
        return torch.stack(found)

    decay, update = (torch.rand(7, 3, requires_grad=True) for _ in range(2))
    want = torch.autograd.grad(one_by_one(decay, update).square().sum(), (decay, update))
    compiled = pyframe.compile(states, fullgraph=True)
    got = torch.autograd.grad(compiled(decay, update).square().sum(), (decay, update))
    torch.testing.assert_close(got, want)


ROOT = np.float64(0.5)


@table(X)
def numbers_of_numpy(x):
    root, many = np.sqrt(x.shape[1] - 1), np.prod([2, 3]) // np.lcm(2, 3) + np.int64(1)
    parts = x / root, root * x, x * many, many + x, x.reshape(np.int64(3), many), x + np.float32(0.1), x * ROOT
    sizes = int(many), float(root), many.item() + 1, range(many), np.maximum(2, 3) > many, -many, np.ceil(1.5), np.pi
    return parts, sizes, [4, 5, 6][many], type(root), isinstance(root, float), np.floor(3.7) + ROOT


@table(X)
def values_of_constants(x):
    mask = torch.triu(torch.full((x.shape[1], x.shape[1]), float("-inf")), diagonal=1)
    causal = bool((mask == torch.triu(torch.full_like(mask, float("-inf")), diagonal=1)).all())
    positions = torch.arange(x.shape[1]).unsqueeze(0).expand(2, -1)
    ones = torch.ones(2, 3, dtype=torch.long)
    ones.view(-1)[0] += positions[0, 1]
    ones[ones == 2] = 0
    (x + ones).add_(1)
    if (ones > 1).flatten().any().item():
        x = x - 100
    return x[:, : positions.max().item()], causal, positions.tolist(), float(mask[0, 1])


class Logger:
    logged: list[str] = []

    @functools.lru_cache
    def once(self, message):
        self.logged.append(message)
        return len(message)


LOGGER = Logger()


@table(X)
def a_method_that_keeps_its_results(x):
    return x + LOGGER.once("four") + LOGGER.once("four") + LOGGER.once("seven")


@pytest.mark.parametrize("case", table, ids=Table.name)
def test_agrees_with_eager(case):
    agree(*case)


def test_a_module_moved_to_where_it_is():
    module = torch.nn.Linear(3, 2)

    def program(x):
        moved = module.to(torch.float32)
        return moved(x), moved is module

    compiled = pyframe.compile(program, backend="eager", fullgraph=True)
    weight = module.weight
    assert torch.equal(compiled(X)[0], program(X)[0]) and compiled(X)[1]
    assert module.weight is weight


def test_what_keeps_its_results_is_called_once():
    LOGGER.once.cache_clear()
    Logger.logged.clear()
    agree(a_method_that_keeps_its_results, (X,))
    assert Logger.logged == ["four", "seven"]


def test_a_changed_object_is_not_asked_while_tracing():
    def program(logger, x):
        logger.level = 3
        return x + logger.once("level")

    with pytest.raises(Unsupported, match="caches its results"):
        pyframe.compile(program, backend="eager", fullgraph=True)(Logger(), X)


def test_a_constant_that_is_changed_is_known_no_longer():
    def program(x):
        span = torch.tensor(2)
        span.add_(x.sum().long())
        return x[: span.item()]

    compiled = pyframe.compile(program, backend="eager")
    for x in (torch.zeros(5), torch.ones(5), torch.zeros(5)):
        assert torch.equal(compiled(x), program(x))


def test_what_is_made_with_a_varying_float_is_no_constant():
    def program(x, scale):
        return x + 1 if torch.tensor(1.0) * scale > 2 else x - 1

    compiled = pyframe.compile(program, backend="eager")
    for scale in (1.5, 2.5, 1.25, 3.5, 0.5, 4.5):
        assert torch.equal(compiled(X, scale), program(X, scale))


@pytest.mark.parametrize("change", ["by an input", "random", "input"])
def test_what_is_no_constant(change):
    def program(x):
        table = torch.arange(4.0)
        view = table[1:]
        if change == "by an input":
            table.view(2, 2)[0] += x[0, 1]
        elif change == "random":
            table.uniform_()
        else:
            view = view + x[0, 0]
        return x * view.sum().item()

    compiled = pyframe.compile(program, backend="eager")
    for turn in range(3):
        torch.manual_seed(turn)
        expected = program(X + turn)
        torch.manual_seed(turn)
        assert torch.equal(compiled(X + turn), expected)
