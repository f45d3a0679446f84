"""Runs one job of `benchmarks.accuracy`: a model in eager, in a reference with a wider dtype, and compiled."""

from __future__ import annotations

import copy
import functools
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from .accuracy_draws import Recorded, Replayed
from .accuracy_measure import bias, difference, outlier, size

# Root mean square of the error over that of the tensor: about what a sum over a few hundred numbers loses.
TOLERANCES = {"float32": 1e-5, "bfloat16": 1.6e-2, "float16": 2e-3, "autocast": 1.6e-2}
MAX_WORSE = 3.0  # times eager's own error
# A tensor is measured by no less than this part of the largest of its kind: gradients that are zero but for rounding.
SMALLEST_PART = 1e-3
PEAK = 8.0  # a single element may be this many times as far off as the root mean square allows
BIAS = 0.25  # of what rounding may make, at most so much lies along the tensor
WIDE = 1e-3  # tolerances of half precision
FILLER = 100.0  # times the others: what makes a constant a filler
NO_DIRECTION = 1 / 3  # of eager's error may lie along the tensor
REFERENCE_NOISE = 100.0  # times its epsilon: what a reference may be off by, over the largest of a kind
CALLS = 2
# Models that set `requires_grad` of what they make of their input, which then must not require a gradient itself.
OWN_LEAVES = ("hf/wav2vec2", "hf/hubert", "hf/wavlm", "hf/sew", "hf/unispeech", "hf/data2vec_audio")
IMAGES = 4  # of which timm's models train on at least
DISTURBED = 5  # more runs of eager, where its error is in doubt
EAGER_WRONG = 100.0  # eager is reported where it is this many times as far off as ours, and as the tolerance allows


@dataclass(frozen=True)
class Job:
    """A model by its name, on a device, in a dtype of `TOLERANCES`, in "train" or "infer" mode.

    It is called `calls` times; results of the first and the last call are compared. `accumulate`: gradients accumulate
    over the calls, and those of floating-point inputs are compared, too; otherwise gradients are dropped before each
    call, as a training loop does, and inputs require none. `reference`: the device on which the reference is computed,
    if it can."""

    model: str
    device: str
    dtype: str
    mode: str
    calls: int = CALLS
    accumulate: bool = True
    reference: str = "cpu"

    @property
    def key(self) -> str:
        """The name of the job in the results."""
        return f"{self.model} {self.dtype} {self.mode}"

    @property
    def train(self) -> bool:
        return self.mode == "train"


@dataclass
class Setting:
    """A model and its inputs in one dtype on one device."""

    model: Any
    inputs: dict[str, Any]
    job: Job
    autocast: bool

    def copy(self) -> Setting:
        return Setting(copy.deepcopy(self.model), copy.deepcopy(self.inputs), self.job, self.autocast)

    def to(self, dtype: torch.dtype) -> Setting:
        """The setting with all floating-point tensors in that dtype, without autocast."""
        inputs = {name: _to(value, dtype, None) for name, value in self.inputs.items()}
        return Setting(self.model.to(dtype), inputs, self.job, False)


Case = Callable[[], tuple[Any, dict[str, Any]]]  # makes a model and its keyword arguments
Found = dict[str, torch.Tensor | str]  # by path: tensors, and the repr of what else a result holds


def _to(value: Any, dtype: torch.dtype | None, device: str | None) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device=device, dtype=dtype if value.is_floating_point() else None)
    if isinstance(value, Mapping):
        return {k: _to(v, dtype, device) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_to(v, dtype, device) for v in value)
    return value


def without_dropout(model: torch.nn.Module) -> None:
    """Sets every dropout probability to 0, in modules and in the configurations that they read."""
    seen: set[int] = set()
    for module in model.modules():
        for holder in (module, getattr(module, "config", None)):
            if holder is None or id(holder) in seen or not hasattr(holder, "__dict__"):
                continue
            seen.add(id(holder))
            for name, value in list(vars(holder).items()):
                if type(value) is float and ("drop" in name or name == "p" and "Dropout" in type(module).__name__):
                    setattr(holder, name, 0.0)


def prepared(job: Job, case: Case, keep_dropout: bool) -> Setting:
    """The model as it is compiled."""
    model, inputs = case()
    model.train(job.train)
    if job.train and job.model.startswith("timm/"):  # over two images batch norm has a gradient of zero, and noise
        inputs = {k: torch.cat([v, torch.randn(max(0, IMAGES - len(v)), *v.shape[1:])]) for k, v in inputs.items()}
    if not keep_dropout:
        without_dropout(model)
    dtype = getattr(torch, job.dtype) if job.dtype != "autocast" else None
    model = model.to(device=job.device, dtype=dtype)
    return Setting(model, {k: _to(v, dtype, job.device) for k, v in inputs.items()}, job, dtype is None)


