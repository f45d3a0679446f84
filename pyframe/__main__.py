"""The command line: `python -m pyframe doctor`, `cache` and `explain`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from .version import __version__


def parser() -> argparse.ArgumentParser:
    """The parser of all commands. `command` is the name of the module of `pyframe.cli` that runs it."""
    top = argparse.ArgumentParser(prog="python -m pyframe", description="Tools around pyframe.compile.")
    top.add_argument("--version", action="version", version=f"pyframe {__version__}")
    commands = top.add_subparsers(dest="command", metavar="command")
    commands.add_parser(
        "doctor",
        help="check this installation",
        description="Print versions, the C++ compiler, GPUs and the cache, and compile a small function for each kind "
        "of device. Exit status 1 if something is wrong; a line then says what to do.",
    )
    cache = commands.add_parser(
        "cache",
        help="where compiled graphs and kernels are kept, and how many",
        description="Print the directory, size and entries of the cache of compiled graphs and kernels. Exit status 1 "
        "if it is not used, or if `verify` finds damaged entries.",
    )
    cache.add_argument(
        "action", nargs="?", choices=("list", "prune", "verify", "clear"),
        help="list: each entry with kind, size and last use; prune: as --prune; verify: compare each entry with its "
        "checksum and remove damaged ones; clear: as --clear",
    )
    change = cache.add_mutually_exclusive_group()
    change.add_argument("--clear", action="store_true", help="remove all entries")
    change.add_argument(
        "--prune", action="store_true",
        help="remove the least recently used entries beyond the limit (PYFRAME_CACHE_MAX_BYTES); entries used in the "
        "last five minutes stay",
    )  # fmt: skip
    explain = commands.add_parser(
        "explain",
        help="run a script and print what was captured",
        description="Run a script as `python script.py` does, and print a report of the graphs, graph breaks and "
        "compile times of the functions that it compiled with pyframe.compile. The exit status is that of the script.",
    )
    explain.add_argument("--guards", action="store_true", help="list the guards, too")
    explain.add_argument("--html", metavar="FILE", help="also write one HTML page with graphs, kernels and plans")
    explain.add_argument("script", help="the file to run")
    explain.add_argument("args", nargs=argparse.REMAINDER, help="arguments for the script")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    chosen = parser().parse_args(arguments)
    if chosen.command is None:
        parser().print_help()
        return 2
    # Imported here because the commands import torch, which takes seconds, and --help does not need it.
    command = importlib.import_module(f"pyframe.cli.{chosen.command}")
    status: int = command.run(chosen)
    return status


if __name__ == "__main__":
    sys.exit(main())
