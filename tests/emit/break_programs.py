"""Programs with a hole for a graph break in every construct of the language, and the breaks to put there.

Each program is `f(x)`; `BREAK` stands for a statement (`EXPR` for an expression that gives `x`).  The names of the
operators say where they are: `tan` before and `exp` after in the caller, `sin` before and `cos` after in the callee.
"""

from __future__ import annotations

PRELUDE = """
import contextlib
import functools
import zlib

import torch
from torch import nn

import pyframe

LOG = []


class Recorded:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        LOG.append(("enter", self.name))
        return self

    def __exit__(self, *exception):
        LOG.append(("exit", self.name, exception[0] and exception[0].__name__))


class Swallowing(Recorded):
    def __exit__(self, *exception):
        super().__exit__(*exception)
        return True


@contextlib.contextmanager
def managed(name):
    LOG.append(("enter", name))
    try:
        yield name
    finally:
        LOG.append(("exit", name))


def wrapped(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        LOG.append(fn.__name__)
        result = fn(*args, **kwargs)
        LOG.append("done")
        return result.abs()

    return wrapper


def broken(x):
    BREAK
    return x
"""

BREAKS = {
    "print": "print('here', len(LOG))",
    "item": "x = x + 1 if x.sum().item() > 3 else x.neg()",
    "branch": """if x.sum() > 3:
    LOG.append('large')""",
    "graph_break": "pyframe.graph_break()",
    "c_function": "LOG.append(len(zlib.compress(b'here')))",
}

