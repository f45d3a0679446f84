"""`pyframe.package`: writes a function to a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from inductor.package.make import Input, make
from inductor.package.targets import default_targets, target_of

from ..errors import UserError
from ..version import __version__
from .capture import Dims, capture


def package(
    f: Callable[..., Any], args: Sequence[Any], path: str | os.PathLike[str], *,
    kwargs: Mapping[str, Any] | None = None, targets: Sequence[str] | None = None, dynamic: bool | Dims | None = None,
    key: bytes | None = None,
) -> None:
    """Write a function or an `nn.Module` to one file that `pyframe.load` and a C++ program run without tracing and
    without a compiler. For inference: no gradients are recorded.

    `f(*args, **kwargs)` is called once and captured as one graph. Its results are tensors in tuples, lists, dicts and
    dataclasses. Parameters, buffers and other tensors that it reads are kept in the file; whatever else it reads, and
    arguments that are not tensors, are constants, and a call must be arranged as this one.

    targets: the machines for which the file has kernels: "avx2", "avx512", "generic" (any CPU of this architecture),
    "sm_80", "sm_90" and so on. None of them needs to be here. By default those of the CPU, or the GPU that the tensors
    are on. A function of tensors on the CPU gets kernels for a GPU as if all of its tensors were there.

    dynamic: True if all sizes, and ints that are arguments, may vary; or a dict from the position or the name of an
    argument to its dimensions that may. In this call each of these sizes must be 2 or more, and so in all later ones.

    key: signs the file; `load` with a key refuses what is not signed with it.

    Raises `PackageError` if the function does more than compute results or cannot be one plan, `Unsupported` if it
    cannot be captured as one graph, `UserError` for an invalid argument, and OSError if the file cannot be written.
    """
    if not isinstance(args, tuple | list):
        raise UserError(f"package() takes the arguments of the call as a tuple or list, not {type(args).__name__}")
    if not (key is None or isinstance(key, bytes) and key):
        raise UserError("key must be bytes, at least one")
    if not (dynamic is None or isinstance(dynamic, bool | Mapping)):
        raise UserError(f"dynamic must be None, True, False or a dict, not {dynamic!r}")
    chosen = None if targets is None else [target_of(name) for name in dict.fromkeys(targets)]
    if chosen == []:
        raise UserError("targets names no machine")
    found = capture(f, tuple(args), dict(kwargs or {}), dynamic if dynamic is not None else False)
    if chosen is None:
        devices = {x.device.type for x in found.inputs if isinstance(x, torch.Tensor)}
        chosen = [target_of(name) for name in default_targets(devices)]
    given = Input(found.graph, found.examples, found.inputs, found.constants, found.names)
    about = {
        "pyframe": __version__, "call": found.arguments, "results": found.results, "taken": found.leaves,
        "conditions": found.conditions,
    }  # fmt: skip
    make(path, given, about, chosen, key)
