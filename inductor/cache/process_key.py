"""The part of a cache key that describes the process: versions and settings that may affect what a graph computes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import sys
import types
from collections.abc import Iterable
from typing import Any

import torch
from torch._decomp import decomposition_table, global_decomposition_table

from ..autocast import DEVICES
from ..process.processor import vendor
from ..torch_compat import present

_torch: Any = torch._C
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
# Settings that are not properties of `torch.backends` modules; some do not exist in every release.
_GETTERS = present(
    _torch, "_get_cublas_allow_tf32", "_get_cublas_allow_fp16_reduced_precision_reduction",
    "_get_cublas_allow_bf16_reduced_precision_reduction", "_get_cublas_allow_fp16_accumulation",
    "_get_cpu_allow_fp16_reduced_precision_reduction", "_get_math_sdp_allow_fp16_bf16_reduction",
    "_get_flash_sdp_enabled", "_get_mem_efficient_sdp_enabled", "_get_math_sdp_enabled", "_get_cudnn_sdp_enabled",
    "_get_overrideable_sdp_enabled", "_get_fa3_sdp_enabled", "_get_sdp_priority_order", "_get_float32_matmul_precision",
    "_get_deterministic_algorithms", "_get_deterministic_algorithms_warn_only",
    "_get_deterministic_fill_uninitialized_memory", "_get_blas_preferred_backend", "_get_linalg_preferred_backend",
    "_get_rocm_fa_preferred_backend", "_get_nnpack_enabled", "_get_onednn_allow_tf32", "_get_autograd_fallback_mode",
)  # fmt: skip
_PRECISIONS = [
    (backend, op)
    for backend, ops in {"generic": ("all",), "cuda": ("all", "matmul", "conv", "rnn"),
                         "mkldnn": ("all", "matmul", "conv", "rnn")}.items()
    for op in ops
]  # fmt: skip


def process_key() -> str:
    """Everything about the process that may affect a compilation and is not part of a graph."""
    devices = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in DEVICES]
    return repr((
        _versions(), _gpus(), torch.get_default_dtype(), str(torch.get_default_device()), devices,
        torch.is_autocast_cache_enabled(), [getter() for getter in _GETTERS], _backends(), _precisions(),
        torch.get_num_threads(),
    ))  # fmt: skip


def fp32_precisions() -> list[tuple[str, str, str]]:
    """The precision of float32 products for each backend and kind of operator; empty for a torch that has none."""
    (getter,) = present(_torch, "_get_fp32_precision_getter") or (None,)
    return [] if getter is None else [(*pair, getter(*pair)) for pair in _PRECISIONS]


def set_fp32_precisions(wanted: Iterable[tuple[str, str, str]]) -> None:
    """Make `fp32_precisions` return these."""
    for (backend, op, value), (_, _, now) in zip(wanted, fp32_precisions(), strict=True):
        if value != now:
            _torch._set_fp32_precision_setter(backend, op, value)


@functools.cache
def _versions() -> tuple[Any, ...]:
    """Versions of torch and Python and the type of processor, which do not change while the process runs."""
    processor = torch.backends.cpu.get_cpu_capability(), platform.machine(), vendor(), torch.backends.mkl.is_available()
    return torch.__version__, torch.version.git_version, sys.version_info[:2], *processor, _library()


# Files of torch whose functions graphs call or are decomposed by, and its libraries.
_SOURCES = """nn/functional.py functional.py _tensor.py _decomp/decompositions.py _decomp/decompositions_for_rng.py
    _refs/__init__.py _refs/nn/functional/__init__.py _prims_common/__init__.py _prims_common/wrappers.py
    _meta_registrations.py""".split()
_LIBRARIES = "lib/libtorch_cpu.so lib/libtorch_python.so lib/libtorch_cuda.so lib/libc10.so".split()


def _library() -> tuple[Any, ...]:
    """A hash of the files of torch that somebody may have edited or built again without changing its version, and the
    sizes of its libraries. Not their times: caches are copied between machines."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        with contextlib.suppress(OSError), open(_TORCH + name, "rb") as file:
            digest.update(file.read())
    sizes = []
    for name in _LIBRARIES:
        with contextlib.suppress(OSError):
            sizes.append((name, os.stat(_TORCH + name).st_size))
    return digest.hexdigest(), *sizes


