"""Compiles Triton kernels to cubins, for which no GPU is needed, and caches them.

Compilation runs in worker processes that import triton but not torch.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from ..cache.file_store import Cache, content_key, shared_cache
from ..cache.private import private_folders
from ..log.stages import show
from . import triton_worker
from .cpp_build import BuildError

_CODEGEN = Path(__file__).resolve().parent.parent / "codegen" / "triton"
PRELUDES = _CODEGEN / "prelude.py", _CODEGEN / "prelude_sort.py"
_WORKER = Path(triton_worker.__file__).resolve()
_MAX_WORKERS = 16
_TIMEOUT_SECONDS = 600
_MESSAGE_LINES = 30
_SUFFIX = ".cubin"
# Settings of Triton that change its output or disable compilation. TRITON_CACHE_DIR is replaced by a folder of ours.
_UNSET = ("TRITON_INTERPRET", "TRITON_CACHE_DIR", "TRITON_KERNEL_OVERRIDE", "TRITON_KERNEL_DUMP")
# Line numbers, two thirds of a cubin, would refer to files that are gone when the kernel runs. Of what Triton would
# write to its cache only the cubin is read; nothing is found there, as our cache was looked up before.
_SET = {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_STORE_BINARY_ONLY": "1", "TRITON_ALWAYS_COMPILE": "1"}


class KernelSource(Protocol):
    """The interface of codegen's TritonKernel that is needed to compile it. `text` defines the function `name`."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def constants(self) -> dict[str, int]: ...
    @property
    def num_warps(self) -> int: ...
    @property
    def num_stages(self) -> int: ...
    @property
    def signature(self) -> tuple[str, ...]: ...
    @property
    def aligned(self) -> tuple[int, ...]: ...
    @property
    def sizes(self) -> tuple[str, ...]: ...
    @property
    def workspace(self) -> int: ...
    @property
    def early(self) -> bool: ...


@dataclass(frozen=True)
class StoredKernel:
    """A kernel as artifacts store it: all that is needed to compile it, and nothing that depends on the sizes of the
    first call, which no other process knows."""

    name: str
    text: str
    constants: dict[str, int]
    num_warps: int
    num_stages: int
    signature: tuple[str, ...]
    aligned: tuple[int, ...]
    sizes: tuple[str, ...]
    workspace: int
    early: bool

    @staticmethod
    def of(kernel: KernelSource) -> StoredKernel:
        return StoredKernel(*(getattr(kernel, each.name) for each in fields(StoredKernel)))


@dataclass(frozen=True)
class Cubin:
    """A compiled kernel. A launch needs 32 * num_warps threads and `shared` bytes of dynamic shared memory per block,
    and passes `hidden` null pointers after the kernel's own arguments. `waits`: the kernel begins by waiting for the
    one before it in the stream, which the launch may declare."""

    data: bytes
    name: str
    shared: int
    num_warps: int
    hidden: int
    waits: bool


def build(kernel: KernelSource, arch: int, cache: Cache | None = None) -> Cubin:
    """The cubin of a kernel for compute capability `arch` (such as 80 or 90), from the cache or newly compiled.

    Raises BuildError if triton is not installed or cannot compile the kernel.
    """
    return build_all([kernel], arch, cache)[0]


def build_all(kernels: Sequence[KernelSource], arch: int, cache: Cache | None = None) -> list[Cubin]:
    """Like `build` for several kernels, compiled in parallel."""
    store = cache or shared_cache()
    keys = [build_key(kernel, arch) for kernel in kernels]
    found = {key: store.get(key, _SUFFIX) for key in keys}
    missing = {key: kernel for key, kernel in zip(keys, kernels) if found[key] is None}
    if missing:
        for key, data in zip(missing, _pool().map(functools.partial(_make, arch=arch), missing.values())):
            store.put(key, data, _SUFFIX)
            found[key] = data
    return [_unpack(found[key] or b"") for key in keys]


def try_all(
    kernels: Sequence[KernelSource], arch: int, advance: Callable[[], None], cache: Cache | None = None
) -> list[Future[Cubin | None]]:
    """Like `build_all`, but returns at once, with what will be the cubins; None for a kernel that cannot be compiled.
    `advance` is called after each kernel, by any thread."""

    def one(kernel: KernelSource) -> Cubin | None:
        key = build_key(kernel, arch)
        data = store.get(key, _SUFFIX)
        if data is None:
            try:
                data = _make(kernel, arch)
            except BuildError as error:
                show("autotune", f"not compiled: {error}")
                return None
            store.put(key, data, _SUFFIX)
        return _unpack(data)

    store = cache or shared_cache()
    found = [_pool().submit(one, kernel) for kernel in kernels]
    for future in found:
        future.add_done_callback(lambda _: advance())
    return found


