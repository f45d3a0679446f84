"""Regenerates the excerpts in `docs/architecture.md`: what each stage prints for one small program.

    python tools/gen_walkthrough.py            # compiles the program and writes the excerpts into the page
    python tools/gen_walkthrough.py --check    # exit status 1 if the page is out of date

An excerpt is the code block that follows a line `<!-- walkthrough: NAME -->`; NAME is one of the keys that `excerpts`
returns. The program itself is the block named `program`, so it is edited in the page. It is compiled in a process of
its own, for the CPU, with an empty cache.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
# The marker with the opening fence, the text, the closing fence.
_BLOCK = re.compile(r"(<!-- walkthrough: (\w+) -->\n```\w*\n)(.*?)(^```$)", re.DOTALL | re.MULTILINE)
_WITH_A_BREAK = """import torch

def g(x):
    y = x.sin()
    print("computed")
    return y + 1
"""
_CALL = "x, bias = torch.randn(16, 64), torch.randn(64)\n"


def blocks(page: str) -> dict[str, str]:
    """The excerpts that the page has, by name."""
    return {name: text for _, name, text, _ in _BLOCK.findall(page)}


def excerpts(program: str) -> dict[str, str]:
    """The output of each stage for `program`, which defines `f(x, bias)`. RuntimeError if the program fails."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "example.py").write_text(program + "\n" + _CALL)
        Path(folder, "broken.py").write_text(_WITH_A_BREAK)
        settings = {"PYFRAME_DUMP": f"{folder}/dump", "PYFRAME_CACHE_DIR": f"{folder}/cache", "PYFRAME_LOGS": ""}
        path = os.pathsep.join([folder, str(ROOT), os.environ.get("PYTHONPATH", "")])
        run = subprocess.run(
            [sys.executable, __file__, "--worker", folder], env={**os.environ, **settings, "PYTHONPATH": path},
            capture_output=True, text=True, cwd=folder,
        )  # fmt: skip
        if run.returncode:
            raise RuntimeError(f"the program of {PAGE.name} does not run:\n{run.stderr}")
        stages = sorted(Path(folder, "dump").iterdir())
        aten, loops = [_text(path, folder) for path in stages if path.stem.endswith("_ir")][:2]
        found = {name: _text(next(p for p in stages if p.stem.endswith(f"_{name}")), folder)
                 for name in ("graph", "schedule", "code", "plan")}  # fmt: skip
        written = {path.stem: _text(path, folder) for path in Path(folder, "written").iterdir()}
    kernel = found["code"][found["code"].index('extern "C"'):]
    return {
        "program": program, "program_with_a_break": _WITH_A_BREAK, "graph": found["graph"], "aten": aten,
        "loops": f"{loops}\n{found['schedule']}",
        "kernel": kernel, "plan": found["plan"], **written,
    }  # fmt: skip


def _text(path: Path, folder: str) -> str:
    return path.read_text().replace(f"{folder}/", "").strip()


def render(page: str) -> str:
    """The page with its excerpts as they are now. KeyError for a block with a name that there is not."""
    texts = excerpts(blocks(page)["program"])
    return _BLOCK.sub(lambda found: found[1] + texts[found[2]].rstrip() + "\n" + found[4], page)


# ---- in a process of its own


def _worker(folder: Path) -> None:
    """Compiles the program, and writes what no log stage shows: Vars, guards in short, canonical bytecode."""
    import broken
    import example

    import pyframe
    from pyframe import _C
    from pyframe.bytecode import canonicalize

    def bytecode(code: object) -> str:
        instrs = canonicalize(code).instrs  # type: ignore[arg-type]
        return "\n".join(f"{i.op} {i.arg!r}" if i.arg is not None else i.op for i in instrs if hasattr(i, "op"))

    seen = _record_stack(example.f.__code__)
    compiled = pyframe.compile(example.f)  # kept: the captured code goes with it
    compiled(example.x, example.bias)
    first_statement = seen[: 1 + next(k for k, line in enumerate(seen) if line.startswith("STORE_FAST"))]
    guards = pyframe.explain(example.f)(example.x, example.bias).guards
    written = {
        "vars": "\n".join(first_statement),
        "guards": "\n".join(f"{g.kind:12} {str(g.source or ''):11} {_short(g.line)}".rstrip() for g in guards),
        "break": _captures(pyframe.explain(broken.g)(example.x)),
        "bytecode": bytecode(_C.entries(example.f.__code__)[0].code),
    }
    (folder / "written").mkdir()
    for name, text in written.items():
        (folder / "written" / f"{name}.txt").write_text(text)


def _captures(explained: Any) -> str:
    """The captured functions of a call with their graphs, and the break that ends each."""
    lines = []
    for capture in explained.captures:
        operators = [str(node.name) for gm in capture.graphs for node in gm.graph.nodes if "call" in node.op]
        ends = [f"[{found.kind}] {found.detail}" for found in capture.breaks] or ["returns"]
        lines.append(f"{capture.function:12} graph: {', '.join(operators):6} then: {', '.join(ends)}")
    return "\n".join(lines)


def _short(line: object) -> str:
    return "" if line is None else str(line).rpartition("/")[2]


def _record_stack(code: object) -> list[str]:
    """A list to which each traced instruction of `code` adds a line: itself, and the Var on top of the stack."""
    import pyframe.interp.trace  # noqa: F401  registers the handlers
    from pyframe.interp.frame import HANDLERS

    lines: list[str] = []

    def recording(name: str, handler: Callable[..., object]) -> Callable[..., object]:
        def handle(frame: object, arg: object) -> object:
            outcome = handler(frame, arg)
            if frame.code is code and name not in ("RESUME", "PUSH_NULL"):  # type: ignore[attr-defined]
                top = frame.stack[-1] if frame.stack else None  # type: ignore[attr-defined]
                shown = "" if top is None else f"{type(top).__name__}: {top.describe()}"
                text = name if arg is None else f"{name} {arg}"
                lines.append(f"{text:20} {shown}".rstrip())
            return outcome

        return handle

    HANDLERS.update({name: recording(name, handler) for name, handler in HANDLERS.items()})  # type: ignore[arg-type]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _worker(options.worker)
        return 0
    page = PAGE.read_text()
    new = render(page)
    if options.check:
        return int(page != new)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
