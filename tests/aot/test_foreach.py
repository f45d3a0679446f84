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
