"""docs/migrating.md names all of torch.compile's arguments and of torch.compiler, and what it says of them is true."""

from __future__ import annotations

import binascii
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch._dynamo

import pyframe
from pyframe.testing import CompileCounter

PAGE = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
X = torch.ones(3)


def rows(text, heading):
    """(name, here, notes) of the tables under a heading."""
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| `")]


def table(heading):
    return {name.strip("`"): here for name, here, _ in rows(PAGE, heading)}


ARGUMENTS, COMPILER = table("Arguments of torch.compile"), table("Names of torch.compiler")
DYNAMO, VARIABLES = table("Names of torch._dynamo"), table("Environment variables")


def ops(fn, x=X):
    return [node.target for gm in pyframe.explain(fn, backend="eager")(x).graphs for node in gm.graph.nodes
            if node.op.startswith("call")]


def captures_of_sizes(mark):
    counter = CompileCounter()
    fn = pyframe.compile(lambda x: x + 1, backend=counter)
    for size in (5, 6, 7):
        x = torch.ones(size)
        mark(x)
        fn(x)
    return counter.frame_count


def one_graph(fn):
    explained = pyframe.explain(fn, backend="eager")(X)
    return explained.graph_count == 1 and not explained.breaks


# ---- what torch's own functions do here: True if each is honoured
def disable():
    off = torch.compiler.disable(lambda x: x + 1)
    breaks = pyframe.explain(lambda x: off(x.sin()).cos(), backend="eager")(X).breaks
    return [found.kind for found in breaks] == ["disabled-function"]


def assume_constant_result():
    @torch.compiler.assume_constant_result
    def constant():
        return len(str(torch.initial_seed())) * 0 + 3

    return len(ops(lambda x: x + constant())) == 1


def allow_in_graph():
    @torch.compiler.allow_in_graph
    def opaque(x):
        return x.sin().cos()

    return opaque in ops(lambda x: opaque(x) + 1)


def nonstrict_trace():
    inner = torch._dynamo.nonstrict_trace(lambda x: x.sin().cos())
    return "sin" not in ops(lambda x: inner(x) + 1)


def is_compiling():
    return torch.equal(pyframe.compile(lambda x: x + torch.compiler.is_compiling(), backend="eager")(X), X + 1)


def is_dynamo_compiling():
    return torch.equal(pyframe.compile(lambda x: x + torch.compiler.is_dynamo_compiling(), backend="eager")(X), X + 1)


def is_exporting():
    return one_graph(lambda x: x + torch.compiler.is_exporting())


def cudagraph_mark_step_begin():
    def step(x):
        torch.compiler.cudagraph_mark_step_begin()
        return x + 1

    return one_graph(step)


def wrap_numpy():
    function = torch.compiler.wrap_numpy(lambda array: np.sin(array) + 1)
    return one_graph(lambda x: function(x) * 2)


def nested_compile_region():
    region = torch.compiler.nested_compile_region(lambda x: x.sin())
    return one_graph(lambda x: region(x) + 1)


def set_stance():
    counter = CompileCounter()
    fn = pyframe.compile(lambda x: x + 1, backend=counter)
    with torch.compiler.set_stance("force_eager"):
        fn(X)
    return counter.frame_count == 0


def reset():
    counter = CompileCounter()
    fn = pyframe.compile(lambda x: x + 1, backend=counter)
    for _ in range(2):
        fn(X)
        torch.compiler.reset()
    return counter.frame_count == 2


