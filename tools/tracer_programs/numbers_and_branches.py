"""Programs about numbers that vary, branches on data and identities."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .programs import program, x


@program
def min_of_tensors() -> Any:
    def f(a: Any, b: Any) -> Any:
        return min(a.sum(), b.sum()) * 2

    return f, [(x(), x()), (x(), x()), (x(grad=True), x(grad=True))]


@program
def max_of_tensors_and_numbers() -> Any:
    def f(a: Any) -> Any:
        return max(a.sum(), 0) + 1, max(0.5, a.mean())

    return f, [(x(),), (x().abs(),), (-x().abs(),)]


@program
def max_of_three_tensors() -> Any:
    def f(a: Any, b: Any, c: Any) -> Any:
        return max([a.max(), b.max(), c.max()]) + 1

    return f, [(x(), x(), x()), (x() + 9, x(), x()), (x(), x() + 9, x())]


@program
def min_of_integers_in_tensors() -> Any:
    def f(a: Any) -> Any:
        return min(a[0], a[1]), max(a[0], a[1], a[2])

    return f, [(torch.tensor([1, 2, 3]),), (torch.tensor([3, 2, 1]),)]


@program
def max_with_default() -> Any:
    def f(a: Any) -> Any:
        return a + max([], default=3) + max((1, 2), key=lambda v: -v)

    return f, [(x(),)]


@program
def number_in_tensor() -> Any:
    def f(a: Any) -> Any:
        return torch.ones(2) if 1.0 in a else torch.zeros(2)

    return f, [(torch.ones(3),), (torch.zeros(3),)]


@program
def number_in_tensor_returned() -> Any:
    def f(a: Any) -> Any:
        return a + 1, 1.0 in a

    return f, [(torch.ones(3),)]


@program
def list_indexed_by_item() -> Any:
    def f(a: Any, n: Any) -> Any:
        return a * [10, 20, 30][n.item()]

    return f, [(x(), torch.tensor(1)), (x(), torch.tensor(2)), (x(), torch.tensor(-3)), (x(), torch.tensor(7))]


@program
def list_indexed_by_tensor() -> Any:
    def f(a: Any, n: Any) -> Any:
        return a * [10, 20, 30][n]

    return f, [(x(), torch.tensor(1)), (x(), torch.tensor(2))]


@program
def list_of_tensors_indexed_by_item() -> Any:
    def f(a: Any, n: Any) -> Any:
        return [a, a + 1, a + 2][n.item()] * 2

    return f, [(x(), torch.tensor(1)), (x(), torch.tensor(2))]


@program
def tensor_indexed_by_item() -> Any:
    def f(a: Any, n: Any) -> Any:
        return a[n.item()] * 2

    return f, [(x(), torch.tensor(1)), (x(), torch.tensor(2))]


@program
def index_varies() -> Any:
    def f(a: Any, i: int) -> Any:
        return a[i] + 1

    a = x(8, 3)
    return f, [(a, i) for i in (2, 3, 5, 4, 6, 7)]


@program
def negative_index_varies() -> Any:
    def f(a: Any, i: int) -> Any:
        return a[i] + 1

    a = x(8, 3)
    return f, [(a, i) for i in (-2, -3, -5, -4, -6)]


@program
def index_of_both_signs_varies() -> Any:
    def f(a: Any, i: int) -> Any:
        return a[i] + 1

    a = x(8, 3)
    return f, [(a, i) for i in (2, -3, 5, -4, 6, -1)]


@program
def index_from_zero_varies() -> Any:
    def f(a: Any, i: int) -> Any:
        return a[i] + 1

    a = x(8, 3)
    return f, [(a, i) for i in range(6)]


@program
def index_of_the_last_of_a_size() -> Any:
    def f(a: Any) -> Any:
        return a[a.size(0) - 1] + 1

    return f, [(x(n, 3),) for n in (4, 5, 6, 7, 8)]


@program
def index_given_beside_a_size() -> Any:
    def f(a: Any, i: int) -> Any:
        return a[a.size(0) - 1 - i] + a[i : i + 2].sum(0)

    return f, [(x(n, 3), i) for n, i in ((6, 2), (7, 3), (8, 4), (9, 2))]


@program
def slice_bounds_vary() -> Any:
    def f(a: Any, i: int, j: int) -> Any:
        return a[i:j].sum(0)

    a = x(12, 3)
    return f, [(a, i, j) for i, j in ((2, 5), (3, 7), (4, 11), (-4, -2), (-5, -1), (2, -2))]


@program
def select_and_narrow_vary() -> Any:
    def f(a: Any, i: int) -> Any:
        return a.select(0, i), a.narrow(0, i, 2), torch.select(a, 0, i)

    a = x(8, 3)
    return f, [(a, i) for i in (2, 3, 4, 5)]


@program
def written_index_varies() -> Any:
    def f(a: Any, i: int) -> Any:
        out = a.clone()
        out[i] = 0
        out[:, i] += 1
        return out

    return f, [(x(8, 8), i) for i in (2, 3, 4, 5)]


@program
def list_index_varies() -> Any:
    def f(a: Any, items: Any, i: int) -> Any:
        return a * items[i]

    return f, [(x(), [3, 4, 5, 6, 7], i) for i in (2, 3, 4)]


@program
def step_counter_varies() -> Any:
    def f(a: Any, step: int) -> Any:
        return a * (0.9**step) + step

    return f, [(x(), i) for i in range(1, 7)]


@program
def power_of_varying_number() -> Any:
    def f(a: Any, n: int) -> Any:
        return a**n, n * 2 - 1, n // 3, -n % 5, n**2

    return f, [(x(), n) for n in (3, 4, 5, 6)]


@program
def float_argument_varies() -> Any:
    def f(a: Any, scale: float) -> Any:
        return a * scale + scale**2

    return f, [(x(), s) for s in (0.5, 0.25, 0.125, 2.5)]


@program
def numpy_integer_arguments() -> Any:
    def f(a: Any, n: Any) -> Any:
        return a * n + 1

    return f, [(x(), np.int64(n)) for n in (2, 3, 4, 5)]


@program
def numpy_float_arguments() -> Any:
    def f(a: Any, s: Any) -> Any:
        return a * float(s)

    return f, [(x(), np.float64(s)) for s in (2.5, 3.5, 4.5)]


@program
def bool_arguments() -> Any:
    def f(a: Any, flag: bool) -> Any:
        return a + 1 if flag else a - 1

    return f, [(x(), True), (x(), False), (x(), True)]


@program
def joined_branches_after_a_break() -> Any:
    def f(a: Any) -> Any:
        if a.sum() > 0:
            b = a + 1
        else:
            b = a - 1
        return b.sin() * 2

    return f, [(torch.ones(3),), (-torch.ones(3),)]


@program
def two_data_dependent_branches() -> Any:
    def f(a: Any, b: Any) -> Any:
        if a.sum() > 0:
            a = a * 2
        if b.sum() > 0:
            b = b * 2
        return a + b

    one = torch.ones(3)
    return f, [(one, one), (-one, one), (one, -one), (-one, -one)]


def _report(y: Any) -> Any:
    print("called")
    return y * 2


@program
def break_inside_an_inlined_call() -> Any:
    def inner(a: Any) -> Any:
        b = a.sin()
        b = _report(b)
        return b.cos()

    def f(a: Any) -> Any:
        b = a + 1
        c = inner(b)
        return c * 3

    return f, [(x(),), (x(),)]


@program
def break_two_calls_deep() -> Any:
    def innermost(a: Any) -> Any:
        b = a.exp()
        print("inside")
        return b.log()

    def inner(a: Any) -> Any:
        return innermost(a + 1) * 2

    def f(a: Any) -> Any:
        return inner(a.abs()) - 1

    return f, [(x(),), (x(),)]


@program
def id_compared() -> Any:
    marker = object()

    def f(a: Any, b: Any) -> Any:
        return a + 1 if id(a) == id(b) else a + b if id(marker) != id(b) else a

    a, b = x(), x()
    return f, [(a, a), (a, b)]


@program
def id_in_a_dict() -> Any:
    def f(a: Any, b: Any) -> Any:
        seen = {id(t): i for i, t in enumerate((a, b, a))}
        return a * seen[id(a)] + b * seen[id(b)] + len(seen)

    return f, [(x(), x())]


@program
def id_of_modules() -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))

    def f(a: Any) -> Any:
        seen = set()
        for layer in (*model, *model):
            if id(layer) not in seen:
                seen.add(id(layer))
                a = layer(a)
        return a

    return f, [(x(),)]


@program
def id_of_new_tensors() -> Any:
    def f(a: Any) -> Any:
        b = a + 1
        c = b
        return b if id(b) == id(c) and id(b) != id(a) else c * 2

    return f, [(x(),)]


@program
def hash_of_objects() -> Any:
    class Key:
        pass

    key = Key()

    def f(a: Any) -> Any:
        return a + 1 if hash(key) == hash(key) else a

    return f, [(x(),)]


@program
def is_comparisons() -> Any:
    def f(a: Any, b: Any) -> Any:
        c = a.view(-1)
        return a + 1 if c is not a and a is not b else a

    return f, [(x(), x())]


@program
def numpy_integers_as_indices() -> Any:
    def f(a: Any, n: Any) -> Any:
        return a[n] * int(n) + a[:n].sum()

    a = x(9)
    return f, [(a, np.int64(n)) for n in (3, 5, 2, 7)]
