"""Changes something that a compiled program depends on between two calls; the next calls must give what eager gives.

    python tools/fuzz_guards.py --changes 3000 --seed 0      # 3000 changes, over as many programs as necessary
    python tools/fuzz_guards.py --peer --changes 500         # the same changes under torch.compile as well
    python tools/fuzz_guards.py --records FILE --budget 300  # in parts: continues after the programs that FILE contains
    python tools/fuzz_guards.py --show 17                    # the program of a seed and all of its changes
    python tools/fuzz_guards.py --repro 17:42                # a standalone script of one change of a seed

The programs come from ``guard_programs``. ``guard_changes`` finds what can be changed by walking from the program, so
it also finds what no guard checks. Each program runs in a process of its own, and each change in a fork of that
process, so that nothing has to be restored. After the change the program is called twice; value, type, and the type of
an exception must be those of the same two calls in a process in which nothing was compiled. Changes after which the
result of eager itself varies (uninitialized memory, as in a product with a tensor on `meta`) are left out: eager runs
twice, once with fresh memory filled with other bytes. Exit status 1 if a change leads to another result than in eager.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import inspect
import json
import linecache
import multiprocessing
import os
import pickle
import platform
import random
import re
import select
import signal
import sys
import time
import types
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

import guard_helpers  # noqa: E402
import torch  # noqa: E402
from guard_changes import Change, Recorder, Walk  # noqa: E402
from guard_programs import INPUT, program  # noqa: E402

import pyframe  # noqa: E402

ADDRESS = re.compile("0x[0-9a-f]{6,}")
CALLS_AFTER = 2
LIMIT = 60  # seconds that the calls after one change may take
PER_PROGRAM = 40
HELPERS = {name: held for name, held in vars(guard_helpers).items() if not name.startswith("__")}
NOTHING_CAME_BACK = "the process died"

TENSOR = torch.Tensor  # which a change may replace


# ---- results as plain data ---------------------------------------------------------------------------------


def describe(value: Any, depth: int = 0) -> Any:
    """`value` as plain data that two processes can compare: type and contents, tensors with their metadata."""
    cls = type(value)
    name = cls.__qualname__
    if depth > 6:
        return name
    if isinstance(value, TENSOR):
        return _tensor(value, name)
    if isinstance(value, float):
        return (name, float.__repr__(value))
    if isinstance(value, (bool, int, str, bytes, complex, type(None))) and cls.__module__ == "builtins":
        return (name, ADDRESS.sub("0x", repr(value)))
    if isinstance(value, (list, tuple)):
        iterate = list.__iter__ if isinstance(value, list) else tuple.__iter__
        return (name, [describe(item, depth + 1) for item in iterate(value)])  # type: ignore[arg-type]
    if isinstance(value, (set, frozenset)):
        return (name, sorted(str(describe(item, depth + 1)) for item in value))
    if isinstance(value, dict):
        return (name, [(describe(k, depth + 1), describe(v, depth + 1)) for k, v in dict.items(value)])
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return (name, getattr(value, "__name__", ""))
    if isinstance(value, (torch.dtype, torch.device)):
        return (name, str(value))
    fields = object.__getattribute__(value, "__dict__") if hasattr(cls, "__dictoffset__") and cls.__dictoffset__ else {}
    return (name, sorted((key, str(describe(held, depth + 1))) for key, held in fields.items()))


def _tensor(value: torch.Tensor, name: str) -> Any:
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad(), torch.autocast("cpu", enabled=False):
        meta = (name, str(value.dtype), tuple(value.shape), value.requires_grad, str(value.device), str(value.layout))
        if value.device.type == "meta" or value.layout != torch.strided:
            return ("tensor", meta, None)
        plain = value.detach()
        data = plain.to(torch.complex128 if plain.is_complex() else torch.float64).reshape(-1).tolist()
    return ("tensor", (*meta, value.stride()), data)


def same(one: Any, other: Any) -> bool:
    """Whether two descriptions agree, numbers in tensors up to rounding errors."""
    if isinstance(one, tuple) and isinstance(other, tuple) and one[:1] == other[:1] == ("tensor",):
        return one[1] == other[1] and _close(one[2], other[2])
    if type(one) is type(other) and isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _close(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return len(one) == len(other) and all(
        a == b or (a != a and b != b) or abs(a - b) <= 1e-5 * (1 + abs(b)) for a, b in zip(one, other, strict=True)
    )


def outcome(fn: Callable[..., Any], x: Any) -> Any:
    """The outcome of a call as plain data: ("value", ...) or ("raises", type)."""
    try:
        found = fn(x)
    except Exception as error:
        return ("raises", type(error).__qualname__)
    return ("value", describe(found))


# ---- processes ---------------------------------------------------------------------------------------------


def forked(work: Callable[[], Any], limit: float) -> Any:
    """The result of `work` in a forked process, or None if that process dies or takes more than `limit` seconds."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        signal.alarm(int(limit) + 5)
        with contextlib.suppress(BaseException), os.fdopen(writer, "wb") as pipe:
            pipe.write(pickle.dumps(work()))
        os._exit(0)
    os.close(writer)
    chunks, end = [], time.monotonic() + limit
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while (left := end - time.monotonic()) > 0 and select.select([pipe], [], [], left)[0]:
            if not (chunk := pipe.read(1 << 20)):
                break
            chunks.append(chunk)
        else:
            os.kill(pid, signal.SIGKILL)
            chunks = []
    os.waitpid(pid, 0)
    return pickle.loads(b"".join(chunks)) if chunks else None


