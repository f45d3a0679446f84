"""A compiled graph that writes to an inference tensor outside of inference mode raises eager's error."""

import contextlib

import pytest
import torch

import pyframe


def foreach(x):
    torch._foreach_add_([x], 1)


WRITES = {
    "tensor": lambda x: x.add_(1),
    "view": lambda x: x[0].add_(1),
    "item": lambda x: x.__setitem__(0, 1.0),
    "view of data": lambda x: x.data[0].add_(1),
    "list": foreach,
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("mode", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_as_in_eager(name, mode, grad, dynamic):
    def program(x, w):
        WRITES[name](x)
        return x.sum() + w

    def run(call):
        with torch.inference_mode():
            x = torch.zeros(3, 4)
        w = torch.ones((), requires_grad=grad)
        with mode():
            try:
                result = call(x, w).tolist()
            except RuntimeError as error:
                result = str(error)
        return result, x.tolist()

    assert run(pyframe.compile(program, dynamic=dynamic)) == run(program)
