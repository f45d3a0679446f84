"""Generates random programs that are valid by construction: each statement is run in eager when it is generated, and
dropped if it raises."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from .program import Input, Program, Statement, arguments

FLOATS = ("float32", "float32", "float32", "float32", "float64", "bfloat16", "float16")
INTEGERS = ("int64", "int32", "uint8", "bool", "int16", "int8")
SIZES = (1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10, 16, 17, 19, 33)
# Functions with derivatives in forward mode: the levels of these belong to the process, so that two threads of eager
# that run them at the same time disturb each other.
FORWARD_MODE = ("torch.func.jvp", "torch.func.jacfwd", "torch.func.hessian", "torch.func.linearize")
MODES = (("forward", 42), ("backward", 34), ("dynamic", 9), ("dynamic_backward", 7), ("threads", 8))
REGIONS = (
    "with torch.no_grad()",
    "with torch.enable_grad()",
    "with torch.autocast(DEVICE.type, dtype=torch.bfloat16)",
)
MAX_ELEMENTS = 6000
LARGEST = 1e3

Grammar = list[tuple[float, str, Callable[["Generator"], str | None]]]


class Reject(Exception):
    """Raised if no value suits an operator, or if a program is not usable."""


class Generator:
    """Generates one program. `values`: the tensors by name, after the statements so far."""

    def __init__(self, seed: int, grammar: Grammar, mode: str | None = None) -> None:
        self.rng = random.Random(seed)
        self.seed, self.grammar = seed, grammar
        self.mode = mode or self.rng.choices([m for m, _ in MODES], [w for _, w in MODES])[0]
        self.trains = "backward" in self.mode
        self.dynamic = "dynamic" in self.mode
        self.extreme = self.rng.random() < 0.05
        self.dims = [self.rng.choice(SIZES) for _ in range(self.rng.choice((2, 3, 3, 4)))]
        if self.rng.random() < 0.08:
            self.dims[0] = self.rng.choice((0, 1, 1))
        self.main = self.rng.choice(FLOATS) if self.rng.random() < 0.9 else self.rng.choice(INTEGERS)
        self.inputs: list[Input] = []
        self.statements: list[Statement] = []
        self.values: dict[str, torch.Tensor] = {}
        self.bases: list[torch.Tensor] = []
        self.fresh_count = 0

    # ---- operands

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def pick(self, wanted: Callable[[torch.Tensor], bool] = lambda t: True) -> str:
        """The name of a value, preferably a recent one. Reject if there is none."""
        names = [n for n, v in self.values.items() if wanted(v)]
        if not names:
            raise Reject
        if self.chance(0.7):
            return self.rng.choice(names[-3:])
        return self.rng.choice(names)

    def of(self, name: str) -> torch.Tensor:
        return self.values[name]

    def real(self) -> str:
        return self.pick(lambda t: t.is_floating_point())

    def ranked(self, low: int = 1, high: int = 5) -> str:
        return self.pick(lambda t: low <= t.dim() <= high)

    def dim(self, name: str, negative: bool = True) -> int:
        """A dimension of a value that has at least one."""
        n = self.of(name).dim()
        if n == 0:
            raise Reject
        d = self.rng.randrange(n)
        return d - n if negative and self.chance(0.35) else d

    def dim_list(self, name: str) -> list[int]:
        n = self.of(name).dim()
        if n == 0:
            raise Reject
        found = self.rng.sample(range(n), self.rng.randint(1, n))
        return [d - n if self.chance(0.25) else d for d in found]

    def size(self, name: str, d: int) -> str:
        """The size of a dimension, written as a number or as a read of the size."""
        if self.dynamic and self.chance(0.8) or self.chance(0.05):
            return f"{name}.shape[{d}]"
        return str(self.of(name).shape[d])

    def like(self, name: str, wanted: Callable[[torch.Tensor], bool] = lambda t: True) -> str:
        """A value that broadcasts with this one, possibly the same; or a new input."""
        shape = self.of(name).shape

        def fits(t: torch.Tensor) -> bool:
            try:
                return len(torch.broadcast_shapes(shape, t.shape)) <= 5 and wanted(t)
            except RuntimeError:
                return False

        if self.chance(0.75):
            return self.pick(fits)
        sizes = list(shape)
        for d in range(len(sizes)):
            if self.chance(0.25):
                sizes[d] = 1
        drop = self.rng.randint(0, len(sizes)) if self.chance(0.3) else 0
        return self.new_input(
            tuple(sizes[drop:]), self.rng.choice((str(self.of(name).dtype)[6:], self.main, self.dtype()))
        )

    def same(self, name: str) -> str:
        """A value of the same shape, or a new input."""
        shape = self.of(name).shape
        if self.chance(0.8):
            return self.pick(lambda t: t.shape == shape)
        return self.new_input(tuple(shape), self.main)

    def dtype(self) -> str:
        return self.rng.choice(FLOATS) if self.chance(0.7) else self.rng.choice(INTEGERS)

    def scalar(self) -> str:
        return self.rng.choice(("2", "-1", "3", "0.5", "1.5", "-0.25", "True", "0", "1"))

    def index(self, length: int, shape: tuple[int, ...]) -> str:
        """An int64 tensor of indices below `length`."""
        if length == 0:
            raise Reject
        low = -length if self.chance(0.0) else 0
        return self.new_input(shape, "int64", f"{low}:{length}")

    # ---- inputs

    def new_input(self, shape: tuple[int, ...], dtype: str, values: str | None = None) -> str:
        """A new input of this shape, with a random layout."""
        if len(self.inputs) > 8:
            raise Reject
        floating = getattr(torch, dtype).is_floating_point
        if values is None:
            values = "extreme" if self.extreme and self.chance(0.5) else self.rng.choice(("normal", "normal", "grid"))
        shape, layout = self.with_layout(shape)
        grad = self.trains and floating and self.chance(0.75)
        if layout == "b" and self.chance(0.3 if grad else 0.0):
            layout = "b * 1"  # not a leaf: may be written
        return self.add_input(Input(shape, dtype, values, layout, None, grad))

    def with_layout(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
        """The shape of a base, and the view of it that has `shape`."""
        n = len(shape)
        kind = self.rng.random()
        if n == 0 or kind < 0.5:
            return shape, "b"
        if kind < 0.75 and n > 1:
            order = self.rng.sample(range(n), n)
            if n == 4 and self.chance(0.6):
                order = [0, 3, 1, 2]
            base = [0] * n
            for i, d in enumerate(order):
                base[d] = shape[i]
            return tuple(base), f"b.permute({order})"
        d = self.rng.randrange(n)
        slices = [":"] * n
        base = list(shape)
        if kind < 0.85:
            start, stop = self.rng.randint(0, 2), self.rng.randint(0, 2)
            base[d] = shape[d] + start + stop
            slices[d] = f"{start}:b.shape[{d}] - {stop}"
        elif kind < 0.93:
            base[d] = shape[d] * 2
            slices[d] = "::2"
        elif kind < 0.97 and not self.dynamic:
            base.insert(d, 2)
            slices.insert(d, "1")
        else:
            base[d] = 1
            if self.dynamic or shape[d] == 0:
                return shape, "b"
            return tuple(base), f"b.expand({list(shape)})"
        return tuple(base), f"b[{', '.join(slices)}]"

    def alias_input(self) -> str:
        """A further view of an input's memory, of the same shape or a smaller one."""
        owners = [
            i for i, spec in enumerate(self.inputs) if spec.base is None and len(spec.shape) and spec.layout != "b * 1"
        ]
        if not owners or len(self.inputs) > 8:
            raise Reject
        owner = self.rng.choice(owners)
        spec = self.inputs[owner]
        d = self.rng.randrange(len(spec.shape))
        colons = ", ".join([":"] * d)
        layout = self.rng.choice(
            (spec.layout, "b", f"b[{colons}{', ' if d else ''}1:]", f"b.transpose(0, {d})", f"b.flip({d})")
        )
        return self.add_input(Input(spec.shape, spec.dtype, spec.values, layout, owner, spec.grad))

    def add_input(self, spec: Input) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(spec)
        try:
            self.replay()
        except (RuntimeError, IndexError, TypeError, ValueError):
            self.inputs.pop()
            raise Reject from None
        return name

    # ---- statements

    def replay(self) -> None:
        """Runs all statements again in eager, after an input was added."""
        built = self.arguments = arguments(self.program(), 0)
        scope = {f"x{i}": x for i, x in enumerate(built.given)}
        run = dict(scope, torch=torch, F=F, DEVICE=torch.device("cpu"))
        for s in self.statements:
            exec(s.line(), run)  # noqa: S102
        names = [*scope, *[s.target for s in self.statements if s.target]]
        self.scope = run
        self.values = {n: run[n] for n in names}

    def program(self) -> Program:
        return Program(tuple(self.inputs), tuple(self.statements), (), self.mode, self.seed)

    def add(self, text: str, write: bool = False) -> bool:
        """Adds a statement if eager accepts it."""
        if self.mode == "threads" and any(name in text for name in FORWARD_MODE):
            return False
        target = "" if write else f"v{self.fresh_count}"
        region = self.rng.choice(REGIONS) if self.chance(0.03) else ""
        statement = Statement(target, text, region=region)
        scope = self.scope
        try:
            exec(statement.line(), scope)  # noqa: S102
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError, AttributeError):
            if write:
                self.replay()  # it may have written half of it
            return False
        if write:
            self.statements.append(statement)
            if all(self.acceptable(v) for v in self.values.values()):
                return True
            self.statements.pop()
            self.replay()
            return False
        value = scope.get(target)
        if not isinstance(value, torch.Tensor) or not self.acceptable(value):
            return False
        fresh = (
            value.is_floating_point()
            and value._base is None
            and all(value.untyped_storage().data_ptr() != v.untyped_storage().data_ptr() for v in self.values.values())
        )
        self.fresh_count += 1
        self.statements.append(replace(statement, fresh=fresh))
        self.values[target] = value
        return True

    def acceptable(self, t: torch.Tensor) -> bool:
        """Whether a result is small enough, has a dtype that programs use, and contains numbers that can be
        compared."""
        if t.numel() > MAX_ELEMENTS or t.dim() > 6 or t.is_complex() or t.layout != torch.strided:
            return False
        if self.extreme or not t.numel():
            return True
        if t.is_floating_point():
            return bool(t.detach().isfinite().all()) and float(t.detach().double().abs().max()) < LARGEST
        return t.dtype == torch.bool or int(t.long().abs().max()) < 2**31 - 1

    def backward_runs(self, results: list[str]) -> bool:
        """Whether eager computes gradients, or fails only because a write changed what they need. A program in which a
        formula rejects its operands' dtypes tests nothing of the compiler."""
        if any(not s.target for s in self.statements):
            return True
        roots = [self.values[r] for r in dict.fromkeys(results) if self.values[r].requires_grad]
        wanted = [b for b in self.arguments.bases if b.requires_grad]
        try:
            torch.autograd.grad(roots, wanted, [torch.ones_like(r) for r in roots], allow_unused=True)
        except (RuntimeError, NotImplementedError):
            return False
        return True

    # ---- the whole

    def generate(self, length: int) -> Program:
        """A program of about `length` statements. Reject for one that is not wanted."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.scope = {}
            for _ in range(self.rng.choice((1, 1, 2, 2, 3))):
                rank = self.rng.choice((1, 2, 2, 3, 3, 4))
                self.new_input(
                    tuple(self.rng.choice(self.dims) for _ in range(rank)),
                    self.main if self.chance(0.8) else self.dtype(),
                )
            weights = [w for w, _, _ in self.grammar]
            # a program likes some kinds of operators more than others
            kinds = {k: self.rng.choice((0.2, 1, 1, 3)) for k in sorted({k for _, k, _ in self.grammar})}
            weights = [w * kinds[k] for w, k, _ in self.grammar]
            for _ in range(length * 6):
                if len(self.statements) >= length:
                    break
                _, kind, make = self.rng.choices(self.grammar, weights)[0]
                before = len(self.inputs)
                try:
                    if self.chance(0.02):
                        self.alias_input()
                    text = make(self)
                except (Reject, RuntimeError):  # asking for the history of some views is an error once they are written
                    text = None
                if text is None or not self.add(text, write=kind == "write"):
                    for number in range(before, len(self.inputs)):
                        del self.values[f"x{number}"], self.scope[f"x{number}"]
                    del self.inputs[before:]
            return self.finished()

    def finished(self) -> Program:
        if len(self.statements) < 2:
            raise Reject
        used = {n for s in self.statements for n in s.uses()}
        targets = [s.target for s in self.statements if s.target]
        ends = [n for n in targets if n not in used]
        results = ends[-3:] or targets[-1:]
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            results.append(self.rng.choice(list(self.values)))
        results = list(dict.fromkeys(results)) if self.chance(0.9) else results
        if self.trains and not any(self.values[r].requires_grad for r in results):
            raise Reject
        if not results or (self.trains and not self.backward_runs(results)):
            raise Reject
        return Program(tuple(self.inputs), tuple(self.statements), tuple(results), self.mode, self.seed)


def generate(seed: int, grammar: Grammar, mode: str | None = None, length: int | None = None) -> Program:
    """The program of a seed: the same for the same version of torch and of this tool."""
    for attempt in range(100):
        rng = random.Random(seed * 1009 + attempt)
        maker = Generator(seed * 1009 + attempt, grammar, mode)
        try:
            program = maker.generate(length or rng.choice((3, 5, 6, 8, 8, 10, 12, 16)))
        except Reject:
            continue
        return replace(drop_unused(program), seed=seed)
    raise RuntimeError(f"no program for seed {seed}")


def drop_unused(program: Program) -> Program:
    """The program without statements and inputs that no result depends on. Writes are kept, because their effect may be
    visible."""
    statements = list(program.statements)
    while True:
        used = {n for s in statements for n in s.uses()} | set(program.results)
        kept = [s for s in statements if not s.target or s.target in used]
        if len(kept) == len(statements):
            break
        statements = kept
    return replace(program, statements=tuple(statements))


def compact(program: Program) -> Program:
    """The program without unused inputs; the others are renumbered."""
    from .program import NAME

    used = {n for s in program.statements for n in s.uses()} | set(program.results)
    keep = [i for i in range(len(program.inputs)) if f"x{i}" in used]
    owners = {program.inputs[i].base for i in keep} - {None}
    keep = sorted({*keep, *owners})  # type: ignore[type-var]
    number: dict[Any, int] = {old: new for new, old in enumerate(keep)}

    def renamed(text: str) -> str:
        return NAME.sub(lambda m: f"x{number[int(m[0][1:])]}" if m[0][0] == "x" else m[0], text)

    inputs = tuple(replace(program.inputs[i], base=number.get(program.inputs[i].base)) for i in keep)
    statements = tuple(replace(s, text=renamed(s.text)) for s in program.statements)
    return replace(program, inputs=inputs, statements=statements, results=tuple(map(renamed, program.results)))
