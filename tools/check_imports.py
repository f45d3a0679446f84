"""Checks that imports point one way only.

    python tools/check_imports.py

Each package lists the layers below it that it may import (top-level imports; ``TYPE_CHECKING`` blocks do not count).
Also: nothing on the main path may import torch._dynamo, torch._inductor or torch._functorch.aot_autograd.
Exit status 1 and one line per violation.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LAYERS: dict[str, list[str]] = {
    # lowest first; a module may import its own layer and those before it
    "pyframe": ["bytecode", "core", "errors", "vars", "interp", "emit"],
    "inductor": ["ir", "lower", "schedule", "codegen"],
}
# Pairs that design lets through although they point up; each says why.
ALLOWED = {
    ("pyframe/core", "pyframe/bytecode"),
    # the end of a trace assembles its own replacement code
    ("pyframe/interp", "pyframe/emit"),
}
FORBIDDEN = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd")


def layer_of(path: Path) -> tuple[str, str]:
    parts = path.relative_to(ROOT).parts
    return parts[0], parts[1].removesuffix(".py") if len(parts) > 1 else ""


def imported(tree: ast.Module, path: Path) -> list[tuple[int, str]]:
    """(line, absolute dotted module) of each import outside ``if TYPE_CHECKING``."""
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    found: list[tuple[int, str]] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            found.extend((node.lineno, a.name) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.append((node.lineno, module))
            found.extend((node.lineno, f"{module}.{a.name}") for a in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found


def violations() -> list[str]:
    out = []
    for top, layers in LAYERS.items():
        for path in sorted((ROOT / top).rglob("*.py")):
            where = path.relative_to(ROOT)
            _, layer = layer_of(path)
            for line, module in imported(ast.parse(path.read_text()), path):
                if module.startswith(FORBIDDEN):
                    out.append(f"{where}:{line}: imports {module}")
                parts = module.split(".")
                if top == "inductor" and parts[0] == "pyframe":
                    out.append(f"{where}:{line}: inductor imports pyframe ({module})")
                if parts[0] != top or len(parts) < 2 or parts[1] not in layers or layer not in layers:
                    continue
                if layers.index(parts[1]) > layers.index(layer):
                    if (f"{top}/{layer}", f"{top}/{parts[1]}") not in ALLOWED:
                        out.append(f"{where}:{line}: {layer} imports {parts[1]} ({module})")
    return sorted(set(out))


if __name__ == "__main__":
    found = violations()
    print("\n".join(found) if found else "imports: one way only")
    sys.exit(bool(found))