# ---- running


def run(setting: Setting, call: Callable[..., Any]) -> tuple[Found, float]:
    """The values to compare, by name, and the seconds of the first call with its backward."""
    job, found = setting.job, Found()
    leaves = job.train and job.accumulate and not job.model.startswith(OWN_LEAVES)
    inputs = {k: _leaf(v) for k, v in setting.inputs.items()} if leaves else setting.inputs
    seconds = 0.0
    for k in range(job.calls):
        if not job.accumulate:
            setting.model.zero_grad(set_to_none=True)
        torch.manual_seed(1)
        start = time.perf_counter()
        autocast = torch.autocast(job.device, torch.bfloat16) if setting.autocast else nullcontext()
        with torch.set_grad_enabled(job.train), autocast:
            out = call(**inputs)
        results = dict(flat(out, f"call {k}: output"))
        compared = k in (0, job.calls - 1)
        if compared:
            found |= {name: v.detach().clone() if isinstance(v, torch.Tensor) else v for name, v in results.items()}
            found |= {f"{name} as": _described(v) for name, v in results.items() if isinstance(v, torch.Tensor)}
        if job.train:
            _backward(out, results)
        if job.device == "cuda":
            torch.cuda.synchronize()
        seconds = seconds or time.perf_counter() - start
        if job.train and compared:
            found |= _gradients(setting.model.named_parameters(), f"call {k}: gradient")
            found |= _gradients(inputs.items(), f"call {k}: gradient of input")
    found |= {f"buffer {name}": buffer.detach().clone() for name, buffer in setting.model.named_buffers()}
    return found, seconds


def _leaf(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().clone().requires_grad_()
    return value


def _described(value: torch.Tensor) -> str:
    return f"{tuple(value.shape)} {value.dtype} requires_grad={value.requires_grad}"


def flat(value: Any, path: str, seen: set[int] | None = None) -> Iterator[tuple[str, torch.Tensor | str]]:
    """The tensors in a result by their paths, and everything else as text."""
    seen = set() if seen is None else seen
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, int | float | str | complex | None):
        yield path, repr(value)
    elif id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, Mapping):
            for key, each in value.items():
                yield from flat(each, f"{path}.{key}", seen)
        elif isinstance(value, list | tuple):
            for key, each in enumerate(value):
                yield from flat(each, f"{path}.{key}", seen)
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            yield from flat(vars(value), path, seen)


def _backward(out: Any, results: dict[str, Any]) -> None:
    """Backward from the loss if the model returns one, otherwise from all its results with random weights."""
    loss = out.get("loss") if isinstance(out, Mapping) else None
    if loss is not None:
        loss.backward()
        return
    generator = torch.Generator().manual_seed(7)
    outs, weights = [], []
    for value in results.values():
        if isinstance(value, torch.Tensor) and value.requires_grad:
            outs.append(value)
            real = torch.randn(value.shape, generator=generator, dtype=torch.float32)
            weights.append(real.to(value.device, value.dtype))
    if not outs:
        raise NoGradient("no result requires a gradient")
    torch.autograd.backward(outs, weights)


class NoGradient(Exception):
    """A model that has nothing to train."""


def _gradients(named: Iterable[tuple[str, Any]], prefix: str) -> Found:
    found: Found = {}
    for name, leaf in named:
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            grad = leaf.grad
            found[f"{prefix} {name}"] = "None" if grad is None else grad.detach().clone()
    return found


# ---- comparing


def run_job(job: Job, case: Case, system: str) -> dict[str, Any]:
    """The fields of the job's row: `status`, what is wrong, and the seconds of the first call."""
    stochastic = getattr(case, "stochastic", False)
    if stochastic and job.device == "cuda":
        return {"status": "not for this setting", "detail": "compiled graphs draw other numbers on a GPU than eager"}
    torch.backends.cudnn.allow_tf32 = False
    try:
        setting = prepared(job, case, stochastic)
        plain = setting.copy()
        recorded = Recorded()
        with recorded if stochastic else nullcontext():
            want, eager_seconds = run(plain, plain.model)
    except Exception as error:  # noqa: BLE001  the model, not the compiler
        return {"status": "eager failed", "detail": f"{type(error).__name__}: {error}"}
    draws = _draws_on_gpu(job)
    reference, note = reference_of(job, case, draws, recorded=recorded if stochastic else None)
    compiled, statistics = _compiled(setting.model, system)
    found = judge(setting, case, compiled, want, reference, draws, stochastic)
    notes = [each for each in (found.get("detail"), note) if each]
    return {**found, **statistics(), "detail": "; ".join(notes), "eager_seconds": eager_seconds}


