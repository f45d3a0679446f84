"""Runs one module of checks under the running CPython; arguments: pyframe._C file, chained_hook file, module.

Prints one JSON object: check name -> null, or the traceback of its failure.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import sys
import traceback

from frame_support import C


def main(module_name: str) -> None:
    module = importlib.import_module(module_name)
    results: dict[str, str | None] = {}
    for name, check in list(vars(module).items()):
        if not name.startswith("check_"):
            continue
        C.reset_all()
        gc.collect()  # finalizers are Python calls too: none of them during a check
        results[name] = None
        try:
            check()
        except BaseException:  # noqa: BLE001  reported by the parent
            results[name] = traceback.format_exc()
        finally:
            C.set_callback(None)
    print(json.dumps(results))


faulthandler.enable()
main(sys.argv[3])
