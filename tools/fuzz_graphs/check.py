"""Runs a program in eager and compiled, and compares everything that the caller can see."""

from __future__ import annotations

import contextlib
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from .program import Program, arguments
from .rounding import Perturbation, RoundedOperators

# relative and absolute error that any correct order of the same arithmetic may have
TOLERANCE = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1e-5, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float16: (2e-3, 1e-3),
}
PERTURBED_RUNS, MANY_PERTURBED_RUNS = 6, 24  # the second, for numbers that the first do not explain
THREADS = 4
SHIFTS = (0, 1, 3)  # how much larger the sizes of a dynamic program's calls are


@dataclass
class Outcome:
    """What a caller sees of one call. `tensors`: every tensor to compare; `facts`: what must be equal; both by name."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class Verdict:
    """`kind`: "" if the program is right, "skip" if eager itself fails, otherwise what is wrong. `sensitive`: counts
    numbers that differ, but that other rounding errors change as much."""

    kind: str = ""
    detail: str = ""
    sensitive: int = 0
    notes: dict[str, int] = field(default_factory=dict)


class Wrong(Exception):
    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail


def call(
    fn: Callable[..., Any],
    program: Program,
    seed: int,
    device: str,
    double: bool = False,
    sizes: dict[int, int] | None = None,
    writes: bool = True,
) -> Outcome:
    """Calls `fn` once on its own inputs, computes gradients, then writes to each result to see what shares memory."""
    args = arguments(program, seed, device, double, sizes)
    inner = [x for x in args.given if x.requires_grad and not x.is_leaf]
    for x in inner if program.seed % 3 == 0 else ():
        x.retain_grad()  # also of inputs that the program writes
    history = [x.grad_fn for x in inner]
    results = fn(*args.given)
    seen = Outcome()
    if not isinstance(results, tuple):
        raise Wrong("structure", f"a {type(results).__name__} was returned")
    seen.facts["results"] = len(results)
    for k, out in enumerate(results):
        seen.tensors[f"result {k}"] = out.detach().clone(memory_format=torch.preserve_format)
        seen.facts[f"result {k} requires_grad"] = out.requires_grad
        seen.facts[f"result {k} strides"] = strides(out)
        seen.facts[f"result {k} is input"] = (
            [out is x for x in args.given].index(True) if any(out is x for x in args.given) else None
        )
        seen.facts[f"result {k} is result"] = [out is y for y in results].index(True)
    for k, base in enumerate(args.bases):
        seen.tensors[f"base {k}"] = base.detach().clone()
    for k, x in enumerate(args.given):
        seen.facts[f"input {k} after"] = (tuple(x.shape), x.stride() if x.numel() else None, x.requires_grad)
    if program.trains:
        retained = [x for x, before in zip(inner, history) if x.retains_grad or x.grad_fn is before]
        gradients(program, results, args, retained, seen)
    if writes:
        write_to_results(results, args, seen)
    return seen


def strides(t: torch.Tensor) -> tuple[int, ...] | None:
    """The strides of dimensions that have any meaning, if the elements of the tensor fill its memory; otherwise
    None."""
    if not t.numel():
        return None
    axes = sorted((s, n) for n, s in zip(t.shape, t.stride()) if n > 1)
    expected = 1
    for s, n in axes:
        if s != expected:
            return None
        expected *= n
    return tuple(s if n > 1 else 0 for n, s in zip(t.shape, t.stride()))


def gradients(
    program: Program, results: tuple[torch.Tensor, ...], args: Any, retained: list[torch.Tensor], seen: Outcome
) -> None:
    """The gradients of the bases, and of the inputs in `retained`. Inputs that the program wrote are included only if
    they retain their gradients, because for autograd a result of the graph does not depend on its other results."""
    roots = [o for o in results if o.requires_grad]
    wanted = [b for b in args.bases if b.requires_grad and b.is_leaf]
    wanted += [x for x in retained if all(x is not b for b in wanted)]
    if not roots or not wanted:
        return
    incoming = [
        torch.linspace(-1, 1, o.numel(), dtype=torch.float64, device=o.device).reshape(o.shape).to(o.dtype)
        for o in roots
    ]
    try:
        if program.seed % 4 == 0:  # a first backward through the same graph, of other gradients
            ones = [torch.ones_like(o) for o in roots]
            first = torch.autograd.grad(roots, wanted, ones, allow_unused=True, retain_graph=True)
            seen.tensors |= {f"gradient {k} of ones": g.detach().clone() for k, g in enumerate(first) if g is not None}
        found = torch.autograd.grad(roots, wanted, incoming, allow_unused=True)
    except RuntimeError as error:
        # such as a saved tensor that was written: an error is right where eager has one
        seen.facts["backward"] = "error"
        seen.facts["backward message (not compared)"] = str(error)
        return
    seen.facts["backward"] = "runs"
    for k, grad in enumerate(found):
        seen.facts[f"gradient {k} is None"] = grad is None
        if grad is not None:
            seen.tensors[f"gradient {k}"] = grad.detach().clone()


def write_to_results(results: tuple[torch.Tensor, ...], args: Any, seen: Outcome) -> None:
    """Which results and bases share memory: writes to each result in turn and records which others change."""
    every = {f"result {k}": r.detach() for k, r in enumerate(results)} | {
        f"base {k}": b.detach() for k, b in enumerate(args.bases)
    }
    for k, out in enumerate(results):
        before = {name: t.clone() for name, t in every.items()}
        try:
            with torch.no_grad():
                flipped = out.detach()
                flipped.copy_(flipped.logical_not() if out.dtype == torch.bool else torch.full_like(flipped, 99 - k))
        except RuntimeError:
            continue  # of overlapping memory
        changed = [
            name for name, t in every.items() if not torch.equal(torch.nan_to_num(before[name]), torch.nan_to_num(t))
        ]
        seen.facts[f"written with result {k}"] = sorted({*changed, f"result {k}"})


# ---- the comparison


def compare(
    program: Program, want: Outcome, got: Outcome, references: Callable[[int], list[Outcome]],
    fake_strides: Callable[[], list[Any] | None], refused: Callable[[], bool], where: str,
) -> int:
    """Raises Wrong if the outcomes differ. Returns how many numbers differ by as much as rounding elsewhere may
    cause."""
    sensitive = 0
    for name, expected in want.tensors.items():
        found = got.tensors.get(name)
        if found is None:
            raise Wrong("gradient" if name.startswith("gradient") else "results", f"{where}: {name} is missing")
        if found.dtype != expected.dtype or found.shape != expected.shape:
            raise Wrong(
                "shape or dtype",
                f"{where}: {name} is {found.dtype} {list(found.shape)}, not {expected.dtype} {list(expected.shape)}",
            )
        bad = differ(found, expected)
        if bool(bad.any()):
            for runs in (PERTURBED_RUNS, MANY_PERTURBED_RUNS):
                if bool(bad.any()):
                    bad = bad & ~excused(name, found, expected, references(runs))
            if bool(bad.any()):
                kind = (
                    "gradient"
                    if name.startswith("gradient")
                    else "written input"
                    if name.startswith("base")
                    else "value"
                )
                at = tuple(bad.nonzero()[0].tolist())
                raise Wrong(
                    kind,
                    f"{where}: {name}: {int(bad.sum())} of {bad.numel()} wrong, "
                    f"at {list(at)} {found[at].item()} for {expected[at].item()}",
                )
            sensitive += 1
    for name, expected_fact in want.facts.items():
        if "not compared" not in name and got.facts.get(name, "missing") != expected_fact:
            if name.endswith("strides"):
                if expected_fact is None:
                    continue
                known = fake_strides()
                if known is not None and got.facts[name] == known[int(name.split()[1])]:
                    continue
            if name == "backward" and expected_fact == "error" and refused():
                continue
            kind = (
                "strides"
                if name.endswith("strides")
                else "aliasing"
                if name.startswith("written") or " is " in name
                else "backward"
                if name == "backward"
                else "metadata"
            )
            errors = {
                who: outcome.facts["backward message (not compared)"]
                for who, outcome in (("compiled", got), ("eager", want))
                if "backward message (not compared)" in outcome.facts
            }
            raised = "".join(f"; {who} raises in the backward: {error}" for who, error in errors.items())
            raise Wrong(kind, f"{where}: {name}: {got.facts.get(name, 'missing')} for {expected_fact}{raised}")
    return sensitive


def differ(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Elementwise: whether two tensors of one dtype differ by more than the tolerance of the dtype."""
    if not found.dtype.is_floating_point:
        return found != expected
    rtol, atol = TOLERANCE[found.dtype]
    a, b = found.double(), expected.double()
    near = b.isfinite() & ((a - b).abs() <= atol + rtol * b.abs())
    return ~(near | same_number(a, b))


