"""The worker process that compiles Triton kernels: `python -P triton_worker.py FOLDER PRELUDE...`. It imports triton
but not torch, and of this project only the files PRELUDE.

Jobs arrive on standard input and answers leave on the original standard output. Each is a pickle preceded by its length
in 8 bytes. Anything that Triton prints to standard output is discarded. An answer is (cubin, launch metadata) or the
text of an error. The process ends when its input ends.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pickle
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

PRELUDES = "inductor.codegen.triton"  # the package of the files that kernels import
# `add.s16x2 d, a, b;`: adds two pairs of 16-bit numbers, each pair in a register of 32 bits.
PACKED_ADD = re.compile(r"\badd\.[su]16x2\s+([^\s,]+),\s*([^\s,]+),\s*([^\s,;]+);")
TWO_ADDS = (
    "{ .reg .b16 %a0, %a1, %b0, %b1; mov.b32 {%a0, %a1}, \\2; mov.b32 {%b0, %b1}, \\3;"
    " add.s16 %a0, %a0, %b0; add.s16 %a1, %a1, %b1; mov.b32 \\1, {%a0, %a1}; }"
)

# The functions of libdevice that most kernels need, written like those. Reading the whole library takes longer than the
# rest of LLVM's work on most kernels.
_DECLARATIONS = r"""
@flag = private unnamed_addr constant [11 x i8] c"__CUDA_FTZ\00", align 1
declare i32 @__nvvm_reflect(ptr)
declare float @llvm.nvvm.ex2.approx.ftz.f(float)
declare float @llvm.nvvm.ex2.approx.f(float)
declare float @llvm.nvvm.rsqrt.approx.ftz.f(float)
declare float @llvm.nvvm.rsqrt.approx.f(float)
"""
_DEFINITION = """\
define float @__nv_{name}(float %x) alwaysinline nounwind {{
  %zero = call i32 @__nvvm_reflect(ptr @flag)
  %is = icmp ne i32 %zero, 0
  br i1 %is, label %flushed, label %kept
flushed:
  %y = call float @llvm.nvvm.{instruction}.approx.ftz.f(float %x)
  br label %end
kept:
  %z = call float @llvm.nvvm.{instruction}.approx.f(float %x)
  br label %end
end:
  %r = phi float [ %y, %flushed ], [ %z, %kept ]
  ret float %r
}}
"""
_USUAL = (("exp2f", "ex2"), ("rsqrtf", "rsqrt"))
USUAL_FUNCTIONS = _DECLARATIONS + "".join(_DEFINITION.format(name=f, instruction=i) for f, i in _USUAL)
LIBRARY_FUNCTION = re.compile(r"^(define|declare) .*@(__nv_\w+)\(", re.MULTILINE)

EARLY_LAUNCH = 90  # ten times the first compute capability with programmatic dependent launches
WAIT_PLACE = re.compile(r"// wait for the kernel ahead: %r\d+")  # what `wait_for_kernel_ahead` of the prelude writes
ENTRY = re.compile(r"\.entry\s+\w+\([^)]*\)[^{]*\{")


def read(stream: BinaryIO) -> Any:
    """The next message, or None at the end of the stream."""
    head = stream.read(8)
    return pickle.loads(stream.read(int.from_bytes(head, "little"))) if len(head) == 8 else None


def write(stream: BinaryIO, message: Any) -> None:
    """Sends a message."""
    data = pickle.dumps(message)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def load_preludes(paths: Iterable[Path]) -> None:
    """Imports the files that kernels import, without their package."""
    for path in paths:
        load(f"{PRELUDES}.{path.stem}", path)


def load(name: str, path: Path) -> ModuleType:
    """Imports a file as the module `name`."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def split_packed_adds(ptx: str) -> str:
    """`ptx` with each packed addition of two pairs of 16-bit numbers replaced by two additions.

    This works around a bug: for sm_90 and sm_100, ptxas of CUDA 12.8 (which Triton uses) and 13.0 compiles a packed
    addition of a constant to an addition of zero. LLVM emits packed additions for index arithmetic that fits 16 bits,
    so kernels would access wrong elements.
    """
    return PACKED_ADD.sub(TWO_ADDS, ptx)


def waiting(ptx: str) -> str:
    """`ptx` for a GPU that can start a kernel before the one ahead of it in the stream has ended (compute capability 9
    and later), with two instructions at the start of each kernel: let the kernel behind start as soon as there is room,
    and wait until the one ahead has ended and its writes are visible. The time of a launch then overlaps with the end
    of the kernel ahead. A kernel that calls `wait_for_kernel_ahead` waits there; what it reads before must not change.
    No other kernel may read or write memory before it has waited, and none may write before."""
    target = re.search(r"\.target\s+sm_(\d+)", ptx)
    if target is None or int(target.group(1)) < EARLY_LAUNCH:
        return ptx
    launch, wait = "\tgriddepcontrol.launch_dependents;", "\tgriddepcontrol.wait;"
    if WAIT_PLACE.search(ptx):
        return ENTRY.sub(rf"\g<0>\n{launch}", WAIT_PLACE.sub(wait, ptx))
    return ENTRY.sub(rf"\g<0>\n{launch}\n{wait}", ptx)