def judge(
    setting: Setting, case: Case, compiled: Callable[..., Any], want: Found, reference: Found | None,
    draws: bool = False, stochastic: bool = False,
) -> dict[str, Any]:
    """The result of `compare` for a compiled model, and the seconds of its first call. `want`: eager's results;
    `draws`: whether it draws numbers of the GPU's generator; `stochastic`: whether it does on purpose."""
    job = setting.job
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got, seconds = run(setting, compiled)
    runs = [(want, reference)]
    found = compare(got, runs, job.dtype)
    if found["status"] == "wrong" and found["ratio"] < float("inf") and not stochastic:
        again, *nearby = _compiled_again(setting, case, compiled)
        found = compare(got, runs + _disturbed(job, case, draws), job.dtype, nearby, again)
    ours = [w for w in caught if "pyframe" in str(w.message) or "inductor" in w.filename]
    messages = dict.fromkeys(str(w.message).splitlines()[0] for w in ours)
    return {**found, "detail": "; ".join([*([found["detail"]] if found["detail"] else []), *messages]),
            "first_seconds": seconds}  # fmt: skip


def _draws_on_gpu(job: Job) -> bool:
    """Whether the last run drew numbers from the GPU's generator, which the CPU does not have."""
    if job.device != "cuda":
        return False
    after = torch.cuda.get_rng_state()
    torch.manual_seed(1)  # as `run` does before each call
    return not torch.equal(after, torch.cuda.get_rng_state())


Change = Callable[[torch.nn.Module], None]


def reference_of(
    job: Job, case: Case, draws: bool = False, change: Change | None = None, recorded: Recorded | None = None
) -> tuple[Found | None, str]:
    """The results in a wider dtype, or None and the reason why there are none. `recorded`: the numbers that eager drew
    for a model with dropout, which the reference uses.

    The reference is computed on the device `job.reference`, which is the CPU unless the caller says otherwise, so that
    an error in a GPU operator shows as an error of eager and is not taken for the right result. It is computed on the
    job's device only if the other cannot, or would draw other random numbers."""
    wide = torch.float64 if job.dtype == "float32" else torch.float32
    devices = [job.device] if draws else list(dict.fromkeys([job.reference, job.device]))
    for device in devices:
        torch.set_default_dtype(torch.float32)
        setting = prepared(replace(job, device=device), case, recorded is not None)
        if change:
            change(setting.model)
        setting = setting.to(wide)
        try:
            torch.set_default_dtype(wide)
            with Replayed(recorded) if recorded is not None else nullcontext():
                found = run(setting, setting.model)[0]
            return found, "" if device == devices[0] and not draws else f"the reference is of the device {device}"
        except Exception as error:  # noqa: BLE001  a model that names its dtypes, an operator that a device lacks
            reason = type(error).__name__
        finally:
            torch.set_default_dtype(torch.float32)
    return None, f"no reference in {wide} ({reason}): compared with eager"


def _disturbed(job: Job, case: Case, draws: bool) -> list[tuple[Found, Found | None]]:
    """Eager's results for slightly different parameters, each with the reference for the same parameters. In a model
    that magnifies rounding, such as a batch norm over four numbers, eager's own error at a single point is a matter of
    luck."""
    found = []
    for seed in range(DISTURBED):
        change = functools.partial(_disturb, seed=seed)
        setting = prepared(job, case, False)
        change(setting.model)
        found.append((run(setting, setting.model)[0], reference_of(job, case, draws, change)[0]))
    return found


def _compiled_again(setting: Setting, case: Case, compiled: Callable[..., Any]) -> list[Found]:
    """The results of the compiled model of `setting` in a second run, and for parameters that differ as in
    `_disturbed`."""
    found = []
    for seed in (None, *range(DISTURBED)):
        fresh = prepared(setting.job, case, False).model
        if seed is not None:
            _disturb(fresh, seed)
        with torch.no_grad():
            for x, y in zip(setting.model.parameters(), fresh.parameters(), strict=True):
                x.copy_(y)
                x.grad = None
            for x, y in zip(setting.model.buffers(), fresh.buffers(), strict=True):
                x.copy_(y)
        found.append(run(setting, compiled)[0])
    return found


