"""Compares the time of our bytecode codec with that of the `bytecode` package, per code object and per first call.

    python -m benchmarks.bytecode_codec --pythons python3.12 python3.13 python3.14

Two steps are compared, those that the package could do below our canonical instructions:

    read    `codec.read(code)`               against `bytecode.ConcreteBytecode.from_code(code)`
    write   `codec.RawAssembler.finish(...)` against `bytecode.Bytecode.to_code(stacksize, ...)` of the same code

The comparison favours the package: its instructions exist beforehand, and it is given the stack size.

The first part times the code objects of some modules of the standard library, torch.nn and transformers (compiled from
source, not imported; those that the interpreter has), in microseconds per code object, on this interpreter and on
`--pythons`. The second part counts the code objects that the first call of a program reads and writes, and estimates
how much longer the first call would take with the package. All times are processor time: the minimum of `--rounds` runs
of each step, and the median of first calls.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import bytecode

from pyframe.bytecode import canonicalize, codec, dialect, materialize
from tools.code_objects import nested_codes

ROOT = Path(__file__).resolve().parent.parent
MODULES = {
    "standard library": (
        *("argparse", "ast", "asyncio.base_events", "collections", "dataclasses", "datetime", "decimal", "difflib"),
        *("email.message", "functools", "inspect", "json.decoder", "logging", "pathlib", "pickle", "random", "tarfile"),
        *("threading", "typing", "unittest.case"),
    ),
    "torch.nn": tuple(
        f"torch.nn.modules.{name}"
        for name in ("activation", "batchnorm", "conv", "linear", "module", "normalization", "rnn", "transformer")
    ),
    "transformers": tuple(
        f"transformers.models.{name}.modeling_{name}" for name in ("bert", "gpt2", "llama", "mistral", "t5", "vit")
    ),
}
PROGRAMS = ("trivial", "bert")


def source_of(module: str) -> Path | None:
    """The file of a module, found without importing the packages above it."""
    package, _, rest = module.partition(".")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin) if not rest else Path(spec.origin).parent.joinpath(*rest.split(".")).with_suffix(".py")
    return path if path.exists() and path.suffix == ".py" else None


def corpus(modules: Iterable[str]) -> list[types.CodeType]:
    """The code objects of the modules that this interpreter has."""
    paths = [path for path in map(source_of, modules) if path is not None]
    return [code for path in paths for code in nested_codes(compile(path.read_bytes(), str(path), "exec"))]


class Recorder:
    """While active, keeps what our codec reads and writes."""

    def __init__(self) -> None:
        self.read: list[types.CodeType] = []
        self.written: list[tuple[codec.RawAssembler, tuple[Any, ...], types.CodeType]] = []

    def __enter__(self) -> Recorder:
        self._originals = (dialect.read, codec.RawAssembler.finish)
        read, finish = self._originals

        def recording_read(code: types.CodeType) -> Any:
            self.read.append(code)
            return read(code)

        def recording_finish(asm: codec.RawAssembler, *args: Any) -> types.CodeType:
            code = finish(asm, *args)
            self.written.append((asm, args, code))
            return code

        dialect.read, codec.RawAssembler.finish = recording_read, recording_finish  # type: ignore[method-assign]
        return self

    def __exit__(self, *exc: object) -> None:
        dialect.read, codec.RawAssembler.finish = self._originals  # type: ignore[method-assign]


def least_seconds(run: Callable[[], Any], rounds: int) -> float:
    """Processor seconds of the fastest of `rounds` runs."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)


def codec_seconds(recorded: Recorder, rounds: int) -> dict[str, float]:
    """Processor seconds of each step over everything recorded."""
    libraries = [(bytecode.Bytecode.from_code(code, conserve_exception_block_stackdepth=True), code.co_stacksize)
                 for _, _, code in recorded.written]  # fmt: skip
    steps: dict[str, Callable[[], Any]] = {
        "read": lambda: [codec.read(code) for code in recorded.read],
        "package read": lambda: [bytecode.ConcreteBytecode.from_code(code) for code in recorded.read],
        "write": lambda: [asm.finish(*args) for asm, args, _ in recorded.written],
        "package write": lambda: [
            library.to_code(stacksize=size, compute_exception_stack_depths=False) for library, size in libraries
        ],
    }
    return {name: least_seconds(run, rounds) for name, run in steps.items()}


