"""Shrinks a repro script to the smallest graph that still shows the same compiler bug.

    python -m inductor.minify_repro repro.py [--output small.py] [--seconds 600] [--timeout 120]

Each candidate graph is built, compiled and run in its own process, so crashes and hangs can be minimized too. A
candidate is kept if it fails in the same way as the original: a wrong result, an exception of the same type, or the
same signal.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from .run_repro import Ending, Verdict, verdict
from .verify.compare import copies
from .verify.repro import NotWritable, grad_mode, write_repro
from .verify.unused import remove_unused

_MAX_SYMPTOM = 300  # characters
Reduction = Callable[[fx.GraphModule, list[Any]], "tuple[fx.GraphModule, list[Any]] | None"]


@dataclass(frozen=True)
class Candidate:
    """A repro script, the outcome of running it, and the size of its graph."""

    path: Path
    verdict: Verdict
    operators: int
    outputs: int
    sizes: tuple[int, ...] = ()

    @property
    def symptom(self) -> str:
        """The outcome in words, for reports."""
        return str(self.verdict)[:_MAX_SYMPTOM]


# ---- reductions: functions from a graph and its inputs to smaller ones; None if they do not apply


def load(path: Path) -> tuple[fx.GraphModule, list[Any]]:
    """Run a repro script and return its graph and inputs."""
    names = runpy.run_path(str(path))
    return names["build"](), names["inputs"]()


def calls(gm: fx.GraphModule) -> list[fx.Node]:
    """The nodes that call something."""
    return [node for node in gm.graph.nodes if node.op.startswith("call")]


def _with_outputs(gm: fx.GraphModule, inputs: list[Any], results: Sequence[Any]) -> tuple[fx.GraphModule, list[Any]]:
    """The graph with `results` as its outputs, without nodes and inputs that they do not need."""
    (output,) = gm.graph.find_nodes(op="output")
    output.args = (tuple(results),)
    return _cleaned(gm, inputs)


def _cleaned(gm: fx.GraphModule, inputs: list[Any]) -> tuple[fx.GraphModule, list[Any]]:
    remove_unused(gm, inputs)
    kept = []
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
        if node.users:
            kept.append(value)
        else:
            gm.graph.erase_node(node)
    gm.graph.lint()
    gm.recompile()
    return gm, kept


def _results(gm: fx.GraphModule) -> list[Any]:
    (output,) = gm.graph.find_nodes(op="output")
    return pytree.tree_leaves(output.args[0], is_leaf=lambda x: isinstance(x, fx.Node))


def keep_outputs(first: int, last: int) -> Reduction:
    """Keep only the results with numbers from `first` up to but not including `last`."""
    return lambda gm, inputs: _with_outputs(gm, inputs, _results(gm)[first:last])


def end_at(position: int) -> Reduction:
    """Make the value of one node the only result."""
    return lambda gm, inputs: _with_outputs(gm, inputs, [calls(gm)[position]])


def given(first: int, last: int) -> Reduction:
    """Replace nodes `first` up to but not including `last` by inputs that hold the values computed by ATen."""

    def reduce(gm: fx.GraphModule, inputs: list[Any]) -> tuple[fx.GraphModule, list[Any]] | None:
        chosen = calls(gm)[first:last]
        run = fx.Interpreter(gm, garbage_collect_values=False)
        run.run(*copies(inputs))
        values = list(inputs)
        placeholders = gm.graph.find_nodes(op="placeholder")
        for node in chosen:
            value = run.env[node]
            if not isinstance(value, torch.Tensor) or not any(user not in chosen for user in node.users):
                continue
            with gm.graph.inserting_before(next(iter(gm.graph.nodes))):
                new = gm.graph.placeholder(f"given_{node.name}")
            if placeholders:
                placeholders[-1].append(new)
            placeholders.append(new)
            node.replace_all_uses_with(new)
            values.append(value.detach().requires_grad_(value.requires_grad))
        order = gm.graph.find_nodes(op="placeholder")
        paired = dict(zip(placeholders, values, strict=True))
        return _cleaned(gm, [paired[node] for node in order])

    return reduce


def without(position: int, argument: int) -> Reduction:
    """Replace a node by one of its arguments."""

    def reduce(gm: fx.GraphModule, inputs: list[Any]) -> tuple[fx.GraphModule, list[Any]] | None:
        node = calls(gm)[position]
        if argument >= len(node.all_input_nodes):
            return None
        node.replace_all_uses_with(node.all_input_nodes[argument])
        gm.graph.erase_node(node)
        return _cleaned(gm, inputs)

    return reduce


def resize(old: int, new: int) -> Reduction:
    """Change every input dimension and every integer in the graph that equals `old` to `new`."""

    def change(x: Any) -> Any:
        return new if type(x) is int and x == old else x

    def part(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or old not in x.shape:
            return x
        cut = x.detach()[tuple(slice(0, change(n)) for n in x.shape)]
        return cut.clone(memory_format=torch.preserve_format).requires_grad_(x.requires_grad)

    def reduce(gm: fx.GraphModule, inputs: list[Any]) -> tuple[fx.GraphModule, list[Any]] | None:
        for node in calls(gm):
            node.args, node.kwargs = pytree.tree_map(change, (node.args, node.kwargs))
        gm.recompile()
        return gm, list(map(part, inputs))

    return reduce


# ---- candidates, each in a process of its own


class Minifier:
    """Tries reductions until time runs out, and keeps the smallest candidate that fails in the same way."""

    def __init__(self, start: Path, seconds: float, timeout: float, out: Callable[[str], Any] = print) -> None:
        self.deadline, self.timeout, self.report = time.monotonic() + seconds, timeout, out
        self.folder = tempfile.TemporaryDirectory(prefix="pyframe-minify-")
        self.tried = 0
        self.best = self._try(start, None)
        out(f"{self.best.operators} operators: {self.best.symptom}")

    def run(self) -> Candidate:
        """Reduce until nothing helps or time runs out; returns the smallest candidate."""
        if not self.best.verdict.is_failure:
            return self.best
        before = None
        while before != self.best and time.monotonic() < self.deadline:
            before = self.best
            self._shorten()
            self._narrow_outputs()
            self._give()
            self._bypass()
            self._shrink()
        return self.best

    def _reduce(self, reduction: Reduction) -> bool:
        """Try a reduction of the best candidate; a smaller one that fails in the same way becomes the best."""
        if time.monotonic() > self.deadline:
            return False
        found = self._try(self.best.path, reduction)
        better = _cost(found) < _cost(self.best) and found.verdict.same_failure(self.best.verdict)
        if better:
            self.best = found
            self.report(f"{found.operators} operators, sizes {list(found.sizes)}: {found.symptom}")
        return better

    def _shorten(self) -> None:
        """Binary search for the shortest prefix of the graph that still fails."""
        low, high = 0, self.best.operators - 1
        while low < high:
            middle = (low + high) // 2
            if self._reduce(end_at(middle)):
                high = self.best.operators - 1
                low = min(low, high)
            else:
                low = middle + 1

    def _narrow_outputs(self) -> None:
        for first, last in _chunks(self.best.outputs):
            if last - first < self.best.outputs and self._reduce(keep_outputs(first, last)):
                return

    def _give(self) -> None:
        """Replace nodes by inputs: first long runs of nodes, then single ones."""
        length = max(1, self.best.operators // 2)
        while length:
            at = 0
            while at < self.best.operators:
                if not self._reduce(given(at, at + length)):
                    at += length
            length //= 2

    def _bypass(self) -> None:
        at = 0
        while at < self.best.operators:
            if not any(self._reduce(without(at, k)) for k in range(2)):
                at += 1

    def _shrink(self) -> None:
        for size in self.best.sizes:
            for new in (1, 2, 3, size // 4, size // 2, size - 1):
                if 0 < new < size and self._reduce(resize(size, new)):
                    break

    def _try(self, path: Path, reduction: Reduction | None) -> Candidate:
        self.tried += 1
        folder = Path(self.folder.name) / str(self.tried)
        folder.mkdir()
        context = multiprocessing.get_context("fork")
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(path, reduction, folder, send))
        process.start()
        send.close()
        answer: Candidate | None = None
        written: Path | None = None
        end = time.monotonic() + self.timeout
        while receive.poll(max(0.0, end - time.monotonic())):
            try:
                message = receive.recv()
            except EOFError:
                break
            if isinstance(message, Candidate):
                answer = message
            else:
                written = message
        process.join(max(0.1, end - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
        if answer is not None:
            return answer
        if written is None:
            return Candidate(path, Verdict(Ending.NOT_RUN), sys.maxsize, 0)
        code = process.exitcode or 0
        crashed = code < 0 and -code != signal.SIGKILL
        how = Verdict(Ending.CRASH, signal.Signals(-code).name) if crashed else Verdict(Ending.TIMEOUT)
        gm, inputs = load(written)
        return Candidate(written, how, len(calls(gm)), len(_results(gm)), _sizes(inputs))


def _child(path: Path, reduction: Reduction | None, folder: Path, send: Any) -> None:
    """Build a candidate, send its path to the parent, run it, and send the outcome."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  stays open for the life of the process
    gm, inputs = load(path)
    if reduction is not None:
        with torch.set_grad_enabled(grad_mode(gm)):
            reduced = reduction(gm, inputs)
        if reduced is None:
            return
        gm, inputs = reduced
        try:
            path = Path(write_repro(gm, inputs, "a graph that a compiled graph was reduced to", folder, strict=True))
        except (NotWritable, OSError):
            return
        gm, inputs = load(path)
    send.send(path)
    send.send(Candidate(path, verdict(gm, inputs), len(calls(gm)), len(_results(gm)), _sizes(inputs)))


