"""A long chain of operators compiles: no part of the compiler recurses once per operator."""

from __future__ import annotations

import warnings

import torch

import pyframe

LENGTH = 1_500  # more than Python's recursion limit of 1,000


def chain(x):
    for _ in range(LENGTH // 3):
        x = -(x * 0.9995 + 0.001)  # the derivative of the whole chain is 0.78
    return x


def compiled_chain():
    return pyframe.compile(chain, fullgraph=True)


def test_a_long_chain_compiles(monkeypatch):
    monkeypatch.setenv("PYFRAME_CACHE_DIR", "")
    x = torch.randn(8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a fallback to ATen warns
        result = compiled_chain()(x)
    torch.testing.assert_close(result, chain(x), rtol=1e-4, atol=1e-4)


def test_a_long_chain_compiles_for_training(monkeypatch):
    monkeypatch.setenv("PYFRAME_CACHE_DIR", "")
    x = torch.randn(8)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = compiled_chain()(ours)
        result.sum().backward()
    expected = chain(theirs)
    expected.sum().backward()
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-6)