def excused(name: str, found: torch.Tensor, expected: torch.Tensor, references: list[Outcome]) -> torch.Tensor:
    """Elementwise: whether a difference is acceptable, because the error against float64 is at most three times
    eager's, or because other roundings of the same program differ as much. Integers are excused only if these runs
    disagree."""
    exact, *perturbed = [r.tensors.get(name) for r in references] if references else [None]
    nothing = torch.zeros(found.shape, dtype=torch.bool, device=found.device)
    if exact is None or exact.shape != found.shape or any(p is None or p.shape != found.shape for p in perturbed):
        return nothing if exact is None or exact.shape == found.shape else ~nothing
    if not found.dtype.is_floating_point:
        unstable = nothing
        for p in perturbed:
            unstable = unstable | (p != exact)
        return unstable | (exact != expected)
    rtol, atol = TOLERANCE[found.dtype]
    a, e, x = found.double(), expected.double(), exact.double()
    spread = torch.zeros_like(x)
    broken = x.isfinite() != e.isfinite()  # it overflows only where there is rounding
    for p in perturbed:
        off = torch.where(same_number(p.double(), x), 0.0, (p.double() - x).abs())
        broken = broken | off.isnan() | off.isinf()  # an infinity, or not a number, in one of the two only
        spread = torch.maximum(spread, off)
    # eager's error at one number may be small by chance: that of the whole tensor counts, relative where this is less
    error = (e - x).abs().nan_to_num(0.0, 0.0, 0.0)
    scale = x.abs() + 1e-2
    error = torch.maximum(error, torch.minimum(error.max(), (error / scale).nan_to_num(0.0, 0.0, 0.0).max() * scale))
    bound = atol + rtol * x.abs() + 3 * error + 8 * spread
    return (x.isfinite() & ((a - x).abs() <= bound)) | same_number(a, x) | broken


