"""Shrinks a script that shows a bug of the compiler to the smallest graph that still shows it.

    python tools/minify.py REPRO [--output small.py] [--seconds 600] [--timeout 120]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from inductor.minify_repro import main  # noqa: E402  after the path

if __name__ == "__main__":
    sys.exit(main())
