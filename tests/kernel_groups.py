"""Compiles a function to C++ kernels and compares them with eager; the groups of the scheduler that become kernels."""

import torch
from op_samples import lowered

from inductor.codegen import codegen
from inductor.runtime import cpp_build
from inductor.runtime.plan import make_plan
from inductor.schedule import Group, schedule


def run(fn, *args):
    """(kernel groups, distinct functions, outputs)."""
    graph = lowered(fn, *args)
    groups = schedule(graph)
    source, spec = codegen(groups, graph)
    libraries = [cpp_build.build(text) for text in source.texts()]
    plan = make_plan(spec, cpp_build.kernel_addresses(libraries, spec.kernel_names), form="list")
    return [g for g in groups if isinstance(g, Group)], len(spec.kernel_names), plan(*args)


def check(fn, *args, kernels=None, rtol=1e-5, atol=1e-5):
    groups, _, outs = run(fn, *args)
    want = fn(*args)
    torch.testing.assert_close(outs, list(want) if isinstance(want, (list, tuple)) else [want], rtol=rtol, atol=atol)
    if kernels is not None:
        assert len(groups) == kernels
    return groups
