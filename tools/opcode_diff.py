"""Prints which canonical instructions one CPython version has and another lacks.

    python tools/opcode_diff.py              # every version against the one before it
    python tools/opcode_diff.py 3.11 3.13    # one pair

For the running version it also lists real opcodes that are missing from the tables, which is where to start when a new
CPython is released.
"""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyframe.bytecode import OPS, SUPPORTED_VERSIONS, canonical_ops

Version = tuple[int, int]


def parse_version(text: str) -> Version:
    """`"3.13"` -> (3, 13); argparse error if unsupported."""
    for version in SUPPORTED_VERSIONS:
        if text == "{}.{}".format(*version):
            return version
    raise argparse.ArgumentTypeError(
        f"{text} is not one of {', '.join('{}.{}'.format(*v) for v in SUPPORTED_VERSIONS)}"
    )


def diff(old: Version, new: Version) -> str:
    """One paragraph with the ops that were removed and those that are new."""
    before, after = canonical_ops(old), canonical_ops(new)
    lines = ["{}.{} -> {}.{}".format(*old, *new)]
    for title, names in (("gone", before - after), ("new", after - before)):
        lines.append(f"  {title + ':':6}" + (" ".join(sorted(names)) or "(none)"))
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", type=parse_version, help="two versions, such as 3.11 3.13")
    versions = parser.parse_args(argv).versions
    if versions and len(versions) != 2:
        parser.error("give two versions, or none")
    for old, new in [versions] if versions else pairwise(SUPPORTED_VERSIONS):
        print(diff(old, new))
    if not versions:
        shared = frozenset.intersection(*(canonical_ops(version) for version in SUPPORTED_VERSIONS))
        print(f"{len(OPS)} canonical ops, {len(shared)} of them on every version")
    return 0


if __name__ == "__main__":
    sys.exit(main())