def build_key(kernel: KernelSource, arch: int) -> str:
    """The cache key of a kernel: a hash of everything on which its cubin depends. BuildError without triton."""
    code = "\n".join(line for line in kernel.text.splitlines() if not line.startswith("#"))
    takes = (kernel.constants, kernel.signature, kernel.aligned, kernel.sizes)
    launch = repr((*takes, kernel.num_warps, kernel.num_stages, kernel.early, arch))
    return content_key("triton", code, launch, _version(), _prelude())


@functools.cache
def _version() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError as error:
        raise BuildError("triton is not installed: pip install triton") from error


@functools.cache
def _prelude() -> bytes:
    return b"".join(path.read_bytes() for path in (*PRELUDES, _WORKER))


def _make(kernel: KernelSource, arch: int) -> bytes:
    """Compiles a kernel and returns its cache entry: a line of JSON with the launch metadata, then the cubin."""
    job = {
        "name": kernel.name, "text": kernel.text, "constants": kernel.constants, "signature": kernel.signature,
        "aligned": kernel.aligned, "sizes": kernel.sizes, "num_warps": kernel.num_warps,
        "num_stages": kernel.num_stages, "early": kernel.early, "arch": arch,
    }  # fmt: skip
    answer = _worker().run(job)
    if isinstance(answer, str):
        message = "\n".join(answer.splitlines()[-_MESSAGE_LINES:])
        raise BuildError(f"triton failed to compile {kernel.name}:\n{message}")
    data, about = answer
    if about.pop("scratch") > kernel.workspace:
        raise BuildError(f"the kernel {kernel.name} needs more memory of triton's own than {kernel.workspace} bytes")
    header = asdict(Cubin(b"", **about))
    header.pop("data")
    return json.dumps(header).encode() + b"\n" + data


def _unpack(entry: bytes) -> Cubin:
    header, _, data = entry.partition(b"\n")
    return Cubin(data, **json.loads(header))


# ---- the workers


class _Worker:
    """One worker process, used by one thread. It ends when its input closes, at the latest when this process ends."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="triton-", dir=next(private_folders(), None))
        kept = {k: v for k, v in os.environ.items() if k not in _UNSET}
        environment = kept | _SET | {"TRITON_CACHE_DIR": folder}
        line = [sys.executable, "-P", str(_WORKER), folder, *map(str, PRELUDES)]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.owner = os.getpid()
        _workers.add(self)
        weakref.finalize(self, _finish, self.process, folder, self.owner)

    def run(self, job: dict[str, Any]) -> Any:
        """The worker's answer to a job. Raises BuildError if the worker dies or takes too long."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        try:
            triton_worker.write(stdin, job)  # type: ignore[arg-type]
            ready, _, _ = select.select([stdout], [], [], _TIMEOUT_SECONDS)
            answer = triton_worker.read(stdout) if ready else None  # type: ignore[arg-type]
        except OSError:
            answer = None
        if answer is None:
            self.process.kill()
            self.process.wait()  # so that `poll` in `_worker` sees that it has ended
            raise BuildError(f"the process that compiles Triton kernels died or hung at {job['name']}")
        return answer


def _finish(process: subprocess.Popen[bytes], folder: str, owner: int) -> None:
    if os.getpid() != owner:  # a forked child must not end the workers of its parent
        return
    process.kill()
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def stop() -> None:
    """Ends what is compiled now, and starts nothing more, when the process ends."""
    pool = _pools.get(os.getpid())
    if pool is not None:
        pool.shutdown(wait=False, cancel_futures=True)
    for worker in list(_workers):
        if worker.owner == os.getpid():
            worker.process.kill()


_local = threading.local()
_workers: weakref.WeakSet[_Worker] = weakref.WeakSet()
_pools: dict[int, ThreadPoolExecutor] = {}


def _pool() -> ThreadPoolExecutor:
    """The thread pool whose threads each use one worker; created at first use in each process."""
    if os.getpid() not in _pools:
        _pools[os.getpid()] = ThreadPoolExecutor(min(os.cpu_count() or 1, _MAX_WORKERS), "triton-build")
    return _pools[os.getpid()]


def _worker() -> _Worker:
    """The worker of this thread; a new one if there is none or it has ended."""
    worker: _Worker | None = getattr(_local, "worker", None)
    if worker is None or worker.process.poll() is not None:
        worker = _local.worker = _Worker()
    return worker