@torch.no_grad()
def _disturb(model: torch.nn.Module, seed: int) -> None:
    """Multiplies parameters by 1 plus normal noise of about the relative distance of neighbouring bfloat16 numbers: a
    part of the model may compute in bfloat16 whatever the dtype of its parameters, and smaller noise would vanish
    there."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.is_floating_point():
            noise = torch.randn(parameter.shape, generator=generator).to(parameter.device)
            parameter.mul_((1 + noise * torch.finfo(torch.bfloat16).eps).to(parameter.dtype))


def _compiled(model: Any, system: str) -> tuple[Callable[..., Any], Callable[[], dict[str, Any]]]:
    """The compiled model, and a function that returns its counters after the calls."""
    if system == "torch.compile":
        return torch.compile(model), dict
    import pyframe
    from pyframe.metrics import counters

    return pyframe.compile(model), lambda: {
        "graphs": counters["graphs"],
        "breaks": sum(counters["graph_breaks"].values()),
        "recompiles": counters["recompiles"],
    }


def compare(
    got: Found, runs: Sequence[tuple[Found, Found | None]], dtype: str, nearby: Sequence[Found] = (),
    again: Found | None = None,
) -> dict[str, Any]:
    """The status of a job: "right", "wrong", or "eager wrong" if ours is right and eager is far off; the largest ratio
    of our error to eager's; and what is wrong.

    `got`: our results. `runs`: pairs of eager's results and their reference, first for the same parameters, then for
    parameters that differ in their last bits. `nearby`: our results for those parameters. If it is given, a tensor
    whose error is too large for the first parameters is judged by the medians of the errors, ours and eager's: a choice
    that rounding decides (the sign of an activation, the expert of a token) differs at some of these points, while a
    wrong kernel is wrong at all of them. `again`: our results in a second run with the first parameters: an error that
    does not occur again was not caused by rounding, and no median excuses it."""
    want, reference = runs[0]
    wrong, eager_wrong, by_median = [], [], 0
    worst = 0.0
    count = 0
    tolerance, largest = TOLERANCES[dtype], _largest(want, reference)
    for name in dict.fromkeys([*want, *got]):
        ours, eager = got.get(name), want.get(name)
        if not isinstance(ours, torch.Tensor) or not isinstance(eager, torch.Tensor):
            if type(ours) is not type(eager) or ours != eager:
                wrong.append((float("inf"), f"{name}: {_brief(ours)} instead of {_brief(eager)}"))
            continue
        count += 1
        kind = largest[_kind(name)]
        exact = _tensor(reference, name, eager)
        ratio, error = _judged(ours, eager, exact, tolerance, kind)
        if error and nearby and ratio < float("inf"):
            by_median += 1
            pairs = [(_tensor(them, name, eager), _tensor(other, name, eager)) for them, other in runs]
            repeated = _tensor(again, name, eager)
            if again is None or repeated is not None and not _differ(ours, repeated, eager, exact, tolerance, kind):
                ratio, error = _typical([ours, *(_tensor(x, name, eager) for x in nearby)], pairs, tolerance, kind)
            else:
                ratio, error = float("inf"), f"{error}, but not once more"
        worst = max(worst, ratio)
        if error:
            wrong.append((ratio, f"{name}: {error}"))
        elif exact is not None and (off := _eager_off(ours, eager, exact, tolerance, kind)):
            eager_wrong.append((off, f"{name}: eager's error {off:.2g}"))
    reported = sorted(wrong or eager_wrong, key=lambda each: -each[0])
    detail = f"{len(reported)} of {count}: " + "; ".join(text for _, text in reported[:3]) if reported else ""
    if by_median:
        detail = "; ".join([*([detail] if detail else []), f"{by_median} of {count} judged by medians"])
    status = "wrong" if wrong else "eager wrong" if eager_wrong else "right"
    return {"status": status, "tensors": count, "ratio": worst, "detail": detail}


def _tensor(found: Found | None, name: str, like: torch.Tensor) -> torch.Tensor | None:
    """The tensor of a name, if there is one of the same shape."""
    value = found.get(name) if found is not None else None
    return value if isinstance(value, torch.Tensor) and value.shape == like.shape else None


def _eager_off(ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, tolerance: float, largest: float) -> float:
    """Eager's error relative to the size of the tensor if it is too large for a rounding error; otherwise 0."""
    if not exact.is_floating_point():
        return 0.0
    scale = _scale(eager, exact, tolerance, largest)
    error = difference(eager, exact, eager.dtype).rms / scale
    if error <= EAGER_WRONG * tolerance:
        return 0.0
    own = difference(ours, exact, eager.dtype).rms / scale
    return error if error > EAGER_WRONG * max(own, tolerance) else 0.0


