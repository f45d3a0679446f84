"""The plans that this process makes, and what they call. For tests that pretend a GPU: import it after that."""

import torch

import inductor.build
from inductor.runtime.plan_spec import Extern

PLANS = []
_make_plan = inductor.build.make_plan


def _recording(spec, *args, **kwargs):
    PLANS.append(spec)
    return _make_plan(spec, *args, **kwargs)


inductor.build.make_plan = _recording


def calls():
    """The operators of ATen that the plans since the last `PLANS.clear()` call."""
    return [str(step.target) for spec in PLANS for step in spec.steps if isinstance(step, Extern)]


def results(fn, tensors, args):
    """The result of `fn(*tensors, *args)`, and the gradients of a weighted sum of its elements."""
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    out = fn(*leaves, *args)
    weights = (torch.arange(out.numel()) % 7 + 1).to(out.dtype).view(out.shape)
    return out, torch.autograd.grad((out * weights).sum(), leaves)
