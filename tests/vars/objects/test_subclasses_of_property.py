"""Instances of subclasses of `property` that a program creates, as torch.distributions does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pyframe


class Named(property):
    def __init__(self, fget: Any) -> None:
        self.name = fget.__name__
        property.__init__(self, fget)


def twice(obj: Any) -> Any:
    """Twice."""
    return obj * 2


def read(x: Any) -> Any:
    made = Named(twice)
    known = isinstance(made, property), made.fset is None, made.name, made.__doc__, list(vars(made))
    return made.fget(x), known


def returned(x: Any) -> Any:
    return x + 1, Named(twice)


def in_a_class(x: Any) -> Any:
    class Held:
        value = x
        doubled = Named(lambda self: self.value * 2)

    return Held().doubled


@pytest.mark.parametrize("seed", range(2))
def test_parts_of_an_instance_are_read_in_one_graph(seed: int) -> None:
    x = torch.full((3,), seed + 1.0)
    got, known = pyframe.compile(read, backend="eager", fullgraph=True)(x)
    want, expected = read(x)
    assert torch.equal(got, want) and known == expected


def test_an_instance_that_leaves_the_graph_has_its_getter_and_attributes() -> None:
    _, made = pyframe.compile(returned, backend="eager", fullgraph=True)(torch.ones(2))
    _, expected = returned(torch.ones(2))
    assert type(made) is Named and made.fget is twice and made.__doc__ == expected.__doc__
    assert list(vars(made).items()) == list(vars(expected).items())


def test_an_instance_in_a_class_acts_as_a_property() -> None:
    compiled = pyframe.compile(in_a_class, backend="eager")
    assert torch.equal(compiled(torch.ones(2)), in_a_class(torch.ones(2)))


@pytest.fixture
def with_argument_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks are on, as in a new process: torch turns them off for the process at the first use of its own tracer."""
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)


@pytest.mark.usefixtures("with_argument_checks")
def test_a_categorical_distribution_with_checks_is_one_graph() -> None:
    def program(logits: Any, value: Any) -> Any:
        chosen = torch.distributions.Categorical(logits=logits)
        return chosen.log_prob(value), chosen.entropy()

    compiled = pyframe.compile(program, backend="eager", fullgraph=True)
    for shift in (0.0, 1.0):
        logits = torch.arange(6.0).reshape(2, 3).add(shift).sin().requires_grad_()
        value = torch.tensor([0, 2])
        got, want = compiled(logits, value), program(logits, value)
        assert all(map(torch.equal, got, want))
        ours, theirs = (torch.autograd.grad(sum(part.sum() for part in out), logits) for out in (got, want))
        assert torch.equal(ours[0], theirs[0])
    with pytest.raises(ValueError, match="to satisfy the constraint"):
        pyframe.compile(program, backend="eager")(torch.full((2, 3), torch.nan), value)