def _sizes(inputs: Sequence[Any]) -> tuple[int, ...]:
    """The distinct dimension sizes above 1, largest first."""
    return tuple(sorted({n for x in inputs if isinstance(x, torch.Tensor) for n in x.shape if n > 1}, reverse=True))


def _cost(candidate: Candidate) -> tuple[int, int, int]:
    return candidate.operators, candidate.outputs, sum(candidate.sizes)


def _chunks(count: int) -> Iterator[tuple[int, int]]:
    """Ranges to try: single results first, then halves, quarters ..."""
    yield from ((i, i + 1) for i in range(count))
    length = count // 2
    while length > 1:
        yield from ((i, i + length) for i in range(0, count, length))
        length //= 2


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Exit status 0: a smaller script was written; 1: the script shows no fault."""
    parser = argparse.ArgumentParser(prog="minify", description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("script", type=Path)
    parser.add_argument("--output", type=Path, help="default: the script's name with _min")
    parser.add_argument("--seconds", type=float, default=600, help="time for all of it")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one candidate")
    chosen = parser.parse_args(arguments)
    output = chosen.output or chosen.script.with_name(f"{chosen.script.stem}_min.py")
    minifier = Minifier(chosen.script.resolve(), chosen.seconds, chosen.timeout, lambda text: print(text, flush=True))
    best = minifier.run()
    if not best.verdict.is_failure:
        return 1
    output.write_text(best.path.read_text().replace(best.path.name, output.name))
    values = best.path.with_suffix(".pt")
    if values.exists():
        output.with_suffix(".pt").write_bytes(values.read_bytes())
    print(f"{output}: {best.operators} operators after {minifier.tried} candidates; {best.symptom}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
