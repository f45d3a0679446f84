"""The registry of models: one model for each target, one signature for all."""

from __future__ import annotations

import inspect
import itertools
from unittest import mock

import pytest
import torch

import pyframe
import pyframe.interp.trace  # noqa: F401  registers the models
from pyframe.vars import registry
from pyframe.vars.protocol.const import ConstVar
from pyframe.vars.registry import call_model, method_model, register, setter_model


@pytest.fixture(autouse=True)
def own_tables():
    with (
        mock.patch.dict(registry._CALLS),
        mock.patch.dict(registry._METHODS),
        mock.patch.dict(registry._SETTERS),
    ):
        yield


def test_all_models_have_one_signature():
    handlers = {**registry._CALLS, **registry._METHODS, **registry._SETTERS}
    assert len(handlers) > 300
    for target, handler in handlers.items():
        assert list(inspect.signature(handler).parameters) == ["tx", "args", "kwargs"], target


@pytest.mark.parametrize("kind", [{}, {"method": "to"}, {"setter": "grad"}, {"polyfill": True}])
def test_a_second_model_of_a_target_is_an_error(kind):
    class Target: ...

    register(Target, **kind)(lambda tx, args, kwargs: args[0])
    with pytest.raises(ValueError, match="already has a model"):
        register(Target, **kind)(lambda tx, args, kwargs: args[0])
    register(Target, **kind, replace=True)(lambda tx, args, kwargs: args[0])


def test_only_a_model_can_be_replaced():
    with pytest.raises(ValueError, match="has no model to replace"):
        register(int.from_bytes, replace=True)(lambda tx, args, kwargs: args[0])


def test_each_kind_is_found_by_its_own_lookup():
    assert call_model(torch.Tensor) is not None and call_model(len) is not None
    assert call_model(itertools.chain) is not None  # a polyfill
    assert method_model(torch.Tensor, "register_hook") is not None and method_model(torch.Tensor, "grad") is None
    assert setter_model(torch.Tensor, "grad") is not None and setter_model(torch.Tensor, "register_hook") is None
    assert call_model([].append) is None and call_model([]) is None  # the latter cannot be hashed


def test_a_registered_model_is_used():
    def unknown(x):
        raise AssertionError("the model is used instead")

    @register(unknown)
    def model(tx, args, kwargs):
        return tx.graph.call_method("add", [args[0], ConstVar(1)], {})

    x = torch.zeros(2)
    assert torch.equal(pyframe.compile(lambda x: unknown(x), fullgraph=True)(x), x + 1)
