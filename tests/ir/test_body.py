"""Tracing: sharing, dead code, masked bodies."""

import torch

from inductor.ir import ops, trace
from inductor.ir.interp import run_body
from inductor.ir.printer import print_body


def test_equal_ops_are_recorded_once_and_dead_ones_not_at_all():
    def fn(index, _):
        x = ops.load("x", index[0], torch.float32)
        ops.exp(x)
        y = ops.add(ops.load("x", index[0], torch.float32), x)
        ops.store("y", index[0], y)

    body = trace([4], [], fn)
    assert [op.name for op in body.ops] == ["load", "add", "store"]
    assert [d.buf for d in body.reads] == ["x"] and [d.buf for d in body.writes] == ["y"]


def test_constants_equal_in_python_stay_apart():
    def fn(index, _):
        x = ops.div(ops.constant(1.0, torch.float32), ops.constant(-0.0, torch.float32))
        y = ops.div(ops.constant(1.0, torch.float32), ops.constant(0.0, torch.float32))
        ops.store("y", index[0], ops.sub(x, y))

    memory = {"y": torch.zeros(2)}
    run_body(trace([2], [], fn), memory)
    assert memory["y"].tolist() == [float("-inf")] * 2


def test_masked_loads_after_dead_ops():
    def fn(index, _):
        ops.exp(ops.constant(2.0, torch.float32))
        i = ops.index_expr(index[0], torch.int64)
        inside = ops.lt(i, ops.constant(3, torch.int64))

        def load():
            return ops.mul(ops.load("x", index[0], torch.float32), ops.constant(2.0, torch.float32))

        ops.store("y", index[0], ops.add(ops.masked(inside, load, 7.0), ops.constant(1.0, torch.float32)))

    body = trace([5], [], fn)
    memory = {"x": torch.arange(3.0), "y": torch.zeros(5)}
    run_body(body, memory)
    assert memory["y"].tolist() == [1, 3, 5, 8, 8]
    assert "masked" in print_body(body) and [d.buf for d in body.reads] == ["x"]


def test_reduction_result_feeds_ops_after_the_loop():
    def fn(index, rindex):
        x = ops.load("x", index[0] * 3 + rindex[0], torch.float32)
        total = ops.reduction(torch.float32, "sum", x)
        ops.store("y", index[0], ops.add(total, ops.constant(1.0, torch.float32)))

    memory = {"x": torch.arange(6.0), "y": torch.zeros(2)}
    run_body(trace([2], [3], fn), memory)
    assert memory["y"].tolist() == [4, 13]
