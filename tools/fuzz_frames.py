"""Runs random Python programs with and without capture, and compares results, side effects and exceptions.

    python tools/fuzz_frames.py --count 2000 --seed 0       # prints a failing program in its smallest form
    python tools/fuzz_frames.py --show 17                   # prints the program of one seed

A program has helper functions, generators and classes, closures, containers, exceptions, `with`, `match`, tensors and
graph breaks. It is called several times with different arguments. Exit status 1 if a program differs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import functools
import gc
import io
import json
import linecache
import platform
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from fuzz_grammar import (  # noqa: E402
    CALLS,
    COMPOUND,
    HOLE,
    IN_GENERATOR,
    IN_LOOP,
    PRELUDE,
    RULES,
    SETUP,
    SETUP_OF_HELPERS,
    SETUP_OF_PROGRAM,
    SIMPLE,
)

import pyframe  # noqa: E402
from pyframe.metrics import counters  # noqa: E402

LIMIT_EAGER, LIMIT_CAPTURED = 1.0, 120.0  # seconds of CPU time that a program may take
LIMIT_MEMORY = 8 << 30
BATCH = 50  # programs in one process
ADDRESS = re.compile("0x[0-9a-f]{6,}")  # in a text: the default repr of an object
NO_PROGRAM = "no program"


@dataclass
class Node:
    """A statement: `parts` are its headers, each with its block; a simple statement has one part without a block."""

    parts: list[tuple[str, list[Node] | None]] = field(default_factory=list)

    def render(self, depth: int) -> Iterator[str]:
        for header, block in self.parts:
            lines = header.split("\n")
            inner = depth + 1 + lines[-1].startswith("    case")
            yield from ("    " * depth + line for line in lines)
            if block is not None:
                yield from (line for node in block for line in node.render(inner))
                if not block:
                    yield "    " * inner + "pass"


class Writer:
    """Writes the random program of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.names = 0

    def program(self) -> dict[str, list[Node]]:
        """Function name -> its statements."""
        return {
            "helper1": self.block(1, 2, (), ("helper", "<call>")),
            "gen0": self.block(2, 4, IN_GENERATOR, ("helper", "<call>", "gen0")),
            "helper0": self.block(1, 3, (), ("helper0", "<call>")),
            "program": self.block(3, 7, (), ()),
        }

    def expand(self, text: str, depth: int, without: tuple[str, ...]) -> str:
        def fill(match: re.Match[str]) -> str:
            rules = [rule for rule in RULES[match[1]] if not any(word in rule for word in without)]
            if depth > 2:
                rules = [rule for rule in rules if not HOLE.search(rule) or match[1] == "error"] or rules
            return self.expand(self.rng.choice(rules), depth + 1, without)

        return HOLE.sub(fill, text)

    def block(
        self, low: int, high: int, extra: tuple[str, ...], without: tuple[str, ...], depth: int = 0
    ) -> list[Node]:
        return [self.statement(extra, without, depth) for _ in range(self.rng.randint(low, high))]

    def statement(self, extra: tuple[str, ...], without: tuple[str, ...], depth: int) -> Node:
        if depth < 3 and self.rng.random() < 0.35:
            headers = self.rng.choice([c for c in COMPOUND if not any(w in h for w in without for h in c)])
            parts: list[tuple[str, list[Node] | None]] = []
            self.names += 1
            name = f"w{self.names}"
            for header in headers:
                allowed = () if header.startswith("def") else extra
                if re.search("^(for|while) ", header, re.M) and not set(IN_LOOP) <= set(extra):
                    allowed += IN_LOOP
                block = self.block(1, 3 - (depth > 1), allowed, without, depth + 1)
                parts.append((self.expand(header, 0, without).replace("w@", name), block))
            return Node(parts)
        pool = [t for t in SIMPLE if not any(word in t for word in without)]
        if extra and self.rng.random() < 0.3:
            return Node([(self.expand(self.rng.choice(extra), 0, without), None)])
        text = self.rng.choice(pool)
        if "yield <int>" in extra:
            text = text.replace("return n, x", "return n")
        return Node([(self.expand(text, 0, without), None)])


def render(functions: dict[str, list[Node]]) -> str:
    lines = []
    for name, nodes in functions.items():
        main = name == "program"
        lines.append(f"def {name}(a, t, u, k=2, *, flag=False):" if main else f"def {name}(a, t):")
        lines += ["    " + line for line in (*SETUP, *(SETUP_OF_PROGRAM if main else SETUP_OF_HELPERS))]
        lines += [line for node in nodes for line in node.render(1)]
        if name == "gen0":
            lines.append("    yield n")
        elif main:
            result = "n, m, x, y, s, xs, d, sorted(st, key=str), tup, box, p, list(g)[:5], len(fs), COUNT, u, k"
            lines.append(f"    return {result}")
        else:
            lines.append("    return n, x")
        lines.append("")
    return "\n".join(lines)


@functools.cache
def compiled(text: str, name: str) -> types.CodeType:
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return compile(text, name, "exec")


