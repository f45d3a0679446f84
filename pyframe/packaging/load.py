"""`pyframe.load`: a file that `pyframe.package` wrote, as a callable."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from inductor.package.errors import PackageError
from inductor.package.load import Loaded

from .signature import Arguments, builder

_OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "min": min,
    "max": max, "neg": operator.neg, "abs": abs, "not": operator.not_, "==": operator.eq, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "and": lambda a, b: bool(a and b),
    "or": lambda a, b: bool(a or b),
}  # fmt: skip


def load(
    path: str | os.PathLike[str], *, key: bytes | None = None, device: str | torch.device | None = None
) -> LoadedPackage:
    """The function in a file that `pyframe.package` wrote, ready to be called: nothing is traced or compiled.

    The file holds machine code: load only files that you trust as you trust your own programs. With `key`, a file that
    is not signed with it raises `PackageError`, and so does one that is damaged, of another version of the format, or
    without kernels for this machine; the message says which.

    device: "cpu", "cuda" or "cuda:1". By default the current GPU, if there is one for which the file has kernels, else
    the CPU.
    """
    chosen = None if device is None else torch.device(device)
    return LoadedPackage(Loaded(path, key, chosen))


class LoadedPackage:
    """A loaded package: call it like the function that was packaged, with arguments arranged as there. Its results
    require no gradients. A tensor that the function writes is written; a parameter or buffer that it writes keeps what
    was written while this object lives, and the file stays as it is.

    `target`: the name of the machine for which the kernels in use were made. `constants`: the tensors in the file, by
    the names that the module had for them.
    """

    def __init__(self, loaded: Loaded) -> None:
        try:
            self._prepare(loaded)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise loaded.file.error(f"its description is not one that this release can read: {error!r}") from error

    def _prepare(self, loaded: Loaded) -> None:
        about = loaded.description
        self._loaded, self.target = loaded, loaded.target.name
        names = [each["name"] for each in about["constants"]]
        self.constants: dict[str, torch.Tensor] = dict(zip(names, loaded.constants))
        self._conditions, self._taken = about["conditions"], about["taken"]
        self._arguments, results = Arguments(about["call"]), about["results"]
        self._form = "single" if results == {"result": 0} else "tuple"
        self._run = loaded.run(self._form)
        self._build = None if self._form == "single" or _is_plain(results) else builder(results)
        self._direct = self._arguments.simple and self._taken == list(range(len(self._arguments.args)))
        if self._direct and self._build is None and not self._conditions:
            self._direct_run: Any = self._run
        else:
            self._direct_run = None
        self._count = len(self._taken)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        direct = self._direct_run
        if direct is not None and len(args) == self._count and not kwargs:
            return direct(*args)
        leaves = self._arguments.leaves(args, kwargs)
        for condition in self._conditions:
            if not _value(condition, leaves):
                raise PackageError(f"{self._loaded.file.path}: it was not made for these sizes: not {_text(condition)}")
        results = self._run(*[leaves[k] for k in self._taken])
        if self._build is None:
            return results
        return self._build([results] if self._form == "single" else results, leaves, self._loaded.constants)

    def __repr__(self) -> str:
        return f"<pyframe package {self._loaded.file.path!r} for {self.target}>"


def _is_plain(results: Mapping[str, Any]) -> bool:
    """Whether the results are the tuple that the plan itself returns."""
    items = results.get("tuple")
    return items is not None and items == [{"result": k} for k in range(len(items))]


def _value(tree: Any, leaves: Sequence[Any]) -> Any:
    if not isinstance(tree, list):
        return tree
    op, *rest = tree
    if op == "size":
        return leaves[rest[0]].shape[rest[1]]
    if op == "stride":
        return leaves[rest[0]].stride(rest[1])
    if op == "value":
        return leaves[rest[0]]
    return _OPERATORS[op](*(_value(each, leaves) for each in rest))


def _text(tree: Any) -> str:
    if not isinstance(tree, list):
        return str(tree)
    op, *rest = tree
    if op in ("size", "stride"):
        return f"leaf {rest[0]}.{op}({rest[1]})"
    if op == "value":
        return f"leaf {rest[0]}"
    if len(rest) == 1:
        return f"{op} {_text(rest[0])}"
    return f"({_text(rest[0])} {op} {_text(rest[1])})"
