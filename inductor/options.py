"""The options of `compile_fx` and their validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .budget import Budget
from .transforms import Transform, check_transforms
from .verify_policy import Policy


@dataclass(frozen=True)
class CompileOptions:
    """Options of `compile_fx`; `max_autotune`, `bucket_collectives` and `freezing` change the generated
    code.

    strict: raise an error if a graph cannot be compiled, instead of one warning and ATen operators.
    cache: keep compiled graphs on disk.
    verify: "first": compare each compiled graph with ATen at its first call; a rate above 0 and up to 1: compare that
    share of the calls, for at most that share of the time; None: use the environment variable PYFRAME_VERIFY.
    cudagraphs: record the calls of compiled graphs on a GPU as CUDA graphs; no effect on the CPU. None: only graphs
    without gradients whose calls are found to be bound by the host, and not at the cost of much memory.
    max_autotune: on a GPU, compute each matrix product by the faster of ATen and generated kernels, which is measured.
    background: have another process compile graphs; until they are ready, calls run the graph with ATen.
    measure: in its first calls, measure each compiled graph against ATen, and keep the faster one. None: if the
    environment variable PYFRAME_MEASURE is not 0.
    budget_s: seconds that compilation may take, or a Budget that several graphs share; the rest then runs with ATen.
    bucket_collectives: join collectives of a graph that follow one another; all ranks must run the same program.
    transforms: functions of graphs, applied in this order, each between the stages that it names.
    freezing: where no gradients are recorded on the CPU, parameters and buffers are constants: what depends on them
    alone is computed once, and again after they have changed.
    """

    strict: bool = False
    cache: bool = True
    verify: str | float | None = None
    cudagraphs: bool | None = None
    max_autotune: bool = False
    bucket_collectives: bool = False
    background: bool = False
    measure: bool | None = None
    budget_s: Budget | None = None
    transforms: tuple[Transform, ...] = ()
    freezing: bool = False

    @staticmethod
    def of(given: Mapping[str, Any] | None) -> CompileOptions:
        """Check and build the options. ValueError for an unknown name or a value of the wrong type."""
        accepted = {f.name: f.type for f in fields(CompileOptions)}
        made = dict(given or {})
        for name, value in list(made.items()):
            if name not in accepted:
                raise ValueError(f"unknown option {name!r}; accepted: {', '.join(sorted(accepted))}")
            if name == "verify":
                Policy.of(value)
            elif name == "budget_s":
                made[name] = _budget(value)
            elif name == "transforms":
                made[name] = check_transforms(value)
            elif not isinstance(value, bool) and not (name in ("cudagraphs", "measure") and value is None):
                raise ValueError(f"option {name!r} must be {accepted[name]}, not {value!r}")
        return CompileOptions(**made)

    @staticmethod
    def names() -> frozenset[str]:
        """The names of all options."""
        return frozenset(f.name for f in fields(CompileOptions))


def _budget(value: Any) -> Budget | None:
    """The budget that is meant. ValueError for anything but a positive number, a Budget and None."""
    if value is None or isinstance(value, Budget):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"option 'budget_s' must be a positive number of seconds, not {value!r}")
    return Budget(value)


DEFAULT = CompileOptions()
