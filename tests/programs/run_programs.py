"""`python tests/programs/run_programs.py [NAME ...]`: the programs of this folder, all of them compiled.

Prints a line for each that differs from eager, and the counts. Set PYFRAME_STRICT=internal to have defects of the compiler
raised, in place of a warning and eager's result.
"""

from __future__ import annotations

import sys
import time
import traceback
import warnings

import torch
from programs_support import check
from test_programs import CASES


def main() -> int:
    wrong = 0
    names = sys.argv[1:] or list(CASES)
    for name in names:
        start = time.perf_counter()
        warnings.simplefilter("ignore")
        try:
            check(CASES[name], "inductor")
        except Exception as error:
            wrong += 1
            reason = str(error) if isinstance(error, AssertionError) else traceback.format_exc(limit=-2)
            print(f"{name}: wrong ({time.perf_counter() - start:.1f} s)\n    " + reason.strip().replace("\n", "\n    "))
        else:
            print(f"{name}: right ({time.perf_counter() - start:.1f} s)")
        sys.stdout.flush()
    print(f"torch {torch.__version__}: {len(names) - wrong} of {len(names)} programs as in eager")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
