"""Programs about lists, dicts, sets, named tuples and deques."""

from __future__ import annotations

import copy
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import torch

from .programs import program, x

ACTIVATIONS = frozenset({torch.relu, torch.sin, len})


class Layer(NamedTuple):
    """A named tuple with a function as a field."""

    fn: Any
    scale: float = 1.0


@program
def functions_in_a_frozenset() -> Any:
    def f(a: Any) -> Any:
        return torch.relu(a) if torch.relu in ACTIVATIONS and torch.cos not in ACTIVATIONS else a

    return f, [(x(),)]


def _double(a: Any) -> Any:
    return a * 2


@program
def own_functions_in_a_frozenset() -> Any:
    known = frozenset([_double, torch.add])

    def f(a: Any, fn: Any) -> Any:
        return fn(a) + 1 if fn in known else fn(a)

    return f, [(x(), _double), (x(), torch.neg)]


@program
def functions_in_a_set_made_here() -> Any:
    def f(a: Any) -> Any:
        chosen = {torch.sin, _double}
        for fn in (torch.sin, torch.cos, _double):
            if fn in chosen:
                a = fn(a)
        return a

    return f, [(x(),)]


@program
def methods_in_a_frozenset() -> Any:
    known = frozenset([torch.Tensor.add, torch.Tensor.sin, torch.ops.aten.relu.default])

    def f(a: Any) -> Any:
        return torch.Tensor.sin(a) if torch.Tensor.sin in known and torch.ops.aten.relu.default in known else a

    return f, [(x(),)]


@program
def callable_in_a_named_tuple() -> Any:
    layers = [Layer(torch.relu), Layer(_double, 2.0)]

    def f(a: Any) -> Any:
        for layer in layers:
            a = layer.fn(a) * layer.scale
        return a

    return f, [(x(),)]


@program
def callable_in_a_named_tuple_given() -> Any:
    def f(a: Any, layer: Any) -> Any:
        return layer.fn(a) * layer.scale

    return f, [(x(), Layer(torch.relu)), (x(), Layer(lambda v: v + 1, 3.0))]


@program
def named_tuple_made_and_returned() -> Any:
    def f(a: Any) -> Any:
        layer = Layer(torch.sin, 3.0)
        return layer.fn(a) * layer._replace(scale=2.0).scale, layer._asdict()["scale"], Layer._fields

    return f, [(x(),)]


@program
def named_tuple_made_in_a_function() -> Any:
    def f(a: Any) -> Any:
        Point = namedtuple("Point", ["left", "right"])
        p = Point(a + 1, right=a * 2)
        return p.left * p.right + p._replace(left=a).left

    return f, [(x(),)]


@program
def named_tuple_with_methods() -> Any:
    class Pair(NamedTuple):
        a: Any
        b: Any

        def total(self) -> Any:
            return self.a + self.b

    def f(a: Any) -> Any:
        return Pair(a, a + 1).total(), Pair._make([a, a])

    return f, [(x(),)]


@program
def defaultdict_fromkeys() -> Any:
    def f(a: Any) -> Any:
        table = defaultdict.fromkeys(["a", "b"], 2)
        return a * table["a"], type(table).__name__, table.default_factory

    return f, [(x(),)]


@program
def ordereddict_fromkeys() -> Any:
    def f(a: Any) -> Any:
        table = OrderedDict.fromkeys("abc", a)
        table.move_to_end("a")
        return table, dict.fromkeys([1, 2]), list(table)

    return f, [(x(),)]


@program
def defaultdict_of_lists() -> Any:
    def f(a: Any) -> Any:
        table: Any = defaultdict(list)
        for i, row in enumerate(a):
            table[i % 2].append(row)
        nested: Any = defaultdict(lambda: defaultdict(int))
        nested["a"]["b"] += 3
        return torch.stack(table[0]), dict(table), nested

    return f, [(x(4, 2),)]


@program
def set_pop() -> Any:
    def f(a: Any) -> Any:
        todo = {3}
        while todo:
            n = todo.pop()
            a = a + n
            if n > 1:
                todo.add(n - 1)
        return a

    return f, [(x(),)]


@program
def set_pop_of_several() -> Any:
    def f(a: Any) -> Any:
        todo = {5, 1, 9}
        total = 0
        while todo:
            total = total * 10 + todo.pop()
        return a + total

    return f, [(x(),)]


@program
def set_pop_of_an_existing_set() -> Any:
    todo = {"left"}

    def f(a: Any) -> Any:
        if todo:
            return a + len(todo.pop())
        return a

    return f, [(x(),), (x(),)], lambda: sorted(todo)


@program
def set_pop_of_empty() -> Any:
    def f(a: Any) -> Any:
        try:
            set().pop()
        except KeyError as error:
            return a + 1, str(error)
        return a

    return f, [(x(),)]


@program
def set_operations() -> Any:
    def f(a: Any) -> Any:
        one, two = {1, 2, 3}, {2, 3, 4}
        three = (one & two) | {9}
        three ^= {9, 10}
        three.discard(77)
        one.update([7, 8])
        one.intersection_update({7, 1})
        return a + len(one - two), three == {2, 3, 10}, one, one <= {1, 7, 9}, one.isdisjoint({5})

    return f, [(x(),)]


@program
def set_of_tensors() -> Any:
    def f(a: Any, b: Any) -> Any:
        seen = {a, b, a}
        return a + len(seen) if b in seen else a

    return f, [(x(), x())]


@program
def set_remove_errors() -> Any:
    def f(a: Any) -> Any:
        try:
            {1}.remove(2)
        except KeyError as error:
            return a + error.args[0]
        return a

    return f, [(x(),)]


