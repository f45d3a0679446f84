"""Programs of users that differed from eager here once, or broke where they need not, each in its smallest form."""

from __future__ import annotations

import weakref

import pytest
import torch
from util import check

import pyframe
from pyframe.metrics import counters

X = torch.tensor([2.0, 0.5])
READS: list[str] = []


@pytest.fixture(autouse=True)
def fresh():
    pyframe.reset()
    READS.clear()


# ---- a `__getattribute__` of the program ----
class Noted:
    def __init__(self):
        object.__setattr__(self, "kept", [])

    factor = 3

    def __getattribute__(self, name):
        READS.append(name)
        return object.__getattribute__(self, name)


class NotedSlots:
    __slots__ = ("factor",)

    def __getattribute__(self, name):
        READS.append(name)
        return object.__getattribute__(self, name)


def grow(x, noted):
    noted.kept.append(noted.factor)
    return x * noted.factor


def set_slot(x, noted):
    noted.factor = noted.factor + 1
    return x * noted.factor


@pytest.mark.parametrize("program", [grow, set_slot])
def test_capture_guards_and_replay_read_past_getattribute(program):
    noted = Noted() if program is grow else NotedSlots()
    if program is set_slot:
        noted.factor = 2
    counts = []
    compiled = pyframe.compile(program, backend="eager")
    for run in (program, compiled, compiled):
        READS.clear()
        run(X, noted)
        counts.append(list(READS))
    assert counts[1:] == counts[:1] * 2


def test_an_object_made_before_a_break_is_read_past_getattribute():
    def program(x):
        noted = Noted()
        pyframe.graph_break()
        noted.kept.append(1)
        return x * noted.factor

    program(X)
    wanted = list(READS)
    READS.clear()
    pyframe.compile(program, backend="eager")(X)
    assert wanted == READS


def test_getattribute_that_is_no_plain_function():
    class Disabled:
        @pyframe.disable
        def __getattribute__(self, name):
            READS.append(name)
            return 3

    def program(x):
        return x * Disabled().factor

    result = pyframe.compile(program, backend="eager")(X)
    assert torch.equal(result, X * 3)
    assert READS == ["factor"]


# ---- objects ----
def test_the_dict_of_an_object_is_one_object():
    class Plain:
        pass

    def program(x):
        made = Plain()
        made.factor = 2
        fields = vars(made)
        return fields is made.__dict__, x * fields["factor"]

    check(program, X, breaks=0)


def test_a_subclass_of_a_number_is_formatted_by_its_own_text():
    class Named(int):
        def __repr__(self):
            return "named"

    class Shown(str):
        def __str__(self):
            return "shown"

    def program(x):
        number = Named(3)
        return f"{number}", f"{number:>5}", format(Shown("text")), f"{number!r}", x * number

    check(program, X, breaks=0)


class Held:
    pass


def test_what_dies_with_a_local_that_a_weak_reference_was_read_before():
    def program(x):
        held = Held()
        reference = weakref.ref(held)
        pyframe.graph_break()
        same = reference() is held
        del held
        return same, reference() is None, x + 1

    check(program, X)


@pytest.mark.parametrize("leave", [lambda items: items.clear(), lambda items: items.pop()])
def test_what_dies_with_an_item_that_a_list_lets_go_of(leave):
    def program(x, items, reference):
        leave(items)
        return x + 1, reference() is None

    compiled = pyframe.compile(program, backend="eager")
    for _ in range(2):
        held = Held()
        items, reference = [held], weakref.ref(held)
        del held
        assert compiled(X, items, reference)[1]


# ---- torch ----
def test_an_autograd_function_of_classmethods():
    class Scale(torch.autograd.Function):
        factor = 2

        @classmethod
        def forward(cls, x):
            return x * cls.factor

        @classmethod
        def setup_context(cls, ctx, inputs, output):
            ctx.factor = cls.factor

        @classmethod
        def backward(cls, ctx, gradient):
            return gradient * ctx.factor * cls.factor

    x = X.clone().requires_grad_()
    result = pyframe.compile(lambda x: Scale.apply(x) + 1, backend="eager", fullgraph=True)(x)
    result.sum().backward()
    assert torch.equal(result, X * 2 + 1)
    assert torch.equal(x.grad, torch.full((2,), 4.0))


def test_constructors_of_tensors_by_class():
    def program(x):
        made = torch.Tensor([1, 2]), torch.FloatTensor((1.5,)), torch.LongTensor([[1, 2]]), torch.BoolTensor([0, 2])
        return x, made, torch.Tensor(2, 3).shape, torch.IntTensor(x.shape).shape, torch.Tensor(x.size(0)).shape

    check(program, X, breaks=0, graphs=1)


def test_constructors_of_tensors_follow_the_default_dtype_but_not_the_default_device():
    compiled = pyframe.compile(lambda x: torch.Tensor([1, 2]) + x, backend="eager", fullgraph=True)
    assert compiled(X).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(X).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        made = pyframe.compile(lambda x: torch.Tensor([1, 2]) + x, backend="eager")(X)
    assert made.device.type == "cpu"
    assert not counters["fallbacks"]


def take_gradient(x):
    taken = x.grad
    x.grad = None
    return taken, x.detach() + 1


def replace_gradient(x):
    before = x.grad
    x.grad = before * 2
    return before, x.grad


def keep_gradient(x):
    kept = [x.grad]
    pyframe.graph_break()
    with torch.no_grad():
        x -= x.grad
    kept.append(x.grad)
    x.grad = None
    pyframe.graph_break()
    return kept, x.detach().clone()


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", [take_gradient, replace_gradient, keep_gradient])
def test_a_gradient_is_read_before_it_is_replaced(program, backend):
    found = []
    compiled = pyframe.compile(program, backend=backend)
    for run in (program, compiled, compiled):
        x = X.clone().requires_grad_()
        (x * 3).sum().backward()
        found.append((*run(x), x.grad))
    torch.testing.assert_close(found[1:], found[:1] * 2)
