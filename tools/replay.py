"""Records what is compiled for a fixed set of programs, as text, so that two versions of this project can be compared.

    python tools/replay.py record DIR                 # captured graphs, guards, bytecode, loop IR, kernels, plans
    python tools/replay.py record DIR --only bench random
    python tools/replay.py diff BEFORE AFTER          # exit status 1 if they differ
    python tools/replay.py diff BEFORE AFTER --brief  # only which programs and stages

For a change that only moves or renames code the difference must be empty; for any other change it shows the effect on
generated code. Each program is compiled in a process of its own with an empty cache, and every stage is written by
`PYFRAME_DUMP`. The groups of programs:

    bench     the models of the benchmarks at small sizes, inference and training, and one function at several sizes
    user      the programs of `tests/programs`, without those whose threads race
    random    programs of `tools.fuzz_graphs` by seed, kernels for the CPU
    triton    other seeds, Triton kernels (interpreted on the CPU)

Addresses of objects, cache keys, and the paths of this checkout, of the interpreter and of its packages are replaced by
names.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import random
import re
import shutil
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GROUPS = ("bench", "user", "random", "triton")
SEEDS = {"random": range(1000, 1030), "triton": range(2000, 2008)}
VARYING = {"threads"}  # of `user`: how many graphs it captures depends on the timing of its threads
MAX_LINES = 40  # of one stage's difference that are printed
Run = Callable[[], object]


# ---- the programs: each is run in a process of its own


def programs(group: str) -> dict[str, Run]:
    """The programs of a group, by name."""
    return {"bench": _bench, "user": _user, "random": _random, "triton": _triton}[group]()


def _bench() -> dict[str, Run]:
    import torch

    import pyframe
    from benchmarks import programs, programs_training

    def several_sizes() -> None:
        compiled = pyframe.compile(programs.fused)
        for rows in (4, 7, 1, 12):
            compiled(torch.ones(rows, 64), torch.ones(rows, 64))

    def infer(make: Run) -> Run:
        def run() -> None:
            model, args = make()  # type: ignore[misc]
            with torch.no_grad():
                pyframe.compile(model)(*args)

        return run

    def train(program: programs_training.Program) -> Run:
        def run() -> None:
            torch.manual_seed(0)
            model, args = program.make(**program.tiny)
            pyframe.compile(model)(*args).backward()

        return run

    def gpt() -> object:
        return programs.GPT(layers=2, d=64, heads=2).eval(), (torch.zeros(1, 32, dtype=torch.int64),)

    found = {"fused": infer(programs.make_fused), "gpt": infer(gpt), "mlp": infer(programs.make_mlp)}
    trained = {f"train_{name}": train(program) for name, program in programs_training.GPU.items() if name != "resnet"}
    return {**found, **trained, "several_sizes": several_sizes}


def _user() -> dict[str, Run]:
    sys.path.insert(0, str(ROOT / "tests" / "programs"))
    from programs_support import Compiled
    from test_programs import CASES

    cases = {name: case for name, case in CASES.items() if name not in VARYING}
    return {name: lambda case=case: case.run(Compiled("inductor")) for name, case in cases.items()}


def _random() -> dict[str, Run]:
    return {str(seed): lambda seed=seed: _compile_seed(seed, "cpu") for seed in SEEDS["random"]}


def _triton() -> dict[str, Run]:
    return {str(seed): lambda seed=seed: _compile_seed(seed, "fake-cuda") for seed in SEEDS["triton"]}


def _compile_seed(seed: int, device: str) -> None:
    """Compiles and calls one random program, with a backward pass where it has one."""
    from tools.fuzz_graphs.check import check
    from tools.fuzz_graphs.generate import compact, generate
    from tools.fuzz_graphs.grammar import CORE
    from tools.fuzz_graphs.worker import compiler_of

    mode = "backward" if seed % 3 == 0 else "dynamic" if seed % 3 == 1 else "forward"
    check(compact(generate(seed, CORE, mode)), compiler_of(device)[0])


# ---- recording


def record(folder: Path, groups: list[str]) -> int:
    """Writes FOLDER/GROUP.PROGRAM/NNNN_STAGE.txt; returns how many programs ended with an exception or a signal."""
    if folder.exists() and any(folder.iterdir()):
        raise SystemExit(f"{folder} is not empty")
    failed = 0
    for group in groups:
        for name, run in programs(group).items():
            child = get_context("fork").Process(target=_child, args=(run, folder / f"{group}.{name}"))
            child.start()
            child.join()
            failed += child.exitcode != 0
        print(f"{group}: recorded", flush=True)
    return failed


def _child(run: Run, out: Path) -> None:
    out.mkdir(parents=True)
    cache = tempfile.mkdtemp()
    os.environ |= {"PYFRAME_DUMP": str(out), "PYFRAME_CACHE_DIR": cache}
    warnings.simplefilter("ignore")
    _seed()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            run()
    except Exception as error:
        (out / "9999_error.txt").write_text(f"{type(error).__name__}: {error}\n")
    finally:
        shutil.rmtree(cache, ignore_errors=True)
        for path in out.iterdir():
            path.write_text(normalized(path.read_text()))


def _seed() -> None:
    """Seed the generators that programs draw from: values that they branch on become guards and constants."""
    import numpy
    import torch

    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


# In full (numpy writes capitals), shortened as in `<random.Rando...x560af9968020>`, or decimal.
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b|(?<=\.\.\.)(?:0?x)?[0-9a-f]+(?=>)|(?<=obj_id=)\d+", re.IGNORECASE)
_CACHE_KEY = re.compile(r"(?<=^graph )[0-9a-f]{64}(?=:)", re.MULTILINE)  # depends on the source of this project
_PLACES = [(str(ROOT), "<project>"), (sys.prefix, "<packages>"), (sys.base_prefix, "<python>")]


def normalized(text: str) -> str:
    """Without what differs from process to process and from checkout to checkout."""
    for path, name in _PLACES:
        text = text.replace(path, name)
    return _CACHE_KEY.sub("<key>", _ADDRESS.sub("<address>", text))


# ---- comparing


def stages(folder: Path) -> dict[str, str]:
    """The text of each stage of a program in the order in which it was written; not what keys of graphs are made of."""
    texts: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.glob("[0-9]*_*")) if folder.exists() else ():
        texts[path.stem.split("_", 1)[1].removeprefix("inductor_")].append(path.read_text())
    return {stage: "\n".join(parts) for stage, parts in texts.items() if stage != "keys"}


def differences(before: Path, after: Path) -> Iterator[tuple[str, str, list[str]]]:
    """(program, stage, lines of a unified difference) where two records differ."""
    for name in sorted({p.name for folder in (before, after) for p in folder.iterdir() if p.is_dir()}):
        old, new = stages(before / name), stages(after / name)
        for stage in dict.fromkeys([*old, *new]):
            was, is_now = old.get(stage, ""), new.get(stage, "")
            if was != is_now:
                yield name, stage, list(difflib.unified_diff(was.splitlines(), is_now.splitlines(), lineterm="", n=1))


def show_differences(before: Path, after: Path, brief: bool) -> int:
    """Prints them; returns how many stages of programs differ."""
    count = 0
    for name, stage, lines in differences(before, after):
        count += 1
        print(f"{name}: {stage} ({sum(line[:1] in '+-' for line in lines[2:])} lines)")
        if not brief:
            print("\n".join("    " + line for line in lines[2 : 2 + MAX_LINES]))
    print(f"{count} differences" if count else "no differences")
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS), metavar="GROUP")
    comparing = commands.add_parser("diff")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--brief", action="store_true")
    options = parser.parse_args()
    if options.command == "diff":
        return int(show_differences(options.before, options.after, options.brief) > 0)
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets affects the output
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.path.insert(0, str(ROOT))
    failed = record(options.folder, options.only)
    print(f"{failed} programs ended abnormally" if failed else "every program ran")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
