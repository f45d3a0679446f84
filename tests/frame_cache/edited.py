"""Runs the programs of `edited_programs` compiled and eagerly, from the files in a folder.

    python -m tests.frame_cache.edited FOLDER OUTPUT

`names.json` in the folder has the names of the programs to run and of their modules. Writes a JSON object: for each
program its results in eager mode and compiled, whether the capture was loaded, and why it was not kept.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch

import pyframe


def outcome_of(module: str) -> dict[str, Any]:
    x = torch.eye(3) * 2
    compiled = pyframe.compile(importlib.import_module(module).program)
    pyframe.counters.clear()
    found = _text(compiled, x)
    counters = pyframe.counters
    seen = {
        "compiled": found, "loaded": counters["frames_loaded"], "kept": counters["frames_kept"],
        "reasons": list(counters["frames_not_kept"]),
    }  # fmt: skip
    # from another copy of the files, because a call may have changed what the library holds
    return {**seen, "eager": _text(importlib.import_module(f"{module}_again").program, x)}


def _text(program: Any, x: torch.Tensor) -> str:
    try:
        return repr(program(x))
    except Exception as error:  # noqa: BLE001  some edits make a program fail, which is its result
        return repr(error)


def main(folder: str, output: str) -> None:
    sys.path.insert(0, folder)
    names = json.loads(Path(folder, "names.json").read_text())
    with torch.no_grad():
        found = {name: outcome_of(module) for name, module in names.items()}
    Path(output).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