def load(text: str, seed: int) -> types.ModuleType:
    """The program as a module, from its source text."""
    module = types.ModuleType("program_module")
    name = f"<program {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    sys.modules["program_module"] = module
    exec(compile(text, name, "exec"), vars(module))
    return module


def apply(change: Change, module: types.ModuleType) -> None:
    """Makes the change; the names that it assigns become globals of the program."""
    exec(
        compile(change.text, "<change>", "exec"),
        {**vars(module), **HELPERS, "globals": lambda: vars(module)},
        vars(module),
    )


def compiled_by(how: str, fn: Any) -> Any:
    if how == "eager":
        return fn
    if how == "torch.compile":
        return torch.compile(fn, backend="eager")
    return pyframe.compile(fn, backend="eager" if how == "pyframe" else "inductor")


def fill_fresh_memory(byte: int) -> None:
    """Lets glibc fill memory with certain bytes when it is allocated or freed, so that results which depend on
    uninitialized memory change."""
    perturb = -6  # M_PERTURB
    ctypes.CDLL(None).mallopt(perturb, byte)


def run_changes(
    how: str, text: str, seed: int, changes: list[Change], fresh: int | None = None
) -> tuple[Any, list[Any]]:
    """The outcomes of two calls before any change, and of the calls after each of `changes`, each in a fork."""
    if fresh is not None:
        fill_fresh_memory(fresh)
    torch.manual_seed(0)
    random.seed(0)
    module = load(text, seed)
    fn = compiled_by(how, module.program)
    module.given = x = eval(INPUT)  # type: ignore[attr-defined]  # changes put the input itself in other places
    before = [outcome(fn, x), outcome(fn, x)]

    def after(change: Change) -> Any:
        try:
            apply(change, module)
        except Exception as error:
            return ("refused", type(error).__qualname__)
        return [outcome(fn, x) for _ in range(CALLS_AFTER)]

    return before, [forked(lambda change=change: after(change), LIMIT) for change in changes]  # type: ignore[misc]


def found_changes(text: str, seed: int) -> list[Change]:
    """All changes of the program of a seed."""
    torch.manual_seed(0)
    module = load(text, seed)
    recorder = Recorder()
    recorder.run(module.program, eval(INPUT))
    return Walk(module, recorder.codes).run()


def sample(changes: list[Change], seed: int, count: int) -> list[Change]:
    """`count` of the changes; every kind is equally likely, however many changes it has."""
    rng = random.Random(seed)
    by_kind: dict[str, list[Change]] = collections.defaultdict(list)
    for change in changes:
        by_kind[change.kind].append(change)
    groups = [rng.sample(group, len(group)) for group in by_kind.values()]
    rng.shuffle(groups)
    taken: list[Change] = []
    while groups and len(taken) < count:
        taken += [group.pop() for group in groups][: count - len(taken)]
        groups = [group for group in groups if group]
    return taken


# ---- one program -------------------------------------------------------------------------------------------


@dataclass
class Tried:
    """One change and its outcome: for each way of running, whether the calls after it were as in eager."""

    seed: int
    number: int
    kind: str
    text: str
    matters: bool
    right: dict[str, bool]
    expected: Any = None
    found: dict[str, Any] = field(default_factory=dict)


