"""Random programs, captured and run as they are: results, effects and exceptions must agree.

    python tools/fuzz_frames.py --count 2000 --seed 0       # prints the smallest form of what differs
    python tools/fuzz_frames.py --show 17                   # the program of one seed

A program has helper functions, generators and classes, closures, containers, exceptions, `with`, `match`, tensors and
graph breaks.  It is called several times with changing arguments.  Exit status 1 where a program differs.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import linecache
import random
import re
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch  # noqa: E402

import pyframe  # noqa: E402

PRELUDE = '''\
import contextlib, dataclasses, enum, functools, itertools, collections
import torch, pyframe

LOG = []
COUNT = 0
TABLE = {"a": 1, "b": 2}

class Custom(Exception):
    def __init__(self, code, note="?"):
        super().__init__(code, note)
        self.code = code

class Box:
    made = 0
    limit = 5
    def __init__(self, value, quiet=False):
        self.value, self.quiet = value, quiet
        type(self).made += 1
    @property
    def double(self):
        return self.value * 2
    @double.setter
    def double(self, new):
        self.value = new // 2
    @classmethod
    def of(cls, *parts):
        return cls(sum(parts))
    @staticmethod
    def clip(value):
        return min(value, 9)
    def bump(self, by=1, *, twice=False):
        self.value += by * (2 if twice else 1)
        return self
    def __add__(self, other):
        return type(self)(self.value + (other.value if isinstance(other, Box) else other))
    def __eq__(self, other):
        return isinstance(other, Box) and self.value == other.value
    def __hash__(self):
        return hash(self.value)
    def __len__(self):
        return abs(self.value) % 7
    def __getitem__(self, key):
        if key > self.limit:
            raise IndexError(key)
        return self.value + key
    def __contains__(self, item):
        return item == self.value
    def __call__(self, x):
        return x * self.value
    def __enter__(self):
        LOG.append(("enter", self.value))
        return self
    def __exit__(self, kind, error, trace):
        LOG.append(("exit", kind and kind.__name__))
        return self.quiet and kind is not None and issubclass(kind, (Custom, KeyError))
    def __getattr__(self, name):
        if name.startswith("lazy"):
            return len(name)
        raise AttributeError(name)

class Child(Box):
    def bump(self, by=1, **more):
        LOG.append("child")
        return super().bump(by + 1, **more)
    def __len__(self):
        return 1 + super().__len__()

@dataclasses.dataclass(order=True)
class Point:
    a: int
    b: int = 2
    seen: list = dataclasses.field(default_factory=list, compare=False)

class Color(enum.Enum):
    RED = 1
    BLUE = 2

Pair = collections.namedtuple("Pair", "left right")

@contextlib.contextmanager
def managed(value):
    LOG.append(("managed", value))
    try:
        yield value + 1
    except ValueError as error:
        LOG.append(("caught", str(error)))
        if value > 2:
            raise Custom(value) from error
    finally:
        LOG.append("closed")

def traced(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        LOG.append(fn.__name__)
        return fn(*args, **kwargs)
    return wrapper

@traced
def scaled(x, by=2, *rest, shift=0, **more):
    return x * by + shift + sum(rest) + len(more)
'''
SETUP = (
    "global COUNT",
    "n, m, x, y, s = a, 1, t, t + 1, 'ab'",
    "xs, d, st, tup, fs, g = [1, 2], {'k': a}, {1, a}, (a, 2), [], iter(())",
    "box, p = Box(a), Point(a)",
)
RULES: dict[str, tuple[str, ...]] = {
    "int": (
        "n", "m", "n", "1", "2", "-3", "len(xs)", "({int} + {int})", "({int} * 2)", "({int} % 3)", "{int} // 2",
        "len(d)", "box.value", "Box.made", "box.double", "max({int}, {int})", "abs({int})", "d.get({str}, {int})",
        "int({bool})", "sum(xs)", "len(box)", "box[{int}]", "COUNT", "TABLE['a']", "p.a", "next(g, {int})",
        "(lambda q, r={int}: q + r)({int})", "tup[{int} % 2]", "xs[-1]", "x.shape[0]", "len(s)",
        "(st or {{3}}).pop()", "sum(q * 2 for q in xs)", "len([q for q in xs if q > {int}])",
        "min(xs, default=0, key=lambda q: -q)", "({int} if {bool} else {int})", "Pair({int}, 2).left",
        "Color(1).value", "box.lazyname", "functools.reduce(lambda q, r: q - r, xs, {int})", "len(fs)",
        "Box.clip({int})", "sum(d.values())", "hash(box) % 5", "getattr(box, 'value', 3)", "int(s, 36) % 10",
        "divmod({int}, 3)[1]", "x.dim()", "{call}[0]",
    ),
    "bool": (
        "n > {int}", "m < 3", "not {bool}", "{bool} and {bool}", "{bool} or {bool}", "{int} in xs", "{str} in d",
        "{int} in st", "isinstance(box, Child)", "box == Box({int})", "{int} in box", "s == 'ab'", "xs", "d",
        "p < Point({int})", "any(q > {int} for q in xs)", "all(xs)", "x is y", "hasattr(box, 'value')",
        "callable(fs)", "0 < {int} < 4", "s.startswith('a')", "x.sum() > {int}", "box is not None",
        "Color.RED is Color(2)",
    ),
    "str": (
        "'k'", "'a'", "s", "str({int})", "f'{{{int}}}'", "s.upper()", "s[::-1]", "'-'.join(map(str, xs))",
        "f'{{n:>3}}|{{s!r}}'", "'%d' % {int}", "type(box).__name__", "p.__class__.__name__",
    ),
    "tensor": (
        "x", "y", "x + 1", "({tensor} * {int}).clamp(-9, 9)", "torch.sin(x)", "{tensor} + {tensor}", "x - n",
        "box(x)", "scaled(x)", "scaled(x, {int}, shift={int})", "scaled(x, 2, *tup, k=1)",
        "scaled(*[x, 3], **{{'shift': n}})", "{call}[1]", "torch.where(x > {int}, x, y)", "x.clone()",
        "torch.stack([x, y]).sum(0)", "sum([x, y])", "x.view(-1)[:2].sum()", "torch.cat([x, y]).mean() + x",
        "(fs[-1](x) if fs else x)", "functools.partial(scaled, by={int})(x)", "x.relu()",
    ),
    "list": (
        "xs", "[{int}, {int}]", "[q + 1 for q in xs]", "list(range({int}))", "sorted(xs, reverse=True)", "xs[1:]",
        "[*xs, {int}]", "list(d.values())", "sorted(st)", "list(g)", "list(map(abs, xs))", "xs + [{int}]",
        "[q for q, r in zip(xs, tup)]", "list(itertools.chain(xs, tup))", "[[q, r][1] for q, r in enumerate(xs)]",
        "list(itertools.accumulate(xs))", "list(filter(None, xs))",
    ),
    "call": (
        "helper0({int}, x)", "helper1({int}, y)", "helper0({int}, {tensor})", "helper1(t=x, a={int})",
    ),
    "error": (
        "Custom({int})", "ValueError({str})", "KeyError({str})", "StopIteration({int})", "IndexError()",
    ),
}  # fmt: skip
SIMPLE = (
    "n = {int}", "m += {int}", "n, m = m, {int}", "x = {tensor}", "y = {tensor}", "xs.append({int})", "xs = {list}",
    "d[{str}] = {int}", "d.pop({str}, 0)", "d = {{q: q * 2 for q in {list}}}", "d.update(z={int})", "st.add({int})",
    "st = {{q % 3 for q in {list}}}", "s = {str}", "s += {str}", "box.value = {int}", "box = Box({int})",
    "box = Child({int})", "box.double = {int}", "box.bump({int})", "box.bump(twice=True).bump()", "box += {int}",
    "box = Box.of(*{list})", "p = Point({int}, b={int})", "p.seen.append({int})",
    "p = dataclasses.replace(p, a={int})", "tup = ({int}, *xs)", "n, *xs = {list}", "xs[:1] = [{int}]",
    "xs[1:2] = {list}", "xs.extend({list})", "xs.sort()", "xs.insert(0, {int})", "n = xs.pop() if xs else 0",
    "del xs[{int}:3]", "fs.append(lambda q, k={int}: q * k + n)", "fs.append(box)",
    "fs.append(functools.partial(scaled, by=n))", "LOG.append({int})", "TABLE[{str}] = {int}", "Box.limit = {int}",
    "box.extra = {int}", "vars(box).pop('extra', None)", "x += {int}", "x.add_({int})", "y.mul_(2)",
    "print({int}, s)", "pyframe.graph_break()", "g = gen0({int}, x)", "g = (q + n for q in xs)", "n += next(g, 2)",
    "xs.extend(g)", "g = itertools.chain(gen0({int}, x), [n])", "n += {call}[0]", "x = {call}[1]", "COUNT += {int}",
    "d.pop({str}, None)", "d.setdefault({str}, {int})", "n = int(x.sum())", "assert {bool}, n", "raise {error}",
    "raise {error} from Custom({int})", "return n, x", "xs, tup = list(tup), tuple(xs)", "d = dict(d, **{{s: n}})",
    "m = (lambda: n + m)()", "n = [q for q in [n, m] if q][-1]", "print(f'{{x.sum():.1f}}')", "bump()",
    "d = {{**d, 'w': {int}}}", "st |= {{ {int} }}", "s, n = f'{{s}}{{n}}'[-4:], {int}", "xs *= 2; del xs[6:]",
)  # fmt: skip
IN_LOOP = ("break", "continue")
IN_GENERATOR = ("yield {int}", "n = (yield {int}) or n", "yield from {list}", "yield n", "return {int}")
COMPOUND: tuple[tuple[str, ...], ...] = (
    ("if {bool}:",), ("if {bool}:", "else:"), ("if {bool}:", "elif {bool}:", "else:"), ("for i in {list}[:3]:",),
    ("for i, (n, q) in enumerate(zip({list}[:3], xs)):",), ("for i in gen0({int}, x):", "else:"),
    ("for q in list(d):",),
    ("try:", "except Custom as error:"), ("try:", "except (KeyError, IndexError) as error:", "finally:"),
    ("try:", "except Custom as error:", "except Exception:", "else:"), ("try:", "finally:"),
    ("with box:",), ("with Box({int}, True) as b, managed({int}) as n:",), ("with managed({int}) as m:",),
    ("with contextlib.suppress(KeyError, ValueError):",), ("with torch.no_grad():",),
    ("match {int} % 3:\n    case 0:", "    case 1 | 2 if {bool}:", "    case _:"),
    ("match tup:\n    case (q, r):", "    case [n, *rest]:", "    case _:"),
    ("match box:\n    case Child(value=v):", "    case Box(value=v) if v > {int}:", "    case _:"),
)  # fmt: skip


@dataclass
class Node:
    """A statement: `parts` are its headers, each with its block; a simple statement has one part without a block."""

    parts: list[tuple[str, list[Node] | None]] = field(default_factory=list)

    def render(self, depth: int) -> Iterator[str]:
        for header, block in self.parts:
            lines = header.split("\n")
            inner = depth + 1 + (lines[-1].startswith("    "))
            yield from ("    " * depth + line for line in lines)
            if block is not None:
                yield from (line for node in block for line in node.render(inner))
                if not block:
                    yield "    " * inner + "pass"


class Writer:
    """Writes the random program of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.simple, self.compound = SIMPLE, COMPOUND

    def program(self) -> dict[str, list[Node]]:
        """Function name -> its statements."""
        return {
            "helper1": self.block(1, 2, (), ("helper", "{call}")),
            "gen0": self.block(2, 4, IN_GENERATOR, ("helper", "{call}", "gen0")),
            "helper0": self.block(1, 3, (), ("helper0", "{call}")),
            "program": self.block(3, 7, (), ()),
        }

    def expand(self, text: str, depth: int, without: tuple[str, ...]) -> str:
        def fill(match: re.Match[str]) -> str:
            rules = [rule for rule in RULES[match[1]] if not any(word in rule for word in without)]
            if depth > 2:
                rules = [rule for rule in rules if "{" not in rule or match[1] == "error"] or rules
            return self.expand(self.rng.choice(rules), depth + 1, without)

        pattern = "|".join(RULES)
        return re.sub(r"(?<!\{)\{(" + pattern + r")\}", fill, text).replace("{{", "{").replace("}}", "}")

    def block(
        self, low: int, high: int, extra: tuple[str, ...], without: tuple[str, ...], depth: int = 0
    ) -> list[Node]:
        return [self.statement(extra, without, depth) for _ in range(self.rng.randint(low, high))]

    def statement(self, extra: tuple[str, ...], without: tuple[str, ...], depth: int) -> Node:
        if depth < 3 and self.rng.random() < 0.35:
            headers = self.rng.choice([c for c in self.compound if not any(w in h for w in without for h in c)])
            parts: list[tuple[str, list[Node] | None]] = []
            for header in headers:
                allowed = tuple(e for e in extra if header != "finally:" or e not in IN_LOOP)
                if header.startswith("for") and not set(IN_LOOP) <= set(extra):
                    allowed += IN_LOOP
                block = self.block(1, 3 - (depth > 1), allowed, without, depth + 1)
                parts.append((self.expand(header, 0, without), block))
            return Node(parts)
        pool = [t for t in self.simple if not any(word in t for word in without)]
        if extra and self.rng.random() < 0.3:
            return Node([(self.expand(self.rng.choice(extra), 0, without), None)])
        text = self.rng.choice(pool)
        if "yield {int}" in extra:
            text = text.replace("return n, x", "return n")
        return Node([(self.expand(text, 0, without), None)])