@program
def frozenset_as_key() -> Any:
    def f(a: Any) -> Any:
        table = {frozenset({1, 2}): a, frozenset(): a + 1}
        return table[frozenset([2, 1])] + table[frozenset()]

    return f, [(x(),)]


@program
def dict_methods() -> Any:
    def f(a: Any) -> Any:
        d = {"a": a, "b": a + 1}
        d |= {"c": a + 2}
        e = d | {"a": a * 3}
        d.update(z=a)
        first = d.pop("a")
        last = d.popitem()
        none = d.pop("missing", None)
        d.setdefault("q", a * 5)
        return d, e, first, last, none, list(reversed(d)), d.keys() & {"b"}, e.items() >= {("zz", 1)}

    return f, [(x(),)]


@program
def dict_of_existing_objects_changed() -> Any:
    table: dict[str, Any] = {"a": 1}

    def f(a: Any) -> Any:
        table["b"] = a + table["a"]
        del table["a"]
        table["a"] = 5
        return a * 2

    return f, [(x(),), (x(),)], lambda: list(table.items())


@program
def dict_keys_of_modules() -> Any:
    layer = torch.nn.Linear(4, 4)
    scales = {layer: 2.0, torch.nn.Linear: 3.0, torch.float32: 4.0, _double: 5.0}

    def f(a: Any) -> Any:
        return layer(a) * scales[layer] * scales[type(layer)] * scales[a.dtype] * scales[_double]

    return f, [(x(),)]


@program
def dict_missing_key() -> Any:
    def f(a: Any, key: str) -> Any:
        table = {"a": a}
        try:
            return table[key]
        except KeyError as error:
            return a + 1, error.args

    return f, [(x(), "a"), (x(), "b")]


@program
def dict_subclass_with_missing() -> Any:
    class Table(dict[Any, Any]):
        def __missing__(self, key: Any) -> Any:
            self[key] = len(self)
            return self[key]

    def f(a: Any) -> Any:
        table = Table(q=3)
        return a + table["w"] + table["e"] + table["q"], table

    return f, [(x(),)]


@program
def counter_of_collections() -> Any:
    def f(a: Any) -> Any:
        counts = Counter("hello")
        counts.update("lo")
        return a + counts["l"], counts.most_common(1), counts["missing"], counts.total()

    return f, [(x(),)]


@program
def chain_map() -> Any:
    def f(a: Any) -> Any:
        found = ChainMap({"a": 1}, {"a": 2, "b": 3})
        return a + found["a"] + found["b"] + len(found) + found.new_child({"a": 9})["a"]

    return f, [(x(),)]


@program
def user_dict() -> Any:
    class Config(UserDict[str, Any]):
        pass

    config = Config(scale=2)

    def f(a: Any) -> Any:
        return a * config["scale"] + len(config)

    return f, [(x(),)]


@program
def mapping_proxy() -> Any:
    def f(a: Any) -> Any:
        view = MappingProxyType({"a": 2})
        return a * view["a"] + len(view) + sum(view.values())

    return f, [(x(),)]


@program
def deque_operations() -> Any:
    def f(a: Any) -> Any:
        queue = deque([1, 2, 3], maxlen=3)
        queue.append(4)
        queue.appendleft(0)
        queue.rotate(1)
        queue.extend([7])
        return a + queue[0] + queue.popleft(), list(queue), queue.maxlen, queue.count(7), queue.index(7)

    return f, [(x(),)]


@program
def deque_of_tensors_held() -> Any:
    history: Any = deque(maxlen=2)

    def f(a: Any) -> Any:
        history.append(a + 1)
        return sum(history)

    return f, [(x(),), (x(),), (x(),)], lambda: list(history)


@program
def simple_namespace() -> Any:
    def f(a: Any) -> Any:
        space = SimpleNamespace(left=a, right=2)
        space.right += 1
        return space.left * space.right, space

    return f, [(x(),)]


@program
def list_methods() -> Any:
    def f(a: Any) -> Any:
        items: list[Any] = [a, a + 1]
        items.insert(0, a * 2)
        items.extend([a, a])
        items[1:3] = [a * 7]
        del items[-1]
        items += [1]
        items *= 2
        items.remove(1)
        return items, [3, 1, 2].index(1), items.pop(0), [1, 2] < [1, 3], [1] + [2]

    return f, [(x(),)]


@program
def list_sort_in_place() -> Any:
    def f(a: Any) -> Any:
        items = [(2, "b"), (1, "c"), (1, "a")]
        items.sort(key=lambda p: p[0])
        names = [name for _, name in items]
        names.reverse()
        return a + items[0][0], names

    return f, [(x(),)]


@program
def nested_containers_returned() -> Any:
    def f(a: Any) -> Any:
        shared = [a + 1]
        return {"x": (shared, shared, {"y": [a]}), 3: None, None: slice(1, 2), (1, 2): range(3)}

    return f, [(x(),)]


@program
def copies_of_containers() -> Any:
    def f(a: Any) -> Any:
        one: list[Any] = [a, [1, 2]]
        two, three = copy.copy(one), copy.deepcopy(one)
        two[1].append(3)
        three[1].append(4)
        return one[1], two[1], three[1], three[0] + 1

    return f, [(x(),)]


@program
def slices_of_sequences() -> Any:
    def f(a: Any) -> Any:
        items = list(range(10))
        s = slice(1, None, 2)
        head, *middle, last = items
        return a + sum(items[s]) + sum(items[::-3]) + head + last, s.indices(7), middle[2:4], (1, 2, 3)[-2:]

    return f, [(x(),)]
