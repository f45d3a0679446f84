"""One program for each graph break of the catalogue: code that makes exactly that break, and code that makes none.

`docs/graph_breaks.md` shows them; `tests/report/test_break_catalogue.py` runs them.  Each defines `f` and `x`, and is
called as `f(x)`; the comment `# breaks here` is on the line that the break is reported at.
"""

from __future__ import annotations

import contextlib
import io
import linecache
from dataclasses import dataclass
from typing import Any

import pyframe


@dataclass(frozen=True, slots=True)
class Example:
    """Example programs of one kind of graph break: `code` breaks; `fixed` is one graph under `fullgraph=True`. `same`:
    whether both return the same result; `note`: further remarks."""

    code: str
    fixed: str
    same: bool = True
    note: str = ""


def load(source: str, filename: str = "example.py") -> dict[str, Any]:
    """The names that a program defines; its lines can be quoted as those of `filename`."""
    source = source.lstrip()
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names: dict[str, Any] = {"__name__": filename}
    exec(compile(source, filename, "exec"), names)
    return names


def explained(source: str) -> Any:
    """What `pyframe.explain` tells of a program."""
    names = load(source)
    with contextlib.redirect_stdout(io.StringIO()):
        return pyframe.explain(names["f"], backend="eager")(names["x"])


