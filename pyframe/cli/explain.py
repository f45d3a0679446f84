"""`python -m pyframe explain script.py`: runs a script and prints what was captured of the functions it compiled."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from inductor.compile_report import keeping_artifacts

from ..driver import Capture, recorded_captures
from ..report.explain import Explanation


def run(arguments: argparse.Namespace) -> int:
    """The command. The report is printed also if the script raises or exits, which then goes on."""
    if not Path(arguments.script).is_file():
        print(f"there is no file {arguments.script}", file=sys.stderr)
        return 2
    sys.argv = [arguments.script, *arguments.args]
    sys.path[0] = str(Path(arguments.script).resolve().parent)
    with keeping_artifacts(), recorded_captures() as captures:
        try:
            runpy.run_path(arguments.script, run_name="__main__")
        finally:
            print(_report(captures, arguments.guards), flush=True)
            if arguments.html is not None:
                print(f"page: {Explanation(captures, None).html(arguments.html)}", flush=True)
    return 0


def _report(captures: list[Capture], guards: bool) -> str:
    if not captures:
        return "nothing was captured: the script called no function compiled with pyframe.compile"
    return Explanation(captures, None).text(guards)