def gpus_present() -> str:
    """The GPUs that the process sees, described as in `process_key`; initializes CUDA, as a graph on one does."""
    if not torch.cuda.is_available():
        return ""
    torch.cuda.init()
    return repr(_visible_gpus())


def _gpus() -> tuple[Any, ...]:
    """The GPUs of the process, if it has initialized CUDA. Operators such as attention have different kernels on
    different GPUs, and torch chooses among them while a graph is traced; block sizes depend on multiprocessors."""
    return _visible_gpus() if torch.cuda.is_initialized() else ()


@functools.cache
def _visible_gpus() -> tuple[Any, ...]:
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return tuple((gpu.name, (gpu.major, gpu.minor), gpu.multi_processor_count) for gpu in gpus)


def _backends() -> list[Any]:
    """The values of all flags in modules of `torch.backends`, and the switches of `opt_einsum`."""
    found: list[Any] = [(module.__name__, name, getattr(module, name)) for module, name in _properties()]
    einsum = torch.backends.opt_einsum
    return [*found, einsum.enabled, einsum.strategy, torch.backends.mkldnn.is_available()]


@functools.cache
def _properties() -> list[tuple[Any, str]]:
    modules = [m for _, m in sorted(vars(torch.backends).items()) if isinstance(m, types.ModuleType)]
    flag = torch.backends.ContextProp
    return [(m, name) for m in modules for name, value in sorted(vars(type(m)).items()) if isinstance(value, flag)]


def _precisions() -> list[Any]:
    return [value for _, _, value in fp32_precisions()]


# ---- operators and functions that are torch's own


# Namespaces of operators that torch or this package defines.
_OWN_OPERATORS = {"aten", "prims", "prim", "pyframe", "_c10d_functional"}


def is_own_operator(op: Any) -> bool:
    """Whether torch or this package defines the operator, its gradient included."""
    name = op.namespace if isinstance(op, torch._ops.OpOverload) else op._qualified_op_name.partition("::")[0]
    return name in _OWN_OPERATORS


def is_own_function(function: Any) -> bool:
    """Whether a function is defined in a file of torch's, or has no Python code."""
    code = getattr(function, "__code__", None)
    return code is None or code.co_filename.startswith(_TORCH)


def operators_are_overridden() -> bool:
    """Whether the program has registered its own kernels or decompositions for torch's operators.

    A key cannot describe what they do, and any graph may run them when it is traced.
    """
    return _foreign_kernels(frozenset(torch.library._impls)) or _foreign_decompositions(
        tuple(map(id, decomposition_table.values()))
    )


@functools.lru_cache(1)
def _foreign_decompositions(_: tuple[int, ...]) -> bool:
    return not all(map(is_own_function, decomposition_table.values()))


@functools.lru_cache(1)
def _foreign_kernels(registered: frozenset[str]) -> bool:
    """Whether a registered kernel is not torch's own. `registered`: a copy of torch's set of registrations, which
    changes when a garbage collection finds an unused Library."""
    entries = (entry.split("/") for entry in registered)
    named = [(f"{ns}::{name}", key) for ns, name, key in entries if ns == "aten"]
    known = {str(op).replace(".default", "").replace("aten.", "aten::", 1) for op in _meta_table()}
    return any(_is_foreign(op, key) for op, key in named if key != "Meta" or op not in known)


def _meta_table() -> list[Any]:
    """The operators (about a thousand) for which torch registers Python functions on meta tensors."""
    return [op for table in global_decomposition_table.values() for op in table]


def _is_foreign(op: str, key: str) -> bool:
    """Whether the Python kernel of an operator for a dispatch key was registered outside torch's files."""
    for line in _torch._dispatch_dump(op).splitlines():
        name, found, place = line.partition(": registered at ")
        if found and name.partition("[")[0] == key:
            return not place.startswith(_TORCH)
    return True
