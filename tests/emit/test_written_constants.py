"""Tensors that a program creates from numbers, writes to and then reads: the trace knows their values, and must know all
operators that write to them. Versions do not count every write, and fake tensors keep the value of a constant of one
element when it is written as an item of a list."""

import pytest
import torch

import pyframe


def fused_sgd(t):
    torch._fused_sgd_(
        [t], [torch.tensor(1.0)], [], weight_decay=0.0, momentum=0.0, lr=0.5, dampening=0.0, nesterov=False,
        maximize=False, is_first_step=True,
    )  # fmt: skip


def of_adam(*, parameter=None, average=None):
    one = torch.tensor(1.0)
    torch._fused_adamw_(
        [torch.tensor(1.0) if parameter is None else parameter], [one], [one.clone() if average is None else average],
        [torch.zeros(())], [], [torch.tensor(1.0)], lr=0.5, beta1=0.9, beta2=0.9, weight_decay=0.0, eps=1e-8,
        amsgrad=False, maximize=False,
    )  # fmt: skip


def found(t):
    t.zero_()
    torch._amp_foreach_non_finite_check_and_unscale_([torch.full((2,), float("inf"))], t, torch.tensor(1.0))


def unscaled(t):
    torch._amp_foreach_non_finite_check_and_unscale_([t], torch.zeros(()), torch.tensor(7.0))


def set_data(t):
    t.data = torch.tensor(5.0)


WRITES = {
    "non-finite elements found": found,
    "unscaled": unscaled,
    "scale updated": lambda t: torch._amp_update_scale_(
        t, torch.zeros((), dtype=torch.int32), torch.tensor(1.0), 2.0, 0.5, 5
    ),
    "added": lambda t: torch._foreach_add_([t], 5.0),
    "copied": lambda t: torch._foreach_copy_([t], [torch.tensor(9.0)]),
    "step of SGD": fused_sgd,
    "step of AdamW": lambda t: of_adam(parameter=t),
    "average of AdamW": lambda t: of_adam(average=t),
    "one of several outputs": lambda t: torch.unbind_copy(torch.tensor([5.0, 6.0]), out=[t, torch.zeros(())]),
    "a view as output": lambda t: torch.split_with_sizes_copy(
        torch.tensor([5.0, 6.0]), [1, 1], out=[t.view(1), torch.zeros(1)]
    ),
    "output": lambda t: torch.aminmax(torch.tensor([5.0, 6.0]), out=(t, torch.zeros(()))),
    "data": set_data,
    "detached": lambda t: t.detach().fill_(5.0),
    "in place": lambda t: t.add_(5),
}


def branches(x, write):
    t = torch.tensor(1.0)
    write(t)
    return (x + 1) * 10 if t.item() > 2 else x + t


def reads(x, write):
    t = torch.tensor(1.0)
    write(t)
    return x * float(t), t


def computes(x, write):
    t, ones = torch.tensor(1.0), torch.ones(3)
    write(t)
    return x + (ones * t).sum().item(), float(t * 2)


@pytest.mark.parametrize("program", [branches, reads, computes], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("name", WRITES)
def test_read_after_a_write(program, name):
    write = WRITES[name]
    expected = program(torch.ones(2), write)
    torch.testing.assert_close(pyframe.compile(lambda x: program(x, write))(torch.ones(2)), expected)


def test_a_written_constant_that_is_not_read_back_stays_known():
    def program(x):
        t = torch.tensor(3)
        x.add_(t)
        return x[: t.item()]

    x, y = torch.ones(5), torch.ones(5)
    torch.testing.assert_close(pyframe.compile(program, fullgraph=True)(x), program(y))
