"""What the tests of export compare: a program in this process, loaded from a file, and printed and executed."""

from __future__ import annotations

from typing import Any

import pyframe


class Printed(pyframe.Exported):
    """An exported program whose calls run its text in a fresh namespace."""

    def __init__(self, exported: pyframe.Exported) -> None:
        vars(self).update(vars(exported))
        self.namespace: dict[str, Any] = {}
        exec(compile(str(exported), "program", "exec"), self.namespace)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.namespace["check_inputs"](*args, **kwargs)
        return self.namespace["program"](self.constants, *args, **kwargs)


def check(function: Any, *args: Any, path: Any, dynamic: Any = None, other: Any = (), **kwargs: Any) -> pyframe.Exported:
    """Export a function; the program, the same saved and loaded, and its text give exactly what eager gives, for this
    call and for calls with the positional arguments in `other`."""
    exported = pyframe.export(function)(*args, dynamic=dynamic, **kwargs)
    exported.save(path)
    loaded = pyframe.export.load(path)
    loaded.function = function
    assert str(loaded) == str(exported)
    for program in (exported, loaded, Printed(exported)):
        for arguments in (args, *other):
            comparison = program.check(*arguments, **kwargs)
            assert comparison.equal, f"{type(program).__name__}: {comparison}"
    return exported
