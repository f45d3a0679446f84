"""Programs that a process keeps on disk, and what another process changes before it runs them.

    python -m tests.frame_cache.attacked MODE OUTPUT

MODE "cold" and "same" run all programs unchanged; "changed" and "traced" change something first. Each result is
compared with eager's. With "changed", a program that is not loaded runs eagerly, which saves the time of compiling it.
Writes a JSON object: for each program whether it was loaded from disk, and how many instructions were traced.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import pyframe
from pyframe.lazy_compiler import LazyCompiler

from .forked import result_of_child

SCALE = 2.0
TABLE = {"a": 1.5, "b": [1, 2, 3]}
ORDER = ("sin", "cos")


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


MODE = Mode.FAST


@dataclasses.dataclass
class Output:
    value: torch.Tensor
    factor: float = 1.0


def helper(x: torch.Tensor, power: int = 2, *, bias: float = 0.5) -> torch.Tensor:
    return x**power + bias


def _other_helper(x: torch.Tensor, power: int = 2, *, bias: float = 0.5) -> torch.Tensor:
    return x**power - bias


def reads_global(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * SCALE


def reads_table(x: torch.Tensor) -> torch.Tensor:
    return x * TABLE["a"] + len(TABLE["b"])  # type: ignore[arg-type]


def calls_helper(x: torch.Tensor) -> torch.Tensor:
    return helper(x).cos()


def calls_by_name(x: torch.Tensor) -> torch.Tensor:
    for name in ORDER:
        x = getattr(torch, name)(x)
    return x


def asks_mode(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if MODE is Mode.FAST else x - 1


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


LEVEL = Level.HIGH


def multiplies_by_member(x: torch.Tensor) -> torch.Tensor:
    return x * LEVEL


def _other_value(*_: Any) -> None:
    """As if the source of the enum had another value."""
    global LEVEL
    made = enum.IntEnum("Level", {"LOW": 1, "HIGH": 5}, module=__name__)
    globals()["Level"], LEVEL = made, made.HIGH  # type: ignore[attr-defined]


FIRST, SECOND = object(), object()


def compares_objects(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if FIRST is SECOND else x - 1


def normalizes(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, (3,))


def uses_math(x: torch.Tensor) -> torch.Tensor:
    return x * math.sqrt(2.0) + math.pi


def makes_output(x: torch.Tensor) -> Output:
    return Output(x.exp(), 3.0)


def makes_dict(x: torch.Tensor) -> dict[str, Any]:
    return {"x": x + 1, "name": "dict", "pair": (x, [x * 2])}


def appends(x: torch.Tensor, into: list[torch.Tensor]) -> torch.Tensor:
    into.append(x + 1)
    return x * 2


def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    return x.sum()


def asks_grad(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.is_grad_enabled() else x * 3


def asks_dtype(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ones(3, 4).sum().to(torch.get_default_dtype())


def autocasts(x: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, x.t())


def handles(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    try:
        return x[index] + 1
    except IndexError:
        return x - 1


def with_defaults(x: torch.Tensor, factor: float = 1.25) -> torch.Tensor:
    return x * factor


def closure_of(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * factor

    return scaled


scaled = closure_of(2.5)


class Layer(nn.Module):
    gain = 2.0

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.drop = nn.Dropout(0.5)
        self.scale = 1.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.act(self.linear(x)) * self.scale) * self.gain

    def act(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


class Net(nn.Module):
    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(4) for _ in range(layers))
        self.register_buffer("offset", torch.full((4,), 0.25))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x + self.offset


def tensor(*size: int) -> torch.Tensor:
    return torch.arange(math.prod(size), dtype=torch.float32).reshape(size) / 7


def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


# ---- what the other process changes; each returns the function or module, and its arguments


def _set(name: str, value: Any) -> Callable[..., None]:
    return lambda *_: globals().__setitem__(name, value)


def _change(apply: Callable[..., Any]) -> Callable[..., None]:
    return lambda fn, args: apply(fn, args)


def _double(fn: Any, args: list[Any]) -> None:
    args[0] = args[0].double()


def _patched_add(self: Any, other: Any) -> Any:
    return torch.sub(self, other)


Case = tuple[Any, list[Any], Callable[..., Any] | None]
CASES: dict[str, Callable[[], Case]] = {
    "global": lambda: (reads_global, [tensor(3)], _set("SCALE", 5.0)),
    "global type": lambda: (reads_global, [tensor(3)], _set("SCALE", 2)),
    "global tensor": lambda: (reads_global, [tensor(3)], _set("SCALE", torch.tensor(2.0))),
    "table value": lambda: (reads_table, [tensor(3)], lambda *_: TABLE.update(a=9.0)),
    "table length": lambda: (reads_table, [tensor(3)], lambda *_: TABLE["b"].append(4)),  # type: ignore[attr-defined]
    "helper": lambda: (calls_helper, [tensor(3)], _set("helper", _other_helper)),
    "helper code": lambda: (calls_helper, [tensor(3)], lambda *_: setattr(helper, "__code__", _other_helper.__code__)),
    "helper defaults": lambda: (calls_helper, [tensor(3)], lambda *_: setattr(helper, "__defaults__", (3,))),
    "helper kwdefaults": lambda: (
        calls_helper, [tensor(3)], lambda *_: setattr(helper, "__kwdefaults__", {"bias": 7.0})),
    "names": lambda: (calls_by_name, [tensor(3)], _set("ORDER", ("sin", "exp"))),
    "enum": lambda: (asks_mode, [tensor(3)], _set("MODE", Mode.SLOW)),
    "enum value": lambda: (multiplies_by_member, [tensor(3)], _other_value),
    "objects that become one": lambda: (compares_objects, [tensor(3)], _set("SECOND", FIRST)),
    "function called by a function of torch": lambda: (
        normalizes, [tensor(2, 3)], lambda *_: setattr(torch, "layer_norm", lambda x, *_: x * 2)),
    "math": lambda: (uses_math, [tensor(3)], lambda *_: setattr(math, "pi", 3.0)),
    "output class": lambda: (makes_output, [tensor(3)], lambda *_: setattr(Output, "__init__", _other_init)),
    "dict": lambda: (makes_dict, [tensor(3)], None),
    "append": lambda: (appends, [tensor(3), []], lambda fn, args: args[1].append(1)),
    "write": lambda: (writes, [tensor(3), tensor(3)], lambda fn, args: args.__setitem__(1, args[0])),
    "write views": lambda: (writes, [tensor(6)[:3], tensor(3)], lambda fn, args: args.__setitem__(1, args[0][:])),
    "grad mode": lambda: (asks_grad, [tensor(3)], lambda *_: torch.set_grad_enabled(False)),
    "default dtype": lambda: (asks_dtype, [tensor(3)], lambda *_: torch.set_default_dtype(torch.float64)),
    "autocast": lambda: (autocasts, [tensor(3, 4)], lambda *_: torch.set_autocast_enabled("cpu", True)),
    "dtype": lambda: (reads_global, [tensor(3, 5)], _double),
    "size": lambda: (reads_global, [tensor(4, 5)], lambda fn, args: args.__setitem__(0, tensor(5, 5))),
    "stride": lambda: (reads_global, [tensor(5, 6)], lambda fn, args: args.__setitem__(0, tensor(6, 5).t())),
    "alignment": lambda: (calls_helper, [tensor(64)], lambda fn, args: args.__setitem__(0, tensor(65)[1:])),
    "requires grad": lambda: (reads_global, [tensor(7)], lambda fn, args: args[0].requires_grad_()),
    "handled error": lambda: (handles, [tensor(3), torch.tensor([1])], lambda fn, args: args[1].add_(9)),
    "default argument": lambda: (with_defaults, [tensor(3)], lambda *_: setattr(with_defaults, "__defaults__", (4.0,))),
    "closure": lambda: (
        scaled, [tensor(3)],
        lambda *_: setattr(scaled.__closure__[0], "cell_contents", 9.0)),  # type: ignore[index]
    "patched operator": lambda: (reads_table, [tensor(9)], lambda *_: setattr(torch.Tensor, "__add__", _patched_add)),
    "patched function": lambda: (calls_by_name, [tensor(9)], lambda *_: setattr(torch, "sin", torch.cos)),
    "module": lambda: (net(), [tensor(3, 4)], None),
    "module scale": lambda: (net(), [tensor(3, 4)], lambda fn, args: setattr(fn.layers[1], "scale", 3.0)),
    "module method": lambda: (net(), [tensor(3, 4)], lambda *_: setattr(Layer, "act", lambda self, x: torch.tanh(x))),
    "module own method": lambda: (net(), [tensor(3, 4)], lambda fn, args: setattr(fn.layers[0], "act", torch.tanh)),
    "module class attribute": lambda: (net(), [tensor(3, 4)], lambda *_: setattr(Layer, "gain", 7.0)),
    "module layers": lambda: (net(), [tensor(3, 4)], lambda fn, args: fn.layers.append(Layer(4).eval())),
    "module child": lambda: (net(), [tensor(3, 4)], lambda fn, args: setattr(fn.layers[0], "linear", nn.Identity())),
    "module weights": lambda: (net(), [tensor(3, 4)], lambda fn, args: fn.layers[0].linear.weight.data.mul_(2)),
    "module weight dtype": lambda: (net(), [tensor(3, 4)], lambda fn, args: (fn.double(), _double(fn, args))),
    "module training of a child": lambda: (net(), [tensor(3, 4)], lambda fn, args: fn.layers[0].drop.train()),
    "module forward hook": lambda: (net(), [tensor(3, 4)],
                                    lambda fn, args: fn.layers[0].register_forward_hook(lambda m, i, o: o * 2)),
    "module forward": lambda: (net(), [tensor(3, 4)], lambda *_: setattr(Net, "forward", lambda self, x: x * 4)),
    "module buffer": lambda: (net(), [tensor(3, 4)], lambda fn, args: setattr(fn, "offset", None) or fn.register_buffer(
        "offset", torch.ones(1))),
    "tied weights": lambda: (net(), [tensor(3, 4)],
                             lambda fn, args: setattr(fn.layers[0].linear, "weight", fn.layers[1].linear.weight)),
}  # fmt: skip
# Modules of the compiler, which a process that loads its captures does not import.
COMPILER = (
    "pyframe.driver", "pyframe.interp", "pyframe.vars", "pyframe.emit", "inductor.compile", "inductor.aot", "sympy",
)  # fmt: skip
NEEDS_GRAD = {"grad mode"}


def _other_init(self: Any, value: torch.Tensor, factor: float = 1.0) -> None:
    self.value, self.factor = value * 2, factor


def _flat(result: Any) -> list[Any]:
    if isinstance(result, Output):
        return [result.value, result.factor]
    if isinstance(result, dict):
        return [each for value in result.values() for each in _flat(value)]
    if isinstance(result, tuple | list):
        return [each for value in result for each in _flat(value)]
    return [result]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a, b, 1e-4, 1e-4)
    return type(a) is type(b) and bool(a == b)


def run(name: str, changed: bool) -> dict[str, Any]:
    """Run one program compiled and eagerly."""
    fn, args, change = CASES[name]()
    torch.set_grad_enabled(name in NEEDS_GRAD)
    if changed and change is not None:
        change(fn, args)
    copies: list[Any] = [each.detach().clone() if isinstance(each, torch.Tensor) else list(each) for each in args]
    if len(args) > 1 and isinstance(args[1], torch.Tensor) and args[0] is args[1]:
        copies[1] = copies[0]
    if len(args) > 1 and name == "write views" and changed:
        copies[1] = copies[0][:]
    torch.manual_seed(1)
    expected = fn(*copies)
    pyframe.reset()
    compiled = pyframe.compile(fn)
    torch.manual_seed(1)
    found = compiled(*args)
    right = all(map(_same, _flat(expected), _flat(found))) and len(_flat(expected)) == len(_flat(found))
    right = right and all(map(_same, _flat(copies), _flat(args)))
    counters = pyframe.counters
    reasons = list(counters["frames_not_kept"])
    return {
        "right": right, "loaded": counters["frames_loaded"], "traced": counters["instructions_traced"],
        "kept": counters["frames_kept"], "reasons": reasons,
        "imported": [name for name in COMPILER if name in sys.modules],
    }  # fmt: skip


def run_changed(name: str, trace: bool) -> dict[str, Any]:
    """Run one program in a child process, because the change may be one of the whole process, with a copy of the cache,
    because it may keep a capture in place of the one that other programs need."""

    def work() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.environ["PYFRAME_CACHE_DIR"], f"{folder}/cache")
            os.environ["PYFRAME_CACHE_DIR"] = f"{folder}/cache"
            if not trace:
                LazyCompiler.compiler = lambda self: Eager()  # type: ignore[assignment, method-assign, return-value]
            return run(name, True)

    return result_of_child(work) or {"right": False, "loaded": 0, "traced": 0, "kept": 0, "reasons": ["failed"]}


class Eager:
    """In place of the compiler: runs every frame eagerly."""

    def __init__(self) -> None:
        self.looked_up: dict[int, Any] = {}

    def __call__(self, *_: Any) -> None:
        return None


def main(mode: str, output: str, names: list[str]) -> None:
    changed = mode in ("changed", "traced")
    found = {
        name: run_changed(name, mode == "traced") if changed else run(name, False) for name in names or CASES
    }
    with open(output, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
