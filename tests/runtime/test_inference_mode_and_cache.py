"""A graph that is first compiled in inference mode serves later calls outside of it: nothing of the mode is kept."""

from __future__ import annotations

import pytest
import torch

import pyframe


def facts(x, result):
    tensors = [t for t in result if isinstance(t, torch.Tensor)]
    return [(t.is_inference(), t._base is x) for t in tensors], None if x.is_inference() else x._version


def views(x):
    return x + 1, x.view(-1), x.view(-1)[1:], x.T


def written(x):
    x.mul_(2)
    return x + 1, x.view(-1)


@pytest.mark.parametrize("fn", [views, written])
@pytest.mark.parametrize("inside", [False, True])
def test_views_and_versions_inside_and_outside(fn, inside):
    """`inside`: the first input is an inference tensor itself."""
    compiled = pyframe.compile(fn)
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad, torch.inference_mode):
        found = []
        with torch.inference_mode(inside and mode is torch.inference_mode):
            inputs = [torch.arange(6.0).reshape(2, 3) for _ in range(2)]
        for run, x in zip((fn, compiled), inputs, strict=True):
            with mode():
                result = run(x)
            found.append((facts(x, result), [t.tolist() for t in (x, *result)]))
        assert found[1] == found[0], mode