def try_program(seed: int, count: int, hows: list[str], only: list[int] | None = None) -> list[Tried]:
    """Tries the changes of the program of `seed`, under each of `hows` and in eager."""
    _, text = program(seed)
    listed = forked(lambda: found_changes(text, seed), LIMIT)
    if listed is None:
        raise RuntimeError(f"program {seed} does not run")
    taken = sample(listed, seed, 1 << 30)[: count * 3 // 2]
    ran = forked(lambda: run_changes("eager", text, seed, taken), LIMIT * 4)
    if ran is None:
        raise RuntimeError(f"program {seed} does not run in eager")
    before, after = ran
    rerun = forked(lambda: run_changes("eager", text, seed, taken, 0x5A), LIMIT * 4)
    if rerun is None or not same(rerun[0], before):
        raise RuntimeError(f"program {seed} gives something else each time")
    repeated = [found is not None and same(found, once_more) for found, once_more in zip(after, rerun[1], strict=True)]
    usable = [i for i, found in enumerate(after) if repeated[i] and found[0] != "refused"]
    if only is not None and not set(only) <= set(usable):
        raise RuntimeError(f"of {seed}, {only} cannot be compared: it is refused, or eager does not repeat itself")
    mattering = [i for i in usable if not same(after[i], before)]
    others = [i for i in usable if i not in set(mattering)]
    chosen = sorted([*mattering, *others[: max(0, count - len(mattering))]][:count]) if only is None else only
    picked = [taken[i] for i in chosen]
    tried = [Tried(seed, i, taken[i].kind, taken[i].text, i in set(mattering), {}, expected=after[i]) for i in chosen]
    for how in hows:
        ran = forked(lambda how=how: run_changes(how, text, seed, picked), LIMIT * 6)  # type: ignore[misc]
        first, outcomes = ran or (None, [None] * len(picked))
        if not same(first, before):
            outcomes = [("wrong before the change", first)] * len(picked)
        for one, found in zip(tried, outcomes, strict=True):
            one.right[how] = found is not None and same(found, one.expected)
            if not one.right[how]:
                one.found[how] = NOTHING_CAME_BACK if found is None else found
    return tried


def repro(text: str, change: str, how: str) -> str:
    """A standalone script: compiles, calls, changes, calls again, and compares with eager."""
    helpers = inspect.getsource(guard_helpers).split('"""', 2)[2].strip("\n")
    used = (
        "pyframe.compile(program, backend='eager')"
        if how != "torch.compile"
        else "torch.compile(program, backend='eager')"
    )
    return "\n".join([
        text, helpers, "", "import builtins", "import pyframe", f"compiled = {used}", f"given = x = {INPUT}",
        "compiled(x), compiled(x)", change, "for fn in (compiled, program):",
        "    try: print(fn.__class__.__name__, fn(x))",
        "    except Exception as error: print(fn.__class__.__name__, 'raises', repr(error))", "",
    ])  # fmt: skip


# ---- records of programs that ran --------------------------------------------------------------------------


def record(path: Path | None, seed: int, found: list[Tried] | str) -> None:
    """Appends a line to the file of records: the seed, and the outcomes of its changes or why it does not run."""
    if path is not None:
        rows = found if isinstance(found, str) else [asdict(t) | {"expected": None} for t in found]
        with path.open("a") as file:
            file.write(json.dumps([seed, rows], default=repr) + "\n")


def read_records(path: Path | None) -> tuple[list[Tried], list[str], set[int]]:
    """The changes in the file of records, the programs that did not run, and the seeds."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    entries = [json.loads(line) for line in lines]
    tried = [Tried(**row) for _, rows in entries if not isinstance(rows, str) for row in rows]
    return tried, [rows for _, rows in entries if isinstance(rows, str)], {seed for seed, _ in entries}


# ---- the whole run -----------------------------------------------------------------------------------------


def _worker(job: tuple[int, int, list[str]]) -> tuple[int, list[Tried] | str]:
    faulthandler.enable()
    gc.freeze()  # so that forks share what there is
    seed, count, hows = job
    try:
        return seed, try_program(seed, count, hows)
    except RuntimeError as error:
        return seed, str(error)


def run(args: argparse.Namespace, hows: list[str]) -> tuple[list[Tried], list[str]]:
    """Runs programs, one seed after another, until there are enough changes or the time is up. The records of an
    earlier run count, and new ones are appended to the file."""
    tried, broken, recorded = read_records(args.records)
    start = time.monotonic()
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(args.jobs, mp_context=context) as pool:
        waiting: set[concurrent.futures.Future[Any]] = set()
        seed = args.seed
        while True:
            enough = len(tried) >= args.changes or time.monotonic() - start > args.budget
            while not enough and len(waiting) < args.jobs + 1:
                with_peer = (seed - args.seed) % args.peer_every == 0
                if seed not in recorded:
                    waiting.add(pool.submit(_worker, (seed, args.per_program, hows if with_peer else hows[:1])))
                seed += 1
            if not waiting:
                break
            done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                number, found = future.result()
                record(args.records, number, found)
                if isinstance(found, str):
                    broken.append(found)
                    print(found, flush=True)
                    continue
                tried += found
                wrong = [t for t in found if not t.right[hows[0]]]
                print(f"program {number}: {len(found)} changes, {len(wrong)} wrong; {len(tried)} in all", flush=True)
                for t in wrong:
                    print(f"  {t.seed}:{t.number} [{t.kind}] {t.text}", flush=True)
                    if args.verbose:
                        print(_brief(t.expected, t.found[hows[0]]), flush=True)
    return sorted(tried, key=lambda t: (t.seed, t.number)), broken


def table(tried: list[Tried], hows: list[str], title: str) -> str:
    """The counts per kind of change: how many there are, how many affect eager's result, and how many each way of
    running gets wrong."""
    lines = [
        title,
        "",
        f"{'kind of change':52} {'changes':>8} {'matter':>7} " + " ".join(f"{h + ' wrong':>20}" for h in hows),
    ]
    kinds = collections.defaultdict(list)
    for t in tried:
        kinds[t.kind].append(t)
    for kind, group in [*sorted(kinds.items()), ("all", tried)]:
        wrong = " ".join(f"{_wrong_of(group, h):>20}" for h in hows)
        lines.append(f"{kind:52} {len(group):>8} {sum(t.matters for t in group):>7} {wrong}")
    return "\n".join(lines)


def _wrong_of(group: list[Tried], how: str) -> str:
    answers = [t.right[how] for t in group if how in t.right]
    return f"{answers.count(False)} of {len(answers)}"


def write(folder: Path, text: str, tried: list[Tried], hows: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    wrong = [t for t in tried if not all(t.right.values())]
    listing = [
        f"{t.seed}:{t.number} [{t.kind}] {t.text}  ({', '.join(h for h in t.found)})" for t in wrong
    ]
    (folder / "fuzz_guards.txt").write_text(text + "\n\nwrong:\n" + "\n".join(listing or ["none"]) + "\n")
    totals = {how: _wrong_of(tried, how) for how in hows}
    failures = [{k: v for k, v in asdict(t).items() if k not in ("expected", "found")} for t in wrong]
    data = {"changes": len(tried), "matter": sum(t.matters for t in tried), "wrong": totals, "failures": failures}
    (folder / "fuzz_guards.json").write_text(json.dumps(data, indent=1) + "\n")


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=3000)
    parser.add_argument("--per-program", type=int, default=PER_PROGRAM)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first program")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at a time")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no program is begun")
    parser.add_argument("--peer", action="store_true", help="torch.compile gets the same changes")
    parser.add_argument("--peer-every", type=int, default=1, help="torch.compile gets those of every n-th program only")
    parser.add_argument("--inductor", action="store_true", help="compile by the default backend")
    parser.add_argument("--records", type=Path, help="file that keeps what each program gave, for a run in pieces")
    parser.add_argument("--out", type=Path, help="folder for fuzz_guards.txt and .json")
    parser.add_argument("--show", type=int, metavar="SEED")
    parser.add_argument("--repro", metavar="SEED:NUMBER")
    parser.add_argument("--only", metavar="SEED:NUMBER", help="this change alone: what was expected and found")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(argv)


def _brief(expected: Any, found: Any) -> str:
    """The first place at which two outcomes differ."""
    one, other = repr(expected), repr(found)
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    start = max(0, at - 60)
    return f"     expected ...{one[start : at + 100]}\n     found    ...{other[start : at + 100]}"


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    if args.show is not None:
        _, text = program(args.show)
        listed = forked(lambda: found_changes(text, args.show), LIMIT) or []
        print(text, *(f"[{c.kind}] {c.text}" for c in listed), sep="\n")
        return 0
    if args.only:
        seed, number = map(int, args.only.split(":"))
        (tried,) = try_program(seed, number + 1, ["inductor" if args.inductor else "pyframe"], [number])
        wrong = [_brief(tried.expected, found) for found in tried.found.values()]
        print(tried.text, *wrong or ["as in eager"], sep="\n")
        return int(bool(tried.found))
    if args.repro:
        seed, number = map(int, args.repro.split(":"))
        _, text = program(seed)
        listed = forked(lambda: found_changes(text, seed), LIMIT)
        print(repro(text, sample(listed, seed, 1 << 30)[number].text, "pyframe"))
        return 0
    hows = ["inductor" if args.inductor else "pyframe", *(["torch.compile"] if args.peer else [])]
    if args.peer:
        importlib.import_module("torch._dynamo")  # once, before the forks
    tried, broken = run(args, hows)
    title = f"fuzz_guards: torch {torch.__version__}, Python {platform.python_version()}, seeds from {args.seed}"
    text = table(tried, hows, title)
    print("", text, sep="\n")
    if args.out:
        write(args.out, text, tried, hows)
    return int(bool(broken) or not all(t.right[hows[0]] for t in tried))


if __name__ == "__main__":
    sys.exit(main())
