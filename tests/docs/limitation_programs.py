"""A program `f(x)` for each row of "Breaks the graph" in docs/limitations.md: the row's first cell, its id, the program.

Each has `torch` and `x`, three ones, unless it makes its own.
"""

from __future__ import annotations

PROGRAMS: list[tuple[str, str, str]] = [
    ("A branch on a value that is computed from tensor data", "data-dependent-branch", """
def f(x):
    return x + 1 if x.sum() > 0 else x - 1
"""),
    ("`squeeze()` of a tensor whose sizes depend on data", "data-dependent-shape", """
def f(x):
    return x[x > 0].squeeze()
"""),
    ("`.item()` or a data-dependent size in a loop that reads more than 16 of them or has another break, or in a function "
     "that is called in a loop with a break", "tensor-to-python", """
def f(x):
    total = 0
    for i in range(3):
        total = total + x[i].item()
        print(end="")
    return x * total
"""),
    ("`.tolist()` of more than 64 items", "tensor-to-python", """
x = torch.ones(65)
def f(x):
    return x + len(x.tolist())
"""),
    ("`data_ptr()` and other functions that need the memory of a tensor, which fake tensors lack", "tensor-to-python", """
def f(x):
    return x + (x.data_ptr() != 0)
"""),
    ("A branch or body of `torch.cond`, `while_loop` or `scan` that writes to outer objects, or whose results differ in "
     "size", "control-flow-operator", """
def f(x):
    y = x + 1
    with torch.no_grad():
        return torch.cond(y.sum() > 0, lambda y: y[:2].sin(), torch.cos, (y,))
"""),
    ("`backward()` that runs hooks of modules or leaves, reaches tensors that are not leaves of the graph, is "
     "beside operators whose exceptions the program handles, or has `create_graph`", "unsupported-object", """
x = torch.ones(3, requires_grad=True)
x.register_hook(lambda gradient: gradient * 2)
def f(x):
    (x * 2).sum().backward()
    return x + 1
"""),
    ("Full backward hooks of modules that are registered in the same graph or that `torch.autograd.grad` runs in it, and hooks of `register_backward_hook`", "unsupported-object", """
module, x = torch.nn.Linear(3, 3), torch.ones(3, requires_grad=True)
def f(x):
    handle = module.register_full_backward_hook(lambda *args: None)
    return module(x) + 1
"""),
    ("A tensor hook that changes a new object or reads one that is needed after the graph, uses other objects in each "
     "call, reads a tensor that is computed after it, changes objects and is called by a backward pass of the same graph, "
     "or is registered or removed after such a pass",
     "unsupported-object", """
x = torch.ones(3, requires_grad=True)
def f(x):
    y, seen = x * 2, []
    y.register_hook(lambda gradient: seen.append(gradient))
    return y + 1
"""),
    ("`torch.set_default_device`", "unsupported-context-manager", """
def f(x):
    torch.set_default_device(None)
    return x + 1
"""),
    ("A context manager that is a lock, if objects change or tensors are computed inside while other threads run Python "
     "code", "unsupported-context-manager", """
import threading
lock, done = threading.Lock(), threading.Event()
threading.Thread(target=done.wait, args=(600,), daemon=True).start()
def f(x):
    with lock:
        return x + 1
"""),
    ("A `__torch_function__` mode beside a default device", "unsupported-context-manager", """
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
def f(x):
    with torch.device("cpu"), Mode():
        return x + torch.ones(3)
"""),
    ("Operators that warn inside of `warnings.catch_warnings`, warnings that it records once only "
     "(`simplefilter(\"default\")`), and the end of a block with another break in it",
     "unsupported-object", """
import warnings
def f(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nn.functional.mse_loss(x, x[:1])
"""),
    ("A tensor subclass with its own `__getattr__` or `__setattr__`", "unsupported-object", """
class Named(torch.Tensor):
    def __getattr__(self, name):
        return 1
x = torch.ones(3).as_subclass(Named)
def f(x):
    return x + x.number
"""),
    ("A subclass with `__torch_dispatch__` but without `__tensor_flatten__`", "unsupported-object", """
class Holder(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
    def __init__(self, inner):
        self.inner = inner
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = torch.utils._pytree.tree_map(lambda a: a.inner if isinstance(a, Holder) else a, args)
        return func(*plain, **(kwargs or {}))
x = Holder(torch.ones(3))
def f(x):
    return x + 1
"""),
    ("A generator or coroutine that is used outside of what is traced, such as a coroutine that an event loop runs",
     "generator-frame", """
kept = []
def f(x):
    kept.append(x + i for i in range(3))
    next(kept[-1])
    return x + 1
"""),
    ("`class` statements of enumerations", "unsupported-object", """
import enum
def f(x):
    class Kind(enum.Enum):
        ONE = 1
    return x + Kind.ONE.value
"""),
    ("A class whose metaclass has a method `mro`", "unsupported-object", """
class Meta(type):
    def mro(cls):
        return super().mro()
def f(x):
    class Made(metaclass=Meta):
        pass
    return x + 1
"""),
    ("A new instance of a class with `__del__`", "unsupported-object", """
class Resource:
    def __del__(self):
        pass
def f(x):
    resource = Resource()
    return x + 1
"""),
    ("A weak reference that may be dead", "unsupported-object", """
import weakref
class Node:
    pass
def f(x):
    node = Node()
    reference = weakref.ref(node)
    del node
    return x + (reference() is None)
"""),
    ("`random.shuffle` of anything but numbers of one type", "unsupported-object", """
import random
items = ["a", 1]
def f(x):
    random.shuffle(items)
    return x + 1
"""),
    ("More than two branches on numbers drawn by `random` or `numpy.random`", "data-dependent-branch", """
import random
def f(x):
    for _ in range(5):
        if random.random() > 0.5:
            x = x + 1
    return x
"""),
    ("A C function without a model (`zlib.compress`)", "unknown-c-function", """
import zlib
def f(x):
    return x + len(zlib.compress(b"text"))
"""),
    ("Reentrant checkpoints without an argument that requires a gradient, or with containers of tensors; checkpoints with a `context_fn` that does more than select what is saved", "unknown-c-function", """
from torch.utils.checkpoint import checkpoint
def f(x):
    return checkpoint(torch.sin, x, use_reentrant=True)
"""),
    ("An LSTM on the CPU that records gradients", "unknown-c-function", """
x, lstm = torch.ones(2, 1, 3), torch.nn.LSTM(3, 3)
def f(x):
    return lstm(x)[0]
"""),
    ("`open`, `print`, `input` and the like", "builtin-side-effect", """
def f(x):
    print(end="")
    return x + 1
"""),
    ("A call that nests more than 60 deep", "inline-depth", """
def nested(x, n):
    return x if n == 0 else nested(x + 1, n - 1)
def f(x):
    return nested(x, 61)
"""),
    ("A loop or call of more than `config.instruction_limit` instructions while the graph hardly grows",
     "instruction-limit", """
def f(x):
    n = 0
    for i in range(3_000):
        n += i
    return x + n
"""),
    ("A constant, text or container larger than `config.size_limit`", "size-limit", """
def f(x):
    return x + len([0] * 20_000)
"""),
    ("An exception that is caught and kept", "exception-in-traced-code", """
def f(x):
    try:
        raise ValueError("kept")
    except ValueError as error:
        kept = error
    return x + 1, kept
"""),
]  # fmt: skip
