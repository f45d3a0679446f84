"""Writes a graph and its inputs as a script that reproduces a compiler bug outside of the program.

The script needs torch, inductor, and the modules of other functions that the graph calls. A file beside it holds the
inputs' values; random values replace inputs of more than 64 MiB in total. The script imports `drawn` and `attribute`
from this module and its main program from `run_repro.py`; `minify_repro.py` makes it smaller.
"""

from __future__ import annotations

import builtins
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._library.custom_ops import OPDEFS
from torch.fx.node import _get_qualified_name

FOLDER = "PYFRAME_REPRO_DIR"
_SAVED_BYTES = 64 << 20  # inputs larger than this in total are replaced by random ones

_SCRIPT = '''"""{why}

    python {name}            runs the graph compiled and with ATen, and compares: exit status 0 where they agree
    python -m inductor.minify_repro {name}    makes it smaller
"""

import importlib

import torch
from torch import device, inf, nan
from torch.fx import Graph, GraphModule

from inductor.run_repro import main
from inductor.verify.repro import attribute, drawn


def inputs():
    """The graph's inputs."""
{inputs}


def build():
    """The graph."""
    root, g = torch.nn.Module(), Graph()
{graph}
    gm = GraphModule(root, g)
    gm.meta["grad_enabled"] = {grad}
    return gm


if __name__ == "__main__":
    main(build(), inputs())
'''


def write_repro(
    gm: fx.GraphModule, inputs: Sequence[Any], why: str, folder: Path | None = None, strict: bool = False
) -> str:
    """Write the script, and beside it a file with the inputs' values. Returns its path, or the reason if it could not
    be written. `strict`: raise the reason instead (NotWritable or OSError)."""
    try:
        place = _folder() if folder is None else folder
        graph, tensors = _graph_lines(gm)
        graph = [*_registrations(gm), *graph]
        kinds = [repr(grad_mode(gm)), *map(_kind, inputs)]
        name = f"repro_{hashlib.sha256(chr(10).join([*graph, *kinds]).encode()).hexdigest()[:12]}"
        values = [x.detach() if isinstance(x, torch.Tensor) else x for x in inputs]
        given = _input_lines(values, place / f"{name}.pt", list(inputs), tensors)
        text = _SCRIPT.format(
            why=why.replace('"""', "'''").replace("\\", "/"),
            name=f"{name}.py",
            graph="\n".join(f"    {x}" for x in graph),
            inputs="\n".join(f"    {x}" for x in given),
            grad=grad_mode(gm),
        )
        path = place / f"{name}.py"
        path.write_text(text)
        return str(path)
    except (OSError, NotWritable) as error:
        if strict:
            raise
        return f"the script could not be written ({error})"


def _kind(x: Any) -> str:
    """What a compilation depends on of an input; part of the hash in the script's name."""
    if not isinstance(x, torch.Tensor):
        return repr(x)
    return repr((x.dtype, tuple(x.shape), x.stride(), str(x.device), x.requires_grad))


def grad_mode(gm: fx.GraphModule) -> bool:
    """Whether to record gradients: the mode stored by the script that the graph comes from, else the current mode."""
    return bool(gm.meta.get("grad_enabled", torch.is_grad_enabled()))


class NotWritable(Exception):
    """The graph contains something that cannot be written as code."""


def _folder() -> Path:
    """$PYFRAME_REPRO_DIR, or a directory that only this user can write to."""
    chosen = os.environ.get(FOLDER)
    if chosen:
        path = Path(chosen)
        path.mkdir(parents=True, exist_ok=True)
        return path
    path = Path(tempfile.gettempdir()) / f"pyframe-repros-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OSError(f"{path} is not a directory of this user alone")
    return path


def _input_lines(values: list[Any], path: Path, given: list[Any], tensors: dict[str, torch.Tensor]) -> list[str]:
    total = sum(x.untyped_storage().nbytes() for x in values if isinstance(x, torch.Tensor))
    grad = [i for i, x in enumerate(given) if isinstance(x, torch.Tensor) and x.requires_grad]
    state = {"inputs": values, "attributes": {k: v.detach() for k, v in tensors.items()}}
    if total <= _SAVED_BYTES:
        torch.save(state, path)
        lines = [f"values = torch.load(__file__[:-3] + {'.pt'!r})[{'inputs'!r}]"]
    else:
        torch.save({**state, "inputs": []}, path)
        lines = ["torch.manual_seed(0)", "values = ["]
        lines += [f"    {_drawn(x)}," for x in values]
        lines.append("]")
    lines += [f"values[{i}].requires_grad_()" for i in grad]
    return [*lines, "return values"]


