"""Programs to and from `torch.export.ExportedProgram`."""

import pytest
import torch
from torch import nn

import pyframe


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(1))
        self.table = torch.ones(4)

    def forward(self, x, batch, n=3, *, scale):
        self.calls = self.calls + 1
        y = self.norm(self.linear(x)) + batch["a"] * n + self.table
        return {"y": y.view(y.shape[0], 2, 2) * scale, "rows": y.shape[0] * 2, "x": (x, None)}


def test_there_and_back(tmp_path):
    model, batch, scale = Net(), {"a": torch.randn(4)}, torch.randn(2)
    exported = pyframe.export(model)(torch.randn(5, 4), batch, scale=scale, dynamic={"x": {0: True}})
    program = exported.to_exported_program()
    assert isinstance(program, torch.export.ExportedProgram)
    assert set(program.state_dict) == set(model.state_dict())
    x = torch.randn(7, 4)
    back = pyframe.Exported.from_exported_program(program)
    back.save(tmp_path / "p")
    for each in (back, pyframe.export.load(tmp_path / "p")):
        each.function = model
        comparison = each.check(x, batch, scale=scale)
        assert comparison.equal, str(comparison)
        with pytest.raises(pyframe.UserError, match=r"size\(0\) >= 2"):
            each(x[:1], batch, scale=scale)
    namespace = {}
    exec(str(back), namespace)
    model.eval()
    found = namespace["program"](back.constants, x, batch, scale=scale)
    assert found["rows"] == 14 and found["x"][0] is x


def test_dims_of_torch_export():
    dim, dims = torch.export.Dim("batch", min=2, max=6), torch.export.Dim
    exported = pyframe.export(lambda x, y: x + y.sum())(
        torch.randn(3, 4), torch.randn(3, 4), dynamic={"x": {0: dim}, "y": (dims.AUTO, dims.STATIC)}
    )
    assert {each.text for each in exported.conditions} == {"x.size(0) >= 2", "x.size(0) <= 6", "y.size(0) >= 2"}


def test_a_program_of_torch_export_with_written_inputs():
    class Writes(nn.Module):
        def forward(self, x, flag):
            x.add_(1)
            return x * 2 if flag else x

    program = torch.export.export(Writes(), (torch.zeros(3), True))
    exported = pyframe.Exported.from_exported_program(program)
    assert exported.mutated == ["args[0]"]
    x = torch.zeros(3)
    assert exported(x, True).tolist() == [2, 2, 2] and x.tolist() == [1, 1, 1]
    with pytest.raises(pyframe.UserError, match=r"args\[1\] == True"):
        exported(x, False)
    with pytest.raises(pyframe.UserError, match="needs a torch.export.ExportedProgram"):
        pyframe.Exported.from_exported_program(exported)
