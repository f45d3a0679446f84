"""What is not packaged, and calls that do not fit, say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from package_programs import PROGRAMS, Mlp

import pyframe
from inductor.package.container import Container

CALLS: list[Any] = []


def keeps(x: torch.Tensor) -> torch.Tensor:
    CALLS.append(x)
    return x * 2


def breaks(x: torch.Tensor) -> torch.Tensor:
    print(x.sum().item())
    return x * 2


def chooses(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


@pytest.mark.parametrize(("f", "args", "error", "why"), [
    (keeps, (torch.rand(3),), pyframe.Unsupported, "changes a list that existed"),
    (breaks, (torch.rand(3),), pyframe.Unsupported, ""),
    (lambda x: 3, (torch.rand(3),), pyframe.PackageError, "computes nothing"),
    (lambda x: x, (torch.rand(3),), pyframe.PackageError, "computes nothing"),
    (lambda x: x.nonzero() * 2, (torch.rand(3),), pyframe.PackageError, "nonzero, which no plan can hold"),
    (lambda x: x * x.sum().item(), (torch.rand(3),), pyframe.PackageError, "item, which no plan can hold"),
    (chooses, (torch.rand(3),), pyframe.PackageError, r"(?s)cond, which no plan can hold.*test_package_refusals.py"),
    (lambda x, y: x + y, (torch.rand(3).to_sparse(), torch.rand(3)), pyframe.Unsupported, "operator \\+ on x"),
    (lambda x, y: x * 2, (torch.rand(3), object()), pyframe.UserError, "y is a object"),
    (lambda x: (x * 2, object), (torch.rand(3),), pyframe.UserError, "cannot be saved"),
])  # fmt: skip
def test_not_packaged(f: Any, args: Any, error: type[Exception], why: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=why):
        pyframe.package(f, args, tmp_path / "model.pyframe")
    assert not list(tmp_path.iterdir())


def test_unknown_targets(tmp_path: Path) -> None:
    for names, why in ((["avx9"], "avx9"), (["sm_10"], "sm_10"), ([], "no machine")):
        with pytest.raises((pyframe.PackageError, pyframe.UserError, ValueError), match=why):
            pyframe.package(torch.sin, (torch.rand(3),), tmp_path / "model.pyframe", targets=names)


def test_constants_move_to_a_gpu_and_operators_of_onednn_do_not(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "model.pyframe"
    for name in ("constant", "operators of onednn"):
        make, arguments = PROGRAMS[name]
        args, kwargs = arguments()
        if name == "constant":
            pyframe.package(make(), args, path, kwargs=kwargs, targets=["sm_90"])
            (plan,) = Container(path, None).description["plans"]
            assert plan["aligned"] == [0] and len(plan["inputs"]) == 1  # only the address of an input can change
        else:
            with pytest.raises(pyframe.PackageError, match="mkldnn.* on a GPU"):
                pyframe.package(make(), args, path, kwargs=kwargs, targets=["sm_90"])


def test_calls_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "model.pyframe"

    def f(x: torch.Tensor, n: int, items: list[torch.Tensor], *, flag: bool) -> torch.Tensor:
        return x * n + items[0] if flag else x

    x = torch.rand(3)
    pyframe.package(f, (x, 2, [torch.rand(3)]), path, kwargs={"flag": True})
    package = pyframe.load(path)
    torch.testing.assert_close(package(x, 2, [x], flag=True), x * 2 + x)
    for args, kwargs, error, why in (
        ((x, 2, [x]), {}, pyframe.UserError, "flag"),
        ((x, 2), {"flag": True}, pyframe.UserError, "items"),
        ((x, 3, [x]), {"flag": True}, pyframe.UserError, "n == 2, its value in the example, not 3"),
        ((x, 2.0, [x]), {"flag": True}, pyframe.UserError, "n == 2"),
        ((x, 2, [x]), {"flag": 1}, pyframe.UserError, "flag == True"),
        ((x, 2, [x, x]), {"flag": True}, pyframe.UserError, "items must have 1 items"),
        ((x, 2, (x,)), {"flag": True}, pyframe.UserError, "items must be a list"),
        ((7, 2, [x]), {"flag": True}, pyframe.UserError, "x to be a tensor"),
        ((x[:2], 2, [x]), {"flag": True}, ValueError, "input 0 .*another size"),
    ):
        with pytest.raises(error, match=why):
            package(*args, **kwargs)


def test_floats_are_constants(tmp_path: Path) -> None:
    class Scaled(torch.nn.Module):
        scale = 0.5

        def forward(self, x: torch.Tensor, bias: float) -> torch.Tensor:
            return x * self.scale + bias

    x, path = torch.rand(3), tmp_path / "model.pyframe"
    for bias in (0.0, 2.5, float("nan")):
        pyframe.package(Scaled(), (x, bias), path)
        package = pyframe.load(path)
        torch.testing.assert_close(package(x, bias), x * 0.5 + bias, equal_nan=True)
        for other in (-0.0, 1, 3.5):
            with pytest.raises(pyframe.UserError, match="bias =="):
                package(x, other)


def test_gradients_are_not_recorded_and_modes_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "model.pyframe"
    model = Mlp().eval()
    pyframe.package(model, (torch.rand(3, 24),), path)
    package, x = pyframe.load(path), torch.rand(3, 24)
    want = package(x)
    assert not want.requires_grad and not package(x.clone().requires_grad_()).requires_grad
    assert torch.is_grad_enabled()
    with torch.autocast("cpu", torch.bfloat16):
        assert package(x).equal(want)
    with torch.inference_mode():
        assert package(x).equal(want)


def test_the_model_stays_as_it_is(tmp_path: Path) -> None:
    model, x = Mlp().eval(), torch.rand(3, 24)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pyframe.package(pyframe.compile(model), (x,), tmp_path / "model.pyframe", dynamic={0: 0})
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert model.layers[0].weight.requires_grad and not hasattr(x, "_pyframe_marks")
    package = pyframe.load(tmp_path / "model.pyframe")
    with torch.no_grad():
        model.scale.zero_()
        assert not package(x).equal(model(x))
