"""Memos of guard programs: after any change, a program that remembers a call that passed gives the same answer as one
that remembers nothing.  Also: what is remembered, and that a memo keeps nothing alive."""

from __future__ import annotations

import builtins
import gc
import random
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from frame_support import C

PADDING = 40  # operations; few are not worth remembering


def function(*args: Any) -> Any:
    return args


Op = tuple[Any, ...]


class Watched:
    """A guard program, each answer of which is compared with that of a program that never ran."""

    def __init__(self, *ops: Op, of: Any, fn: Any = function) -> None:
        n = 1 + max((op[1] for op in ops if op[0] in ACCESSORS), default=0)
        padding = [("CONST", n + i, i) for i in range(PADDING)]
        self.ops, self.n, self.of, self.fn = [("LOCAL", 0, 0), *padding, *ops], n + PADDING, of, fn
        self.program = C.GuardProgram(self.ops, self.n)

    def __call__(self) -> int:
        fresh = C.GuardProgram(self.ops, self.n).check(self.fn, (self.of,))
        index, registers = self.program.check(self.fn, (self.of,))
        assert index == fresh[0], (index, fresh[0], self.ops[index], self.ops[fresh[0]])
        assert len(registers) == len(fresh[1]) and all(a is b for a, b in zip(registers, fresh[1], strict=True))
        return index

    def warm(self, residual: int | None = None) -> Watched:
        """Call it until it remembers; `residual`: the number of operations that are still run."""
        for _ in range(3):
            assert self() == -1
        if residual is not None:
            assert self.program.n_residual == residual, self.program.n_residual
        return self


ACCESSORS = {name for name, kind, _, _ in C.op_table() if kind == "accessor"}


class Meta(type):
    pass


class Base(metaclass=Meta):
    inherited = 1


class Thing(Base):
    shared = 1

    def method(self) -> int:
        return 1


class Other(Base):
    shared = 1


def made() -> Any:
    """An object with one of each thing that guards read."""

    class Own(Thing):
        own = 2

    thing = Own()
    inside = 5

    def closed(a: int = 1, *, z: int = 2) -> int:
        return inside + a + z

    thing.number, thing.items, thing.pair = 3, [1, "two", [3]], (1, [2])
    thing.table, thing.order, thing.empty = {"a": 1, "b": {"c": 2}}, OrderedDict(a=1, b=2), OrderedDict()
    thing.closed, thing.names, thing.module = closed, {"x"}, types.ModuleType("made_up")
    thing.module.value = 7
    return thing


def reading(register: int, *path: Any) -> list[Op]:
    """Operations that read a path from register 0's `__dict__` into `register` and those after it."""
    ops: list[Op] = [("INSTANCE_DICT", register, 0)]
    for step in path:
        register += 1
        ops.append((step[0], register, register - 1, *step[1:]))
    return ops


def item(name: str) -> Op:
    return ("DICT_GET", name)


