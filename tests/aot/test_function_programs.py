"""Programs with autograd functions and hooks do in captures what they do in eager: results, gradients, errors, the order
of hooks, and what later writes, hooks and partial or repeated backward passes see."""

from __future__ import annotations

import re

import pytest
import torch

import pyframe
from tests.aot.function_programs import PROGRAMS, Kept

# an autograd function that saves a tensor whose memory a result shares: a write to the result is not noticed
DETACHED_RESULT = {f"DifferentiatesInside, {use}" for use in ("alone", "returned_and_used")}
AFTER = ("nothing", "write", "recorded write", "hooks", "retained", "first only", "last only", "second", "twice")


def message(error):
    return re.sub(r"0x\w+|\d+", "", f"{type(error).__name__}: {error}".partition("\n")[0])[:70]


def backward(results, leaf, after, log, seen):
    """Act on the results as `after` says and compute gradients."""
    if after == "write":
        with torch.no_grad():
            results[0].mul_(2)
    if after == "recorded write":
        results[0].mul_(2)
    ends = [y for y in results if y.requires_grad]
    for n, y in enumerate(ends):
        if after == "hooks":
            y.register_hook(lambda g, n=n: log.append((n, g.sum().item())))
        if after == "retained":
            y.retain_grad()
    ends = ends[:1] if after == "first only" else ends[-1:] if after == "last only" else ends
    if not ends:
        return
    loss = sum((y * torch.linspace(1, 2, y.numel()).view(y.shape)).sum() for y in ends)
    if after == "second":
        (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True, allow_unused=True)
        seen["gradient"] = gradient
        if gradient is not None and gradient.requires_grad:
            gradient.sum().backward()
    else:
        loss.backward(retain_graph=after == "twice")
        if after == "twice":
            loss.backward()
    if after == "retained":
        seen["retained"] = [y.grad for y in ends]


def observed(call, kind, after):
    """All that can be seen of a second call and a backward after it."""
    leaf = torch.linspace(-1, 2, 12).view(3, 4).clone().requires_grad_(kind != "data")
    seen, tensors = {}, {}
    try:
        for _ in range(2):
            log, x = [], leaf * 1.0 if kind == "intermediate" else leaf
            result = call(log, x)
        results = result if isinstance(result, tuple) else (result,)
        seen["other results"] = [y for y in results if not isinstance(y, torch.Tensor)]
        results = [y for y in results if isinstance(y, torch.Tensor)]
        tensors["results"] = [y.detach().clone() for y in results]
        seen["flags"] = [(y.requires_grad, y.is_leaf, y.grad_fn is None, y.retains_grad) for y in results]
        seen["same"] = [(y is z, y._base is z) for y in results for z in results]
        backward(results, leaf, after, log, tensors)
    except Exception as error:
        seen["error"] = message(error)
    numbers = [y for y in log if not isinstance(y, Kept)]
    seen["log"] = re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.3f}", str(numbers))
    tensors["kept"] = [y.x.grad for y in log if isinstance(y, Kept)]
    tensors["leaf"] = leaf.grad
    return seen, tensors


@pytest.mark.parametrize("kind", ["data", "leaf", "intermediate"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_as_in_eager(name, kind):
    for after in AFTER if kind != "data" else ("nothing", "recorded write"):
        if name in DETACHED_RESULT and kind != "data" and "write" in after:
            continue
        if name == "hook_of_several" and after == "second":  # the hook is called once more in eager
            continue
        want, want_tensors = observed(PROGRAMS[name], kind, after)
        got, got_tensors = observed(pyframe.compile(PROGRAMS[name]), kind, after)
        assert got == want, after
        torch.testing.assert_close(got_tensors, want_tensors, msg=lambda text, after=after: f"{after}: {text}")
