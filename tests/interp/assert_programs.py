"""Programs with asserts on data, in a module whose asserts pytest leaves as they are."""

import torch


def of_number(x):
    assert x.max().item() <= 3
    return x * 2


def of_tensor(x):
    assert x.max() <= 3, "too large"
    return x * 2


def of_comparison(x):
    assert torch.allclose(x, x.clamp(max=3)), "too large"
    assert not torch.equal(x, x + 1)
    return x * 2


def denied(x):
    assert not (x > 3).any(), "one is above three"
    return x * 2


def several(x):
    assert x.sum().item() and x.max() < 9
    y = x * 2
    assert y.max() <= 6, ("a", 6)
    return y


def in_a_call(x):
    return of_tensor(x) + 1


def after_a_write(x):
    x.add_(0)
    x[0] = 1
    assert x.max() <= 3
    x[0] = 2
    return x * 2


def known_from_then_on(x):
    n = int(x.long()[0])
    assert n >= 2
    assert n > 1
    if n > 0:
        return x * n
    return x


def in_a_block(x):
    with torch.no_grad():
        assert x.max() <= 3
        y = x * 2
    return y


def handled(x):
    try:
        assert x.max() <= 3
    except AssertionError:
        return x - 1
    return x * 2


def after_an_effect(x, log):
    log.append("before")
    assert x.max() <= 3
    log.append("after")
    return x * 2


def words_of_data(x):
    assert x.max() <= 3, f"{x.max()} is too large"
    return x * 2


ONE_GRAPH = [of_comparison, of_number, of_tensor, denied, several, in_a_call, after_a_write, known_from_then_on]
BREAKS = [in_a_block, handled, words_of_data]