OWN: tuple[tuple[list[Op], Callable[[Any], Any]], ...] = (
    ([*reading(1, item("number")), ("EQUALS", 2, 3)], lambda t: setattr(t, "number", 4)),
    ([*reading(1, item("number")), ("EQUALS", 2, 3)], lambda t: t.__dict__.update(number=3.0)),
    ([*reading(1, item("number")), ("EQUALS", 2, 3)], lambda t: delattr(t, "number")),
    ([*reading(1, item("number")), ("EQUALS", 2, 3)], lambda t: setattr(t, "__dict__", {"number": 4})),
    ([*reading(1, item("number")), ("EQUALS", 2, 3)], lambda t: vars(t).clear()),
    ([*reading(1, item("number")), ("EQUALS", 2, 3)], lambda t: vars(t).setdefault("later", 1)),
    ([*reading(1), ("NO_KEY", 1, "later")], lambda t: setattr(t, "later", 1)),
    ([*reading(1), ("HAS_KEY", 1, "number")], lambda t: vars(t).pop("number")),
    ([*reading(1), ("DICT_LEN", 1, 9)], lambda t: vars(t).popitem()),
    ([("TYPE", 1, 0), ("ATTR", 2, 1, "own"), ("EQUALS", 2, 2)], lambda t: setattr(type(t), "own", 3)),
    ([("TYPE", 1, 0), ("ATTR", 2, 1, "shared"), ("EQUALS", 2, 1)], lambda t: setattr(type(t), "shared", 3)),
    ([("TYPE", 1, 0), ("ATTR", 2, 1, "method")], lambda t: setattr(type(t), "method", lambda self: 2)),
    ([("TYPE", 1, 0), ("NO_ATTR", 1, "gone")], lambda t: setattr(type(t), "gone", 3)),
    ([("TYPE", 1, 0), ("HAS_ATTR", 1, "own")], lambda t: delattr(type(t), "own")),
    ([("TYPE", 1, 0), ("ATTR", 2, 1, "own")], lambda t: setattr(type(t), "own", property(lambda self: 2))),
    ([("TYPE_IS", 0, None)], lambda t: setattr(t, "__class__", Other)),
    ([("TYPE", 1, 0), ("ATTR", 2, 1, "own")], lambda t: setattr(t, "__class__", Other)),
    ([("TYPE", 1, 0), ("ATTR", 2, 1, "own")], lambda t: setattr(type(t), "__bases__", (Other,))),
    ([*reading(1, item("items")), ("LEN_EQ", 2, 3)], lambda t: t.items.append(1)),
    ([*reading(1, item("items"), ("SEQ_ITEM", 0)), ("EQUALS", 3, 1)], lambda t: t.items.__setitem__(0, 9)),
    ([*reading(1, item("items"), ("SEQ_ITEM", -1)), ("LEN_EQ", 3, 1)], lambda t: t.items[2].append(9)),
    ([*reading(1, item("items"), ("SEQ_ITEM", 2), ("SEQ_ITEM", 0)), ("EQUALS", 4, 3)], lambda t: t.items.reverse()),
    ([*reading(1, item("items"), ("SEQ_ITEM", -1))], lambda t: t.items.clear()),
    ([*reading(1, item("items"), ("SEQ_ITEM", -1))], lambda t: t.items.extend(range(1000))),
    ([*reading(1, item("pair"), ("SEQ_ITEM", 1)), ("LEN_EQ", 3, 1)], lambda t: t.pair[1].append(9)),
    ([*reading(1, item("table")), ("DICT_KEYS", 2, ("a", "b"))], lambda t: t.table.update(c=1)),
    ([*reading(1, item("table")), ("DICT_KEYS", 2, ("a", "b"))], lambda t: t.table.update(a=t.table.pop("a"))),
    ([*reading(1, item("table")), ("LEN_EQ", 2, 2)], lambda t: t.table.clear()),
    ([*reading(1, item("table"), item("b"), item("c")), ("EQUALS", 4, 2)], lambda t: t.table["b"].update(c=3)),
    ([*reading(1, item("table"), ("DICT_KEY_AT", 0)), ("EQUALS", 3, "a")], lambda t: t.table.__delitem__("a")),
    ([*reading(1, item("order")), ("DICT_KEYS", 2, ("a", "b"))], lambda t: t.order.move_to_end("a")),
    ([*reading(1, item("order"), item("a")), ("EQUALS", 3, 1)], lambda t: t.order.update(a=2)),
    ([*reading(1, item("order"), item("a"))], lambda t: t.order.popitem(last=False)),
    ([*reading(1, item("empty")), ("LEN_EQ", 2, 0)], lambda t: t.empty.update(hook=1)),
    ([*reading(1, item("names")), ("LEN_EQ", 2, 1)], lambda t: t.names.add("y")),
    ([*reading(1, item("closed"), ("FUNC_CODE",))], lambda t: setattr(t.closed, "__code__", made().closed.__code__)),
    ([*reading(1, item("closed"), ("FUNC_CODE",))], lambda t: setattr(t, "closed", lambda: 1)),
    ([*reading(1, item("closed"), ("FUNC_DEFAULTS",), ("SEQ_ITEM", 0)), ("EQUALS", 4, 1)],
     lambda t: setattr(t.closed, "__defaults__", (2,))),
    ([*reading(1, item("closed"), ("FUNC_KWDEFAULTS",), item("z")), ("EQUALS", 4, 2)],
     lambda t: t.closed.__kwdefaults__.update(z=3)),
    ([*reading(1, item("closed"), ("FUNC_CLOSURE",), ("SEQ_ITEM", 0), ("CELL_CONTENTS",)), ("EQUALS", 5, 5)],
     lambda t: setattr(t.closed.__closure__[0], "cell_contents", 6)),
    ([*reading(1, item("closed"), ("FUNC_GLOBALS",)), ("NO_KEY", 3, "made_later")],
     lambda t: globals().update(made_later=1)),
    ([*reading(1, item("module"), ("ATTR", "value")), ("EQUALS", 3, 7)], lambda t: setattr(t.module, "value", 8)),
    ([*reading(1, item("module"), ("ATTR", "value")), ("EQUALS", 3, 7)], lambda t: delattr(t.module, "value")),
    ([*reading(1, item("module"), ("INSTANCE_DICT",), item("value"))], lambda t: vars(t.module).clear()),
)  # fmt: skip


