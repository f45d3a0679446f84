"""torch.compile's modes and the names of its `options`, in terms of this compiler's own options.

A name that has an equivalent here is translated. One that only tunes the code that torch's compiler generates, and
where this compiler always does the like, is accepted. For every other name of `torch._inductor.list_options()` one
warning says that it has no effect. A name that torch does not have either is an error, as it is there.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from .log.warnings import warn_once

# torch.compile's modes, each with the options that it stands for.
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"cudagraphs": True},
    "max-autotune": {"cudagraphs": True, "max_autotune": True},
    "max-autotune-no-cudagraphs": {"cudagraphs": False, "max_autotune": True},
}

# torch's options that set an option of `CompileOptions`.
TRANSLATED = {"triton.cudagraphs": "cudagraphs", "fx_graph_cache": "cache", "max_autotune_gemm": "max_autotune"}

# torch's options that ask for what this compiler does in any case, with the values that do so. They do not change
# results. Other values have no effect, and a warning says so.
ALWAYS: dict[str, tuple[Any, ...]] = {
    "coordinate_descent_tuning": (False,),
    "comprehensive_padding": (False, True),
    "epilogue_fusion": (True,),
    "inplace_buffers": (False, True),
    "joint_graph_constant_folding": (False, True),
    "keep_output_stride": (True,),
    "layout_optimization": (False, True),
    "max_autotune_pointwise": (False,),
    "memory_planning": (False, True),
    "pattern_matcher": (True,),
    "prologue_fusion": (False, True),
    "shape_padding": (False, True),
    "split_reductions": (True,),
    "triton.cudagraph_trees": (False, True),
    "triton.cudagraph_support_input_mutation": (True,),
    "triton.unique_kernel_names": (False, True),
    "use_fast_math": (False,),
}

# torch's options that write out what the compiler does, with the environment variables that do so here.
TRACING = {"trace.enabled": "PYFRAME_DUMP", "trace.debug_dir": "PYFRAME_DUMP", "debug": "PYFRAME_LOGS"}


def is_torch_option(name: str) -> bool:
    """Whether torch's compiler has an option of this name. Imports its configuration for names not listed here."""
    if name in TRANSLATED or name in ALWAYS or name in TRACING:
        return True
    config = importlib.import_module("torch._inductor.config")  # takes seconds
    return name in config.get_config_copy()


def translated(options: Mapping[str, Any] | None, mode: str | None, own: frozenset[str]) -> dict[str, Any]:
    """The options of `compile_fx` that `mode` and `options` amount to; names in `own` are passed through.

    Options go before the mode. ValueError for a mode or an option that neither this compiler nor torch's has, or for a
    value of the wrong type.
    """
    if mode is not None and mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; accepted: {', '.join(map(repr, MODES))}")
    result = dict(MODES[mode or "default"])
    ignored = []
    for given, value in (options or {}).items():
        name = given if given in own else given.replace("-", "_")
        if name in own:
            result[name] = value
        elif name in TRANSLATED:
            if not isinstance(value, bool):
                raise ValueError(f"option {given!r} must be bool, not {value!r}")
            result[TRANSLATED[name]] = value
        elif not is_torch_option(name):
            raise ValueError(f"unknown option {given!r}; accepted: {', '.join(sorted(own))}, and torch.compile's names")
        elif name not in ALWAYS or value not in ALWAYS[name]:
            ignored.append(f"{given}={value!r}{_instead(name)}")
    if ignored:
        what = ", ".join(ignored)
        warn_once(f"options {what}", f"inductor: these options of torch.compile have no effect: {what}")
    return result


def _instead(name: str) -> str:
    return f" (set the environment variable {TRACING[name]})" if name in TRACING else ""