def _brief(value: Any) -> str:
    return _described(value) if isinstance(value, torch.Tensor) else str(value)[:80]


def _kind(name: str) -> str:
    """The group of tensors that share one scale: results of one call, gradients of one call, or buffers."""
    of_input = ": gradient of input " in name  # that of a mask may be near the largest number there is
    return name.rsplit(":", 1)[0] + ("gradient" if ": gradient" in name else "") + (" of input" if of_input else "")


def _largest(found: Found, reference: Found | None) -> dict[str, float]:
    """The largest root mean square of each kind, without large constants: a mask's -1e9 is not a scale for other
    tensors."""
    largest: dict[str, float] = {}
    for name, value in found.items():
        kind = _kind(name)
        rms = 0.0
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            exact = _tensor(reference, name, value)
            rest = None if exact is None else _without_fillers(value, value, exact)
            rms = size(value if rest is None else rest[0]).rms
        largest[kind] = max(largest.get(kind, 0.0), rms)
    return largest


def _judged(
    ours: torch.Tensor, eager: torch.Tensor, known: torch.Tensor | None, tolerance: float, largest: float
) -> tuple[float, str]:
    """The ratio of the error to eager's (0 if within the tolerance), and what is wrong, or "". `known`: the reference,
    if there is one."""
    if ours.shape != eager.shape or ours.dtype != eager.dtype:
        return float("inf"), f"{_described(ours)} instead of {_described(eager)}"
    if not (eager.is_floating_point() or eager.is_complex()):
        differing = int((ours != eager).sum())
        return (float("inf"), f"{differing} of {ours.numel()} differ") if differing else (0.0, "")
    if not torch.equal(ours.isnan(), eager.isnan()):
        return float("inf"), "not a number elsewhere than in eager"
    if (known is None or ours.is_complex()) and not torch.equal(ours.isinf(), eager.isinf()):
        return float("inf"), "infinite elsewhere than in eager"
    exact = _complete(known, eager)
    ratio, text = _off(ours, eager, exact, tolerance, largest)
    if text:
        return ratio, text
    rest = _without_fillers(ours, eager, exact)
    if rest is None:
        return ratio, text
    ratio, text = _off(*rest, tolerance, largest)
    return min(ratio, sys.float_info.max), text  # eager may be exact by being infinite as the reference is