def check_every_change_is_noticed() -> None:
    for ops, change in OWN:
        thing = made()
        ops = [(*op[:-1], type(thing)) if op[0] == "TYPE_IS" else op for op in ops]
        watched = Watched(*ops, of=thing).warm()
        change(thing)
        first = watched()
        assert watched() == first == watched()
        globals().pop("made_later", None)


def check_what_is_static_is_not_run() -> None:
    """Of everything that is read above, only the order of an ordered dict and the length of a set are."""
    thing = made()
    for ops, _ in OWN:
        run = sum(op[0] == "DICT_KEYS" and len(op[2]) == 2 and ops[1][3] == "order" for op in ops)
        run += any(op[0] == "DICT_GET" and op[3] == "names" for op in ops)
        Watched(*(op for op in ops if op[0] != "TYPE_IS"), of=thing).warm(residual=run)


def check_metaclasses_and_bases() -> None:
    changes: list[tuple[list[Op], Callable[[], Any], Callable[[], Any]]] = [
        ([("CONST", 1, Thing), ("ATTR", 2, 1, "inherited")], lambda: setattr(Base, "inherited", 2),
         lambda: setattr(Base, "inherited", 1)),
        ([("CONST", 1, Thing), ("NO_ATTR", 1, "new")], lambda: setattr(Meta, "new", 2), lambda: delattr(Meta, "new")),
        ([("CONST", 1, Thing), ("ATTR", 2, 1, "shared")], lambda: setattr(Meta, "shared", property(lambda cls: 5)),
         lambda: delattr(Meta, "shared")),
        ([("CONST", 1, Thing), ("ATTR", 2, 1, "shared")],
         lambda: setattr(Meta, "__getattribute__", lambda cls, name: 5), lambda: delattr(Meta, "__getattribute__")),
        ([("CONST", 1, Thing), ("NO_ATTR", 1, "made")], lambda: setattr(Meta, "__getattr__", lambda cls, name: 5),
         lambda: delattr(Meta, "__getattr__")),
    ]  # fmt: skip
    for ops, change, undo in changes:
        watched = Watched(*ops, of=1).warm(residual=1)
        change()
        try:
            watched()
            watched()
        finally:
            undo()
        assert watched() == -1


def check_roots() -> None:
    """Another argument, another function, other globals, a closure's new contents."""
    things = [made(), made()]
    watched = Watched(*reading(1, item("number")), ("EQUALS", 2, 3), of=things[0]).warm(residual=0)
    things[1].number = 4
    watched.of = things[1]
    assert watched() == len(watched.ops) - 1
    watched.of = things[0]
    assert watched() == -1
    number = 5

    def reader(*args: Any) -> int:
        return number

    ops = [("CLOSURE", 1, 0), ("EQUALS", 1, 5), ("GLOBAL", 2, "things_of_this_test"), ("EQUALS", 2, 1)]
    ops += [("GLOBAL", 3, "hex"), ("GLOBALS", 4), ("BUILTINS", 5), ("FUNC", 6), ("HAS_KEY", 5, "hex")]
    globals()["things_of_this_test"] = 1
    watched = Watched(*ops, of=1, fn=reader).warm()
    number = 6
    assert watched() > 0
    number = 5
    assert watched.warm()() == -1
    globals()["things_of_this_test"] = 2
    assert watched() > 0
    globals()["things_of_this_test"] = 1
    assert watched.warm()() == -1
    builtins.things_of_this_test = 3  # type: ignore[attr-defined]
    del globals()["things_of_this_test"]
    assert watched() > 0
    del builtins.things_of_this_test  # type: ignore[attr-defined]
    assert watched() > 0
    globals()["things_of_this_test"] = 1
    globals()["hex"] = max
    watched()
    del globals()["hex"]
    watched.fn = types.FunctionType(reader.__code__, {"things_of_this_test": 2}, "twin", None, reader.__closure__)
    assert watched() > 0
    watched.fn = reader
    assert watched() == -1
    del globals()["things_of_this_test"]


