"""The message of a failing guard: the source, the expected and the actual value, and the user's line."""

from __future__ import annotations

import collections
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pyframe import _C  # noqa: E402
from pyframe.core.guard import Guard, TensorMeta, UserLine  # noqa: E402
from pyframe.core.guard_explain import evaluate, explain  # noqa: E402
from pyframe.core.source import AttrSource, DictItemSource, LocalSource, Source  # noqa: E402

X, Y = LocalSource("x", 0), LocalSource("y", 1)
LINE = UserLine("model.py", 12, "forward", "  y = x.view(4)")


def function(x: Any, y: Any) -> Any:
    return x


def explained(kind: str, payload: Any, *args: Any, source: Source | None = X) -> str:
    guard = Guard(source, kind, payload, None)
    assert evaluate([guard], function, args) == 0, "the guard was to fail"
    return explain(guard, function, args)


def meta_of(tensor: Any) -> TensorMeta:
    keys = torch._C._dispatch_keys(tensor).raw_repr()
    shape, strides = tuple(tensor.shape), tensor.stride()
    return TensorMeta(type(tensor), tensor.dtype, tensor.device, shape, strides, tensor.requires_grad, keys)


def test_user_line_is_quoted() -> None:
    guard = Guard(X, "TENSOR", meta_of(torch.ones(4)), LINE)
    text = explain(guard, function, (torch.ones(8), 0))
    assert text == "x.size(0): expected 4, got 8, guard from model.py:12: `y = x.view(4)`"


def test_plain_kinds() -> None:
    assert explained("TYPE", int, "s") == "type(x): expected int, got str"
    assert explained("EQUALS", 3, 4) == "x: expected 3, got 4"
    assert explained("EQUALS", 3, 3.0) == "x: expected 3 (int), got 3.0 (float)"
    assert explained("LEN", 2, [1, 2, 3]) == "len(x): expected 2, got 3"
    assert explained("DICT_KEYS", ("a",), {"b": 1}) == "list(x): expected ['a'], got ['b']"
    assert explained("DICT_HAS", "a", {}) == "x['a']: expected present, got absent"
    assert explained("DICT_LACKS", "a", {"a": 1}) == "x['a']: expected absent, got present"
    assert explained("HAS_ATTR", "real", "s") == "x.real: expected present, got absent"
    assert explained("NO_ATTR", "real", 1) == "x.real: expected absent, got present"
    assert explained("NOT_ID", None, None) == "x: expected anything but None, got None"
    assert explained("ID", None, 3).startswith("x: expected None, got int object at 0x")
    assert explained("SAME", Y, 1, 2) == "x and y: expected one object, got two"
    assert explained("DISTINCT", (X, Y), 1, 1, source=None) == "x and y: expected different objects, got one"
    text = explained("PREDICATE", (lambda a, b: a < b, (Y,), "x < y"), 5, 4)
    assert text == "x < y: expected to be true, is false with x = 5, y = 4"


def test_unreadable_values() -> None:
    assert "x.gone: cannot be read (AttributeError" in explained("TYPE", int, 3, source=AttrSource(X, "gone"))
    assert "x['k']: cannot be read (KeyError" in explained("TYPE", int, {}, source=DictItemSource(X, "k"))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (lambda x: x.double(), "x.dtype: expected torch.float32, got torch.float64"),
        (lambda x: x[0], "x.dim(): expected 2, got 1"),
        (lambda x: x.expand(2, 3, 4)[0].t().contiguous().t(), "x.stride(0): expected 4, got 1"),
        (lambda x: x.requires_grad_(), "x.requires_grad: expected False, got True"),
        (lambda x: torch.nn.Parameter(x), "type(x): expected torch.Tensor, got torch.nn.parameter.Parameter"),
        (lambda x: x.to("meta"), "x.device: expected cpu, got meta"),
        (lambda x: 3, "type(x): expected torch.Tensor, got int"),
    ],
)
def test_tensors(changed: Any, text: str) -> None:
    assert text in explained("TENSOR", meta_of(torch.ones(3, 4)), changed(torch.ones(3, 4)))


def test_global_state() -> None:
    _C.bind_torch()
    state = _C.GlobalState.capture()
    with torch.no_grad():
        assert explained("GLOBAL_STATE", state, source=None) == "torch's grad mode: expected on, got off"
    torch.set_num_threads(torch.get_num_threads() + 1)
    try:
        assert explained("GLOBAL_STATE", state, source=None).startswith("torch's num threads: expected ")
    finally:
        torch.set_num_threads(torch.get_num_threads() - 1)


def test_reading_an_item_calls_no_program() -> None:
    found: collections.defaultdict[str, list[int]] = collections.defaultdict(list)
    explained("EQUALS", 3, found, 0, source=DictItemSource(X, "absent"))
    assert not found