def _without_fillers(
    ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """The elements except large constants that are correct, such as the -1e9 of a mask, beside which errors of the
    other elements would not count. None if there are no such constants."""
    if exact.device != ours.device:
        ours, eager, exact = ours.cpu(), eager.cpu(), exact.cpu()
    equal = ours == exact.to(ours.dtype)
    if not bool(equal.any()):
        return None
    kept = ~equal | (exact.abs() <= FILLER * max(size(exact[~equal]).rms, torch.finfo(ours.dtype).tiny))
    return None if bool(kept.all()) or not bool(kept.any()) else (ours[kept], eager[kept], exact[kept])


def _differ(
    ours: torch.Tensor, again: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor | None, tolerance: float,
    largest: float,
) -> bool:  # fmt: skip
    """Whether two runs differ by more than the tolerance, and the second one is right."""
    if _judged(again, eager, exact, tolerance, largest)[1]:
        return False
    return bool(_judged(ours, again, again, tolerance, largest)[1])


def _complete(known: torch.Tensor | None, eager: torch.Tensor) -> torch.Tensor:
    """The reference, with eager's elements where it is NaN and eager is not."""
    if known is None:
        return eager
    unknown = known.isnan() & ~eager.to(known.device).isnan()
    return torch.where(unknown, eager.to(known), known) if bool(unknown.any()) else known


def _off(
    ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, tolerance: float, largest: float
) -> tuple[float, str]:
    """Like `_judged`, for elements."""
    scale = _scale(eager, exact, tolerance, largest)
    errors = _errors(ours, exact, eager.dtype, tolerance)
    allowed = _allowed(ours, exact, scale, tolerance)
    if all(error <= most for error, most in zip(errors, allowed, strict=True)):
        return 0.0, ""
    from_eager, owns = (_errors(*pair, eager.dtype, tolerance) for pair in ((ours, eager), (eager, exact)))
    counted = [0.0 if off <= most else error for error, off, most in zip(errors, from_eager, allowed, strict=True)]
    return _ratio(counted, owns, allowed, scale, f"error {{}}, eager's {{}} {tuple(ours.shape)}")


def _typical(
    ours: Sequence[torch.Tensor | None], pairs: Sequence[tuple[torch.Tensor | None, torch.Tensor | None]],
    tolerance: float, largest: float,
) -> tuple[float, str]:  # fmt: skip
    """Like `_judged`, for the medians over the points; `ours` and `pairs` correspond."""
    points = [(x, them, wide) for x, (them, wide) in zip(ours, pairs, strict=True)
              if x is not None and them is not None and wide is not None]  # fmt: skip
    if len(points) < len(pairs):
        return float("inf"), "another shape, or no reference"
    for x, them, _ in points:
        if x.dtype != them.dtype or not torch.equal(x.isnan(), them.isnan()):
            return float("inf"), "another dtype, or not a number elsewhere than in eager"
    ratio, text = _medians(points, tolerance, largest)
    rest = [_without_fillers(*point) for point in points]
    if text or all(each is None for each in rest):
        return ratio, text
    return _medians([each or point for each, point in zip(rest, points, strict=True)], tolerance, largest)


def _medians(
    points: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], tolerance: float, largest: float
) -> tuple[float, str]:
    first, eager, exact = points[0]
    scale = _scale(eager, exact, tolerance, largest)
    errors, owns = (
        [statistics.median(each) for each in zip(*(_errors(x, wide, eager.dtype, tolerance) for x, wide in some))]
        for some in ([(x, wide) for x, _, wide in points], [(them, wide) for _, them, wide in points])
    )
    form = f"median error {{}} of {len(points)}, eager's {{}} {tuple(eager.shape)}"
    return _ratio(errors, owns, _allowed(first, exact, scale, tolerance), scale, form)


def _ratio(
    errors: Sequence[float], owns: Sequence[float], allowed: Sequence[float], scale: float, form: str
) -> tuple[float, str]:
    """The largest ratio of our errors to eager's among those that exceed the tolerance, and the first one that is too
    large."""
    ratio, text = 0.0, ""
    for kind, error, own, most in zip(KINDS, errors, owns, allowed, strict=False):
        if kind == "factor":  # that of an error without a direction is now large, now small
            if owns[0] > allowed[0]:
                continue
            own = max(own, NO_DIRECTION * owns[0])
        if error > most:
            this = error / own if own else float("inf")
            ratio = max(ratio, this)
            if this > MAX_WORSE:
                text = text or f"{kind}: " + form.format(f"{error / scale:.2g}", f"{own / scale:.2g}")
    return ratio, text


KINDS = ("root mean square", "element", "factor", "outlier")


def _errors(x: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, tolerance: float) -> list[float]:
    """The errors of `KINDS`, all relative to the size of the tensor. The last two are used if the tolerance is wide,
    because the first two would then allow a factor of 1.01 or a single element that is 10% off."""
    errors: list[float] = list(difference(x, exact, dtype))
    if tolerance >= WIDE and not x.is_complex():
        errors += [bias(x, exact), outlier(x, exact, tolerance).peak]
    return errors


def _allowed(ours: torch.Tensor, exact: torch.Tensor, scale: float, tolerance: float) -> list[float]:
    """The largest errors that are accepted whatever eager's are."""
    allowed = [tolerance * scale, tolerance * max(scale * PEAK, size(exact).peak)]
    if tolerance >= WIDE and not ours.is_complex():
        rest = outlier(ours, exact, tolerance).rest
        allowed += [tolerance * scale * max(BIAS, max(1, ours.numel()) ** -0.5), max(PEAK * rest, tolerance * scale)]
    return allowed


def _scale(eager: torch.Tensor, exact: torch.Tensor, tolerance: float, largest: float) -> float:
    """The size by which an error is divided: that of the tensor, but at least a part of the largest tensor of its kind
    if the tensor may be zero except for rounding (the reference is as small as its own rounding errors, or eager is
    off)."""
    rms, tiny = size(exact).rms, torch.finfo(eager.dtype).tiny
    noise = REFERENCE_NOISE * torch.finfo(exact.dtype).eps * largest
    if rms <= noise or difference(eager, exact, eager.dtype).rms > tolerance * rms:
        return max(rms, SMALLEST_PART * largest, tiny)
    return max(rms, tiny)
