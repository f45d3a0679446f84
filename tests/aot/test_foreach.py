"""Operators on lists of tensors are decomposed into operators on their items."""

import pytest
import torch

import pyframe
from inductor.aot.decompositions import decompositions
from inductor.aot.foreach import foreach_decompositions
from inductor.aot.functionalize import to_aten

TABLE = foreach_decompositions()


def lists(count, dtype=torch.float32):
    torch.manual_seed(0)
    return [[torch.rand(size).add(0.5).to(dtype) for size in ((3, 5), (17,), ())] for _ in range(count)]


def arguments(op):
    """Lists of tensors or numbers, or a number, as the schema of an operator demands."""
    out = []
    tensors = iter(lists(4))
    for k, argument in enumerate(op._schema.arguments):
        kind = str(argument.type)
        if argument.name in ("ord", "dtype", "alpha"):
            continue
        if kind == "List[Tensor]":
            out.append(next(tensors))
        else:
            out.append({"number": 0.25, "Tensor": torch.tensor(0.75)}.get(kind, [0.5, 1.5, 2.0]))
    return out


@pytest.mark.parametrize("op", TABLE, ids=str)
def test_results_are_those_of_eager(op):
    args = arguments(op)
    torch.testing.assert_close(TABLE[op](*args), list(op(*args)), equal_nan=True)


def updates(p, grad, mean, square):
    torch._foreach_lerp_(mean, grad, 0.1)
    torch._foreach_mul_(square, 0.9)
    torch._foreach_addcmul_(square, grad, grad, 0.1)
    root = torch._foreach_sqrt(square)
    torch._foreach_add_(root, 1e-8)
    torch._foreach_addcdiv_(p, mean, root, -0.5)
    torch._foreach_zero_(grad)
    return torch._foreach_norm(p)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_updates_call_no_operator_on_lists(dtype):
    targets = []

    def backend(gm, inputs):
        targets.extend(str(node.target) for node in to_aten(gm, inputs, decompositions()).graph.graph.nodes)
        return gm.forward

    pyframe.compile(updates, backend=backend, fullgraph=True)(*lists(4, dtype))
    assert targets and not any("foreach" in target for target in targets)
    mine, theirs = lists(4, dtype), lists(4, dtype)
    got, want = pyframe.compile(updates)(*mine), updates(*theirs)
    # eager rounds after each operator, a kernel once
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(mine, theirs, **close)
    torch.testing.assert_close(list(got), list(want), **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value", [1.5, float("inf"), float("nan"), 60000.0])
def test_gradients_are_unscaled(dtype, value):
    if dtype in (torch.float16, torch.bfloat16) and value == 60000.0:
        value = 3.3e4  # the product with a rounded factor would differ

    def unscale(gradients, found, factor):
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, factor)

    runs = []
    compiled = pyframe.compile(unscale, fullgraph=True, options={"strict": True})
    for run in (unscale, compiled):
        (gradients,), found = lists(1, dtype), torch.zeros(1)
        gradients[1][3] = value
        for factor in (torch.tensor(0.3), torch.tensor([1.0])):
            run(gradients, found, factor)
        runs.append((gradients, found))
    torch.testing.assert_close(*runs, rtol=0, atol=0, equal_nan=True)


def test_steps_of_a_grad_scaler():
    runs = []
    for compile_function in (lambda fn, **_: fn, pyframe.compile):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)

        def step(x, model=model, optimizer=optimizer, scaler=scaler):
            optimizer.zero_grad()
            scaler.scale(model(x).square().mean()).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

        run = compile_function(step, options={"strict": True})
        for k in range(5):
            run(torch.full((4, 3), 1e30 if k == 2 else float(k)))  # the third step is skipped
        runs.append((list(model.parameters()), scaler.get_scale()))
    torch.testing.assert_close(*runs)


WRITES = [
    lambda a, b: torch._foreach_add_([a, b], 1.0),
    lambda a, b: torch._foreach_copy_([a], [b]),
    lambda a, b: torch._foreach_zero_([a, b]),
    lambda a, b: torch._foreach_lerp_([a], [a], 0.5),  # shares memory
]


@pytest.mark.parametrize("write", WRITES)
def test_writes_are_counted_as_in_eager(write):
    def versions(run):
        tensors = torch.rand(3), torch.rand(3)
        run(*tensors)
        return [x._version for x in tensors]

    assert versions(pyframe.compile(write)) == versions(write)


def test_a_tensor_that_autograd_saved_cannot_be_written_unnoticed():
    w, x = torch.rand(3, requires_grad=True), torch.rand(3)
    product = (w * x).sum()
    pyframe.compile(lambda x: torch._foreach_mul_([x], 2.0))(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_writes_to_parameters_are_counted_in_a_training_graph():
    def step(p, q):
        with torch.no_grad():
            torch._foreach_mul_([p, q], 0.5)
        return (p * q).sum()

    p, q = (torch.rand(3, requires_grad=True) for _ in range(2))
    before = (p * q).sum()
    pyframe.compile(step)(p, q).backward()
    assert torch.equal(p.grad, q) and p._version == q._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        before.backward()
