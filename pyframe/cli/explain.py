"""`python -m pyframe explain script.py`: runs a script and prints what was captured of the functions it compiled."""

from __future__ import annotations

import argparse
import runpy
import signal
import sys
from pathlib import Path

from inductor.compile_report import keeping_artifacts

from ..driver import Capture, recorded_captures
from ..report.explain import Explanation


def run(arguments: argparse.Namespace) -> int:
    """The command. The report is printed also if the script raises or exits; the exit status is that of the script."""
    script = Path(arguments.script)
    if not script.is_file():
        print(f"there is no file {arguments.script}", file=sys.stderr)
        return 2
    if arguments.html is not None and not Path(arguments.html).parent.is_dir():
        print(f"there is no directory {Path(arguments.html).parent} for the page", file=sys.stderr)
        return 2
    own = [option for option in arguments.args if option in ("--guards", "--html")]
    if own:
        print(f"{own[0]} stands after the script, and is given to the script", file=sys.stderr)
    sys.argv = [arguments.script, *arguments.args]
    sys.path[0] = str(script.resolve().parent)
    with keeping_artifacts(), recorded_captures() as captures:
        try:
            return _run_script(arguments.script)
        finally:
            print(_report(captures, arguments.guards), flush=True)
            if arguments.html is not None:
                print(f"page: {Explanation(captures, None).html(arguments.html)}", flush=True)


def _run_script(script: str) -> int:
    """Runs a script as `python script` does; an exception is printed without the frames of this command."""
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != script:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _report(captures: list[Capture], guards: bool) -> str:
    if not captures:
        return "nothing was captured: the script called no function compiled with pyframe.compile"
    return Explanation(captures, None).text(guards)
