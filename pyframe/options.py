"""The options of `compile`: their meaning, and the validation of what the user passed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inductor.torch_options import MODES, translated
from inductor.transforms import Transform, check_transforms

from . import config
from .errors import UserError


@dataclass(frozen=True, slots=True)
class Options:
    """The settings that a capture depends on.

    fullgraph: raise an error instead of breaking the graph.
    dynamic: which sizes and ints are symbolic, so that one capture serves all values. None: those that were found to
        vary; True: all input sizes except 0 and 1, and int arguments; False: none.
    limit: captures per code object before calls run eagerly; None: config.recompile_limit.
    strict: with backend "inductor": raise if a graph cannot be compiled, instead of warning and falling back to ATen.
    verify: with backend "inductor": when to compare compiled graphs with ATen. "first": at their first call;
        a rate r, 0 < r <= 1: at that share of calls, for at most that share of the time; None: as PYFRAME_VERIFY says.
    float_inputs: floats that vary are graph inputs; False: constants of graphs, for a backend that is not pyframe's own
        and may wrongly treat the example's value as a constant.
    cudagraphs: with backend "inductor": record compiled graphs on a GPU as CUDA graphs (mode "reduce-overhead"); None:
        those without gradients that the host slows down; False: none.
    max_autotune: with backend "inductor": compute matrix products on a GPU by the faster of ATen and generated kernels.
    background: with backend "inductor": have another process compile graphs; until they are ready, calls run the
        captured graph with ATen.
    measure: with backend "inductor": measure each compiled graph against ATen in its first calls and keep the faster
        one. None: if the environment variable PYFRAME_MEASURE is not 0.
    budget_s: seconds that captures and compilation may take; frames and graphs that are left then run uncompiled.
    bucket_collectives: with backend "inductor": join collectives of a graph that follow one another.
    freezing: with backend "inductor": in graphs on the CPU that record no gradients, parameters and buffers are
        constants: what depends on them alone is computed once, and again after they have changed. Writes through
        `x.data`, NumPy or another process are not noticed.
    cache: with backend "inductor": keep compiled graphs on disk.
    whole_program: the graph is the result, run operator by operator: it may call operators that cannot be compiled.
    transforms: with backend "inductor": functions of graphs that `transform` returned, applied in this order.
    compiled_autograd: backward passes that a call starts are captured, too, as in `pyframe.compiled_autograd()`.
    steps: instructions that one trace may execute while its graph does not grow; None: config.instruction_limit.
    """

    fullgraph: bool = False
    dynamic: bool | None = None
    limit: int | None = None
    strict: bool = False
    steps: int | None = None
    float_inputs: bool = True
    verify: str | float | None = None
    cudagraphs: bool | None = None
    max_autotune: bool = False
    background: bool = False
    measure: bool | None = None
    budget_s: float | None = None
    bucket_collectives: bool = False
    freezing: bool = False
    cache: bool = True
    compiled_autograd: bool = False
    whole_program: bool = False
    transforms: tuple[Transform, ...] = ()

    @property
    def recompile_limit(self) -> int:
        return config.recompile_limit if self.limit is None else self.limit

    @property
    def instruction_limit(self) -> int:
        return config.instruction_limit if self.steps is None else self.steps

    @property
    def size_limit(self) -> int:
        return config.size_limit

    @property
    def reorderable_logging_functions(self) -> set[Any]:
        return config.reorderable_logging_functions

    @property
    def ignore_logging_functions(self) -> set[Any]:
        return config.ignore_logging_functions


def kept_settings(options: Options, backend_name: str) -> tuple[Any, ...] | None:
    """The settings of a compilation as part of the key of kept captures; None if its captures are not kept."""
    return dataclasses.astuple(options) if why_not_kept(options, backend_name) is None else None


def why_not_kept(options: Options, backend_name: str) -> str | None:
    """Why captures of such a compilation are not kept; None if they may be."""
    if backend_name != "inductor":
        return "they are for another backend than inductor"
    changed = [name for name in _FIELDS if getattr(options, name) != getattr(_DEFAULTS, name)]
    return next((f"the option {name!r}" for name in changed if name not in _KEPT_WITH), None)


_FIELDS = tuple(each.name for each in dataclasses.fields(Options))
_DEFAULTS = Options()
# Options whose captures may be kept; with another one that is not as by default, they are not.
_KEPT_WITH = {"fullgraph", "dynamic", "limit", "strict", "steps", "measure", "cudagraphs", "max_autotune"}
_USER_OPTIONS: dict[str, tuple[tuple[type, ...], str]] = {
    "recompile_limit": ((int,), "limit"), "strict": ((bool,), "strict"), "verify": ((str, float, int), "verify"),
    "cudagraphs": ((bool,), "cudagraphs"), "max_autotune": ((bool,), "max_autotune"), "cache": ((bool,), "cache"),
    "bucket_collectives": ((bool,), "bucket_collectives"), "background": ((bool,), "background"),
    "compiled_autograd": ((bool,), "compiled_autograd"), "measure": ((bool,), "measure"),
    "budget_s": ((int, float), "budget_s"), "transforms": ((list, tuple), "transforms"),
    "freezing": ((bool,), "freezing"),
}  # fmt: skip


def make_options(
    fullgraph: bool, dynamic: bool | None, mode: str | None, options: Mapping[str, Any] | None
) -> Options:
    """Validate what the user passed; the message of the UserError says what is accepted."""
    if not isinstance(fullgraph, bool):
        raise UserError(f"fullgraph must be True or False, not {fullgraph!r}")
    if dynamic not in (None, True, False):
        raise UserError(f"dynamic must be None, True or False, not {dynamic!r}")
    if mode is not None and mode not in MODES:
        raise UserError(f"unknown mode {mode!r}; accepted: None, {', '.join(map(repr, MODES))}")
    result = Options(fullgraph=fullgraph, dynamic=dynamic)
    try:
        given = translated(options, mode, frozenset(_USER_OPTIONS))
    except ValueError as error:
        raise UserError(str(error)) from None
    for name, value in given.items():
        wanted, field = _USER_OPTIONS[name]
        if type(value) not in wanted:
            raise UserError(f"option {name!r} must be {' or '.join(t.__name__ for t in wanted)}, not {value!r}")
        if name == "verify":
            _check_verify(value)
        if name == "budget_s" and not value > 0:
            raise UserError(f"option 'budget_s' must be a positive number of seconds, not {value!r}")
        if name == "transforms":
            try:
                value = check_transforms(value)
            except ValueError as error:
                raise UserError(str(error)) from None
        changes: dict[str, Any] = {field: value}
        result = dataclasses.replace(result, **changes)
    return result


def _check_verify(value: str | float) -> None:
    if not (value in ("first", "off") or (not isinstance(value, str) and 0 < value <= 1)):
        raise UserError(f"option 'verify' must be 'first', 'off' or a rate above 0 and up to 1, not {value!r}")