def measure_corpora(rounds: int) -> list[dict[str, Any]]:
    """A row for each corpus on the running interpreter; microseconds per code object."""
    rows = []
    for name, modules in MODULES.items():
        codes = corpus(modules)
        if not codes:
            continue
        with Recorder() as recorded:
            for code in codes:
                materialize(canonicalize(code))
        seconds = codec_seconds(recorded, rounds)
        us = {step: round(value * 1e6 / len(codes), 1) for step, value in seconds.items()}
        times = (us["package read"] + us["package write"]) / (us["read"] + us["write"])
        python = ".".join(map(str, sys.version_info[:3]))
        rows.append({"python": python, "corpus": name, "code objects": len(codes), **us, "package / ours": times})
    return rows


def first_call(program: str, rounds: int, record: bool) -> None:
    """Prints the processor seconds of the first call, or the codec's part of it, as JSON."""
    import torch

    from .compile_time import make_program

    fn, args = make_program(program)
    with torch.no_grad():
        fn(*args)
        start = time.process_time()
        import pyframe

        if record:
            with Recorder() as recorded:
                pyframe.compile(fn)(*args)
            counts = {"reads": len(recorded.read), "writes": len(recorded.written)}
            print(json.dumps({**counts, **codec_seconds(recorded, rounds)}))
        else:
            pyframe.compile(fn)(*args)
            print(json.dumps({"first call": time.process_time() - start}))


IMPORT = """
import time, torch
start = time.process_time()
import bytecode
print(time.process_time() - start)
"""


def import_seconds() -> float:
    """Processor seconds of `import bytecode` after `import torch`, in a new process."""
    return float(subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout)


def child(*arguments: str, python: str = sys.executable, **env: str) -> Any:
    """The JSON on the last line of this script's output in a new process."""
    command = [python, "-m", "benchmarks.bytecode_codec", *arguments]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **env}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measure_first_calls(rounds: int) -> list[dict[str, Any]]:
    """A row for each program and state of the cache; milliseconds of processor time."""
    imported = statistics.median(import_seconds() for _ in range(rounds))
    rows = []
    for program in PROGRAMS:
        with tempfile.TemporaryDirectory() as cache:
            child("--program", program, PYFRAME_CACHE_DIR=cache)
            calls = [child("--program", program, PYFRAME_CACHE_DIR=cache)["first call"] for _ in range(rounds)]
            parts = child("--program", program, "--record", PYFRAME_CACHE_DIR=cache)
        total = statistics.median(calls)
        ours = parts["read"] + parts["write"]
        package = parts["package read"] + parts["package write"]
        ms = {"first call": total, "our codec": ours, "package": package, "import of package": imported}
        rows.append(
            {
                "program": f"{program}, warm cache",
                **{key: parts[key] for key in ("reads", "writes")},
                **{f"{name} ms": round(value * 1e3, 2) for name, value in ms.items()},
                "slower by %": 100 * (package - ours) / total,
                "with import %": 100 * (package - ours + imported) / total,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="*", default=[], help="other interpreters that have the package")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", choices=PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--record", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--corpora", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        first_call(options.program, options.rounds, options.record)
    elif options.corpora:
        print(json.dumps(measure_corpora(options.rounds)))
    else:
        report_all(options)


def report_all(options: argparse.Namespace) -> None:
    """Measures everything; prints and writes the results."""
    from .harness import RESULTS, report, table

    rows = [
        row
        for python in (sys.executable, *options.pythons)
        for row in child("--corpora", "--rounds", str(options.rounds), python=python)
    ]
    calls = measure_first_calls(options.rounds)
    sys.argv = [sys.argv[0]]  # the record does not contain paths of interpreters
    report("bytecode_codec", rows, first_calls=calls, package=bytecode.__version__)
    print(table(calls))
    with (RESULTS / "bytecode_codec.txt").open("a") as out:
        out.write(f"\n{table(calls)}\n")


if __name__ == "__main__":
    main()