def same_number(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Elementwise: whether two tensors are equal, where equal infinities and two NaNs count as equal."""
    return (a == b) | (a.isnan() & b.isnan())


def reference_runs(
    program: Program, seed: int, device: str, sizes: dict[int, int] | None, runs: int
) -> list[Outcome]:
    """Runs the program in float64: once as it is, and `runs` times with rounding errors added to each arithmetic
    result, of the statements in all of these runs, and of the ATen operators in every second one."""
    dtypes: dict[str, torch.dtype] = {}
    operators: dict[tuple[str, int], torch.dtype] = {}

    def note(value: torch.Tensor, name: str, differences: bool) -> torch.Tensor:
        dtypes[name] = value.dtype
        return value

    outcomes = []
    before = torch.get_default_dtype()
    try:
        with sdpa_kernel(SDPBackend.MATH), RoundedOperators(operators, 0, noted=True):
            fn = program.function(device, perturbed=True, perturb=note)
            call(fn, program, seed, device, sizes=sizes, writes=False)
        torch.set_default_dtype(torch.float64)
        outcomes.append(call(program.function(device, double=True), program, seed, device, True, sizes, writes=False))
        for k in range(runs):
            fn = program.function(device, double=True, perturbed=True, perturb=Perturbation(dtypes, k, device))
            with contextlib.ExitStack() as modes, contextlib.suppress(RuntimeError, IndexError):
                # sizes that depend on data may no longer fit; such a run is ignored
                if k % 2:
                    modes.enter_context(sdpa_kernel(SDPBackend.MATH))
                    modes.enter_context(RoundedOperators(operators, k))
                outcomes.append(call(fn, program, seed, device, True, sizes, writes=False))
    except (RuntimeError, TypeError, IndexError, ValueError):
        return []  # some operators do not accept float64 together with their other arguments
    finally:
        torch.set_default_dtype(before)
    return outcomes


def strides_of_fakes(program: Program, seed: int, device: str, sizes: dict[int, int] | None) -> list[Any] | None:
    """The strides of the results according to torch's own fake tensors, to excuse strides that no compiler could
    predict. Values that a statement needs, and sizes that depend on data, are taken from eager; None if such a
    statement writes."""
    mode = FakeTensorMode()
    real = {f"x{i}": x.detach() for i, x in enumerate(arguments(program, seed, device, sizes=sizes).given)}
    fake = {name: mode.from_tensor(x) for name, x in real.items()}
    for scope in (real, fake):
        scope.update(torch=torch, F=F, DEVICE=torch.device(device))
    for statement in program.statements:
        exec(statement.line(), real)  # noqa: S102
        try:
            with mode:
                exec(statement.line(), fake)  # noqa: S102
        except (DataDependentOutputException, DynamicOutputShapeException):
            if not statement.target:
                return None
            fake[statement.target] = mode.from_tensor(real[statement.target].detach())
    return [strides(fake[name]) for name in program.results]


def refused_by_operators(program: Program, seed: int, device: str, sizes: dict[int, int] | None) -> bool:
    """Whether eager's backward also fails without the program's writes. The reason is then not a saved tensor that was
    written, but an operator whose formula does not accept the dtypes of its operands."""
    kept = tuple(s for s in program.statements if s.target)
    without = replace(program, statements=kept)
    seen = call(without.function(device), without, seed, device, sizes=sizes, writes=False)
    return seen.facts.get("backward") == "error"


# ---- one program


def other_sizes(program: Program, shift: int) -> dict[int, int]:
    return {n: n + shift for i in program.inputs for n in i.shape if n > 1}


def check(program: Program, compiler: Callable[..., Callable[..., Any]], device: str = "cpu") -> Verdict:
    """Compares `compiler(fn, dynamic)` with eager over several calls. Any exception of a compiled call that eager does
    not raise is a failure, too."""
    fn = program.function(device)
    verdict = Verdict()
    calls: list[tuple[int, dict[int, int]]] = [(0, {}), (1, {})]
    if "dynamic" in program.mode:
        calls = [(k, other_sizes(program, shift)) for k, shift in enumerate(SHIFTS)]
    compiled = compiler(program.function(device), "dynamic" in program.mode)
    ran = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed, sizes in calls:
            try:
                want = call(fn, program, seed, device, sizes=sizes)
            except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
                verdict.notes[f"eager raises {type(error).__name__}"] = 1
                continue
            ran += 1
            try:
                run_once(program, compiled, seed, device, sizes, want, verdict)
            except Wrong as wrong:
                verdict.kind, verdict.detail = wrong.kind, wrong.detail
                return verdict
    if not ran:
        verdict.kind = "skip"
    return verdict


def run_once(
    program: Program,
    compiled: Callable[..., Any],
    seed: int,
    device: str,
    sizes: dict[int, int],
    want: Outcome,
    verdict: Verdict,
) -> None:
    where = f"call {seed}" + (f" with sizes {sizes}" if sizes else "")
    cached: dict[int, list[Outcome]] = {}

    def references(runs: int) -> list[Outcome]:
        if runs not in cached:
            cached[runs] = reference_runs(program, seed, device, sizes, runs)
        return cached[runs]

    def refused() -> bool:
        return refused_by_operators(program, seed, device, sizes)

    def fake_strides() -> list[Any] | None:
        return strides_of_fakes(program, seed, device, sizes)

    if program.mode != "threads":
        outcomes = [guarded(compiled, program, seed, device, sizes, where)]
    else:
        outcomes = in_threads(compiled, program, seed, device, sizes, where)
    for got in outcomes:
        if isinstance(got, Wrong):
            raise got
        verdict.sensitive += compare(program, want, got, references, fake_strides, refused, where)


def guarded(
    compiled: Callable[..., Any], program: Program, seed: int, device: str, sizes: dict[int, int], where: str
) -> Outcome | Wrong:
    try:
        return call(compiled, program, seed, device, sizes=sizes)
    except Wrong as wrong:
        return wrong
    except Exception as error:  # noqa: BLE001  any exception is the finding
        return Wrong(f"error {type(error).__name__}", f"{where}: {error}\n{trace_of(error)}")


def trace_of(error: BaseException) -> str:
    """The last lines of the tracebacks of an exception and of its first cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return "".join(traceback.format_tb(error.__traceback__)[-6:])


def in_threads(
    compiled: Callable[..., Any], program: Program, seed: int, device: str, sizes: dict[int, int], where: str
) -> list[Outcome | Wrong]:
    found: list[Outcome | Wrong] = []
    start = threading.Barrier(THREADS)

    def run() -> None:
        start.wait()
        for _ in range(2):
            found.append(guarded(compiled, program, seed, device, sizes, where))

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return found