def _drawn(x: Any) -> str:
    if not isinstance(x, torch.Tensor):
        return literal(x)
    top = int(x.max()) if x.numel() and not x.is_floating_point() and not x.is_complex() else 0
    return f"drawn({tuple(x.shape)}, {tuple(x.stride())}, {x.dtype}, {str(x.device)!r}, {top})"


def drawn(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: str, top: int) -> torch.Tensor:
    """A tensor of random values; integers are between 0 and `top`, inclusive."""
    tensor = torch.empty_strided(size, stride, dtype=dtype, device=device)
    if dtype.is_floating_point or dtype.is_complex:
        return tensor.copy_(torch.randn(size))
    return tensor.copy_(torch.randint(0, top + 1, size))


def attribute(path: str, name: str) -> Any:
    """A tensor of the graph's module, from the file beside the script `path`."""
    return torch.load(path[:-3] + ".pt")["attributes"][name]


# ---- the graph


def _graph_lines(gm: fx.GraphModule) -> tuple[list[str], dict[str, torch.Tensor]]:
    """Statements that build the graph, and the tensors of its module that they use."""
    lines: list[str] = []
    tensors: dict[str, torch.Tensor] = {}
    for node in gm.graph.nodes:
        name = _safe(node)
        if node.op == "placeholder":
            lines.append(f"{name} = g.placeholder({node.name!r})")
        elif node.op == "get_attr":
            flat = node.target.replace(".", "_")
            value = gm.get_parameter(node.target) if _is_parameter(gm, node.target) else _attribute(gm, node.target)
            tensors[flat] = value
            kind = f"torch.nn.Parameter({{}}, {value.requires_grad})" if isinstance(value, torch.nn.Parameter) else "{}"
            created = kind.format(f"attribute(__file__, {flat!r})")
            lines.append(f"root.{flat} = {created}")
            lines.append(f"{name} = g.get_attr({flat!r})")
        elif node.op == "output":
            lines.append(f"g.output({literal(node.args[0])})")
        elif node.op in ("call_function", "call_method"):
            target = literal(node.target) if node.op == "call_method" else _function(node.target)
            line = f"{name} = g.{node.op}({target}, {literal(tuple(node.args))}, {literal(dict(node.kwargs))})"
            place = node.meta.get("stack_trace", "").strip().splitlines()
            lines.append(line + (f"  # {place[-1].strip()}" if place and place[-1].strip().isprintable() else ""))
        else:
            raise NotWritable(f"a graph node of kind {node.op}")
    return lines, tensors


def _registrations(gm: fx.GraphModule) -> list[str]:
    """Imports of the modules that register the graph's custom operators (`torch.library.custom_op`)."""
    modules: dict[str, None] = {}
    for node in gm.graph.nodes:
        packet = getattr(node.target, "overloadpacket", node.target)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            definition = OPDEFS.get(packet._qualified_op_name)
            if definition is not None and definition._init_fn.__module__ != "__main__":
                modules[definition._init_fn.__module__] = None
    return [f"importlib.import_module({name!r})" for name in modules]


def _is_parameter(gm: fx.GraphModule, name: str) -> bool:
    return name in dict(gm.named_parameters())


def _attribute(gm: fx.GraphModule, name: str) -> torch.Tensor:
    value: Any = gm
    for part in name.split("."):
        value = getattr(value, part)
    if not isinstance(value, torch.Tensor):
        raise NotWritable(f"an attribute of type {type(value).__name__}")
    return value


def _safe(node: fx.Node) -> str:
    return f"n_{node.name}"


def _function(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target}"
    name = _get_qualified_name(target)
    if getattr(builtins, name, None) is target:
        return name
    head = name.split(".")[0]
    found: Any = sys.modules.get(head)
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    if found is not target:
        raise NotWritable(f"a call of {name}, which cannot be imported by that name")
    if head == "torch":
        return name
    module, _, function = name.rpartition(".")
    return f"importlib.import_module({module!r}).{function}"


def literal(value: Any) -> str:
    """A node's argument as Python code."""
    if isinstance(value, fx.Node):
        return _safe(value)
    if isinstance(value, torch.Size):
        return f"torch.Size({list(value)!r})"
    if isinstance(value, tuple):
        if type(value) is not tuple:
            raise NotWritable(f"an argument of type {type(value).__name__}")
        return "(" + "".join(f"{literal(x)}, " for x in value) + ")"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({literal(value.start)}, {literal(value.stop)}, {literal(value.step)})"
    if isinstance(value, torch.device):
        return f"device({str(value)!r})"
    if value is None or value is ... or isinstance(
        value, bool | int | float | complex | str | torch.dtype | torch.layout | torch.memory_format
    ):
        return "..." if value is ... else repr(value)
    raise NotWritable(f"an argument of type {type(value).__name__}")
