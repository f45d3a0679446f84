"""Compares backward passes under `pyframe.compiled_autograd` with eager, for samples of torch's operator database.

    python -m tools.backward_suite                      # all operators, programs compiled by the backend "eager"
    python -m tools.backward_suite --backend inductor --every 10
    python -m tools.backward_suite --only linalg

The forward of each sample runs eagerly, and its backward once eagerly and once captured; each gradient must be equal,
with the same strides in dimensions of more than one element. Prints one line for each difference, each error and each
pass that was not captured; exit status 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

import pyframe

SAMPLES = 2  # of each operator


@dataclass(frozen=True, slots=True)
class Sample:
    """A call of an operator of the database with tensors that require gradients."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def gradients(self) -> list[torch.Tensor | None] | None:
        """The gradients of the sum of all results; None if nothing requires one."""
        torch.manual_seed(0)
        leaves = [x for x in pytree.tree_leaves((self.args, self.kwargs)) if _requires_grad(x)]
        for x in leaves:
            x.grad = None
        results = [x for x in pytree.tree_leaves(self.op(*self.args, **self.kwargs)) if _requires_grad(x)]
        if not results:
            return None
        dense = [x if x.layout == torch.strided else x.to_dense() for x in results]
        total = sum((x.abs() if x.is_complex() else x).sum() for x in dense)
        assert isinstance(total, torch.Tensor)
        total.backward()
        return [None if x.grad is None else x.grad.clone() for x in leaves]

    def problem(self, scope: Any) -> str | None:
        """What differs from eager if the backward is captured; None if nothing does, or if eager raises."""
        try:
            wanted = self.gradients()
        except Exception:  # whatever eager raises for this sample: there is nothing to compare with
            return None
        if wanted is None:
            return None
        before = pyframe.counters["backward_fallbacks"]
        try:
            with scope:
                found = self.gradients()
            torch.testing.assert_close(found, wanted, equal_nan=True)
        except Exception as error:  # reported
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
        assert found is not None
        if any(_strides(x) != _strides(y) for x, y in zip(found, wanted)):
            return "other strides"
        return "not captured" if pyframe.counters["backward_fallbacks"] > before else None


def _requires_grad(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.requires_grad


def _strides(x: torch.Tensor | None) -> Any:
    """The strides that matter."""
    if x is None or x.layout != torch.strided or not x.numel():
        return None
    return [stride for size, stride in zip(x.shape, x.stride()) if size != 1]


def samples(only: str, every: int) -> Iterator[Sample]:
    """Samples of every `every`th operator whose name contains `only`."""
    from torch.testing._internal.common_methods_invocations import op_db  # takes seconds to import

    ops = [op for op in op_db if torch.float32 in op.dtypes and op.supports_autograd and only in op.name]
    for op in ops[::every]:
        for k, each in enumerate(op.sample_inputs("cpu", torch.float32, requires_grad=True)):
            if k == SAMPLES:
                break
            yield Sample(op, (each.input, *each.args), each.kwargs)


def problems(only: str = "", every: int = 1, backend: str = "eager") -> tuple[int, list[str]]:
    """The number of samples, and a line for each that differs."""
    scope, count, found = pyframe.compiled_autograd(backend=backend), 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in samples(only, every):
            count += 1
            problem = sample.problem(scope)
            if problem is not None:
                found.append(f"{sample.op.name}: {problem}")
    return count, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of the operators' names")
    parser.add_argument("--every", type=int, default=1, help="every n-th operator")
    parser.add_argument("--backend", default="eager")
    chosen = parser.parse_args()
    count, found = problems(chosen.only, chosen.every, chosen.backend)
    print(*found, f"{count} samples, {len(found)} differ", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