def change_ptx_of_triton(early: Callable[[], bool], keep: Callable[[str], None]) -> None:
    """Patches Triton to apply `split_packed_adds` to the PTX of every kernel that this process compiles, and `waiting`
    if `early()` says so. `keep` is called with the result.
    """
    from triton.backends.nvidia.compiler import CUDABackend

    make_ptx = CUDABackend.make_ptx

    @functools.wraps(make_ptx)
    def make(self: Any, *args: Any, **kwargs: Any) -> str:
        ptx = split_packed_adds(make_ptx(self, *args, **kwargs))
        ptx = waiting(ptx) if early() else ptx
        keep(ptx)
        return ptx

    CUDABackend.make_ptx = make


def without_cache_key() -> None:
    """Patches Triton not to hash its own files, 460 MB, at the first kernel of a process. The hash is a part of the key
    under which it would find a kernel in its cache; ours is a new folder for each process."""
    import triton.runtime.cache

    triton.runtime.cache.triton_key = lambda: ""


def link_usual_functions(folder: Path) -> None:
    """Patches Triton to link a kernel that needs no function of libdevice but USUAL_FUNCTIONS with those alone."""
    from triton._C.libtriton import llvm

    path = folder / "usual_functions.ll"
    path.write_text(USUAL_FUNCTIONS)
    usual = {name for _, name in LIBRARY_FUNCTION.findall(USUAL_FUNCTIONS)}
    link = llvm.link_extern_libs

    def link_few(module: Any, paths: Any) -> Any:
        few = {name for _, name in LIBRARY_FUNCTION.findall(str(module))} <= usual
        return link(module, [str(path)] if few else paths)

    llvm.link_extern_libs = link_few


def compile_kernel(job: dict[str, Any], folder: Path, ptx: list[str]) -> tuple[bytes, dict[str, Any]]:
    """Compiles a kernel; `change_ptx_of_triton` puts its PTX into `ptx`. Returns its cubin and the metadata for a
    launch: name, shared memory, warps, hidden arguments, and the size of the scratch memory that it needs."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    ptx.clear()  # of a kernel that could not be compiled
    path = folder / f"{job['name']}.py"
    path.write_text(job["text"])
    function = getattr(load(job["name"], path), job["name"])
    pointers = {f"b{i}": kind for i, kind in enumerate(job["signature"])} | dict.fromkeys(job["sizes"], "i32")
    source = ASTSource(
        fn=function,
        signature=pointers | dict.fromkeys(job["constants"], "constexpr"),
        constexprs=dict(job["constants"]),
        attrs={(i,): [["tt.divisibility", 16]] for i in job["aligned"]},
    )
    # Only in debug mode is an overflow of an index reported. Otherwise Triton makes the operations that would find it,
    # several for each addition and product, and later removes them again.
    options = {"num_warps": job["num_warps"], "num_stages": job["num_stages"], "sanitize_overflow": False}
    compiled = triton.compile(source, target=GPUTarget("cuda", job["arch"], 32), options=options)
    metadata, text = compiled.metadata, ptx.pop()
    entry = re.search(r"\.entry \w+\(([^)]*)\)", text)
    parameters = entry.group(1).count(".param") if entry else len(pointers)
    return compiled.asm["cubin"], {
        "name": metadata.name,
        "shared": metadata.shared,
        "num_warps": metadata.num_warps,
        "hidden": parameters - len(pointers),
        "waits": "griddepcontrol.wait;" in text,
        "scratch": getattr(metadata, "global_scratch_size", 0) or 0,
    }


def main() -> None:
    """Reads jobs from standard input and answers them until the input ends."""
    folder, *preludes = map(Path, sys.argv[1:])
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    loaded, ptx = False, list[str]()
    while (job := read(sys.stdin.buffer)) is not None:
        try:
            if not loaded:
                load_preludes(preludes)
                change_ptx_of_triton(lambda: job["early"], ptx.append)
                link_usual_functions(folder)
                without_cache_key()
                loaded = True
            answer: Any = compile_kernel(job, folder, ptx)
        except Exception:  # noqa: BLE001  whatever the compiler raises is the answer
            answer = traceback.format_exc()
        write(answers, answer)


if __name__ == "__main__":
    main()
