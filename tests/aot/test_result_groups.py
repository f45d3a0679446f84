"""Results of one graph that depend on different inputs: a backward pass reaches the inputs that it reaches in eager."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import pyframe


def two_of_three(a, b, c):
    return a.square() * b, b * c.exp(), c.sin()


def leaves(count=3):
    return [torch.linspace(0.5, 1.5, 4).add(i).requires_grad_() for i in range(count)]


def doubled_leaves():
    """Leaves, and what is computed from them, to be the inputs of the program."""
    given = leaves()
    return given, [x * 2 for x in given]


def both(observe):
    expected = observe(two_of_three)
    assert str(observe(pyframe.compile(two_of_three))) == str(expected)
    return expected


def numbers(xs):
    return [None if x is None else [f"{n:.3g}" for n in x.tolist()] for x in xs]


def test_the_history_of_other_inputs_does_not_run():
    def observe(run):
        given = leaves()
        a, b, c = [x.exp() for x in given]
        a.sum().backward()  # frees its history
        y, z, w = run(a, b, c)
        (z.sum() + w.sum()).backward()
        with pytest.raises(RuntimeError, match="second time"):
            y.sum().backward()
        return numbers(x.grad for x in given)

    both(observe)


@pytest.mark.parametrize("chosen", range(1, 8))
def test_hooks_of_other_inputs_and_results_do_not_run(chosen):
    def observe(run):
        log, given = [], leaves()
        for i, x in enumerate(given):
            x.register_hook(lambda g, i=i: log.append(("leaf", i, *numbers([g]))))
            x.register_post_accumulate_grad_hook(lambda x, i=i: log.append(("stored", i, *numbers([x.grad]))))
        inputs = [given[0], given[1] * 2, given[2] * 3]
        results = run(*inputs)
        for i, x in enumerate(results):
            x.register_hook(lambda g, i=i: log.append(("result", i, *numbers([g]))))
            x.register_hook(lambda g: g * 2)
        removed = results[1].register_hook(lambda g: g * 100)
        removed.remove()
        sum(x.sum() for i, x in enumerate(results) if chosen >> i & 1).backward()
        return sorted(log)

    assert both(observe)


@pytest.mark.parametrize("wanted", [[0], [1], [2], [0, 2], [2, 1, 0]])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.filterwarnings("ignore:inductor. a second derivative")
def test_gradients_of_certain_inputs(wanted, create_graph):
    def observe(run):
        given, inputs = doubled_leaves()
        y, z, w = run(*inputs)
        loss = (y * z).sum() + w.sum()
        found = torch.autograd.grad(loss, [inputs[i] for i in wanted], create_graph=create_graph, retain_graph=True)
        if create_graph:
            found += torch.autograd.grad(sum(x.square().sum() for x in found), given, None, True, allow_unused=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        return numbers(found), numbers(x.grad for x in given)

    both(observe)


def test_a_backward_pass_within_a_backward_pass():
    def observe(run):
        given, inputs = doubled_leaves()
        y, z, w = run(*inputs)
        inner, others = [], y.sum() + w.sum()

        def again(gradient):
            if not inner:
                inner.append(None)
                inner.extend(torch.autograd.grad(others, inputs, retain_graph=True))

        inputs[2].register_hook(again)
        (y.sum() * z.sum()).backward(retain_graph=True)
        return numbers(inner), numbers(x.grad for x in given)

    both(observe)


def test_within_a_checkpoint():
    def observe(run):
        given, inputs = doubled_leaves()
        y, z, w = checkpoint(run, *inputs, use_reentrant=False)
        w.sum().backward(retain_graph=True)
        (y * z).sum().backward()
        return numbers(x.grad for x in given)

    both(observe)


def test_the_compiled_backward_runs_once(recwarn):
    run = pyframe.compile(two_of_three)
    _, inputs = doubled_leaves()
    with torch.profiler.profile() as profile:
        sum(x.sum() for x in run(*inputs)).backward()
    ranges = [event for event in profile.events() if event.name.startswith("compiled backward")]
    assert len(ranges) == 1
    assert not [w for w in recwarn if "eager" in str(w.message)]


def test_nothing_is_kept_alive():
    _, inputs = doubled_leaves()
    results = pyframe.compile(two_of_three)(*inputs)
    torch.autograd.grad(results[0].sum(), inputs[0], retain_graph=True)
    gone = [weakref.ref(x) for x in (*inputs, *results)]
    gc.collect()
    gc.disable()
    try:
        del inputs, results
        assert all(x() is None for x in gone)
    finally:
        gc.enable()
