"""Selects which stages of captures and compilations are logged (`set_logs` and the variable PYFRAME_LOGS), and formats
bytecode for these logs."""

from __future__ import annotations

import dis
import io
import os
import types

from inductor.log import stages

from ..errors import UserError

STAGES = ("graph", "guards", "bytecode", "breaks", "recompiles", "backward", *stages.STAGES)


def set_logs(*names: str) -> None:
    """Print these stages to stderr from now on; without arguments, print none."""
    for name in names:
        if name not in STAGES:
            raise UserError(f"unknown log stage {name!r}; accepted: {', '.join(STAGES)}")
    stages.print_only(names)


def disassembly(code: types.CodeType) -> str:
    """The disassembly of `code`, with its exception table and the code objects among its constants."""
    text = io.StringIO()
    dis.dis(code, file=text)
    return f"{code.co_qualname}\n{text.getvalue()}"


set_logs(*filter(None, os.environ.get("PYFRAME_LOGS", "").split(",")))
