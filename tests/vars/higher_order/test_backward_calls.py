"""`backward()` inside a compiled function is a node of its graph: gradients, parameters and results are those of eager,
and a whole training step is one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pyframe
from pyframe.testing import CompileCounter
from tools.tracer_programs.comparison import equal

Program = tuple[Callable[..., Any], Callable[[], list[Any]]]  # a step on two tensors of 3x4, and the state to compare


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 4))


def state_of(*modules: nn.Module) -> Callable[[], list[Any]]:
    return lambda: [(p.detach().clone(), p.grad) for module in modules for p in module.parameters()]


def whole_step(make: Callable[[Any], torch.optim.Optimizer]) -> Callable[[], Program]:
    def program() -> Program:
        model = network()
        optimizer = make(model.parameters())

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            return loss

        return step, state_of(model)

    return program


def gradients_are_zeroed() -> Program:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: torch.Tensor, y: torch.Tensor) -> float:
        optimizer.zero_grad(set_to_none=False)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, state_of(model)


def accumulation() -> Program:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        for each in (x, y):
            (model(each).square().mean() / 2).backward()
        optimizer.step()

    return step, state_of(model)


def two_players() -> Program:
    """The first pass frees nothing that the second needs, and the program writes what the first has used."""
    one, two = network(), network()
    first, second = (torch.optim.Adam(each.parameters()) for each in (one, two))

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        made = one(x)
        a = (two(made.detach()) - two(y)).mean()
        second.zero_grad()
        a.backward()
        second.step()
        b = -two(made).mean()
        first.zero_grad()
        b.backward()
        first.step()
        return a.detach(), b.detach()

    return step, state_of(one, two)


def leaf_of_the_program() -> Program:
    model = network()

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        change = torch.zeros_like(x, requires_grad=True)
        before = change.grad
        for _ in range(2):
            (model(x + change) * y).sum().backward()
        assert before is None and change.grad is not None
        return x + 0.1 * change.grad.sign() + change.grad

    return step, state_of(model)


def only_a_leaf_of_the_program() -> Program:
    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        made = x.clone().requires_grad_()
        (made * y).sum().backward()
        return made.grad

    return step, list


def some_inputs() -> Program:
    model = network()

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        model(x).sum().backward(inputs=[model[0].weight], retain_graph=False)

    return step, state_of(model)


def given_gradients() -> Program:
    model = network()

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        outputs = model(x).split(2, dim=1)
        torch.autograd.backward(outputs, [y[:, :2], torch.ones_like(y[:, 2:])])
        model(y).backward(gradient=x)
        return model[0].weight.grad.norm(), outputs[0].requires_grad

    return step, state_of(model)


def retained() -> Program:
    model = network()

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        hidden = model[0](x)
        hidden.retain_grad()
        loss = (model[2](hidden) * y).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return hidden.grad * 2

    return step, state_of(model)


def same_gradient_for_two() -> Program:
    a, b = (torch.ones(3, 4, requires_grad=True) for _ in range(2))

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        a.grad = b.grad = None
        (a + b + a.t().contiguous().t()).sum().backward()
        a.grad.mul_(2)
        return a.grad, b.grad, a.grad.stride(), b.grad.stride()

    return step, lambda: [a.grad, b.grad]


def unused_parameters() -> Program:
    model = network()

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        model[0](x).sum().backward()
        return [p.grad is None for p in model.parameters()]

    return step, state_of(model)


PROGRAMS = {
    "sgd": whole_step(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    "adamw": whole_step(lambda p: torch.optim.AdamW(p, 0.1)),
    **{f.__name__: f for f in (
        gradients_are_zeroed, accumulation, two_players, leaf_of_the_program, only_a_leaf_of_the_program, some_inputs,
        given_gradients, retained, same_gradient_for_two, unused_parameters,
    )},
}  # fmt: skip


def seen(program: Callable[[], Program], compiled: Callable[..., Any]) -> list[Any]:
    step, state = program()
    step, found = compiled(step), []
    torch.manual_seed(1)
    for _ in range(4):
        result = step(torch.randn(3, 4), torch.randn(3, 4))
        found.append((result, [each.clone() if isinstance(each, torch.Tensor) else each for each in state()]))
    return found


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name: str, backend: str) -> None:
    want = seen(PROGRAMS[name], lambda step: step)
    got = seen(PROGRAMS[name], lambda step: pyframe.compile(step, backend=backend, fullgraph=True))
    assert equal(got, want) == ""


def test_captures_of_a_step() -> None:
    counter = CompileCounter()
    seen(PROGRAMS["adamw"], lambda step: pyframe.compile(step, backend=counter))
    assert counter.frame_count <= 2  # the first step creates the optimizer's state


def test_hooks_of_leaves_break_the_graph() -> None:
    log: list[str] = []
    x = torch.ones(3, requires_grad=True)

    def f(x: torch.Tensor) -> Any:
        (x * 2).sum().backward()
        return list(log), x.grad

    fn = pyframe.compile(f, backend="eager")
    assert equal(fn(x), ([], torch.full((3,), 2.0))) == ""
    x.register_hook(lambda gradient: log.append("hook"))
    assert equal(fn(x), (["hook"], torch.full((3,), 4.0))) == ""
    y = torch.ones(3, requires_grad=True)
    y.register_post_accumulate_grad_hook(lambda leaf: log.append("after"))
    assert equal(fn(y), (["hook", "after"], torch.full((3,), 2.0))) == ""


def test_history_outside_of_the_graph() -> None:
    w = torch.ones(3, requires_grad=True)

    def f(x: torch.Tensor) -> Any:
        (x * 2).sum().backward()
        return w.grad

    fn = pyframe.compile(f, backend="eager")
    assert equal(fn(w * 3), torch.full((3,), 6.0)) == ""
    assert equal(fn(w * 3), torch.full((3,), 12.0)) == ""


def test_a_second_pass_raises() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x.sin().sum()
        y.backward()
        y.backward()

    for fn in (f, pyframe.compile(f, backend="eager")):
        with pytest.raises(RuntimeError, match="second time"):
            fn(torch.ones(3, requires_grad=True))


def removed_after_a_pass(w: torch.Tensor) -> Any:
    hook = w.register_hook(lambda gradient: gradient * 2)
    (w * 3).sum().backward()
    hook.remove()
    return w.grad


def removed_between_passes(w: torch.Tensor) -> Any:
    y = w * 3
    hook = y.register_hook(lambda gradient: gradient * 2)
    (first,) = torch.autograd.grad(y.sum(), w, retain_graph=True)
    hook.remove()
    y.sum().backward()
    return first, w.grad


def registered_between_passes(w: torch.Tensor) -> Any:
    y = w * 3
    total = y.sum()
    total.backward(retain_graph=True)
    y.register_hook(lambda gradient: gradient * 2)
    total.backward()
    return w.grad


def retained_between_passes(w: torch.Tensor) -> Any:
    y = w * 3
    total = y.sum()
    total.backward(retain_graph=True)
    y.retain_grad()
    total.backward()
    return y.grad


BETWEEN = (removed_after_a_pass, removed_between_passes, registered_between_passes, retained_between_passes)


@pytest.mark.parametrize("program", BETWEEN)
def test_hooks_change_between_passes(program: Callable[..., Any]) -> None:
    fn = pyframe.compile(program, backend="eager")
    a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
    for _ in range(3):
        assert equal(fn(a), program(b)) == ""


def handled_after(w: torch.Tensor, i: torch.Tensor) -> Any:
    (w * 3).sum().backward()
    try:
        return w[i]
    except IndexError:
        return "handled"


def handled_before(w: torch.Tensor, i: torch.Tensor) -> Any:
    try:
        found: Any = w[i]
    except IndexError:
        found = "handled"
    (w * 3).sum().backward()
    return found


def handled_with_a_hook(w: torch.Tensor, i: torch.Tensor) -> Any:
    y = w * 3
    y.register_hook(lambda gradient: gradient * 2)
    try:
        return y[i]
    except IndexError:
        return y


@pytest.mark.parametrize("program", [handled_after, handled_before, handled_with_a_hook])
def test_errors_that_the_program_handles(program: Callable[..., Any]) -> None:
    fn = pyframe.compile(program, backend="eager")
    a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
    for index in (1, 7, 2):
        i = torch.tensor([index])
        assert equal((fn(a, i), a.grad), (program(b, i), b.grad)) == ""


def test_a_step_after_a_lookup_is_one_graph() -> None:
    """The optimizer restores the grad mode if an operator raises; the program itself handles nothing."""
    table = nn.Embedding(4, 3)
    optimizer = torch.optim.Adam(table.parameters())

    def step(i: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            optimizer.zero_grad()
            loss = table(i).sum()
            loss.backward()
            optimizer.step()
        return loss

    pyframe.compile(step, backend="eager", fullgraph=True)(torch.tensor([1, 2]))


def cell_changes(w: torch.Tensor, factors: dict[str, float]) -> Any:
    factor = 2.0
    y = w * 3
    y.register_hook(lambda gradient: gradient * factor)
    factor = 5.0
    y.sum().backward()
    return w.grad


def dict_changes(w: torch.Tensor, factors: dict[str, float]) -> Any:
    y = w * 3
    y.register_hook(lambda gradient: gradient * factors["of hooks"])
    factors["of hooks"] += 1
    y.sum().backward()
    return w.grad


@pytest.mark.parametrize("program", [cell_changes, dict_changes])
def test_a_hook_reads_when_the_pass_calls_it(program: Callable[..., Any]) -> None:
    fn = pyframe.compile(program, backend="eager")
    for _ in range(2):
        a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
        assert equal(fn(a, {"of hooks": 2.0}), program(b, {"of hooks": 2.0})) == ""
