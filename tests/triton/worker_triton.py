"""Runs one suite of cases through Triton's interpreter and prints {case: error or ""}; a process of its own, because
the interpreter must be chosen before anything imports triton."""

import json
import sys
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import triton_support  # noqa: E402, I001  chooses the interpreter
import torch  # noqa: E402
from op_samples import every  # noqa: E402
from random_cases import CASES as RANDOM_CASES  # noqa: E402
from triton_cases import CASES  # noqa: E402

warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of divisions by zero that are meant


def samples():
    torch.manual_seed(0)
    return {name: (lambda s=s: triton_support.check(*s)) for name, s in every().items()}


def main():
    suite = samples() if sys.argv[1] == "samples" else CASES | RANDOM_CASES
    results = {}
    for name, run in suite.items():
        torch.manual_seed(0)
        try:
            run()
            results[name] = ""
        except Exception:  # noqa: BLE001  reported by the test of this name
            results[name] = traceback.format_exc()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
