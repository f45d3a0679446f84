"""Lowering of guards: what each kind becomes, sharing of registers, and what the numbers lead back to."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pyframe import _C  # noqa: E402
from pyframe.core.expr import Expr, Number  # noqa: E402
from pyframe.core.guard import KINDS, ClassReads, Guard, TensorMeta  # noqa: E402
from pyframe.core.guard_program import KIND_ROWS, lower, source_row  # noqa: E402
from pyframe.core.source import (  # noqa: E402
    AttrSource,
    CallSource,
    CellSource,
    ClosureSource,
    ConstSource,
    DictItemSource,
    DictKeySource,
    FuncPartSource,
    FuncSource,
    GlobalSource,
    GlobalsSource,
    InstanceDictSource,
    LocalSource,
    ModuleAttrSource,
    SeqItemSource,
    SizeSource,
    Source,
    TypeSource,
)

X, Y = LocalSource("x", 0), LocalSource("y", 1)
A_GLOBAL = {"k": (1, 2)}


def make() -> Any:
    captured = [7]

    def function(x: Any, y: Any = 1) -> Any:
        return captured

    return function


def value_of(source: Source, *args: Any, function: Any = None) -> Any:
    """What C reads for `source`; fails the test where it cannot."""
    lowered = lower([], [source])
    index, registers = lowered.program.check(function or make(), args)
    assert index == -1, lowered.ops[index]
    return registers[lowered.registers[source]]


def test_every_source_reads_its_value() -> None:
    function, module, marker = make(), torch.nn.Linear(2, 3), object()
    assert value_of(X, marker) is marker
    assert value_of(ClosureSource("captured", 0)) == [7]
    assert value_of(GlobalSource("A_GLOBAL")) is A_GLOBAL and value_of(GlobalSource("len")) is len
    assert value_of(GlobalsSource()) is globals()
    assert value_of(FuncSource(), function=function) is function
    assert value_of(ConstSource.of(marker, "marker")) is marker
    assert value_of(AttrSource(X, "real"), 3) == 3
    assert value_of(InstanceDictSource(X), module) is module.__dict__
    assert value_of(DictItemSource(X, "k"), A_GLOBAL) == (1, 2)
    assert value_of(ModuleAttrSource(X, "_parameters", "weight"), module) is module.weight
    assert value_of(SeqItemSource(DictItemSource(X, "k"), 1), A_GLOBAL) == 2
    assert value_of(DictKeySource(X, 0), A_GLOBAL) == "k"
    assert value_of(TypeSource(X), 3) is int
    assert value_of(FuncPartSource(X, "__code__"), function) is function.__code__
    assert value_of(FuncPartSource(X, "__defaults__"), function) == (1,)
    closure = FuncPartSource(X, "__closure__")
    assert value_of(CellSource(SeqItemSource(closure, 0)), function) == [7]
    assert value_of(CallSource(X, len, "len"), "abc") == 3


def test_prefixes_are_read_once() -> None:
    weight, bias = (ModuleAttrSource(X, "_parameters", name) for name in ("weight", "bias"))
    guards = [
        Guard(weight, "NOT_ID", None, None),
        Guard(bias, "NOT_ID", None, None),
        Guard(X, "NOT_ID", None, None),
    ]
    lowered = lower(guards, [weight, bias, weight])
    names = [op[0] for op in lowered.ops]
    assert names == [
        *("LOCAL", "INSTANCE_DICT", "DICT_GET", "DICT_GET", "IS_NOT"),
        *("DICT_GET", "IS_NOT"),
        "IS_NOT",
    ]
    assert lowered.guard_of_op == (0, 0, 0, 0, 0, 1, 1, 2)
    assert lowered.program.n_registers == len(lowered.registers) == 5


def test_inputs_come_last_and_belong_to_no_guard() -> None:
    lowered = lower([Guard(X, "TYPE", int, None)], [Y, X])
    assert lowered.ops == (("LOCAL", 1, 0), ("TYPE_IS", 1, int), ("LOCAL", 0, 1))  # inputs have the first registers
    assert lowered.guard_of_op == (0, 0, None)
    assert lowered.program.check(make(), (1, "y")) == (-1, ("y", 1))


def test_failing_accessor_leads_to_its_guard() -> None:
    guards = [Guard(X, "TYPE", dict, None), Guard(DictItemSource(X, "k"), "EQUALS", 1, None)]
    lowered = lower(guards)
    for argument, expected in (({"k": 1}, None), ({"k": 2}, 1), ({}, 1), ([], 0)):
        index, _ = lowered.program.check(make(), (argument,))
        assert (None if index == -1 else lowered.guard_of_op[index]) == expected


def test_direct_call_from_lowered_registers() -> None:
    function, owner = make(), object()
    lowered = lower([Guard(X, "TYPE", int, None)], [Y, ClosureSource("captured", 0)])
    registers = tuple(lowered.registers[source] for source in (Y, ClosureSource("captured", 0)))
    direct = _C.DirectCall(lambda *args: (args,), registers, "single")

    class Callback:
        def __call__(self, *args: Any) -> Any:
            return _C.SKIP

    callback = Callback()
    callback.owner = owner  # type: ignore[attr-defined]
    _C.install(function, _C.Entry(owner, lowered.program, None, direct))
    assert _C.CompiledFunction(function, callback)(3, "y") == ("y", [7])


def test_every_kind_passes_and_fails() -> None:
    x = torch.ones(2, 3)
    keys = torch._C._dispatch_keys(x).raw_repr()
    meta = TensorMeta(torch.Tensor, torch.float32, x.device, (2, None), (None, 1), False, keys)
    marker = object()
    cases: dict[str, tuple[Guard, Any, Any]] = {
        "TYPE": (Guard(X, "TYPE", int, None), 1, True),
        "ID": (Guard(X, "ID", marker, None), marker, object()),
        "NOT_ID": (Guard(X, "NOT_ID", None, None), 1, None),
        "EQUALS": (Guard(X, "EQUALS", 0.0, None), 0.0, -0.0),
        "LEN": (Guard(X, "LEN", 2, None), {1, 2}, [1]),
        "DICT_KEYS": (Guard(X, "DICT_KEYS", ("a", "b"), None), {"a": 1, "b": 2}, {"b": 2, "a": 1}),
        "DICT_HAS": (Guard(X, "DICT_HAS", "a", None), {"a": 1}, {"b": 1}),
        "DICT_LACKS": (Guard(X, "DICT_LACKS", "a", None), {"b": 1}, {"a": 1}),
        "HAS_ATTR": (Guard(X, "HAS_ATTR", "real", None), 1, "x"),
        "NO_ATTR": (Guard(X, "NO_ATTR", "real", None), "x", 1),
        "CLASS_FINDS": (Guard(X, "CLASS_FINDS", ClassReads(type, bool.__mro__, ("nothing", 0, None)), None), bool, int),
        "TENSOR": (Guard(X, "TENSOR", meta, None), x, x.double()),
        "SAME": (Guard(X, "SAME", ConstSource.of(marker, "marker"), None), marker, 1),
        "DISTINCT": (Guard(None, "DISTINCT", (X, ConstSource.of(marker, "m")), None), 1, marker),
        "RELATION": (Guard(X, "RELATION", Expr("==", (Expr("%", (X, Number.of(8))), Number.of(0))), None), 16, 17),
        "PREDICATE": (
            Guard(
                X,
                "PREDICATE",
                (lambda v, n: v < len(n), (FuncPartSource(FuncSource(), "__defaults__"),), "t"),
                None,
            ),
            0,
            5,
        ),
    }
    for kind, (guard, good, bad) in cases.items():
        program = lower([guard]).program
        assert program.check(make(), (good,))[0] == -1, kind
        assert program.check(make(), (bad,))[0] >= 0, kind
    assert set(cases) | {"GLOBAL_STATE"} == set(KINDS) == set(KIND_ROWS)
    state = lower([Guard(None, "GLOBAL_STATE", (_C.bind_torch(), _C.GlobalState.capture())[1], None)]).program
    assert state.check(make(), ())[0] == -1
    with torch.no_grad():
        assert state.check(make(), ())[0] == 0


def test_relations() -> None:
    size, five = SizeSource(X, 0), Number.of(5)
    fits = Guard(size, "RELATION", Expr("<=", (Expr("*", (size, Y)), Number.of(1 << 40))), None)
    program = lower([fits]).program
    for y, expected in ((3, -1), (1 << 40, 3), (1 << 62, 3), (True, 3), (2.0, 3)):  # too large, overflow, no exact int
        assert program.check(make(), (torch.ones(4, 2), y))[0] == expected
    by_float = lower([Guard(Y, "RELATION", Expr("<", (Y, Number.of(0.5))), None)])
    assert by_float.ops[-1][0] == "PREDICATE"
    assert by_float.program.check(make(), (0, 0.25))[0] == -1 and by_float.program.check(make(), (0, 0.75))[0] == 1
    divided = lower([Guard(X, "RELATION", Expr("==", (Expr("//", (five, X)), Number.of(-2))), None)]).program
    assert [divided.check(make(), (x,))[0] for x in (-3, -4, 3, 0)] == [-1, -1, 1, 1]
    assert str(Expr("==", (Expr("%", (size, five)), Number.of(0)))) == "x.size(0) % 5 == 0"
    for bad in ((1, "+"), (1, 2), ("neg",), ((1,),), (1.5,), ("what",), [1]):
        with pytest.raises((ValueError, TypeError)):
            _C.GuardProgram([("LOCAL", 0, 0), ("RELATION", bad, (0,))], 1)


def test_unknown_devices_and_bad_payloads_are_refused() -> None:
    class Device:
        type = "abacus"
        index = None

    with pytest.raises(ValueError, match="abacus"):
        lower([Guard(X, "TENSOR", TensorMeta(torch.Tensor, torch.float32, Device(), (), (), False, 0), None)])
    with pytest.raises(TypeError, match="TYPE_IS needs a type"):
        lower([Guard(X, "TYPE", 3, None)])
    assert source_row(FuncPartSource(X, "__globals__")) == ("FUNC_GLOBALS", X)
