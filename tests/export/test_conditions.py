"""What an exported program requires of its arguments."""

import pytest
import torch
from export_checks import check

import pyframe


def conditions(exported):
    return [each.text for each in exported.conditions]


def test_calls_that_do_not_fit():
    x, d = torch.randn(5, 4), {"a": torch.randn(4)}
    exported = pyframe.export(lambda x, d: x * d["a"])(x, d, dynamic={"x": {0: True}})
    assert conditions(exported) == ["x.size(0) >= 2"]
    for args, message in (
        ((x[:, :3], d), r"requires x\.size\(1\) == 4, not 3"),
        ((x.double(), d), r"requires x\.dtype == torch\.float32, not torch\.float64"),
        ((x[0], d), r"requires x\.dim\(\) == 2, not 1"),
        ((x.to("meta"), d), "requires x on cpu, not on meta"),
        ((x[:1], d), r"requires x\.size\(0\) >= 2; x\.size\(0\) is 1"),
        ((x, {"b": 1}), r"d must have the keys \['a'\], not \['b'\]"),
        ((x, [1]), "d must be a dict"),
        ((3, d), "requires x to be a tensor, not 3"),
        ((x,), "missing a required argument: 'd'"),
    ):
        with pytest.raises(pyframe.UserError, match=message):
            exported(*args)


def test_ranges_and_relations(tmp_path):
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    spec = {"a": {0: (2, 8)}, "b": ("auto", None)}
    exported = check(lambda a, b: a + b, a, b, dynamic=spec, other=[(torch.randn(8, 4), torch.randn(8, 4))],
                     path=tmp_path / "p")  # fmt: skip
    assert set(conditions(exported)) == {"a.size(0) >= 2", "a.size(0) <= 8", "b.size(0) >= 2", "a.size(0) == b.size(0)"}
    with pytest.raises(pyframe.UserError, match=r"requires a\.size\(0\) <= 8; a\.size\(0\) is 9"):
        exported(torch.randn(9, 4), torch.randn(9, 4))
    with pytest.raises(pyframe.UserError, match=r"a\.size\(0\) == b\.size\(0\).*test_conditions"):
        exported(torch.randn(5, 4), torch.randn(6, 4))


def test_sizes_in_slices_and_results(tmp_path):
    check(lambda x: x[1:, ..., None, ::2], torch.randn(4, 5, 6), dynamic={"x": (True, None, True)},
          other=[(torch.randn(7, 5, 8),)], path=tmp_path / "p")  # fmt: skip
    check(lambda x: (x.size(), x.shape[0] + 1, x.numel()), torch.randn(3, 4), dynamic=True,
          other=[(torch.randn(5, 6),)], path=tmp_path / "p")  # fmt: skip
    check(lambda x, n: x * n + n, torch.randn(4), 4, dynamic={"n": True}, other=[(torch.randn(4), 7)],
          path=tmp_path / "p")  # fmt: skip


def test_invalid_specifications():
    x = torch.randn(3, 1)
    for dynamic, message in (
        ({"y": True}, "names 'y', which is no argument"), ({"x": {1: True}}, r"x\.size\(1\) is 1 in the example"),
        ({"x": {5: True}}, "there is no 5"), ({"x": {0: "often"}}, "accepted: None"), ("x", "dynamic must be"),
        (({0: True}, None), "2 entries for 1 arguments"), ({"x": [True]}, "does not fit x"),
    ):  # fmt: skip
        with pytest.raises(pyframe.UserError, match=message):
            pyframe.export(lambda x: x + 1)(x, dynamic=dynamic)
    with pytest.raises(pyframe.UserError, match=r"x\.size\(0\) was marked as dynamic, but the program requires it to be 3"):
        pyframe.export(lambda x: x + torch.ones(3, 1))(x, dynamic={"x": {0: True}})


def test_marks_of_tensors_count_and_examples_keep_theirs():
    x = torch.randn(3, 4)
    pyframe.mark_dynamic(x, 0, min=2, max=5)
    exported = pyframe.export(lambda x: x + 1)(x)
    assert set(conditions(exported)) == {"x.size(0) >= 2", "x.size(0) <= 5"}
    y = torch.randn(3, 4)
    pyframe.export(lambda y: y + 1)(y, dynamic=True)
    assert vars(y) == {}


