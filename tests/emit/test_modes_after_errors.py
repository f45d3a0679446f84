"""A graph that raises leaves the modes of the process as it found them."""

import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import pyframe


def modes():
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled(), nesting,
        torch.backends.mkldnn.enabled, torch.get_float32_matmul_precision(), torch.get_default_dtype(),
        torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled(),
    )  # fmt: skip


def no_grad(x, i):
    with torch.no_grad():
        return x.sin().gather(0, i)


def inference(x, i):
    with torch.inference_mode():
        return x.sin().gather(0, i)


def autocast(x, i):
    with torch.autocast("cpu", torch.float16, cache_enabled=False), torch.no_grad():
        return (x @ x).gather(0, i)


def attention(x, i):
    with sdpa_kernel(SDPBackend.MATH), torch.inference_mode():
        return x.sin().gather(0, i)


def flags(x, i):
    with torch.backends.mkldnn.flags(enabled=False):
        return x.sin().gather(0, i)


def left_written(x, i):
    torch.set_default_dtype(torch.float64)
    return x.sin().gather(0, i) + torch.ones(3, 3)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", lambda gm, inputs: gm.forward])
@pytest.mark.parametrize("fn", [no_grad, inference, autocast, attention, flags])
def test_left_as_found(fn, backend):
    found = modes()
    run = pyframe.compile(fn, backend=backend)
    x, good, bad = torch.randn(3, 3), torch.zeros(3, 3, dtype=torch.long), torch.full((3, 3), 7)
    torch.testing.assert_close(run(x, good), fn(x, good))
    for _ in range(2):
        with pytest.raises((RuntimeError, IndexError)):
            run(x, bad)
        assert modes() == found
    torch.testing.assert_close(run(x, good), fn(x, good))
    assert modes() == found


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_setting_written_for_good_stays(backend):
    x, bad = torch.randn(3, 3), torch.full((3, 3), 7)
    try:
        with pytest.raises((RuntimeError, IndexError)):
            pyframe.compile(left_written, backend=backend)(x, bad)
        assert torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def raised_again(x):
    try:
        pyframe.graph_break()
        raise KeyError(1)
    finally:
        with torch.no_grad():
            if sys.exc_info()[0]:
                raise


def raised_again_below_another(x):
    try:
        pyframe.graph_break()
        raise KeyError(1)
    except KeyError:
        with torch.no_grad(), torch.autocast("cpu"):
            raise


@pytest.mark.parametrize("fn", [raised_again, raised_again_below_another])
def test_a_mode_is_left_once_when_an_exception_is_raised_again(fn):
    found = modes()
    try:
        with pytest.raises(KeyError):
            pyframe.compile(fn, backend="eager")(torch.ones(3))
        assert modes() == found
    finally:
        torch.set_grad_enabled(True)