PROGRAMS = {
    "straight": """
def f(x):
    x = x.sin()
    BREAK
    return x.cos()
""",
    "for_range": """
def f(x):
    x = x.tan()
    for i in range(3):
        x = x.sin()
        BREAK
        x = x.cos()
    return x.exp()
""",
    "for_list": """
def f(x):
    x = x.tan()
    for scale in [1.0, 2.0, 3.0]:
        x = x.sin() * scale
        BREAK
        x = x.cos()
    return x.exp()
""",
    "for_rows": """
def f(x):
    rows = []
    for row in x.tan():
        y = row.sin()
        BREAK
        rows.append(y.cos())
    return torch.stack(rows).exp()
""",
    "for_dict": """
def f(x):
    out = {}
    for name, scale in {"a": 2, "b": 3}.items():
        out[name] = x.sin() * scale
        BREAK
        out[name] = out[name].cos()
    return out["a"].exp(), out["b"].exp()
""",
    "for_else": """
def f(x):
    for i in range(2):
        x = x.sin()
        BREAK
        if i == 5:
            break
        x = x.cos()
    else:
        x = x.tan()
    return x.exp()
""",
    "for_continue": """
def f(x):
    for i in range(4):
        x = x.sin()
        if i % 2:
            BREAK
            x = x.tan()
            continue
        x = x.cos()
    return x.exp()
""",
    "for_break": """
def f(x):
    for i in range(4):
        x = x.sin()
        BREAK
        if i == 2:
            x = x.tan()
            break
        x = x.cos()
    return x.exp()
""",
    "for_return": """
def f(x):
    for i in range(4):
        x = x.sin()
        BREAK
        if i == 2:
            return x.tan()
        x = x.cos()
    return x.exp()
""",
    "nested_for": """
def f(x):
    for i in range(2):
        x = x.tan()
        for j in range(2):
            x = x.sin()
            BREAK
            x = x.cos()
        x = x.exp()
    return x
""",
    "while": """
def f(x):
    n = 0
    x = x.tan()
    while n < 3:
        x = x.sin()
        BREAK
        x = x.cos()
        n += 1
    return x.exp()
""",
    "with_user": """
def f(x):
    x = x.tan()
    with Recorded("a"):
        x = x.sin()
        BREAK
        x = x.cos()
    return x.exp()
""",
    "with_managed": """
def f(x):
    x = x.tan()
    with managed("a"):
        x = x.sin()
        BREAK
        x = x.cos()
    return x.exp()
""",
    "with_torch": """
def f(x):
    x = x.tan()
    with torch.no_grad():
        x = x.sin()
        BREAK
        x = x.cos()
    return x.exp()
""",
    "with_two": """
def f(x):
    x = x.tan()
    with torch.no_grad(), Recorded("a") as a, Recorded("b"):
        x = x.sin()
        BREAK
        x = x.cos()
        LOG.append(a.name)
    return x.exp()
""",
    "with_swallows": """
def f(x):
    x = x.tan()
    with Swallowing("a"):
        x = x.sin()
        BREAK
        x = x.cos()
        raise ValueError("inside")
    return x.exp()
""",
    "with_in_for": """
def f(x):
    x = x.tan()
    for i in range(3):
        with Recorded("a"):
            x = x.sin()
            BREAK
            x = x.cos()
    return x.exp()
""",
    "for_in_with": """
def f(x):
    x = x.tan()
    with torch.no_grad():
        for i in range(3):
            x = x.sin()
            BREAK
            x = x.cos()
    return x.exp()
""",
    "try_body": """
def f(x):
    x = x.tan()
    try:
        x = x.sin()
        BREAK
        x = x.cos()
    except ValueError:
        x = x.neg()
    return x.exp()
""",
    "try_then_raise": """
def f(x):
    x = x.tan()
    try:
        x = x.sin()
        BREAK
        x = x.cos()
        raise ValueError("no")
    except ValueError as error:
        LOG.append(str(error))
        x = x.sqrt()
    return x.exp()
""",
    "try_finally": """
def f(x):
    x = x.tan()
    try:
        x = x.sin()
        BREAK
        x = x.cos()
    finally:
        LOG.append("finally")
        x = x.sqrt()
    return x.exp()
""",
    "try_else": """
def f(x):
    x = x.tan()
    try:
        x = x.sin()
    except ValueError:
        x = x.neg()
    else:
        BREAK
        x = x.cos()
    return x.exp()
""",
    "finally_body": """
def f(x):
    x = x.tan()
    try:
        x = x.sin()
    finally:
        BREAK
        x = x.cos()
    return x.exp()
""",
    "handler_body": """
def f(x):
    x = x.tan()
    try:
        x = x.sin()
        raise ValueError("no")
    except ValueError as error:
        x = x.sqrt()
        BREAK
        x = x.cos()
        LOG.append(str(error))
    return x.exp()
""",
    "handler_of_callee": """
def checked(x):
    x = x.sin()
    raise ValueError("no")

def f(x):
    x = x.tan()
    try:
        x = checked(x)
    except ValueError as error:
        x = x.sqrt()
        BREAK
        x = x.cos()
        LOG.append(str(error))
    return x.exp()
""",
    "handler_in_for": """
def f(x):
    x = x.tan()
    for i in range(3):
        try:
            x = x.sin()
            if i == 1:
                raise ValueError("no")
        except ValueError:
            BREAK
            x = x.cos()
    return x.exp()
""",
    "handler_raises": """
def f(x):
    x = x.tan()
    try:
        try:
            x = x.sin()
            raise ValueError("no")
        except ValueError as error:
            BREAK
            x = x.cos()
            raise KeyError("other") from error
    except KeyError as error:
        LOG.append((str(error), str(error.__cause__)))
        x = x.sqrt()
    return x.exp()
""",
    "finally_of_raise": """
def f(x):
    x = x.tan()
    try:
        try:
            x = x.sin()
            raise ValueError("no")
        finally:
            BREAK
            x = x.cos()
    except ValueError as error:
        LOG.append(str(error))
    return x.exp()
""",
    "try_in_for": """
def f(x):
    x = x.tan()
    for i in range(3):
        try:
            x = x.sin()
            BREAK
            x = x.cos()
        finally:
            LOG.append(i)
    return x.exp()
""",
    "call_1": """
def inner(x):
    x = x.sin()
    BREAK
    return x.cos()

def f(x):
    return inner(x.tan()).exp()
""",
    "call_2": """
def inner(x):
    x = x.sin()
    BREAK
    return x.cos()

def middle(x, y):
    return inner(x.sqrt()) + y.log()

def f(x):
    return middle(x.tan(), x).exp()
""",
    "call_3": """
def inner(x):
    x = x.sin()
    BREAK
    return x.cos()

def middle(x):
    return inner(x.sqrt()).abs()

def outer(x):
    return middle(x.log()).neg()

def f(x):
    return outer(x.tan()).exp()
""",
    "call_in_for": """
def inner(x):
    x = x.sin()
    BREAK
    return x.cos()

def f(x):
    x = x.tan()
    for i in range(3):
        x = inner(x.sqrt()).abs()
    return x.exp()
""",
    "for_in_call": """
def inner(x):
    for i in range(3):
        x = x.sin()
        BREAK
        x = x.cos()
    return x

def f(x):
    return inner(x.tan()).exp()
""",
    "call_in_with": """
def inner(x):
    x = x.sin()
    BREAK
    return x.cos()

def f(x):
    x = x.tan()
    with Recorded("a"):
        x = inner(x.sqrt()).abs()
    return x.exp()
""",
    "with_in_call": """
def inner(x):
    with Recorded("a"):
        x = x.sin()
        BREAK
        x = x.cos()
    return x

def f(x):
    return inner(x.tan()).exp()
""",
    "call_in_try": """
def inner(x):
    x = x.sin()
    BREAK
    x = x.cos()
    raise ValueError("deep")

def f(x):
    x = x.tan()
    try:
        x = inner(x.sqrt())
    except ValueError as error:
        LOG.append(str(error))
        x = x.abs()
    return x.exp()
""",
    "two_calls_in_line": """
def inner(x):
    x = x.sin()
    BREAK
    return x.cos()

def f(x):
    x = x.tan()
    return (inner(x) + inner(x.sqrt())).exp()
""",
    "list_comprehension": """
def inner(x):
    x = x.sin()
    BREAK
    return x.cos()

def f(x):
    x = x.tan()
    parts = [inner(x * i).sqrt() for i in range(3)]
    return torch.stack(parts).exp()
""",
    "dict_comprehension": """
def f(x):
    x = x.tan()
    parts = {i: broken(x.sin() * i).cos() for i in range(3)}
    return parts[2].exp()
""",
    "generator_used_up": """
def pieces(x):
    for i in range(3):
        x = x.sin()
        BREAK
        yield x.cos()

def f(x):
    total = x.tan()
    for piece in pieces(x):
        total = total + piece.sqrt()
    return total.exp()
""",
    "generator_around": """
def pieces(x):
    for i in range(3):
        yield x.sin() * i

def f(x):
    total = x.tan()
    for piece in pieces(x):
        x = piece
        BREAK
        total = total + x.cos()
    return total.exp()
""",
    "generator_expression": """
def inner(x):
    x = x.sin()
    BREAK
    return x.cos()

def f(x):
    x = x.tan()
    return sum(inner(x * i).sqrt() for i in range(3)).exp()
""",
    "method": """
class Model:
    scale = 2.0

    def run(self, x):
        x = x.sin()
        BREAK
        self.last = x
        return x.cos() * self.scale

def f(x):
    model = Model()
    x = model.run(x.tan()).exp()
    return x, model.last
""",
    "constructor": """
class Model:
    def __init__(self, x):
        self.first = x.sin()
        BREAK
        self.second = x.cos()

def f(x):
    model = Model(x.tan())
    return model.first.exp() + model.second
""",
    "operator_method": """
class Number:
    def __init__(self, x):
        self.x = x

    def __add__(self, other):
        x = self.x.sin() + other.x
        BREAK
        return Number(x.cos())

def f(x):
    return (Number(x.tan()) + Number(x)).x.exp()
""",
    "property": """
class Model:
    def __init__(self, x):
        self.x = x

    @property
    def value(self):
        x = self.x.sin()
        BREAK
        return x.cos()

def f(x):
    model = Model(x.tan())
    return model.value.exp()
""",
    "super_method": """
class Base:
    def run(self, x):
        x = x.sin()
        BREAK
        return x.cos()

class Model(Base):
    def run(self, x):
        return super().run(x.sqrt()).abs()

def f(x):
    return Model().run(x.tan()).exp()
""",
    "lambda": """
def f(x):
    y = x.tan()
    run = lambda x: broken(x.sin()).cos()
    return run(y).exp()
""",
    "decorated": """
@wrapped
def inner(x):
    x = x.sin()
    BREAK
    return x.cos()

def f(x):
    return inner(x.tan()).exp()
""",
    "partial": """
def inner(scale, x):
    x = x.sin() * scale
    BREAK
    return x.cos()

def f(x):
    return functools.partial(inner, 2)(x.tan()).exp()
""",
    "map": """
def inner(x):
    x = x.sin()
    BREAK
    return x.cos()

def f(x):
    x = x.tan()
    return sum(map(inner, [x, x.sqrt()])).exp()
""",
    "recursion": """
def inner(x, n):
    x = x.sin()
    BREAK
    if n:
        x = inner(x, n - 1)
    return x.cos()

def f(x):
    return inner(x.tan(), 3).exp()
""",
    "closure": """
def f(x):
    seen = []
    count = 0

    def inner(x):
        nonlocal count
        count += 1
        seen.append(x.sin())
        BREAK
        return seen[-1].cos()

    x = inner(x.tan())
    x = inner(x.sqrt())
    return x.exp(), count, len(seen)
""",
    "star_arguments": """
def inner(*args, scale, **rest):
    x = args[0].sin() * scale
    BREAK
    return x.cos() + rest["bias"]

def f(x):
    given = {"bias": x.sqrt(), "scale": 2}
    return inner(*[x.tan()], **given).exp()
""",
    "module": """
class Half(nn.Module):
    def forward(self, x):
        x = x.sin()
        BREAK
        return x.cos()

model = nn.Sequential(nn.Tanh(), Half(), nn.Sigmoid())

def f(x):
    return model(x.tan()).exp()
""",
    "conditional_expression": """
def f(x):
    x = x.tan()
    y = broken(x.sin()) if x.dim() else x
    return y.cos() and y.exp() if y.dim() == 0 else y.cos().exp()
""",
    "match": """
def f(x):
    match (x.tan(), 2):
        case (y, 2):
            x = y.sin()
            BREAK
            x = x.cos()
        case _:
            x = x.neg()
    return x.exp()
""",
}
