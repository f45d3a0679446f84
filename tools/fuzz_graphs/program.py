"""A random tensor program as data (inputs, statements, results), with its source, its eager function and its input
values."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

NAME = re.compile(r"\b[xv]\d+\b")
# operators that subtract a mean, by whose rounding a zero may come out as any small number
DIFFERENCES = re.compile(r"\b(\w+_norm|std|var|std_mean|var_mean|cov|corrcoef)\(")
HALF_TO_DOUBLE = re.compile(r"torch\.(float32|float16|bfloat16)\b")


@dataclass(frozen=True)
class Input:
    """A tensor input: a base tensor of `shape` and `dtype` filled by `fill`, and a view of it, `layout`.

    `layout` is an expression in which `b` is the base. `base`: the number of the input whose base this one shares,
    None for a base of its own. `grad`: the base requires grad.
    """

    shape: tuple[int, ...]
    dtype: str
    values: str = "normal"
    layout: str = "b"
    base: int | None = None
    grad: bool = False


@dataclass(frozen=True)
class Statement:
    """One line of the program. `target`: the name it defines, "" for a write. `fresh`: the result has memory of its
    own and may be rounded differently, so that a perturbed run may change it. `region`: a `with` statement around
    it."""

    target: str
    text: str
    fresh: bool = False
    region: str = ""

    def uses(self) -> list[str]:
        """The names of the values that it reads or writes."""
        return NAME.findall(self.text)

    def line(self) -> str:
        line = f"{self.target} = {self.text}" if self.target else self.text
        return f"{self.region}: {line}" if self.region else line


@dataclass(frozen=True)
class Program:
    """`mode`: forward, backward, dynamic, dynamic_backward or threads."""

    inputs: tuple[Input, ...]
    statements: tuple[Statement, ...]
    results: tuple[str, ...]
    mode: str = "forward"
    seed: int = 0

    def source(self, perturbed: bool = False, double: bool = False) -> str:
        """The function's text. `perturbed`: results of arithmetic go through `_p`. `double`: floats are float64."""
        names = ", ".join(f"x{i}" for i in range(len(self.inputs)))
        lines = [f"def f({names}):"]
        for s in self.statements:
            lines.append(f"    {s.line()}")
            if perturbed and s.fresh:
                lines.append(f"    {s.target} = _p({s.target}, {s.target!r}, {bool(DIFFERENCES.search(s.text))})")
        returned = ", ".join(self.results) + ("," if len(self.results) == 1 else "")
        lines.append(f"    return ({returned})")
        text = "\n".join(lines) + "\n"
        return HALF_TO_DOUBLE.sub("torch.float64", text) if double else text

    def function(self, device: str = "cpu", **how: Any) -> Callable[..., Any]:
        """The function as torch runs it."""
        text = self.source(**{k: v for k, v in how.items() if k in ("perturbed", "double")})
        scope = {"torch": torch, "F": F, "DEVICE": torch.device(device), "_p": how.get("perturb")}
        exec(compile(text, f"<program {self.seed}>", "exec"), scope)  # noqa: S102
        return scope["f"]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Program:
        inputs = tuple(Input(**{**i, "shape": tuple(i["shape"])}) for i in data["inputs"])
        statements = tuple(Statement(**s) for s in data["statements"])
        return Program(inputs, statements, tuple(data["results"]), data["mode"], data["seed"])

    @property
    def trains(self) -> bool:
        return self.mode in ("backward", "dynamic_backward") or any(i.grad for i in self.inputs)


def fill(shape, dtype, values, generator):
    """A tensor of random numbers. `values`: normal; grid (quarters, so that sums are exact and ties occur); extreme
    (with infinities, NaN and large numbers); unit (0 to 1); or "lo:hi" for integers of [lo, hi)."""
    kind = getattr(torch, dtype)
    if ":" in values:
        lo, hi = map(int, values.split(":"))
        return torch.randint(lo, max(hi, lo + 1), shape, generator=generator).to(kind)
    if kind == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(kind)
    if not kind.is_floating_point:
        return torch.randint(0 if kind == torch.uint8 else -6, 7, shape, generator=generator).to(kind)
    if values == "grid":
        return (torch.randint(-6, 7, shape, generator=generator) / 4).to(kind)
    if values == "unit":
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(kind)
    out = torch.randn(shape, generator=generator, dtype=torch.float64)
    if values == "extreme":
        special = torch.tensor(
            [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e30, -1e30, 1e-30], dtype=torch.float64
        )
        chosen = special[torch.randint(0, 8, shape, generator=generator)]
        out = torch.where(torch.rand(shape, generator=generator, dtype=torch.float32) < 0.3, chosen, out)
    return out.to(kind)


