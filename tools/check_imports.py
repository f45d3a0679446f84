"""Checks that imports point one way only.

    python tools/check_imports.py

`LAYERS` lists the modules and packages of each package from the lowest to the highest: each may import itself and those
before it. A module that is not listed is an error, and so is an import of torch's own compiler anywhere. Imports within
functions count; those under ``if TYPE_CHECKING`` do not. Prints one line for each violation; exit status 1 if there is
one.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LAYERS: dict[str, list[str]] = {
    "": ["inductor", "pyframe"],
    "pyframe": [
        "version", "_C", "bytecode", "core", "errors", "signature", "exc", "config", "metrics", "graph_retry",
        "torch_resets", "callables", "module", "originals", "report", "stance", "markers", "options", "vars",
        "requirements", "dynamic", "emit", "interp", "backends", "example_inputs", "graph_compilation", "entries",
        "frame_cache", "recompile", "skipped_frames", "sibling_captures", "driver", "lazy_compiler", "shared_captures",
        "cache_artifacts", "backward", "api", "export", "packaging", "stage_programs", "testing", "cli", "__init__",
        "__main__",
    ],
    "pyframe.vars": [
        "__init__", "codegen", "traced_graph", "tracer", "registry", "polyfills", "protocol", "containers", "objects",
        "numbers", "torch_objects", "higher_order", "stdlib", "wrap_containers", "wrap",
    ],
    "inductor": [
        "_C", "extension", "errors", "budget", "log", "dtypes", "overlap", "torch_compat", "verify_policy",
        "transforms", "options",
        "torch_options", "compile_report", "ir", "autocast", "modes", "process", "cache", "fx_utils", "eager",
        "runtime", "cudagraphs", "fastest", "lower", "schedule", "codegen", "autotune", "aot", "passes", "fallback",
        "dynamic", "artifact", "refused", "assembly", "kept_graph", "kept_sizes", "build", "frozen", "generate",
        "compiler_process", "background", "graph_split", "package", "subclasses", "verify", "compile", "run_repro",
        "minify_repro", "__init__",
    ],
}  # fmt: skip
FORBIDDEN = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd")


def imported(path: Path) -> list[tuple[int, str]]:
    """(line, absolute dotted name) of what a file imports outside ``if TYPE_CHECKING``."""
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    found: list[tuple[int, str]] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            found.extend((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.extend((node.lineno, f"{module}.{each.name}") for each in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return found


def points_up(importer: str, name: str) -> str | None:
    """Why a module must not import a name, if so. Both are dotted."""
    here, there = importer.split("."), name.split(".")
    depth = next((i for i, (a, b) in enumerate(zip(here, there)) if a != b), min(len(here), len(there)))
    package = ".".join(here[:depth])
    layers = LAYERS.get(package)
    if layers is None or depth >= len(here) or depth >= len(there):
        return None
    lower, upper = here[depth], there[depth]
    if upper not in layers:  # a name that the package itself defines
        return f"imports {name} from the package above it" if depth and here[depth] != "__init__" else None
    return f"{lower} imports {upper} ({name})" if layers.index(upper) > layers.index(lower) else None


def unlisted() -> list[str]:
    """Modules of the packages with layers that have no place in them, and places without a module."""
    out = []
    for package, layers in LAYERS.items():
        folder = ROOT / package.replace(".", "/")
        if not package:
            continue
        present = {path.stem for path in folder.glob("*.py")}
        present |= {path.parent.name for path in folder.glob("*/__init__.py")}
        out += [f"{package}.{name}: no layer in tools/check_imports.py" for name in present - set(layers)]
        out += [f"{package}.{name}: a layer without a module" for name in set(layers) - present - {"_C"}]
    return out


def violations() -> list[str]:
    out = unlisted()
    if out:
        return out
    for top in LAYERS[""]:
        for path in sorted((ROOT / top).rglob("*.py")):
            where = path.relative_to(ROOT)
            for line, name in imported(path):
                if name.startswith(FORBIDDEN):
                    out.append(f"{where}:{line}: imports {name}")
                elif name.split(".")[0] in LAYERS[""]:
                    why = points_up(".".join(where.with_suffix("").parts), name)
                    out += [f"{where}:{line}: {why}"] if why else []
    return sorted(set(out))


if __name__ == "__main__":
    found = violations()
    print("\n".join(found) if found else "imports: one way only")
    sys.exit(bool(found))
