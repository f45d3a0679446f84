"""`pyframe.package`: writes a function to a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from inductor.package.make import Input, make
from inductor.package.targets import default_targets, target_of

from ..errors import UserError
from ..signature.data import encode_condition, encode_parameters, encode_spec, encode_structure
from ..version import __version__
from .capture import capture


def package(
    f: Callable[..., Any], args: Sequence[Any], path: str | os.PathLike[str], *,
    kwargs: Mapping[str, Any] | None = None, targets: Sequence[str] | None = None, dynamic: Any = None,
    key: bytes | None = None, options: Mapping[str, Any] | None = None,
) -> None:
    """Write a function or an `nn.Module` to one file that `pyframe.load` and a C++ program run without tracing and
    without a compiler. For inference: no gradients are recorded.

    `f` is captured by `pyframe.export` for calls like `f(*args, **kwargs)`, with the same refusals. Its results are
    tensors and constants in containers. Parameters, buffers and other tensors that it reads are kept in the file;
    whatever else it reads, and arguments that are not tensors, are constants.

    targets: the machines for which the file has kernels: "avx2", "avx512", "generic" (any CPU of this architecture),
    "sm_80", "sm_90" and so on. None of them needs to be here. By default those of the CPU, or the GPU that the tensors
    are on. A function of tensors on the CPU gets kernels for a GPU as if all of its tensors were there.

    dynamic: what varies, as for `pyframe.export`; in a dict, arguments may also be named by their position, and
    dimensions listed: `{0: (0, 1), "mask": 1}`. Sizes that vary are 2 or more, in this call and in all later ones.

    key: signs the file; `load` with a key refuses what is not signed with it.

    options: `{"freezing": True}` computes what depends on parameters and buffers alone now, for CPUs: batch norms
    become parts of the convolutions before them, and weights are laid out for oneDNN when the file is loaded.

    Raises `Unsupported` if the function is not one graph or does more than compute results, `PackageError` if the graph
    cannot be one plan, `UserError` for an invalid argument, and OSError if the file cannot be written.
    """
    if not isinstance(args, tuple | list):
        raise UserError(f"package() takes the arguments of the call as a tuple or list, not {type(args).__name__}")
    if not (key is None or isinstance(key, bytes) and key):
        raise UserError("key must be bytes, at least one")
    chosen = None if targets is None else [target_of(name) for name in dict.fromkeys(targets)]
    if chosen == []:
        raise UserError("targets names no machine")
    unknown = [name for name in options or () if name != "freezing"]
    if unknown or not isinstance((options or {}).get("freezing", False), bool):
        raise UserError(f"options of package() are {{'freezing': True or False}}, not {options!r}")
    found = capture(f, tuple(args), dict(kwargs or {}), dynamic)
    if chosen is None:
        devices = {x.device.type for x in found.inputs if isinstance(x, torch.Tensor)}
        chosen = [target_of(name) for name in default_targets(devices)]
    freezing = bool((options or {}).get("freezing", False))
    kept = frozenset(k for kind, k in found.returned if kind == "fixed")
    given = Input(found.graph, found.examples, found.inputs, found.constants, found.names, freezing, kept)
    about = {
        "pyframe": __version__, "signature": encode_parameters(found.whole.parameters),
        "leaves": [encode_spec(each) for each in found.specs], "taken": found.leaves,
        "conditions": [encode_condition(each) for each in found.conditions],
        "structure": encode_structure(found.whole.result), "results": found.returned,
    }  # fmt: skip
    make(path, given, about, chosen, key)