@dataclass
class Arguments:
    """The tensors of one call: the bases, and the views of them that the program is given."""

    bases: list[torch.Tensor] = field(default_factory=list)
    given: list[torch.Tensor] = field(default_factory=list)


def arguments(
    program: Program, seed: int, device: str = "cpu", double: bool = False, sizes: Mapping[int, int] | None = None
) -> Arguments:
    """The inputs of call number `seed`. `double`: the same numbers in float64. `sizes`: other sizes for some."""
    built, by_input = Arguments(), {}
    for number, spec in enumerate(program.inputs):
        if spec.base is not None:
            b = by_input[spec.base]
        else:
            shape = [(sizes or {}).get(n, n) for n in spec.shape]
            b = fill(shape, spec.dtype, spec.values, torch.Generator().manual_seed(1000 * seed + number))
            b = b.to(device)
            b = b.double() if double and b.is_floating_point() else b
            b.requires_grad_(spec.grad)
            built.bases.append(b)
        by_input[number] = b
        built.given.append(eval(spec.layout, {"b": b, "torch": torch}))  # noqa: S307
    return built


def needs_gradient(program: Program) -> list[bool]:
    """For each base, whether it requires grad."""
    return [i.grad for i in program.inputs if i.base is None]


def standalone(program: Program, why: str, device: str = "cpu", shared: str = "") -> str:
    """A Python file that runs the program both ways and prints what differs."""
    lines = [
        '"""' + why.strip().replace('"""', "'''").replace("\\", "/") + '\n"""',
        "import torch",
        "import torch.nn.functional as F",
        "import pyframe",
        "",
        f'DEVICE = torch.device("{device}")',
        "",
        inspect.getsource(fill),
        program.source(),
        "",
        "def inputs(seed):",
        "    bases = {}",
    ]
    for number, spec in enumerate(program.inputs):
        if spec.base is None:
            text = f"fill({list(spec.shape)}, {spec.dtype!r}, {spec.values!r}, "
            text += f"torch.Generator().manual_seed(1000 * seed + {number}))"
            lines.append(f"    bases[{number}] = {text}.to(DEVICE){'.requires_grad_()' if spec.grad else ''}")
        layout = re.sub(r"\bb\b", f"bases[{number if spec.base is None else spec.base}]", spec.layout)
        lines.append(f"    x{number} = {layout}")
    names = ", ".join(f"x{i}" for i in range(len(program.inputs)))
    tail = "," if len(program.inputs) == 1 else ""
    dynamic = ", dynamic=True" if "dynamic" in program.mode else ""
    lines += [
        f"    return list(bases.values()), ({names}{tail})",
        "",
        "",
        f"fast = pyframe.compile(f{dynamic})  # mode: {program.mode}",
        "for seed in (0, 1):",
        "    (eager_bases, eager_in), (fast_bases, fast_in) = inputs(seed), inputs(seed)",
        "    pairs = []",
        "    for call, args, bases in ((f, eager_in, eager_bases), (fast, fast_in, fast_bases)):",
        "        outs = call(*args)",
        "        wanted = [b for b in bases if b.requires_grad]",
        "        roots = [o for o in outs if isinstance(o, torch.Tensor) and o.requires_grad]",
        "        ones = [torch.linspace(-1, 1, o.numel(), device=DEVICE).view(o.shape).to(o.dtype) for o in roots]",
        "        grads = torch.autograd.grad(roots, wanted, ones, allow_unused=True) if roots and wanted else ()",
        "        pairs.append([*outs, *bases, *grads])",
        "    for k, (want, got) in enumerate(zip(*pairs)):",
        "        same = want is None and got is None",
        "        same = same or torch.allclose(want.double(), got.double(), 1e-3, 1e-4, equal_nan=True)",
        "        print(seed, k, 'same' if same else f'DIFFERENT\\n{want}\\n{got}')",
    ]
    return "\n".join(lines) + "\n"


def numel(shape: Sequence[int]) -> int:
    return math.prod(shape)
