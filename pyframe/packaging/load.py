"""`pyframe.load`: a file that `pyframe.package` wrote, as a callable."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from inductor.package.load import Loaded

from ..errors import UserError
from ..signature.conditions import InputSpec, check
from ..signature.data import decode_condition, decode_parameters, decode_spec, decode_structure
from ..signature.parameters import Parameters
from ..signature.structure import Leaf, Node, Structure, unflatten


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

    A call that does not fit raises `UserError`, and ValueError for a tensor of another dtype, size or stride.
    """

    def __init__(self, loaded: Loaded) -> None:
        try:
            self._prepare(loaded)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, UserError) as error:
            raise loaded.file.error(f"its description is not one that this release can read: {error!r}") from error

    def _prepare(self, loaded: Loaded) -> None:
        about = loaded.description
        self._loaded, self.target = loaded, loaded.target.name
        named = zip(loaded.names, loaded.constants)
        self.constants: dict[str, torch.Tensor] = {name: x for name, x in named if name}
        self._parameters = decode_parameters(about["signature"], {}, or_plain=True)
        self._specs = [decode_spec(each) for each in about["leaves"]]
        self._conditions = [decode_condition(each) for each in about["conditions"]]
        self._checked = [_of_package(spec) for spec in self._specs]
        self._checks = bool(self._conditions) or any(spec.checked for spec in self._checked)
        self._taken, self._returned = about["taken"], [tuple(each) for each in about["results"]]
        self._structure = decode_structure(about["structure"], {}, or_plain=True)
        single = isinstance(self._structure, Leaf) and self._returned == [("result", 0)]
        self._form = "single" if single else "tuple"
        self._run = loaded.run(self._form)
        self._plain = single or _is_plain(self._structure, self._returned)
        self._count = len(self._specs) if _is_simple(self._parameters) else -1
        direct = self._plain and not self._checks and self._taken == list(range(self._count))
        self._direct: Any = self._run if direct else None

    @property
    def operators(self) -> list[str]:
        """The operators of ATen and of libraries that calls may run, as `aten.addmm.out`."""
        return list(self._loaded.description["operators"])

    def leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The tensors, numbers and constants of a call in the order in which C++ programs pass them, without the
        constants."""
        return self._parameters.leaves(args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        simple = len(args) == self._count and not kwargs
        if simple and self._direct is not None:
            return self._direct(*args)
        leaves: Sequence[Any] = args if simple else self._parameters.leaves(args, kwargs)
        if self._checks:
            check(leaves, self._checked, self._conditions)
        results = self._run(*[leaves[k] for k in self._taken])
        if self._plain:
            return results
        known = {"result": [results] if self._form == "single" else results, "argument": leaves,
                 "fixed": self._loaded.constants}  # fmt: skip
        return unflatten(self._structure, [known[kind][k] for kind, k in self._returned])

    def __deepcopy__(self, memo: dict[int, Any]) -> LoadedPackage:
        return LoadedPackage(self._loaded.copied())

    def __reduce__(self) -> Any:
        """A pickle names the file, which must be there and unchanged, and holds the values of constants that calls
        write."""
        loaded = self._loaded
        values = {k: loaded.constants[k].clone() for k in loaded.written()}
        path = os.path.abspath(loaded.file.path)
        return _loaded_again, (path, str(loaded.device), loaded.file.digest, values)

    def __repr__(self) -> str:
        return f"<pyframe package {self._loaded.file.path!r} for {self.target}>"


def _loaded_again(path: str, device: str, digest: bytes, values: dict[int, torch.Tensor]) -> LoadedPackage:
    loaded = Loaded(path, None, torch.device(device))
    if loaded.file.digest != digest:
        raise loaded.file.error("it is not the file that was loaded when this pickle was made")
    for k, value in values.items():
        loaded.constants[k].copy_(value)
    return LoadedPackage(loaded)


def _of_package(spec: InputSpec) -> InputSpec:
    """What is checked of an input before the plan, which checks dtypes, devices, sizes and strides itself."""
    if spec.kind != "tensor" or spec.checked and spec.requires_grad is not None:
        return replace(spec, device=None)  # a package may run on another device than its example
    return InputSpec(spec.name, "tensor", checked=False)


def _is_simple(parameters: Parameters) -> bool:
    """Whether the flat inputs of a call are its positional arguments."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = list(parameters.given)
    first = list(parameters.signature.parameters.values())[: len(names)]
    return [each.name for each in first] == names and all(each.kind in kinds for each in first) and all(
        parameters.given[name] == Leaf(place) for place, name in enumerate(names)
    )  # fmt: skip


def _is_plain(structure: Structure, returned: Sequence[tuple[str, int]]) -> bool:
    """Whether a result is the tuple that the plan itself returns."""
    places = tuple(map(Leaf, range(len(returned))))
    in_order = all(each == ("result", place) for place, each in enumerate(returned))
    return isinstance(structure, Node) and structure.kind == "tuple" and structure.children == places and in_order