def test_layouts_are_checked_only_if_the_program_reads_them(tmp_path):
    check(lambda x: x.reshape(-1) + 1, torch.randn(3, 4), other=[(torch.randn(4, 3).t(),)], path=tmp_path / "p")
    exported = check(lambda x: x * 2 if x.is_contiguous() else x * 3, torch.randn(3, 4), path=tmp_path / "p")
    with pytest.raises(pyframe.UserError, match=r"x\.stride\(0\) == 4, not 1"):
        exported(torch.randn(4, 3).t())
    exported = pyframe.export(lambda x: x * 2 if x.requires_grad else x * 3)(torch.randn(3))
    with pytest.raises(pyframe.UserError, match=r"x\.requires_grad is False, not True"):
        exported(torch.randn(3).requires_grad_())


def test_a_batch_of_images_varies_without_bounds(tmp_path):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(inplace=True), torch.nn.Flatten())
    exported = check(model, torch.randn(2, 3, 8, 8), dynamic=({0: True},), other=[(torch.randn(17, 3, 8, 8),)],
                     path=tmp_path / "p")  # fmt: skip
    assert conditions(exported) == ["input.size(0) >= 2"]


def test_identity_is_checked_only_if_the_program_reads_it(tmp_path):
    x, y = torch.randn(3), torch.randn(3)
    exported = check(lambda a, b: a - b, x, x, other=[(x, y)], path=tmp_path / "p")
    assert conditions(exported) == []

    def same(a, b):
        return a * 2 if a is b else a + b

    exported = check(same, x, x, path=tmp_path / "p")
    with pytest.raises(pyframe.UserError, match="requires b is a"):
        exported(x, y)
    exported = check(same, x, y, path=tmp_path / "p")
    with pytest.raises(pyframe.UserError, match="requires a is not b"):
        exported(x, x)


def test_calls_that_are_dropped_are_told():
    def prints(x):
        print("careful")
        return x + 1

    with pyframe.config.patch(reorderable_logging_functions={print}):
        exported = pyframe.export(prints)(torch.ones(2))
    assert len(exported.dropped) == 1 and exported.dropped[0].startswith("print() at ")


def test_check_tells_differences():
    exported = pyframe.export(lambda x: (x + 1, x * 2))(torch.ones(2))
    exported.function = lambda x: (x + 1, x * 2.5)
    comparison = exported.check(torch.ones(2))
    assert not comparison.equal and comparison.greatest_error == 0.5 and comparison.where == "result[1]"
    assert "greatest error 0.5 (relative 0.2) in result[1]" in str(comparison)
    exported.function = lambda x: x
    assert exported.check(torch.ones(2)).differences == ["the result has another structure"]


@pytest.mark.parametrize(
    ("value", "others"),
    [(0.0, [-0.0, 0, float("nan")]), (2.5, [float("nan"), 2.0]), (float("nan"), [0.0]), (complex(0.0, -0.0), [0j])],
)
def test_a_constant_is_what_no_operation_tells_apart(value, others, tmp_path):
    x = torch.ones(2)
    exported = pyframe.export(lambda x, number: x * number)(x, value)
    exported.save(tmp_path / "program")
    scope: dict = {}
    exec(str(exported), scope)
    for program in (exported, pyframe.export.load(tmp_path / "program")):
        torch.testing.assert_close(program(x, value), x * value, equal_nan=True)
        scope["check_inputs"](x, value)
        for other in others:
            with pytest.raises(pyframe.UserError, match="its value in the example"):
                program(x, other)
            with pytest.raises(ValueError):
                scope["check_inputs"](x, other)


def test_a_float_that_is_to_vary():
    """An error, unless it is part of what varies as far as it can."""
    scaled, x = lambda x, s: x * (s["by"] if isinstance(s, dict) else s), torch.randn(3)
    with pytest.raises(pyframe.UserError, match="s is a float, which cannot vary; pass it as a 0-d tensor"):
        pyframe.export(scaled)(x, 2.0, dynamic={"s": True})
    with pytest.raises(pyframe.UserError, match=r"s\['by'\] is a float, which cannot vary"):
        pyframe.export(scaled)(x, {"by": 2.0}, dynamic={"s": {"by": True}})
    for exported in (
        pyframe.export(scaled)(x, 2.0, dynamic=True), pyframe.export(scaled)(x, {"by": 2.0}, dynamic={"s": True})
    ):  # fmt: skip
        assert exported.inputs[1].kind == "constant"
    varying = pyframe.export(scaled)(x, torch.tensor(2.0))
    torch.testing.assert_close(varying(x, torch.tensor(3.0)), x * 3)