def load(text: str) -> dict[str, Any]:
    """The names in a module that contains the program."""
    module = sys.modules["fuzzed"] = types.ModuleType("fuzzed")
    for part, name in ((PRELUDE, "<prelude>"), (text, "<fuzzed>")):
        exec(compiled(part, name), vars(module))
    return vars(module)


def described(value: Any, depth: int = 0) -> Any:
    """A value in a form that can be compared by `==`."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, tuple(value.shape), [round(v, 4) if v == v else "nan" for v in _numbers(value)])
    if isinstance(value, BaseException):
        chain = (value.__cause__, value.__context__, value.__suppress_context__) if depth < 6 else ()
        notes, group = getattr(value, "__notes__", None), getattr(value, "exceptions", None)
        parts = described([list(value.args), notes, group], depth + 1)
        return (type(value).__name__, parts, _line(value), *(described(c, depth + 1) for c in chain))
    if isinstance(value, list | tuple):
        return (type(value).__name__, [described(item, depth + 1) for item in value])
    if isinstance(value, dict):
        return (type(value).__name__, [(described(k), described(v, depth + 1)) for k, v in value.items()])
    if isinstance(value, types.ModuleType | type):
        return value.__qualname__
    if type(value).__module__ == "fuzzed" and hasattr(value, "__dict__") and depth < 6:
        return (type(value).__qualname__, described(vars(value), depth + 1))
    if callable(value):
        return getattr(value, "__qualname__", "callable")
    if isinstance(value, str):
        return ("str", ADDRESS.sub("0x...", value))
    return (type(value).__name__, value if type(value).__eq__ is not object.__eq__ else None)


def _line(error: BaseException) -> list[int | None]:
    """The line of the program at which an exception was raised. (Outer frames show a line for each continuation.)"""
    if isinstance(error, UnboundLocalError) and sys.version_info < (3, 12):
        return []  # code that has run often reports the line of the instruction before the one that reads the variable
    frames = traceback.walk_tb(error.__traceback__)
    return [line for frame, line in frames if frame.f_code.co_filename == "<fuzzed>"][-1:]


def _numbers(value: torch.Tensor) -> list[float]:
    return value.detach().double().reshape(-1).tolist()


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Cyclic garbage is not collected within: when that happens depends on what else has been allocated, and it runs
    finalizers of the program. A generator that yields while it is closed is such garbage."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


@no_garbage_collection()
def behaviour(text: str, captured: bool) -> list[Any]:
    """The outcomes of several calls of the program."""
    names = load(text)
    torch.set_grad_enabled(True)
    fn = pyframe.compile(names["program"], backend="eager") if captured else names["program"]
    observed = []
    for change, arguments, tensor in CALLS:
        exec(change, names)
        t = eval(tensor, names)
        arguments = eval(f"(lambda *args, **kwargs: (args, kwargs))({arguments})", names, {"t": t})
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                result = ("returned", described(fn(*arguments[0], **arguments[1])))
            except Exception as error:  # noqa: BLE001  compared, not hidden
                result = ("raised", described(error))
        box, net, log = names["Box"], names["NET"], described(names["LOG"])
        state = (names["COUNT"], names.get("EXTRA"), names["TABLE"], box.made, box.limit, vars(box).get("kind"))
        state += (vars(names["Child"]).get("extra"), net.scale, net.calls, net.training, net.seen, net.weight)
        state += (names["collect"].__defaults__, names["collect"].__kwdefaults__)
        observed.append((result, printed.getvalue(), log, described(state), described([t, arguments]),
                     torch.is_grad_enabled(), sys.exc_info()[0]))  # fmt: skip
    torch.set_grad_enabled(True)
    return observed


PARTS = ("result", "output", "LOG", "state", "arguments", "grad mode", "exception being handled")


class OutOfTime(BaseException):
    """A program took longer than its limit."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def difference(text: str) -> str | None:
    """How the captured program differs from the original; None if it does not, "no program" if the original does not
    end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with limited(LIMIT_EAGER):
                expected = behaviour(text, captured=False)
        except (SyntaxError, OutOfTime, MemoryError):
            return NO_PROGRAM
        pyframe.reset()  # a second run, to shrink the program, captures as the first one did
        try:
            with limited(LIMIT_CAPTURED):
                got = behaviour(text, captured=True)
        except OutOfTime:
            return f"time: captured, it ran for more than {LIMIT_CAPTURED:g} s"
    for call, (left, right) in enumerate(zip(expected, got, strict=True)):
        for part, a, b in zip(PARTS, left, right, strict=True):
            if a != b:
                return f"call {call}, {part}:\n  eager    {a}\n  captured {b}"
    return None


def shrink(functions: dict[str, list[Node]], tries: int = 200) -> dict[str, list[Node]]:
    """The smallest program, by removing statements, that still differs in the same part of the same call."""

    def kind(text: str) -> str | None:
        found = difference(text)
        return found and found.partition(":")[0]

    wanted = kind(render(functions))
    changed = True
    while changed and tries > 0:
        changed = False
        for block, start, stop, instead in _smaller(functions):
            before = block[:]
            block[start:stop] = instead
            tries -= 1
            if kind(render(functions)) == wanted:
                changed = True
                break
            block[:] = before
            if tries <= 0:
                break
    return functions


def _smaller(functions: dict[str, list[Node]]) -> Iterator[tuple[list[Node], int, int, list[Node]]]:
    """Candidates (block, start, stop, replacement of these statements), from large to small removals."""

    def visit(block: list[Node]) -> Iterator[tuple[list[Node], int, int, list[Node]]]:
        size = len(block)
        while size:
            yield from ((block, start, start + size, []) for start in range(0, len(block), size))
            size //= 2
        for index, node in enumerate(block):
            for part, (_, inner) in enumerate(node.parts):
                if inner is not None:
                    yield block, index, index + 1, inner
                    if part:
                        yield block, index, index + 1, [Node([*node.parts[:part], *node.parts[part + 1 :]])]
        for node in block:
            for _, inner in node.parts:
                if inner is not None:
                    yield from visit(inner)

    for nodes in functions.values():
        yield from visit(nodes)


def report(seed: int, found: str) -> str:
    functions = shrink(Writer(seed).program())
    text = render(functions)
    return f"==== seed {seed}\n{text}\n{difference(text) or found}\n"


def work(seeds: range, progress: Path, folder: str | None) -> None:
    """Runs seeds in this process; the file `progress` contains the current seed and the outcomes of the earlier
    ones."""
    faulthandler.enable()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_MEMORY if hard < 0 else min(hard, LIMIT_MEMORY), hard))
    tally = collections.Counter[str]()
    for seed in seeds:
        progress.write_text(json.dumps({"seed": seed, "tally": tally}))
        found = difference(render(Writer(seed).program()))
        tally["programs"] += 1
        if found == NO_PROGRAM:
            tally["no program"] += 1
        else:
            tally["calls"] += len(CALLS)
            tally["graphs"] += counters["graphs"]
            tally["breaks"] += sum(counters["graph_breaks"].values())
        if found not in (None, NO_PROGRAM):
            tally["differing"] += 1
            text = report(seed, found)
            print(text, flush=True)
            if folder:
                Path(folder, f"frames_{seed}.txt").write_text(text)
        pyframe.reset()
    progress.write_text(json.dumps({"seed": seeds.stop, "tally": tally}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, help="print the program of this seed, and how it differs")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--keep", help="folder to write the failing programs to")
    parser.add_argument("--save", action="store_true", help="keep benchmarks/results/fuzz_frames.{json,txt} up to date")
    parser.add_argument("--progress", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.keep:
        Path(given.keep).mkdir(parents=True, exist_ok=True)
    if given.show is not None:
        text = render(Writer(given.show).program())
        print(text)
        print(difference(text))
        return 0
    if given.progress:
        work(range(given.seed, given.seed + given.count), given.progress, given.keep)
        return 0
    tally = supervise(given)
    print(", ".join(f"{name}: {count}" for name, count in tally.items()))
    return int(tally["differing"] > 0)


def supervise(given: Any) -> collections.Counter[str]:
    """Runs the seeds in other processes, so that a crash of the interpreter is one failure among others."""
    end = given.seed + given.count
    tally = collections.Counter(dict.fromkeys(("programs", "no program", "calls", "graphs", "breaks", "differing"), 0))
    batches = [range(seed, min(seed + BATCH, end)) for seed in range(given.seed, end, BATCH)]
    with ThreadPoolExecutor(given.jobs) as pool:
        for batch, found in zip(batches, pool.map(lambda batch: batch_of(batch, given.keep), batches), strict=True):
            tally.update(found)
            if given.save:
                save(given, batch.stop, tally)
    return tally


def batch_of(seeds: range, folder: str | None) -> collections.Counter[str]:
    """The counts of `seeds`, run in a process of their own, and in another one after each crash."""
    seed, tally = seeds.start, collections.Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        progress = Path(place) / "progress"
        while seed < seeds.stop:
            command = [sys.executable, __file__, "--seed", str(seed), "--count", str(seeds.stop - seed)]
            command += ["--progress", str(progress), *(["--keep", folder] if folder else [])]
            done = subprocess.run(command, check=False)
            reached = json.loads(progress.read_text())
            tally.update(reached["tally"])
            seed = reached["seed"]
            if done.returncode:
                print(f"==== seed {seed}: the interpreter ended with status {done.returncode}", flush=True)
                tally.update(programs=1, differing=1)
                seed += 1
    return tally


def save(given: Any, end: int, tally: collections.Counter[str]) -> None:
    """Writes the counts for the seeds before `end`."""
    path = ROOT / "benchmarks" / "results" / "fuzz_frames"
    facts = {
        "command": f"python tools/fuzz_frames.py --count {given.count} --seed {given.seed} --save",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "seeds": f"{given.seed} to {end - 1}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        **tally,
    }
    path.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
    path.with_suffix(".txt").write_text("".join(f"{name:11} {value}\n" for name, value in facts.items()))


if __name__ == "__main__":
    sys.exit(main())
