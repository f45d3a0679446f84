"""Random guards over random values: the C program and the Python oracle must name the same first failure.

Each case builds a call from a seed, guards that hold for it, and then the same call with some leaves changed.
"""

from __future__ import annotations

import collections
import inspect
import random
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pyframe.core import expr  # noqa: E402
from pyframe.core.guard import KINDS, ClassReads, Guard, TensorMeta  # noqa: E402
from pyframe.core.guard_explain import evaluate, explain, read  # noqa: E402
from pyframe.core.guard_program import lower  # noqa: E402
from pyframe.core.guard_reference import CallContext  # noqa: E402
from pyframe.core.source import (  # noqa: E402
    AttrSource,
    CallSource,
    CellSource,
    ClosureSource,
    DictItemSource,
    DictKeySource,
    FuncPartSource,
    FuncSource,
    GlobalSource,
    InstanceDictSource,
    LocalSource,
    ModuleAttrSource,
    SeqItemSource,
    SizeSource,
    Source,
    StrideSource,
    TypeSource,
)

SEEDS = 250
KEYS = ("a", "b", 1, 2.5, ("t", 1), None)
NAN = float("nan")


class Thing:
    """An object with attributes, and a property that raises where `broken` is set."""

    class_attribute = 5

    @property
    def fragile(self) -> int:
        if "broken" in self.__dict__:
            raise ValueError("broken")
        return 1


class Sub(Thing):
    pass


class Named(tuple):
    pass


POOL = [Thing(), Sub(), int, Thing, len, "text", None, print, Named((1, 2))]
MODULES = [torch.nn.Linear(2, 3), torch.nn.Linear(2, 3, bias=False), torch.nn.Sequential(torch.nn.ReLU())]


class Builder:
    """Builds values from one random stream; a second stream decides which leaves differ."""

    def __init__(self, seed: int, changes: random.Random | None) -> None:
        self.shape = random.Random(seed)
        self.changes = changes

    def leaf(self) -> Any:
        options = self.leaves(self.shape.random())
        picked, other = self.shape.randrange(len(options)), self.shape.randrange(len(options))
        if self.changes is not None and self.changes.random() < 0.12:
            return options[self.changes.choice([other, self.changes.randrange(len(options))])]
        return options[picked]

    def leaves(self, pick: float) -> list[Any]:
        if pick < 0.3:
            return [torch.ones(2, 3), torch.ones(2, 4), torch.ones(3, 2).t(), torch.ones(2, 3).double()]
        if pick < 0.4:
            return MODULES
        if pick < 0.7:
            return [0, 1, True, 0.0, -0.0, 1.5, NAN, 2j, "a", b"a", (1, 2.0), slice(1, 2), 10**25, ...]
        return POOL

    def value(self, depth: int) -> Any:
        kind = self.shape.choice(
            ["leaf", "leaf", "list", "tuple", "dict", "ordered", "thing"] if depth else ["leaf"]
        )
        if kind == "leaf":
            return self.leaf()
        n = self.shape.randrange(4)
        if self.changes is not None and self.changes.random() < 0.05:
            n += 1
        if kind in ("dict", "ordered"):
            result: dict[Any, Any] = collections.OrderedDict() if kind == "ordered" else {}
            for key in self.shape.sample(KEYS, 4)[:n]:
                result[key] = self.value(depth - 1)
            return result
        items = [self.value(depth - 1) for _ in range(n)]
        if kind == "thing":
            thing = Sub() if n == 3 else Thing()
            thing.__dict__.update(zip(("p", "q", "broken", "r"), items, strict=False))
            return thing
        return items if kind == "list" else tuple(items)

    def call(self) -> tuple[Any, tuple[Any, ...]]:
        captured = self.value(2)

        def function(x: Any, y: Any, z: Any = 3) -> Any:
            return captured

        return function, tuple(self.value(3) for _ in range(3))


