"""Variables of inner functions that are read or deleted after they were deleted."""

# ruff: noqa: F821

import pytest
import torch

import pyframe


def deleted_twice(x):
    z = 0

    def inner():
        return z

    del z
    del z
    return x + 1, inner


def read_after(x):
    z = 0

    def inner():
        return z

    del z
    return x + z, inner


def read_within(x):
    z = 0

    def inner():
        return z

    del z
    return x + inner()


def handled(x):
    z, found = 0, []

    def inner():
        return z

    del z
    for call in (lambda: z, inner):
        try:
            call()
        except NameError as error:
            found.append((type(error), str(error)))
    try:
        del z
    except UnboundLocalError as error:
        found.append(str(error))
    return x + len(found), found


@pytest.mark.parametrize("program", [deleted_twice, read_after, read_within])
def test_errors(program):
    x = torch.ones(2)
    with pytest.raises(NameError) as want:
        program(x)
    with pytest.raises(NameError) as got:
        pyframe.compile(program, backend="eager")(x)
    assert (got.type, str(got.value)) == (want.type, str(want.value))


def test_handled():
    x = torch.ones(2)
    (want, errors), (got, ours) = handled(x), pyframe.compile(handled, backend="eager", fullgraph=True)(x)
    assert torch.equal(got, want) and ours == errors


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_loop_that_deletes(count):
    def program(x, count):
        z = 0

        def inner():
            return z

        for _ in range(count):
            print(end="")
            del z
        return x + 1, inner is None

    results = []
    for fn in (program, pyframe.compile(program, backend="eager")):
        try:
            results.append(fn(torch.ones(2), count)[1])
        except NameError:  # after a break, without UnboundLocalError: the cell is one of an outer function there
            results.append("empty")
    assert results[0] == results[1] == ("empty" if count == 2 else False)
