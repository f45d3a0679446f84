"""torch.compile's modes and option names: what is accepted, translated, warned about, and refused."""

import warnings

import pytest
import torch

import inductor
import pyframe
from inductor.options import CompileOptions
from inductor.torch_options import ALWAYS, MODES, TRACING, TRANSLATED, translated

X = torch.linspace(-1, 1, 6)


def program(x):
    return (x.sin() * 2).relu()


def caught(call):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in seen if "have no effect" in str(w.message)]


@pytest.mark.parametrize("mode", [None, *MODES])
def test_each_mode_computes_the_same(mode):
    fast = pyframe.compile(program, mode=mode)
    assert not caught(lambda: torch.testing.assert_close(fast(X), program(X)))


def test_what_modes_stand_for():
    names = CompileOptions.names()
    wanted = {"reduce-overhead": True, "max-autotune": True, "default": None, "max-autotune-no-cudagraphs": False}
    assert {mode: CompileOptions.of(translated({}, mode, names)).cudagraphs for mode in MODES} == wanted
    tuned = {mode for mode in MODES if CompileOptions.of(translated({}, mode, names)).max_autotune}
    assert tuned == {"max-autotune", "max-autotune-no-cudagraphs"}
    assert translated({"max_autotune_gemm": True}, None, names) == {"max_autotune": True}
    assert translated({"triton.cudagraphs": False}, "reduce-overhead", names) == {"cudagraphs": False}
    assert translated({"triton.cudagraphs": True, "fx_graph_cache": False}, None, names) == {
        "cudagraphs": True, "cache": False
    }  # fmt: skip


def test_the_backend_gets_what_the_user_chose(monkeypatch):
    seen = []

    def compile_fx(gm, inputs, *, options):
        seen.append(options)
        return gm.forward

    monkeypatch.setattr(inductor, "compile_fx", compile_fx, raising=False)
    for given in ({"mode": "reduce-overhead"}, {"options": {"triton.cudagraphs": True}}, {}, {"mode": "default"}):
        pyframe.compile(program, **given)(X)
    pyframe.compile(program, options={"freezing": True})(X)
    plain = {"strict": False, "verify": None}
    assert seen == [{**plain, "cudagraphs": True}] * 2 + [plain] * 2 + [{**plain, "freezing": True}]


def test_options_that_always_hold_are_silent():
    options = {"max_autotune": False, "epilogue_fusion": True, "pattern_matcher": True, "triton.cudagraphs": True}
    fast = pyframe.compile(program, options=options)
    assert not caught(lambda: torch.testing.assert_close(fast(X), program(X)))


def test_other_options_of_torch_get_one_warning():
    options = {"epilogue_fusion": False, "trace.enabled": True, "size_asserts": True, "max_autotune_pointwise": True}

    def run():
        torch.testing.assert_close(pyframe.compile(program, options=options)(X), program(X))

    (message,) = caught(run)
    assert "epilogue_fusion=False" in message and "size_asserts=True" in message and "max_autotune_pointwise=True" in message
    assert "trace.enabled=True (set the environment variable PYFRAME_DUMP)" in message
    assert not caught(run)


def test_names_that_nobody_knows_and_wrong_values_are_errors():
    with pytest.raises(pyframe.UserError, match=r"unknown option 'max_autotun'; accepted: background, bucket_collectives, budget_s, cache, compiled_autograd, .*torch.compile's"):
        pyframe.compile(program, options={"max_autotun": True})
    for wrong in (0, -1.5):
        with pytest.raises(pyframe.UserError, match="'budget_s' must be a positive number of seconds, not"):
            pyframe.compile(program, options={"budget_s": wrong})
        with pytest.raises(ValueError, match="'budget_s' must be a positive number of seconds, not"):
            inductor.compile_fx(torch.fx.symbolic_trace(program), [X], options={"budget_s": wrong})
    with pytest.raises(pyframe.UserError, match="'triton.cudagraphs' must be bool"):
        pyframe.compile(program, options={"triton.cudagraphs": 1})
    with pytest.raises(ValueError, match="unknown mode 'warp'"):
        inductor.compile_fx(torch.fx.symbolic_trace(program), [X], mode="warp")


def test_the_listed_names_are_torchs():
    known = set(torch._inductor.list_options())
    assert (TRANSLATED.keys() | ALWAYS.keys() | TRACING.keys()) - known == set()
    assert set(torch._inductor.list_mode_options()) - set(MODES) <= {"lite"}


@pytest.mark.parametrize(
    "given", [{"mode": "reduce-overhead"}, {"mode": "max-autotune"}, {"options": {"triton.cudagraphs": True}}]
)
def test_through_torch_compile(given):
    torch._dynamo.reset()
    fast = torch.compile(program, backend="pyframe_inductor", **given)
    torch.testing.assert_close(fast(X), program(X))