def steps(source: Source, value: Any) -> list[Source]:
    found: list[Source] = [TypeSource(source)]
    if isinstance(value, dict):
        found += [DictItemSource(source, key) for key in value] + [
            DictKeySource(source, i) for i in range(len(value))
        ]
    if isinstance(value, list | tuple):
        found += [SeqItemSource(source, i) for i in range(-1, len(value)) if value]
    if isinstance(value, list | tuple | dict | str):
        found.append(CallSource(source, len, "len"))
    if isinstance(value, Thing):
        found += [AttrSource(source, name) for name in ("p", "fragile", "class_attribute")]
        found.append(InstanceDictSource(source))
    if isinstance(value, torch.nn.Module):
        found += [ModuleAttrSource(source, "_parameters", name) for name in value._parameters]
        found += [ModuleAttrSource(source, "_modules", name) for name in value._modules]
        found += [InstanceDictSource(source), AttrSource(source, "training")]
    if type(value) is type(steps):
        found += [
            FuncPartSource(source, part)
            for part in ("__code__", "__defaults__", "__kwdefaults__", "__globals__")
        ]
    return found


def some_source(rng: random.Random, context: CallContext) -> tuple[Source, Any]:
    roots = [LocalSource(name, i) for i, name in enumerate("xyz")] * 4
    roots += [ClosureSource("captured", 0), GlobalSource("POOL"), GlobalSource("len"), FuncSource()]
    first_cell = CellSource(SeqItemSource(FuncPartSource(FuncSource(), "__closure__"), 0))
    source: Source = rng.choice([*roots, first_cell])
    value = read(source, context)
    while rng.random() < 0.75:
        try:
            following = rng.choice(steps(source, value))
            value = read(following, context)
        except (ValueError, AttributeError):  # the fragile property of a broken thing, or an absent attribute
            continue
        source = following
    return source, value


def tensor_meta(rng: random.Random, tensor: Any) -> TensorMeta:
    sizes = tuple(None if rng.random() < 0.3 else size for size in tensor.shape)
    strides = tuple(None if rng.random() < 0.3 else stride for stride in tensor.stride())
    keys = torch._C._dispatch_keys(tensor).raw_repr()
    return TensorMeta(type(tensor), tensor.dtype, tensor.device, sizes, strides, tensor.requires_grad, keys)


def relation(rng: random.Random, source: Source, depth: int = 3) -> expr.Tree:
    """An expression over the number that `source` gives."""
    if depth == 0 or rng.random() < 0.2:
        return source if rng.random() < 0.6 else expr.Number.of(rng.choice([-7, -1, 0, 1, 2, 3, 8, True, 1 << 61]))
    op = rng.choice(sorted(expr._IN_PROGRAM))
    count = 1 if op in ("neg", "not", "abs") else 2
    return expr.Expr(op, tuple(relation(rng, source, depth - 1) for _ in range(count)))


def true_relation(rng: random.Random, source: Source, value: Any) -> expr.Tree | None:
    """A relation of the number `value` that holds, if one is found: of integers of 64 bits."""
    for _ in range(20):
        tree = expr.Expr(rng.choice(["==", "<", ">=", "!="]), (relation(rng, source), relation(rng, source)))
        steps = expr.program(tree, {source: 0})
        if steps is not None and source in expr.sources(tree) and expr.run_program(steps, (value,)):
            assert expr.evaluate(tree, {source: value})
            return tree
    return None


CONSTANTS = (int, float, str, bytes, bool, complex, type(None), type(...), slice)