EXAMPLES: dict[str, Example] = {
    "data-dependent-branch": Example(
        """
import torch

x = torch.ones(3)

def f(x):
    if x.sum() > 0:  # breaks here
        return x + 1
    return x - 1
""",
        """
import torch

x = torch.ones(3)

def f(x):
    return torch.where(x.sum() > 0, x + 1, x - 1)
""",
    ),
    "tensor-to-python": Example(
        """
import torch

x = torch.arange(100.0)

def f(x):
    items = x.tolist()  # breaks here
    return x / x.max(), len(items)
""",
        """
import torch

x = torch.arange(100.0)

def f(x):
    return x / x.max(), x.shape[0]
""",
        note="Lists of up to 64 numbers stay in the graph.",
    ),
    "data-dependent-shape": Example(
        """
import torch

x = torch.tensor([[1.0, -2.0, 3.0, -4.0]])

def f(x):
    chosen = x[:, x[0] > 0]
    return chosen.squeeze().dim()  # breaks here
""",
        """
import torch

x = torch.tensor([[1.0, -2.0, 3.0, -4.0]])

def f(x):
    chosen = x[:, x[0] > 0]
    return chosen.squeeze(0).dim()
""",
    ),
    "control-flow-operator": Example(
        """
import torch

x = torch.ones(3)

def f(x):
    y = x + 1
    with torch.no_grad():
        return torch.cond(y.sum() > 0, lambda y: y[:2].sin(), torch.cos, (y,))  # breaks here
""",
        """
import torch

x = torch.ones(3)

def f(x):
    y = x + 1
    with torch.no_grad():
        return torch.cond(y.sum() > 0, lambda y: y.sin(), torch.cos, (y,))
""",
        same=False,
        note="Results of both branches have the same sizes.",
    ),
    "builtin-side-effect": Example(
        """
import torch

x = torch.ones(3)

def f(x):
    y = x.sin()
    print("shape", y.shape)  # breaks here
    return y * 2
""",
        """
import torch

x = torch.ones(3)

def f(x):
    y = x.sin()
    return y * 2  # the caller prints its shape
""",
    ),
    "unknown-c-function": Example(
        """
import zlib
import torch

x = torch.ones(3)

def f(x):
    seed = len(zlib.compress(b"embedding"))  # breaks here
    return x * (seed % 7)
""",
        """
import zlib
import pyframe
import torch

x = torch.ones(3)

@pyframe.assume_constant_result  # called once, while capturing
def seed_of(name):
    return len(zlib.compress(name))

def f(x):
    seed = seed_of(b"embedding")
    return x * (seed % 7)
""",
        note="`pyframe.substitute_in_graph` gives a function of C a version in Python, which is then traced.",
    ),
    "explicit-break": Example(
        """
import pyframe
import torch

x = torch.ones(3)

def f(x):
    y = x + 1
    pyframe.graph_break()  # breaks here
    return y * 2
""",
        """
import torch

x = torch.ones(3)

def f(x):
    y = x + 1
    return y * 2
""",
    ),
    "disabled-function": Example(
        """
import pyframe
import torch

x = torch.ones(3)

@pyframe.disable
def scale(x):
    return x * 2

def f(x):
    return scale(x) + 1  # breaks here
""",
        """
import torch

x = torch.ones(3)

def scale(x):
    return x * 2

def f(x):
    return scale(x) + 1
""",
    ),
    "disallowed-function": Example(
        """
import pyframe
import torch

pyframe.disallow_in_graph(torch.erfinv)
x = torch.zeros(3)

def f(x):
    return torch.erfinv(x) + 1  # breaks here
""",
        """
import pyframe
import torch

pyframe.allow_in_graph(torch.erfinv)
x = torch.zeros(3)

def f(x):
    return torch.erfinv(x) + 1
""",
    ),
    "compiler-switch": Example(
        """
import pyframe
import torch

x = torch.ones(3)

def f(x):
    pyframe.set_stance("default")  # breaks here
    return x + 1
""",
        """
import pyframe
import torch

x = torch.ones(3)
pyframe.set_stance("default")

def f(x):
    return x + 1
""",
    ),
    "unsupported-object": Example(
        """
from array import array
import torch

x = torch.ones(3)
weights = array("d", [0.5, 2.0])

def f(x):
    return x * weights[1]  # breaks here
""",
        """
import torch

x = torch.ones(3)
weights = [0.5, 2.0]

def f(x):
    return x * weights[1]
""",
    ),
    "unsupported-instruction": Example(
        """
import torch

x = torch.ones(3)

def f(x):
    global half
    half = x / 2
    y = half.sin()
    del half  # breaks here
    return y + 1
""",
        """
import torch

x = torch.ones(3)

def f(x):
    half = x / 2
    y = half.sin()
    del half
    return y + 1
""",
    ),
    "unsupported-torch-op": Example(
        """
import torch

x = torch.ones(3)

@torch.library.custom_op("breaks::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

def f(x):
    return twice(x) + 1  # breaks here
""",
        """
import torch

x = torch.ones(3)

@torch.library.custom_op("fixed::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake  # says what the result looks like
def _(x):
    return torch.empty_like(x)

def f(x):
    return twice(x) + 1
""",
    ),
    "generator-frame": Example(
        """
import torch

x = torch.ones(3)

def steps(x):
    yield x + 1
    yield x + 2

def f(x):
    rest = steps(x)  # breaks here
    first = next(rest)
    return first, rest
""",
        """
import torch

x = torch.ones(3)

def steps(x):
    yield x + 1
    yield x + 2

def f(x):
    rest = steps(x)
    first = next(rest)
    return first, list(rest)
""",
        same=False,
        note="A generator that is used up, or was not yet asked for its first item, may be returned.",
    ),
    "unsupported-context-manager": Example(
        """
import decimal
import torch

x = torch.ones(3)
context = decimal.localcontext()

def f(x):
    with context:  # breaks here
        return x + 1
""",
        """
import decimal
import torch

x = torch.ones(3)
context = decimal.localcontext()

def f(x):
    return x + 1

# with context: f(x)
""",
    ),
    "exception-in-traced-code": Example(
        """
import torch

x = torch.ones(3)
weights = torch.ones(7)

def f(x):
    try:
        return x @ weights  # breaks here
    except RuntimeError:
        return x * 2
""",
        """
import torch

x = torch.ones(3)
weights = torch.ones(7)

def f(x):
    if x.shape[0] == weights.shape[0]:
        return x @ weights
    return x * 2
""",
        note="No error under `fullgraph=True`: the program's own exception is raised, where the program raises it.",
    ),
    "instruction-limit": Example(
        """
import torch

x = torch.ones(3)

def f(x):
    total = 0
    for i in range(30_000):  # breaks here
        total += i * i
    return x * total
""",
        """
import torch

x = torch.ones(3)

def f(x):
    return x * (torch.arange(30_000) ** 2).sum()
""",
        note="The loop runs in Python; `x * total` is captured. Loops over operations of torch are unrolled.",
    ),
    "size-limit": Example(
        """
import torch

x = torch.ones(3)

def f(x):
    table = list(range(100_000))  # breaks here
    return x + table[-1]
""",
        """
import torch

x = torch.ones(3)

def f(x):
    table = torch.arange(100_000)
    return x + table[-1]
""",
    ),
    "inline-depth": Example(
        """
import torch

x = torch.ones(3)

def halve(x, times):
    return x if times == 0 else halve(x / 2, times - 1)  # breaks here

def f(x):
    return halve(x, 100)
""",
        """
import torch

x = torch.ones(3)

def f(x):
    for _ in range(100):
        x = x / 2
    return x
""",
    ),
}