def graph_break():
    def program(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    return not one_graph(program)


def skip_frame():
    def program(x):
        torch._dynamo.skip_frame()
        return x.sin()

    return not one_graph(program)


def error_on_graph_break():
    def program(x):
        with torch._dynamo.error_on_graph_break(True):
            pyframe.graph_break()
        return x + 1

    try:
        pyframe.compile(program, backend="eager")(X)
    except pyframe.Unsupported:
        return True
    return False


def disallow_in_graph():
    torch._dynamo.disallow_in_graph(torch.atan)
    try:
        return not one_graph(lambda x: torch.atan(x) + 1)
    finally:
        torch._dynamo.allow_in_graph(torch.atan)


def forbid_in_graph():
    forbidden = torch._dynamo.forbid_in_graph(lambda x: x.sin())
    try:
        pyframe.compile(lambda x: forbidden(x) + 1, backend="eager")(X)
    except pyframe.Unsupported:
        return True
    return False


def substitute_in_graph():
    @torch.compiler.substitute_in_graph(binascii.crc32)
    def one(data, crc=0, /):
        return 1

    fn = pyframe.compile(lambda x: x * binascii.crc32(b"abc"), backend="eager", fullgraph=True)
    return torch.equal(fn(X), X)


def mark_dynamic():
    return captures_of_sizes(lambda x: torch._dynamo.mark_dynamic(x, 0)) == 1


def maybe_mark_dynamic():
    return captures_of_sizes(lambda x: torch._dynamo.maybe_mark_dynamic(x, 0)) == 1


def mark_static():
    return captures_of_sizes(lambda x: torch._dynamo.mark_static(x, 0)) == 3


def mark_static_address():
    return captures_of_sizes(torch._dynamo.mark_static_address) != 2  # without a mark, sizes vary from the second on


def step_unsupported():
    def program(x):
        torch._dynamo.step_unsupported()
        return x.sin()

    return not one_graph(program)


def _breaks_in(context):
    """Whether reading a number breaks the graph in a context."""
    def program(x):
        with context():
            y = x + x.sum().item()
        return y * 2

    return not one_graph(program)


def patch_dynamo_config():
    return _breaks_in(lambda: torch._dynamo.patch_dynamo_config(capture_scalar_outputs=False))


def dont_skip_tracing():
    marked = torch._dynamo.dont_skip_tracing(lambda x: x.sin())
    return _breaks_in(torch._dynamo.dont_skip_tracing) or not one_graph(lambda x: marked(x) + 1)


def disable_nested_graph_breaks():
    marked = torch._dynamo.disable_nested_graph_breaks(lambda x: x.sin())
    return _breaks_in(torch._dynamo.disable_nested_graph_breaks) or not one_graph(lambda x: marked(x) + 1)


def override_cudagraphs():
    return _breaks_in(lambda: torch._dynamo.override_cudagraphs(fwd=False))


def override_optimization_hint():
    def program(x):
        torch._dynamo.override_optimization_hint(x.shape[0], 8)
        return x + 1

    return not one_graph(program)


# Names that torch has had since 2.13.
NEWER = {"override_cudagraphs", "override_optimization_hint", "allow_c_slot", "bytecode_debugger"}
CHECKS = {check.__name__: check for check in (
    disable, assume_constant_result, allow_in_graph, nonstrict_trace, is_compiling, is_dynamo_compiling, is_exporting,
    cudagraph_mark_step_begin, wrap_numpy, nested_compile_region, set_stance, reset, graph_break, skip_frame,
    error_on_graph_break, disallow_in_graph, forbid_in_graph, substitute_in_graph, mark_dynamic, maybe_mark_dynamic, mark_static, mark_static_address,
    step_unsupported, patch_dynamo_config, dont_skip_tracing, disable_nested_graph_breaks, override_cudagraphs,
    override_optimization_hint,
)}  # fmt: skip
# Functions without an effect here that no small program can show.
UNSEEN = {
    "config", "get_default_backend", "set_default_backend", "set_enable_guard_collectives",
    "cudagraph_mark_warmup_incomplete", "set_recursion_limit", "allow_c_slot", "bytecode_debugger",
    "is_dynamo_disable_recursive", "reset_recompile_user_contexts",
}  # fmt: skip


def test_every_argument_of_torch_compile_has_a_row():
    assert set(inspect.signature(torch.compile).parameters) <= ARGUMENTS.keys()


def test_every_name_of_torch_compiler_has_a_row():
    assert set(torch.compiler.__all__) <= COMPILER.keys()


def test_every_name_of_torch_dynamo_has_a_row():
    assert set(torch._dynamo.__all__) <= DYNAMO.keys() | COMPILER.keys()


def test_arguments_that_are_the_same_or_missing_are():
    own = inspect.signature(pyframe.compile).parameters
    assert {name for name, here in ARGUMENTS.items() if here in ("the same", "in part")} == set(own)
    with pytest.raises(pyframe.UserError, match="guard_filter_fn"):
        pyframe.compile(lambda x: x, options={"guard_filter_fn": lambda guards: guards})


def test_every_claim_about_functions_has_a_check():
    stated = {name for table in (COMPILER, DYNAMO) for name, here in table.items() if here in ("honoured", "no effect")}
    assert stated == CHECKS.keys() | UNSEEN


@pytest.mark.parametrize("name", CHECKS)
def test_the_claim_is_true(name):
    if name in NEWER and not hasattr(torch._dynamo, name):
        pytest.skip("a newer torch has it")
    claims = [table[name] for table in (COMPILER, DYNAMO) if name in table]
    assert {claim == "honoured" for claim in claims} == {CHECKS[name]()}


def test_names_of_torch_exist():
    dynamo = {name for name in DYNAMO if not hasattr(torch._dynamo, name)}
    missing = {name for name in dynamo if not hasattr(torch._dynamo.config, name)}
    assert missing - NEWER <= {"cache_size_limit"}
    assert not missing & NEWER or torch.__version__.startswith(("2.11", "2.12"))


def test_settings_with_a_default_are_settings_here():
    found = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", PAGE.split("## Names of torch._dynamo")[1].split("\n## ")[0], re.M)
    defaults = {name: value for name, value in found if not value.startswith("pyframe.")}
    assert defaults and defaults == {name: repr(pyframe.config.SETTINGS[name].default) for name in defaults}
    others = [name for name in DYNAMO if name not in defaults and hasattr(torch._dynamo.config, name)]
    assert [name for name in others if name in pyframe.config.SETTINGS] == []


def test_what_to_use_instead_exists():
    for path in set(re.findall(r"`pyframe((?:\.\w+)+)", PAGE)):
        value = pyframe
        for name in path.split(".")[1:]:
            value = getattr(value, name)


def test_no_variable_of_torch_is_read_here():
    root = Path(pyframe.__file__).parents[1]
    text = "".join(path.read_text() for folder in ("pyframe", "inductor") for path in (root / folder).rglob("*.py"))
    assert [name for name in VARIABLES if re.search(rf"[\"']{name}[\"']", text)] == []
    assert {here.strip("`") for here in VARIABLES.values()} - {"missing"} <= set(re.findall(r"PYFRAME_\w+", text))
