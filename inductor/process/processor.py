"""What kind of processor the process runs on, as far as the choice of libraries depends on it."""

from __future__ import annotations

import functools
import platform

import torch


@functools.cache
def description(*names: str) -> str:
    """The first line of /proc/cpuinfo that begins with one of these names, "" without one; where there is no such
    file, what Python knows of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            # stop at the first processor: listing many is slow
            return next((line for line in lines if line.startswith(names)), "")
    except OSError:
        return platform.processor()


def vendor() -> str:
    """The processor's vendor as CPUID states it, such as "GenuineIntel"; "" where the system does not say."""
    return description("vendor_id").partition(":")[2].strip()


@functools.cache
def mkl_lacks_avx512() -> bool:
    """Whether MKL, which computes torch's products in float32, does not use the AVX-512 of this processor: it uses it
    on Intel's only. oneDNN does on any, and is then twice as fast (on an AMD EPYC with 2 threads, 256 x 768 x 3072:
    5.1 ms instead of 11.5)."""
    capability = torch.backends.cpu.get_cpu_capability()
    return torch.backends.mkl.is_available() and capability == "AVX512" and vendor() not in ("", "GenuineIntel")
