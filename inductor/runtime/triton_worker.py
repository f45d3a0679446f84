"""A process that compiles Triton kernels: `python -P triton_worker.py PRELUDE FOLDER`. Imports triton and no torch.

Jobs and answers are pickles behind a length of 8 bytes, on standard input and on what standard output was; what Triton
prints there goes nowhere. An answer is (cubin, what its launch needs to know) or the text of an error. The process ends
when its input does.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

PRELUDE = "inductor.codegen.triton.prelude"


def read(stream: BinaryIO) -> Any:
    """The next message, None at the end."""
    head = stream.read(8)
    return pickle.loads(stream.read(int.from_bytes(head, "little"))) if len(head) == 8 else None


def write(stream: BinaryIO, message: Any) -> None:
    """Sends a message."""
    data = pickle.dumps(message)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def load(name: str, path: Path) -> ModuleType:
    """The module of a file, under a name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_kernel(job: dict[str, Any], folder: Path) -> tuple[bytes, dict[str, Any]]:
    """The cubin of a kernel, and the name, shared memory, warps and hidden arguments that launching it takes."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

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
    options = {"num_warps": job["num_warps"], "num_stages": job["num_stages"]}
    made = triton.compile(source, target=GPUTarget("cuda", job["arch"], 32), options=options)
    metadata, ptx = made.metadata, made.asm["ptx"]
    entry = re.search(r"\.entry \w+\(([^)]*)\)", ptx)
    parameters = entry.group(1).count(".param") if entry else len(pointers)
    return made.asm["cubin"], {
        "name": metadata.name,
        "shared": metadata.shared,
        "num_warps": metadata.num_warps,
        "hidden": parameters - len(pointers),
        "scratch": getattr(metadata, "global_scratch_size", 0) or 0,
    }


def main() -> None:
    """Answers jobs until there are no more."""
    prelude, folder = Path(sys.argv[1]), Path(sys.argv[2])
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    loaded = False
    while (job := read(sys.stdin.buffer)) is not None:
        try:
            if not loaded:
                load(PRELUDE, prelude)
                loaded = True
            answer: Any = compile_kernel(job, folder)
        except Exception:  # noqa: BLE001  whatever the compiler raises is the answer
            answer = traceback.format_exc()
        write(answers, answer)


if __name__ == "__main__":
    main()
