"""Compares programs on other kinds of tensors than dense ones, and operators whose results depend on data, with eager.

    python tools/tensor_kinds.py                              # every program, in all four ways
    python tools/tensor_kinds.py --only sparse --only nested  # some kinds of tensor
    python tools/tensor_kinds.py --device cuda --seconds 900  # the arguments on a GPU; stops after 900 seconds
    python tools/tensor_kinds.py --peer                       # torch.compile as well
    python tools/tensor_kinds.py --out benchmarks/results     # writes tensor_kinds_cpu.txt and .json there

The programs are in ``tensor_kinds_programs``. Each is called twice, compiled and in eager, for inference and training,
with static and dynamic sizes. Type, values, dtype, layout, sizes, strides, `requires_grad`, gradients and the type of
an exception must agree. Each kind runs in a worker process; if one dies, its program counts as wrong and the run
continues. Exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import functools
import json
import multiprocessing
import os
import sys
import time
import traceback
import types
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

os.environ.setdefault("PYFRAME_MEASURE", "0")  # the suite is about compiled graphs, not about ATen where that is faster
import tensor_kinds_programs as programs  # noqa: E402
import torch  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import pyframe  # noqa: E402

RIGHT, WRONG, DIED = "right", "wrong", "died"
_DIFFERENTIABLE = (torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.complex128)
_TOLERANCES = {torch.bfloat16: (1.6e-2, 1e-2), torch.float16: (1e-3, 1e-3), torch.float64: (1e-6, 1e-6)}
_WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


@dataclass(frozen=True)
class Way:
    """A way to call a program."""

    grad: bool
    dynamic: bool | None

    def __str__(self) -> str:
        return ("training" if self.grad else "inference") + (", dynamic" if self.dynamic else "")


WAYS = tuple(Way(grad, dynamic) for grad in (False, True) for dynamic in (None, True))


@dataclass(frozen=True)
class Outcome:
    """The outcome of one program called in one way. `graphs`, `breaks`: counts of the capture; `error`: the exception
    that eager raises."""

    kind: str
    name: str
    way: str
    result: str
    message: str = ""
    graphs: int = 0
    breaks: int = 0
    fallbacks: int = 0
    error: bool = False


def plain(x: torch.Tensor) -> Any:
    """The parts by which two tensors of the same class, dtype and layout are compared: nested containers of dense
    tensors."""
    x = x.detach()
    if type(x) is not torch.Tensor and hasattr(x, "__tensor_flatten__"):
        return [plain(getattr(x, name)) for name in x.__tensor_flatten__()[0]]
    if x.device.type == "meta":
        return tuple(x.shape), x.stride()
    if x.is_nested:
        return [plain(part) for part in x.unbind()]
    if x.is_quantized:
        return str(x.qscheme()), x.dequantize(), x.int_repr()
    if x.layout != torch.strided:
        return x.to_dense()
    if x.dtype in _WIDE_UNSIGNED:
        return x.contiguous().view(torch.uint8)
    return x.float() if x.is_floating_point() and x.element_size() == 1 else x.resolve_conj().resolve_neg()


def difference(got: Any, want: Any, strides: bool = True) -> str | None:
    """A description of how two results differ, or None."""
    if type(got) is not type(want):
        return f"{type(got).__name__} for {type(want).__name__}"
    if isinstance(want, list | tuple):
        found = (difference(*pair, strides) for pair in zip(got, want, strict=False))
        return f"{len(got)} for {len(want)} parts" if len(got) != len(want) else next(filter(None, found), None)
    if isinstance(want, dict):
        return difference([list(got), list(got.values())], [list(want), list(want.values())], strides)
    if isinstance(want, types.SimpleNamespace):
        return difference(vars(got), vars(want), strides)
    if isinstance(want, torch.nn.Module):
        return difference([*got.parameters(), *got.buffers()], [*want.parameters(), *want.buffers()], strides)
    if not isinstance(want, torch.Tensor):
        return None if got == want else f"{got!r} for {want!r}"
    for name in ("dtype", "layout", "device", "requires_grad", "is_leaf"):
        if getattr(got, name) != getattr(want, name):
            return f"{name} {getattr(got, name)} for {getattr(want, name)}"
    dense = want.layout == torch.strided and not want.is_nested
    if dense and (got.shape != want.shape or strides and got.stride() != want.stride()):
        return f"size {tuple(got.shape)} by {got.stride()} for {tuple(want.shape)} by {want.stride()}"
    mine, theirs = plain(got), plain(want)
    if not isinstance(theirs, torch.Tensor):
        return difference(mine, theirs, strides)
    rtol, atol = _TOLERANCES.get(theirs.dtype, (1e-4, 1e-5))
    close = mine.shape == theirs.shape and torch.allclose(mine, theirs, rtol=rtol, atol=atol, equal_nan=True)
    return None if close else f"values {mine} for {theirs}"


def _loss(results: Sequence[torch.Tensor]) -> torch.Tensor:
    """A number whose gradient is different for every element of the results."""
    total = torch.zeros((), device=results[0].device)
    for x in results:
        if x.is_nested:
            x = torch.cat([part.flatten() for part in x.unbind()])
        elif x.layout != torch.strided:
            x = x.to_dense()
        if x.is_complex():
            x = torch.view_as_real(x.resolve_conj())
        total = total + x.float().sin().sum()
    return total


def run(fn: Callable[..., Any], make: Callable[[], list[Any]], grad: bool, device: str = "cpu") -> tuple[Any, Any, Any]:
    """Results, gradients and arguments after the call; the arguments are on `device`."""
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = False  # results in other layouts would differ by the rounding of TF32
    with torch.device(device) if device != "cpu" else contextlib.nullcontext():
        args = make()
    tensors = [x for x in pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
    for x in tensors:
        if grad and x.is_leaf and x.dtype in _DIFFERENTIABLE:
            x.requires_grad_()
    tensors += [x for module in args if isinstance(module, torch.nn.Module) for x in module.parameters()]
    result = fn(*args)
    differentiable = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    if not grad or not differentiable:
        return result, [], args
    loss = _loss(differentiable)
    if loss.grad_fn is not None:
        loss.backward()
    return result, [x.grad for x in tensors if x.is_leaf], args


def _outcome_of(fn: Callable[..., Any], make: Callable[[], list[Any]], way: Way, device: str) -> Any:
    try:
        return run(fn, make, way.grad, device)
    except Exception as error:  # noqa: BLE001  compared with eager's
        return error


def check(kind: str, name: str, way: Way, device: str = "cpu", compiler: str = "pyframe") -> Outcome:
    """Calls one program twice in one way, compiled by pyframe or by torch.compile, and compares with eager."""
    fn, make = programs.PROGRAMS[kind][name]
    pyframe.reset()
    pyframe.counters.clear()
    want = _outcome_of(fn, make, way, device)
    if compiler == "pyframe":
        compiled = pyframe.compile(fn, dynamic=way.dynamic)
    else:
        torch.compiler.reset()
        compiled = torch.compile(fn, dynamic=way.dynamic)
    wrong = None
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = _outcome_of(compiled, make, way, device)
        wrong = wrong or _compared(got, want) or _dead(device)
    graphs, breaks = (pyframe.counters[key] for key in ("graphs", "graph_breaks"))
    broke = sum(breaks.values()) if isinstance(breaks, Counter) else int(breaks)
    error = isinstance(want, Exception)
    fallbacks = int(pyframe.counters["fallbacks"])
    return Outcome(kind, name, str(way), WRONG if wrong else RIGHT, wrong or "", graphs, broke, fallbacks, error)


def _dead(device: str) -> str | None:
    """A message if the process can no longer use the GPU: then eager would raise the same exceptions."""
    try:
        torch.ones(1, device=device).add(1).item()
    except RuntimeError as error:
        return f"nothing runs on {device} any more: {error}"
    return None


def _compared(got: Any, want: Any) -> str | None:
    if isinstance(want, Exception) or isinstance(got, Exception):
        if type(got) is type(want):
            return None
        text = "".join(traceback.format_exception(got))[-600:] if isinstance(got, Exception) else "a result"
        return f"{text} for {want!r:.200}" if isinstance(want, Exception) else text
    # a gradient that autograd adds up need not lie in memory as eager's does
    return difference(got[0], want[0]) or difference(got[1], want[1], strides=False) or difference(got[2], want[2])


def _check_kind(kind: str, device: str, compiler: str, until: float) -> list[Outcome]:
    torch.set_num_threads(1)
    outcomes = []
    for name in _names(kind, device):
        for way in WAYS:
            if time.time() < until:
                outcomes.append(check(kind, name, way, device, compiler))
    return outcomes


def _names(kind: str, device: str) -> list[str]:
    """The programs of a kind that eager can run on a device."""
    left_out = programs.DEVICE_ASSERTIONS if device != "cpu" else ()
    return [name for name in programs.PROGRAMS[kind] if name not in left_out]


def check_all(
    kinds: Sequence[str], device: str, compiler: str, workers: int, until: float, out: Callable[[str], None]
) -> list[Outcome]:
    """The outcomes of all programs of these kinds; each kind runs in a process of its own."""
    outcomes: list[Outcome] = []
    # "spawn": a forked process cannot use CUDA; one task per process, so that a death is that of one kind
    context = multiprocessing.get_context("spawn")
    pools = {kind: concurrent.futures.ProcessPoolExecutor(1, context) for kind in kinds}
    waiting, running = list(kinds), {}
    while waiting or running:
        while waiting and len(running) < workers:
            kind = waiting.pop(0)
            running[pools[kind].submit(_check_kind, kind, device, compiler, until)] = kind
        done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
        for future in done:
            kind = running.pop(future)
            try:
                found = future.result()
            except BrokenProcessPool:
                found = [Outcome(kind, "(a program)", "", DIED, "the process died")]
            pools[kind].shutdown()
            outcomes += found
            out(f"{compiler}: {kind}: {sum(x.result == RIGHT for x in found)} of {len(found)} right")
    return sorted(outcomes, key=lambda x: list(kinds).index(x.kind))


def report(outcomes: dict[str, list[Outcome]], device: str, chosen: Sequence[str]) -> str:
    """The outcomes as text: a table by kind, then the failures; `chosen`: the kinds that should have run."""
    lines = [f"tools/tensor_kinds.py, torch {torch.__version__}, {device}"]
    for compiler, found in outcomes.items():
        lines += ["", f"{compiler}: {'kind':<18}{'right':>7}{'wrong':>7}{'graphs':>8}{'breaks':>8}{'ATen':>6}"]
        for kind in dict.fromkeys(x.kind for x in found):
            these = [x for x in found if x.kind == kind]
            right = sum(x.result == RIGHT for x in these)
            counts = [sum(getattr(x, field) for x in these) for field in ("graphs", "breaks", "fallbacks")]
            row = f"{kind:<18}{right:>7}{len(these) - right:>7}{counts[0]:>8}{counts[1]:>8}{counts[2]:>6}"
            lines.append(" " * (len(compiler) + 2) + row)
        wrong = [x for x in found if x.result != RIGHT]
        late = sum(len(_names(kind, device)) * len(WAYS) for kind in chosen) - len(found)
        lines.append(f"{compiler}: {len(found) - len(wrong)} right, {len(wrong)} wrong, {late} not run")
        missing = [kind for kind in chosen if not any(x.kind == kind for x in found)]
        if missing:
            lines.append(f"  kinds of which nothing ran in the time given: {', '.join(missing)}")
        lines += [f"  {x.kind}: {x.name} ({x.way}): {x.message.strip().splitlines()[-1][:160]}" for x in wrong]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(programs.PROGRAMS), help="a kind; may be repeated")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=3600.0, help="time budget; programs after it are left out")
    parser.add_argument("--peer", action="store_true", help="torch.compile, too")
    parser.add_argument("--out", type=Path, help="folder for tensor_kinds_DEVICE.txt and .json")
    chosen = parser.parse_args()
    kinds, until = chosen.only or list(programs.PROGRAMS), time.time() + chosen.seconds
    outcomes = {}
    for compiler in ("pyframe", "torch.compile") if chosen.peer else ("pyframe",):
        out = functools.partial(print, flush=True)
        outcomes[compiler] = check_all(kinds, chosen.device, compiler, chosen.workers, until, out)
    text = report(outcomes, chosen.device, kinds)
    print(text, flush=True)
    if chosen.out is not None:
        name = f"tensor_kinds_{chosen.device}"
        chosen.out.mkdir(parents=True, exist_ok=True)
        (chosen.out / f"{name}.txt").write_text(text)
        data = {compiler: [asdict(x) for x in found] for compiler, found in outcomes.items()}
        (chosen.out / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
    return int(any(x.result != RIGHT for x in outcomes["pyframe"]))


if __name__ == "__main__":
    sys.exit(main())
