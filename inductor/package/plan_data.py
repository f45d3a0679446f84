"""A plan as plain data for a package, and back. The keys and their meaning are the format of `docs/package.md`, which
the C++ runner reads as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..dtypes import dtype_name, dtype_of
from ..ir.real import Real
from ..ir.size import Program, Size
from ..runtime.arena import Range
from ..runtime.plan import delay_frees
from ..runtime.plan_spec import (
    Alloc,
    Arena,
    BufRef,
    Counters,
    Extern,
    Free,
    InputSpec,
    KernelCall,
    Launch,
    OutputRef,
    PlanSpec,
    ResultSpec,
    Slot,
    Status,
    Step,
    View,
)
from .errors import PackageError

# ---- numbers


def number_data(x: Any) -> Any:
    """A number of a plan: an int or a float as it is, a Size or a Real as a map."""
    if isinstance(x, Size):
        return {"size": [[coefficient, *symbols] for symbols, coefficient in x.terms]}
    if isinstance(x, Real):
        return {"real": [x.op, *map(number_data, x.args)]}
    return x


def number_of(data: Any) -> Any:
    """The inverse of `number_data`."""
    if not isinstance(data, dict):
        return data
    (kind, value), *_ = data.items()
    if kind == "size":
        return Size(None, tuple((tuple(symbols), coefficient) for coefficient, *symbols in value))
    if kind != "real":
        raise PackageError(f"{kind!r} is not a kind of number")
    return Real(value[0], tuple(map(number_of, value[1:])))


def program_data(program: Program) -> dict[str, Any]:
    """The symbols that are computed from others, and what must hold of all."""
    definitions = [[name, op, number_data(a), number_data(b)] for name, op, a, b in program.definitions]
    assumed = [[number_data(a), op, number_data(b)] for a, op, b in program.assumed]
    return {"definitions": definitions, "assumed": assumed}


def program_of(data: Mapping[str, Any]) -> Program:
    """The inverse of `program_data`."""
    definitions = tuple((name, op, number_of(a), number_of(b)) for name, op, a, b in data["definitions"])
    return Program(definitions, tuple((number_of(a), op, number_of(b)) for a, op, b in data["assumed"]))


# ---- arguments of operators

_NAMED: dict[str, type] = {"layout": torch.layout, "memory_format": torch.memory_format}


def _argument_data(x: Any) -> Any:
    if isinstance(x, BufRef):
        return {"buf": x.buf}
    if isinstance(x, list | tuple):
        return list(map(_argument_data, x))
    if x is None or isinstance(x, bool | int | float | str | Size | Real):
        return number_data(x)
    if isinstance(x, complex):
        return {"complex": [x.real, x.imag]}
    if isinstance(x, torch.dtype):
        return {"dtype": dtype_name(x)}
    if isinstance(x, torch.device):
        return {"device": str(x)}
    for name, kind in _NAMED.items():
        if isinstance(x, kind):
            return {name: str(x).removeprefix("torch.")}
    raise PackageError(f"an operator is called with {x!r}, which a package cannot hold")


def _argument_of(data: Any) -> Any:
    if isinstance(data, list):
        return list(map(_argument_of, data))
    if not isinstance(data, dict):
        return data
    (kind, value), *_ = data.items()
    if kind == "buf":
        return BufRef(value)
    if kind == "complex":
        return complex(*value)
    if kind == "dtype":
        return dtype_of(value)
    if kind == "device":
        return torch.device(value)
    if kind in _NAMED:
        found = getattr(torch, value, None)
        if not isinstance(found, _NAMED[kind]):
            raise PackageError(f"{value!r} is not a {kind}")
        return found
    return number_of(data)


# ---- steps


def _numbers(values: Sequence[Any]) -> list[Any]:
    return list(map(number_data, values))


def _tuple(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(map(number_of, values))


def _shape(x: Any) -> list[Any]:
    return [x.dtype, _numbers(x.size), _numbers(x.stride)]


def _result(x: ResultSpec | None) -> list[Any] | None:
    return None if x is None else _shape(x)


def _extern(s: Extern) -> list[Any]:
    kwargs = [[name, _argument_data(value)] for name, value in s.kwargs]
    results = list(map(_result, s.results))
    return [s.target, list(map(_argument_data, s.args)), kwargs, list(s.outs), list(s.out), results]


# For each kind of step: its name, and the items behind it.
_STEPS: dict[type, tuple[str, Callable[[Any], list[Any]]]] = {
    Alloc: ("alloc", lambda s: [s.buf, *_shape(s), s.device]),
    Arena: ("arena", lambda s: [number_data(s.nbytes), s.on_host]),
    Slot: ("slot", lambda s: [s.buf, s.offset, *_shape(s), s.on_host]),
    KernelCall: ("kernel", lambda s: [s.kernel, list(s.bufs), _numbers(s.ints)]),
    Launch: ("launch", lambda s: [s.kernel, list(s.bufs), _numbers(s.grid), _numbers(s.ints),
                                  [list(pair) for pair in s.by_value]]),
    Extern: ("extern", _extern),
    View: ("view", lambda s: [s.buf, s.base, s.dtype, _numbers(s.size), _numbers(s.stride), number_data(s.offset)]),
    Free: ("free", lambda s: [s.buf]),
    Status: ("status", lambda s: [s.buf]),
    Counters: ("counters", lambda s: [s.buf]),
}  # fmt: skip


def _read_extern(
    target: str, args: Any, kwargs: Any, outs: Any, out: Any, results: Any
) -> Extern:
    named = tuple((name, _argument_of(value)) for name, value in kwargs)
    expected = tuple(None if r is None else ResultSpec(r[0], _tuple(r[1]), _tuple(r[2])) for r in results)
    return Extern(target, tuple(map(_argument_of, args)), named, tuple(outs), tuple(out), expected)


_READ: dict[str, Callable[..., Step]] = {
    "alloc": lambda buf, dtype, size, stride, device: Alloc(buf, dtype, _tuple(size), _tuple(stride), device),
    "arena": lambda nbytes, on_host: Arena(number_of(nbytes), on_host),
    "slot": lambda buf, offset, dtype, size, stride, on_host: Slot(
        buf, offset, dtype, _tuple(size), _tuple(stride), on_host
    ),
    "kernel": lambda kernel, bufs, ints: KernelCall(kernel, tuple(bufs), _tuple(ints)),
    "launch": lambda kernel, bufs, grid, ints, by_value: Launch(
        kernel, tuple(bufs), (number_of(grid[0]), number_of(grid[1]), number_of(grid[2])), _tuple(ints),
        tuple((place, position) for place, position in by_value),
    ),
    "extern": _read_extern,
    "view": lambda buf, base, dtype, size, stride, offset: View(
        buf, base, _tuple(size), _tuple(stride), number_of(offset), dtype
    ),
    "free": Free,
    "status": Status,
    "counters": Counters,
}  # fmt: skip


# ---- plans


def packing_data(packed: Sequence[tuple[int, Extern]]) -> list[Any]:
    """Constants that an operator lays out when the package is loaded: the place of each, and the call, whose buffer 0
    is the constant."""
    return [[place, ["extern", *_extern(step)]] for place, step in packed]


def packing_of(data: Sequence[Any]) -> list[tuple[int, Extern]]:
    """The inverse of `packing_data`."""
    return [(place, _read_extern(*step[1:])) for place, step in data]


def plan_data(spec: PlanSpec, fixed: Sequence[int]) -> dict[str, Any]:
    """A plan as plain data; what views share is freed after them. `fixed`: the numbers of the constants that
    are its last inputs, and then of those that it has itself."""
    return {
        "device": spec.device,
        "inputs": [[i.kind, *_shape(i), i.device] for i in spec.inputs],
        "fixed": list(fixed),
        "steps": [[_STEPS[type(s)][0], *_STEPS[type(s)][1](s)] for s in delay_frees(spec.steps)],
        "outputs": [[ref.kind, ref.value] for ref in spec.outputs],
        "kernels": list(spec.kernel_names),
        "buffers": spec.buffer_count(),
        "mutated": list(spec.mutated),
        "uncounted": list(spec.uncounted),
        "aligned": list(spec.aligned),
        "ranges": [[r.name, number_data(r.nbytes), r.first, r.last] for r in spec.ranges],
    }


def plan_of(data: Mapping[str, Any], own: Sequence[torch.Tensor]) -> PlanSpec:
    """The plan that `plan_data` described. `own`: its constants, without those that are its last inputs."""
    inputs = tuple(
        InputSpec(kind, dtype, _tuple(size), _tuple(stride), device)
        for kind, dtype, size, stride, device in data["inputs"]
    )
    return PlanSpec(
        inputs,
        tuple(own),
        tuple(_READ[kind](*rest) for kind, *rest in data["steps"]),
        tuple(OutputRef(kind, value) for kind, value in data["outputs"]),
        tuple(data["kernels"]),
        tuple(data["mutated"]),
        data["device"],
        tuple(data["aligned"]),
        tuple(Range(name, number_of(nbytes), first, last) for name, nbytes, first, last in data["ranges"]),
        (),
        tuple(data["uncounted"]),
    )