def render(functions: dict[str, list[Node]]) -> str:
    lines = [PRELUDE]
    for name, nodes in functions.items():
        lines.append(f"def {name}(a, t):")
        lines += ["    " + line for line in SETUP]
        if name == "program":
            lines += ["    def bump():", "        nonlocal n, m", "        n += 1; m -= 1; xs.append(m)"]
        else:
            lines.append("    bump = lambda: xs.append(n)")
        lines += [line for node in nodes for line in node.render(1)]
        if name == "gen0":
            lines.append("    yield n")
        elif name == "program":
            result = "n, m, x, y, s, xs, d, sorted(st, key=str), tup, box, p, list(g)[:5], len(fs), COUNT"
            lines.append(f"    return {result}")
        else:
            lines.append("    return n, x")
        lines.append("")
    return "\n".join(lines)


def load(text: str, name: str) -> dict[str, Any]:
    module = sys.modules["fuzzed"] = types.ModuleType("fuzzed")
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        exec(compile(text, name, "exec"), vars(module))
    return vars(module)


def described(value: Any, depth: int = 0) -> Any:
    """A value as something that compares by `==`."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, tuple(value.shape), [round(v, 4) if v == v else "nan" for v in _numbers(value)])
    if isinstance(value, BaseException):
        chain = (value.__cause__, value.__context__, value.__suppress_context__) if depth < 6 else ()
        return (type(value).__name__, described(list(value.args)), *(described(c, depth + 1) for c in chain))
    if isinstance(value, list | tuple):
        return (type(value).__name__, [described(item, depth + 1) for item in value])
    if isinstance(value, dict):
        return ("dict", [(described(k), described(v, depth + 1)) for k, v in value.items()])
    if type(value).__name__ in ("Box", "Child", "Point"):
        return (type(value).__name__, described(vars(value), depth + 1))
    return (type(value).__name__, value) if not callable(value) else getattr(value, "__name__", "callable")


def _numbers(value: torch.Tensor) -> list[float]:
    return value.detach().double().reshape(-1).tolist()


ARGUMENTS = ((1, torch.float32), (1, torch.float32), (4, torch.float32), (-2, torch.float64))


def behaviour(text: str, captured: bool) -> list[Any]:
    """What each of several calls of the program does."""
    names = load(text, "<fuzzed>")
    fn = pyframe.compile(names["program"], backend="eager") if captured else names["program"]
    told = []
    for number, dtype in ARGUMENTS:
        t = torch.arange(4, dtype=dtype)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                result = ("returned", described(fn(number, t)))
            except Exception as error:  # noqa: BLE001  compared, not hidden
                result = ("raised", described(error))
        box, log = names["Box"], described(names["LOG"])
        state = (names["COUNT"], described(names["TABLE"]), box.made, box.limit)
        told.append((result, printed.getvalue(), log, state, described(t), torch.is_grad_enabled(), sys.exc_info()[0]))
    return told


PARTS = ("result", "output", "LOG", "state", "argument", "grad mode", "exception being handled")


def difference(text: str) -> str | None:
    """How the captured program differs from the program; None if it does not, or is no program."""
    try:
        compile(text, "<fuzzed>", "exec")
    except SyntaxError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = behaviour(text, captured=False)
        got = behaviour(text, captured=True)
    for call, (left, right) in enumerate(zip(expected, got, strict=True)):
        for part, a, b in zip(PARTS, left, right, strict=True):
            if a != b:
                return f"call {call}, {part}:\n  eager    {a}\n  captured {b}"
    return None


def shrink(functions: dict[str, list[Node]], tries: int = 600) -> dict[str, list[Node]]:
    """The program with whatever can go taken out, while it still differs in the same part of the same call."""

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
    """(block, start, stop, what to put in place of these statements), from coarse to fine."""

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
    own = text[len(PRELUDE) :]
    return f"==== seed {seed}\n{own}\n{difference(text) or found}\n"


def work(seeds: range, progress: str, folder: str | None) -> int:
    """Runs seeds in this process; `progress` names the file that says which one runs."""
    failed = 0
    faulthandler.enable()
    for seed in seeds:
        Path(progress).write_text(str(seed))
        found = difference(render(Writer(seed).program()))
        if found is not None:
            failed += 1
            told = report(seed, found)
            print(told, flush=True)
            if folder:
                Path(folder, f"frames_{seed}.txt").write_text(told)
        pyframe.reset()
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, help="print the program of this seed, and how it differs")
    parser.add_argument("--keep", help="folder to write the failing programs to")
    parser.add_argument("--progress", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.show is not None:
        text = render(Writer(given.show).program())
        print(text)
        print(difference(text))
        return 0
    if given.progress:
        return 1 if work(range(given.seed, given.seed + given.count), given.progress, given.keep) else 0
    return supervise(given)


def supervise(given: Any) -> int:
    """Runs the seeds in other processes, so that a crash of the interpreter is one failure among others."""
    seed, end, failed = given.seed, given.seed + given.count, False
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder) / "seed"
        while seed < end:
            count = min(250, end - seed)
            command = [sys.executable, __file__, "--seed", str(seed), "--count", str(count)]
            command += ["--progress", str(progress)]
            done = subprocess.run([*command, *(["--keep", given.keep] if given.keep else [])], check=False)
            failed = failed or done.returncode != 0
            if done.returncode in (0, 1):
                seed += count
            else:
                at = int(progress.read_text())
                print(f"==== seed {at}: the interpreter ended with status {done.returncode}", flush=True)
                seed = at + 1
    print("programs differ" if failed else f"{given.count} programs agree")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