def check_tables_that_change_often() -> None:
    """A counter in a dict does not make everything be read again, and what else is in there is still noticed."""
    thing = made()
    thing.steps = 0
    ops = [*reading(1, item("number")), ("EQUALS", 2, 3), ("NO_KEY", 1, "later"), ("DICT_GET", 3, 1, "table")]
    ops += [("DICT_GET", 4, 3, "a"), ("EQUALS", 4, 1)]
    watched = Watched(*ops, of=thing).warm(residual=0)
    for _ in range(20):
        thing.steps += 1
        assert watched() == -1
    made_before = watched.program.n_memos
    for _ in range(20):
        thing.steps += 1
        assert watched() == -1
    assert watched.program.n_memos == made_before
    for change, undo in (
        (lambda: setattr(thing, "later", 1), lambda: delattr(thing, "later")),
        (lambda: setattr(thing, "number", 4), lambda: setattr(thing, "number", 3)),
        (lambda: thing.table.update(a=2), lambda: thing.table.update(a=1)),
        (lambda: setattr(thing, "table", {"a": 5}), lambda: setattr(thing, "table", {"a": 1})),
    ):
        for _ in range(4):
            thing.steps += 1
            assert watched() == -1
        change()
        thing.steps += 1
        assert watched() > 0
        undo()


def check_another_constant_at_the_same_address() -> None:
    """The allocator gives a new number, string or tuple the address of one that died."""
    made_of: tuple[tuple[Callable[[int], Any], list[Op]], ...] = (
        (lambda i: 1000 + i, []),
        (lambda i: f"text {i}", []),
        (lambda i: 1000.5 + i, []),
        (lambda i: (1000 + i, "x"), [("SEQ_ITEM", 0)]),
        (lambda i: ([1000 + i],), [("SEQ_ITEM", 0), ("SEQ_ITEM", 0)]),
    )
    for new, path in made_of:
        thing = made()
        first = new(0)
        for _, *place in path:
            first = first[place[0]]
        steps = [item("items"), ("SEQ_ITEM", 0), *path]
        watched = Watched(*reading(1, *steps), ("EQUALS", 1 + len(steps), first), of=thing)
        for _ in range(20):
            thing.items[0] = new(0)
            watched.warm()
            address, others = id(thing.items[0]), []
            thing.items[0] = None
            for i in range(1, 200):
                others.append(new(i))
                if id(others[-1]) == address:
                    break
            thing.items[0] = others.pop()
            assert watched() > 0


def check_nothing_is_kept_alive() -> None:
    thing = made()
    refs = [weakref.ref(thing), weakref.ref(thing.closed), weakref.ref(thing.module)]
    ops = [*reading(1, item("closed"), ("FUNC_CODE",)), ("DICT_GET", 4, 1, "module"), ("ATTR", 5, 4, "value")]
    watched = Watched(*ops, of=thing).warm(residual=0)
    for _ in range(10):  # a table that changes often
        thing.steps = 1
        thing.steps = 2
        assert watched() == -1
    watched.of = None
    del thing
    gc.collect()
    assert [ref() for ref in refs] == [None, None, None]
    assert watched() > 0
    watched.of = made()
    assert watched() == -1


def check_registers_are_owned() -> None:
    """What a passing check gives stays alive whatever happens to the tables."""
    thing = made()
    program = Watched(*reading(1, item("table")), of=thing).warm(residual=0).program
    before = sys.getrefcount(thing.table)
    _, registers = program.check(function, (thing,))
    assert sys.getrefcount(thing.table) == before + 1
    vars(thing).clear()
    assert registers[2] == {"a": 1, "b": {"c": 2}}


def check_programs_that_remember_are_freed() -> None:
    thing = made()
    ops = [*reading(1, item("closed"), ("FUNC_CODE",)), ("DISTINCT", (0, 1, 2, 3))]
    Watched(*ops, of=thing).warm(residual=0)
    gc.collect()
    before, count = sys.getallocatedblocks(), sys.getrefcount(thing)
    for _ in range(300):
        Watched(*ops, of=thing).warm(residual=0)
    gc.collect()
    assert sys.getallocatedblocks() - before < 200 and sys.getrefcount(thing) == count


def check_residual_checks_that_change_tables() -> None:
    """A predicate that writes to its argument: the next call sees the change."""
    thing = made()
    calls: list[int] = []

    def predicate(value: Any) -> bool:
        calls.append(1)
        if len(calls) == 9:
            value.number = 4
        return True

    watched = Watched(*reading(1, item("number")), ("EQUALS", 2, 3), ("PREDICATE", predicate, (0,)), of=thing)
    program = watched.program
    results = [program.check(function, (thing,))[0] for _ in range(12)]
    assert results == [-1] * 9 + [len(watched.ops) - 2] * 3
    assert len(calls) == 9


