"""Runs each distinct operator call on fake tensors once per fake tensor mode.

torch keeps results of calls by key, too, but describes arguments and makes results in Python that takes twice as long.
A network of equal layers asks for the same results in each of them: while it is captured, and when its graph is run
again on fake tensors. So do the operators that a decomposition calls. What a key holds is described in `trace_memo`.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from .trace_memo import Results, is_suitable, key_if_suitable, new_results, results_to_make


def remembering(mode: FakeTensorMode, run: Callable[..., Any]) -> Callable[..., Any]:
    """What takes the place of the `__torch_dispatch__` of a mode without symbolic sizes, which is `run`."""
    suitable: dict[Any, bool] = {}  # by operator
    known: dict[Any, Results | None] = {}  # None: metadata do not describe the results
    running: set[Any] = set()  # operators

    def dispatch(mode: FakeTensorMode, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        # a rule of `fake_layout` calls the operator that it corrects; results in inference mode are of another kind
        if func in running or torch.is_inference_mode_enabled():
            return run(func, kinds, args, kwargs)
        with torch._C.DisableTorchFunction():  # a mode would run Python code at each read of an attribute
            fits = suitable.get(func)
            if fits is None:
                fits = suitable[func] = is_suitable(func)
            key, tensors = key_if_suitable(func, args, kwargs or {}) if fits else (None, [])
            for x in tensors:
                if x.fake_mode is not mode or x.is_inference():
                    key = None
            if not tensors:
                key = None
            results = known.get(key) if key is not None else None
            if results is not None:
                return new_results(results, tensors, mode)
        running.add(func)
        try:
            value = run(func, kinds, args, kwargs)
        finally:
            running.discard(func)
        if key is not None and key not in known:
            with torch._C.DisableTorchFunction():
                known[key] = None if _is_given(value, tensors) else results_to_make(value, tensors)
        return value

    return types.MethodType(dispatch, mode)


def _is_given(value: Any, tensors: list[FakeTensor]) -> bool:
    """Whether a result is one of the arguments itself."""
    values = value if isinstance(value, list | tuple) else [value]
    return any(each is x for each in values for x in tensors)