def candidates(rng: random.Random, source: Source, value: Any, other: Source) -> list[Guard]:
    """Guards on `source` that hold where it has this value, one for each kind that applies."""
    found: list[tuple[str, Any]] = [
        ("TYPE", type(value)),
        ("HAS_ATTR", "__class__"),
        ("NO_ATTR", "no_such_attribute"),
        ("SAME", source),
        ("PREDICATE", (lambda a, b: isinstance(a, type(value)), (other,), "isinstance")),
    ]
    if any(value is item for item in (*POOL, *MODULES)):
        found.append(("ID", value))
    if value is not None:
        found.append(("NOT_ID", None))
    if type(value) in CONSTANTS or (type(value) is tuple and all(type(item) in CONSTANTS for item in value)):
        found += [("EQUALS", value)] * 2
    if isinstance(value, dict | list | tuple | str):
        found.append(("LEN", len(value)))
    if isinstance(value, dict):
        found += [("DICT_KEYS", tuple(value)), ("DICT_LACKS", "missing"), ("DICT_LACKS", 99)]
        found += [("DICT_HAS", key) for key in value]
    if isinstance(value, Thing) and "p" in value.__dict__:
        found.append(("HAS_ATTR", "p"))
    if isinstance(value, Thing) and "r" not in value.__dict__:
        found.append(("NO_ATTR", "r"))
    if isinstance(value, type):
        held = ("class_attribute", 2, int) if hasattr(value, "class_attribute") else ("class_attribute", 0, None)
        reads = ClassReads(type(value), value.__mro__, (*held, "__repr__", 1, inspect.getattr_static(value, "__repr__")))
        found += [("CLASS_FINDS", reads)] * 2
    if isinstance(value, torch.Tensor):
        found += [("TENSOR", tensor_meta(rng, value))] * 3
        size, stride = SizeSource(source, 1), StrideSource(source, 0)
        trees = [true_relation(rng, size, value.size(1)), true_relation(rng, stride, value.stride(0))]
        found += [("RELATION", tree) for tree in trees if tree is not None]
    if type(value) is int and (tree := true_relation(rng, source, value)) is not None:
        found += [("RELATION", tree)] * 2
    return [Guard(source, kind, payload, None) for kind, payload in found]


def make_guards(rng: random.Random, context: CallContext) -> list[Guard]:
    guards: list[Guard] = []
    for _ in range(rng.randrange(1, 25)):
        (source, value), (other, other_value) = some_source(rng, context), some_source(rng, context)
        if value is not other_value and rng.random() < 0.2:
            guards.append(Guard(None, "DISTINCT", (source, other), None))
        elif value is other_value and rng.random() < 0.5:
            guards.append(Guard(source, "SAME", other, None))
        else:
            guards.append(rng.choice(candidates(rng, source, value, other)))
    return guards


def c_failure(lowered: Any, function: Any, arguments: tuple[Any, ...]) -> int | None:
    index, _ = lowered.program.check(function, arguments)
    return None if index == -1 else lowered.guard_of_op[index]


def test_c_agrees_with_the_oracle() -> None:
    failures: collections.Counter[str] = collections.Counter()
    passes = 0
    for seed in range(SEEDS):
        function, arguments = Builder(seed, None).call()
        rng = random.Random(seed)
        guards = make_guards(rng, CallContext(function, arguments))
        lowered = lower(guards)
        assert evaluate(guards, function, arguments) is None, seed
        for _ in range(3):  # from the third on it goes by what it remembers
            assert c_failure(lowered, function, arguments) is None, seed
        for variant in range(12):
            changed, others = Builder(seed, random.Random(variant)).call()
            expected = evaluate(guards, changed, others)
            assert c_failure(lowered, changed, others) == expected, (seed, variant, guards)
            assert c_failure(lowered, function, arguments) is None, (seed, variant, guards)
            passes += expected is None
            if expected is not None:
                failures[guards[expected].kind] += 1
                assert explain(guards[expected], changed, others)
    never = set(KINDS) - set(failures) - {"GLOBAL_STATE", "NO_ATTR"}
    assert not never, f"the fuzz never failed a guard of {never}"
    assert passes > SEEDS, "nearly everything failed"


@pytest.mark.parametrize("damage", [lambda p: False, lambda p: True])
def test_the_comparison_can_fail(damage: Callable[[Any], bool]) -> None:
    """A predicate that answers C and the oracle differently is noticed."""
    calls = iter([damage(None), not damage(None)])
    guards = [Guard(LocalSource("x", 0), "PREDICATE", (lambda x: next(calls), (), "flips"), None)]
    function, arguments = Builder(0, None).call()
    assert evaluate(guards, function, arguments) != c_failure(lower(guards), function, arguments)