def check_distinct_with_a_changing_argument() -> None:
    thing = made()
    names = [name for name in vars(thing)]
    ops = [("DICT_GET", i + 2, 1, name) for i, name in enumerate(names)]
    n = 2 + len(names)
    program_ops = [("LOCAL", 0, 0), ("INSTANCE_DICT", 1, 0), *ops, ("LOCAL", n, 1), ("LOCAL", n + 1, 2)]
    program_ops += [("DISTINCT", tuple(range(2, n + 2))), *(("CONST", n + 2 + i, i) for i in range(PADDING))]
    program = C.GuardProgram(program_ops, n + 2 + PADDING, n)
    for _ in range(4):
        assert program.check(function, (thing, [], []))[0] == -1
    assert program.n_residual == 3
    same: list[int] = []
    assert program.check(function, (thing, same, same))[0] == len(program_ops) - PADDING - 1
    for name in names:
        assert program.check(function, (thing, vars(thing)[name], []))[0] == len(program_ops) - PADDING - 1
        assert program.check(function, (thing, [], vars(thing)[name]))[0] == len(program_ops) - PADDING - 1
    assert program.check(function, (thing, [], []))[0] == -1


class Tree:
    """Random objects, and operations that read them as they are."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.containers: list[Any] = []
        self.ops: list[Op] = []
        self.registers = 1
        self.root = self.thing(3)
        self.read(self.root, 0)

    def value(self, depth: int) -> Any:
        kind = self.rng.choice(["thing", "dict", "list", "tuple", "ordered", "leaf"]) if depth else "leaf"
        if kind == "leaf":
            return self.rng.choice([1, 2.5, "text", None, True, Thing, len, function, (1, 2)])
        if kind == "thing":
            return self.thing(depth)
        items = [self.value(depth - 1) for _ in range(self.rng.randrange(4))]
        if kind == "tuple":
            return tuple(items)
        made_: Any = items
        if kind != "list":
            made_ = (OrderedDict if kind == "ordered" else dict)(zip("abcd", items, strict=False))
        self.containers.append(made_)
        return made_

    def thing(self, depth: int) -> Any:
        thing = self.rng.choice([Thing, Other])()
        for name in "abcd"[: self.rng.randrange(1, 5)]:
            setattr(thing, name, self.value(depth - 1))
        self.containers.append(thing)
        return thing

    def register(self, name: str, *operands: Any) -> int:
        register = self.registers
        self.registers += 1
        self.ops.append((name, register, *operands))
        return register

    def read(self, value: Any, register: int) -> None:
        self.ops.append(("TYPE_IS", register, type(value)))
        if isinstance(value, Thing | Other):
            table = self.register("INSTANCE_DICT", register)
            self.ops.append(self.rng.choice([("NO_KEY", table, "z"), ("DICT_KEYS", table, tuple(vars(value)))]))
            for name, inner in vars(value).items():
                self.read(inner, self.register("DICT_GET", table, name))
        elif isinstance(value, dict):
            self.ops.append(("DICT_KEYS", register, tuple(value)))
            for name, inner in value.items():
                self.read(inner, self.register("DICT_GET", register, name))
        elif isinstance(value, list | tuple):
            self.ops.append(("LEN_EQ", register, len(value)))
            for i, inner in enumerate(value):
                self.read(inner, self.register("SEQ_ITEM", register, i))
        else:
            kind = "EQUALS" if isinstance(value, int | float | str | None) else "IS"
            self.ops.append((kind, register, value))

    def change(self) -> None:
        """Write something somewhere: often what is there already, or what nobody reads."""
        target, new = self.rng.choice(self.containers), self.value(1)
        if isinstance(target, Thing | Other):
            name = self.rng.choice("abcdez")
            action = self.rng.randrange(4)
            if action == 0:
                target.__class__ = self.rng.choice([Thing, Other])
            elif action == 1:
                vars(target).pop(name, None)
            else:
                setattr(target, name, vars(target).get(name, new) if action == 2 else new)
        elif isinstance(target, dict):
            name = self.rng.choice("abcde")
            if isinstance(target, OrderedDict) and name in target and self.rng.random() < 0.3:
                target.move_to_end(name)
            elif self.rng.random() < 0.2:
                target.pop(name, None)
            else:
                target[name] = target.get(name, new) if self.rng.random() < 0.6 else new
        elif self.rng.random() < 0.3 or not target:
            target.append(new)
        else:
            at = self.rng.randrange(len(target))
            target[at] = target[at] if self.rng.random() < 0.6 else new


def check_random_trees_and_changes() -> None:
    remembered = hits = 0
    for seed in range(150):
        tree = Tree(seed)
        watched = Watched(*tree.ops, of=tree.root)
        for _ in range(12):
            for _ in range(tree.rng.randrange(1, 5)):
                held = watched() == -1
                hits += held
            remembered += held and watched.program.n_residual < 10
            tree.change()
    assert remembered > 100, (remembered, hits)
