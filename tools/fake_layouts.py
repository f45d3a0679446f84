"""Compares the layouts that fake tensors predict with those of the real kernels, for every operator of torch's
database.

    python -m tools.fake_layouts                               # every operator
    python -m tools.fake_layouts --only add --only cumsum      # some
    python -m tools.fake_layouts --part 2/4 --seconds 250      # the second quarter, for at most 250 seconds
    python -m tools.fake_layouts --out benchmarks/results      # writes fake_layouts_cpu.txt there

A compiled program returns tensors with the strides that its graph has on fake tensors, so a fake operator with wrong
strides leads to a wrong result. Each sample of the database is run in several layouts (``LAYOUTS``) on real tensors and
on fake tensors of ``inductor``. Dtype, shape, strides, storage offset, and which results share memory with which
arguments or results are compared. Functions are called as ``inductor`` traces them; if one differs, the first ATen
operators that differ are named. Strides of empty tensors and of dimensions below size 2 are not compared, because they
have no meaning. Exit status 1 if something differs that is not in ``EXPECTED``, or an entry of it no longer differs.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from inductor.aot.eager_checks import TRACED_AS
from inductor.aot.fake import fake_mode
from inductor.aot.training_decompositions import training_decompositions
from inductor.errors import Unsupported

MAX_SAMPLES = 8  # of one operator and dtype, the rest is left out
MAX_ELEMENTS = 20_000  # of one argument
UNDETERMINED = ("empty", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "empty_like")

# Operators whose differences are known, with the reason.
EXPECTED: dict[str, str] = {}


def _memory_order(x: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """A copy whose dimensions have this order in memory, outermost first."""
    back = [list(order).index(d) for d in range(x.dim())]
    return x.permute(*order).clone(memory_format=torch.contiguous_format).permute(*back)


def _channels_last(x: torch.Tensor) -> torch.Tensor | None:
    return _memory_order(x, (0, *range(2, x.dim()), 1)) if x.dim() in (4, 5) else None


def _reversed(x: torch.Tensor) -> torch.Tensor | None:
    return _memory_order(x, tuple(reversed(range(x.dim())))) if x.dim() > 1 else None


def _rotated(x: torch.Tensor) -> torch.Tensor | None:
    return _memory_order(x, (*range(1, x.dim()), 0)) if x.dim() > 2 else None  # noqa: PLR2004


def _expanded(x: torch.Tensor) -> torch.Tensor | None:
    """The first row of the first dimension of more than one, for all rows."""
    d = next((d for d, n in enumerate(x.shape) if n > 1), None)
    return None if d is None else x.narrow(d, 0, 1).clone(memory_format=torch.contiguous_format).expand(x.shape)


def _sliced(x: torch.Tensor) -> torch.Tensor | None:
    """Every second element of the last dimension of a larger tensor, from the second on."""
    return torch.stack([x, x], -1).flatten(-2)[..., 1::2] if x.dim() else None


def _sliced_rows(x: torch.Tensor) -> torch.Tensor | None:
    """All rows but the first of a larger tensor."""
    return torch.cat([x[:1], x])[1:] if x.dim() and x.shape[0] else None


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor | None]] = {
    "contiguous": lambda x: x.contiguous(),
    "channels last": _channels_last,
    "reversed": _reversed,
    "rotated": _rotated,
    "expanded": _expanded,
    "sliced": _sliced,
    "sliced rows": _sliced_rows,
}


@dataclass(frozen=True)
class Difference:
    """One call whose results differ. `arguments`: sizes and strides; `operators`: the ATen operators that differ in
    it."""

    operator: str
    arguments: str
    what: str
    operators: tuple[str, ...]


def described(args: Any) -> str:
    """The sizes and strides of the tensors among the arguments; other arguments as they are."""

    def one(x: Any) -> Any:
        return f"{tuple(x.shape)} by {x.stride()}" if isinstance(x, torch.Tensor) else x

    return str(pytree.tree_map(one, args))[:300]


def strided(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.layout == torch.strided and not x.is_nested and not x.is_quantized


def to_fakes(args: Any, mode: Any) -> Any:
    """The same arguments with fake tensors, which share memory if the real ones do."""
    memory: dict[int, torch.Tensor] = {}

    def one(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        key, count = x.untyped_storage()._cdata, x.untyped_storage().nbytes() // x.element_size()
        with mode:
            if key not in memory:
                memory[key] = torch.empty(count, dtype=x.dtype, device=x.device)
            flat = memory[key]
            flat = flat if flat.dtype == x.dtype else flat.view(x.dtype)
            return flat.as_strided(x.shape, x.stride(), x.storage_offset())

    return pytree.tree_map(one, args)


def difference(real: Any, fake: Any, real_args: Any, fake_args: Any) -> str | None:
    """A description of how the results differ in the properties that are compared, or None if they agree."""
    mine, theirs = pytree.tree_leaves(fake), pytree.tree_leaves(real)
    if len(mine) != len(theirs):
        return f"{len(mine)} results for {len(theirs)}"
    owners = [_owners(pytree.tree_leaves(args), results) for args, results in ((fake_args, mine), (real_args, theirs))]
    for k, (a, b) in enumerate(zip(mine, theirs)):
        if not strided(b):
            continue
        if not isinstance(a, torch.Tensor) or a.dtype != b.dtype or a.shape != b.shape:
            return f"result {k} is {described(a)} {getattr(a, 'dtype', '')} for {described(b)} {b.dtype}"
        if b.numel() and any(n > 1 and s != t for n, s, t in zip(b.shape, a.stride(), b.stride())):
            return f"result {k}, {tuple(b.shape)}: strides {a.stride()} for {b.stride()}"
        if b.numel() and a.storage_offset() != b.storage_offset():
            return f"result {k}: storage offset {a.storage_offset()} for {b.storage_offset()}"
        if owners[0][k] != owners[1][k]:
            return f"result {k} shares memory with tensor {owners[0][k]} for {owners[1][k]}"
    return None


def _owners(args: Sequence[Any], results: Sequence[Any]) -> list[int | None]:
    """For each result, the first tensor (arguments before results) whose storage contains it."""
    storages = [x.untyped_storage()._cdata if strided(x) else object() for x in (*args, *results)]
    return [storages.index(x.untyped_storage()._cdata) if strided(x) else None for x in results]


class Compared(TorchDispatchMode):
    """Runs each ATen operator on fake tensors, too, or what the `table` decomposes it into; `found`: those that differ,
    with how. `seen`: the calls made so far, which are not compared again."""

    def __init__(self, mode: Any, seen: set[str], table: Mapping[Any, Callable[..., Any]] | None = None) -> None:
        super().__init__()
        self.mode, self.seen, self.found, self.table = mode, seen, {}, table

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        key = f"{func}{described((args, kwargs))}"
        compared = key not in self.seen and func.name().split(":")[-1].split(".")[0] not in UNDETERMINED
        compared = compared and (self.table is None or func in self.table)
        run = func if self.table is None else self.table.get(func)
        self.seen.add(key)
        fakes = to_fakes((args, kwargs), self.mode) if compared and self._can(args, kwargs) else None
        result = func(*args, **kwargs)
        if fakes is not None:
            try:
                with self.mode, torch.no_grad():
                    fake = run(*fakes[0], **fakes[1])
            except (DataDependentOutputException, DynamicOutputShapeException):
                return result
            except Exception as error:  # noqa: BLE001  what the fake operator raises where the real one runs is a finding
                what: str | None = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
            else:
                what = None if fake is NotImplemented else difference(result, fake, (args, kwargs), fakes)
            if what is not None:
                self.found[str(func)] = f"{described((args, kwargs))}: {what}"
        return result

    def _can(self, args: Any, kwargs: Any) -> bool:
        return all(strided(x) for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor))


def variants(args: Any) -> Iterator[tuple[str, Any]]:
    """The arguments in each layout that some of them support: all tensors, or only the first."""
    leaves, structure = pytree.tree_flatten(args)
    tensors = [k for k, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
    for name, layout in LAYOUTS.items():
        made = {k: layout(leaves[k]) for k in tensors}
        if all(x is None for x in made.values()):
            continue
        plain = {k: leaves[k].clone(memory_format=torch.contiguous_format) for k in tensors}
        every = plain | {k: x for k, x in made.items() if x is not None}
        yield name, pytree.tree_unflatten([every.get(k, x) for k, x in enumerate(leaves)], structure)
        first = plain | ({tensors[0]: made[tensors[0]]} if made[tensors[0]] is not None else {})
        if len(tensors) > 1 and made[tensors[0]] is not None:
            leaves_of_first = [first.get(k, x) for k, x in enumerate(leaves)]
            yield f"{name}, the first", pytree.tree_unflatten(leaves_of_first, structure)


def samples(op: Any, device: str) -> Iterator[Any]:
    """Samples of arguments of an operator, in float32 if it supports that, otherwise in its first dtype."""
    dtypes = op.supported_dtypes(device)
    dtype = next((d for d in (torch.float32, torch.int64, torch.complex64, torch.bool) if d in dtypes), None)
    if dtype is None:
        return
    for count, sample in enumerate(op.sample_inputs(device, dtype)):
        if count >= MAX_SAMPLES:
            return
        given = ((sample.input, *sample.args), sample.kwargs)
        tensors = [x for x in pytree.tree_leaves(given) if isinstance(x, torch.Tensor)]
        if tensors and all(strided(x) and x.numel() <= MAX_ELEMENTS for x in tensors):
            yield given


def check(op: Any, device: str, seen: set[str]) -> tuple[int, list[Difference]]:
    """The number of calls of one operator that were compared, and those that differ."""
    function = TRACED_AS.get(op.op, op.op)
    count, found = 0, []
    for given in samples(op, device):
        for name, (args, kwargs) in variants(given):
            mode = fake_mode()
            fakes = to_fakes((args, kwargs), mode)
            text = f"{name}: {described((args, kwargs))}"
            try:
                with torch.no_grad():
                    real = op.op(*args, **kwargs)
            except Exception:  # noqa: BLE001  nothing to compare with
                continue  # the kernel does not take this layout, such as a write to overlapping memory
            try:
                with torch.no_grad(), mode:
                    fake = function(*fakes[0], **fakes[1])
            except (DataDependentOutputException, DynamicOutputShapeException):
                continue
            except Unsupported:
                continue  # runs with ATen
            except Exception as error:  # noqa: BLE001  as above
                what: str | None = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
            else:
                what = difference(real, fake, (args, kwargs), fakes)
            count += 1
            if what is not None:
                found.append(Difference(op.full_name, text, what, _guilty(op.op, args, kwargs)))
            decomposed = Compared(mode, seen, training_decompositions())
            with torch.no_grad(), decomposed:
                op.op(*args, **kwargs)
            for name_of, how in decomposed.found.items():
                found.append(Difference(op.full_name, text, "decomposed", (f"{name_of} {how}",)))
    return count, found


def _guilty(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[str, ...]:
    """The ATen operators in a call whose results differ."""
    compared = Compared(fake_mode(), set())
    with torch.no_grad(), compared:
        function(*args, **kwargs)
    return tuple(f"{name} {what}" for name, what in compared.found.items())


def check_all(ops: Sequence[Any], device: str, until: float) -> tuple[dict[str, int], list[Difference], int]:
    """Calls by operator, the differences, and how many operators were left out for lack of time."""
    counts: dict[str, int] = {}
    found: list[Difference] = []
    seen: set[str] = set()
    for op in ops:
        if time.monotonic() > until:
            break
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            counts[op.full_name], differences = check(op, device, seen)
        found += differences
    return counts, found, len(ops) - len(counts)


def report(counts: dict[str, int], found: Sequence[Difference], left: int, device: str, each: int) -> str:
    """The outcomes as text; `each`: how many calls are printed of an operator that differs."""
    by_name: dict[str, list[Difference]] = {}
    for x in found:
        by_name.setdefault(x.operator, []).append(x)
    lines = [
        f"tools/fake_layouts.py, torch {torch.__version__}, {device}",
        f"{len(counts)} operators, {sum(counts.values())} calls, {left} operators not run",
        f"operators that differ: {len(by_name)}, of these expected: {sum(name in EXPECTED for name in by_name)}",
    ]
    for name, these in by_name.items():
        reason = f" (expected: {EXPECTED[name]})" if name in EXPECTED else ""
        lines.append(f"{name}: {len(these)} of {counts[name]} calls differ{reason}")
        for x in these[:each]:
            lines += [f"    {x.arguments}", f"      {x.what}"]
            lines += [f"      in {operator}" for operator in x.operators[:3]]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="an operator's name in the database; may be repeated")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--part", default="1/1", help="k/n: the k-th of n parts")
    parser.add_argument("--seconds", type=float, default=3600.0, help="operators after it are left out")
    parser.add_argument("--each", type=int, default=3, help="calls printed of an operator that differs")
    parser.add_argument("--out", type=Path, help="folder for fake_layouts_DEVICE.txt")
    chosen = parser.parse_args()
    part, parts = map(int, chosen.part.split("/"))
    ops = [op for op in op_db if chosen.only is None or op.full_name in chosen.only or op.name in chosen.only]
    counts, found, left = check_all(ops[part - 1 :: parts], chosen.device, time.monotonic() + chosen.seconds)
    text = report(counts, found, left, chosen.device, chosen.each)
    print(text, flush=True)
    if chosen.out is not None:
        (chosen.out / f"fake_layouts_{chosen.device}.txt").write_text(text)
    unexpected = {x.operator for x in found} - EXPECTED.keys()
    outdated = [name for name in EXPECTED if name in counts and all(x.operator != name for x in found)]
    if outdated:
        print(f"no longer different: {', '.join(outdated)}")
    return int(bool(unexpected or outdated))


if __name__ == "__main__":
    sys.exit(main())
