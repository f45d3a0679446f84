"""Files of exported programs: what is damaged, of another version, or names what it may not call."""

import hashlib
import json
import zipfile

import pytest
import torch
from export_checks import Printed
from torch import nn

import pyframe
from pyframe.export.targets import name_of, target_of


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "program"
    pyframe.export(nn.Linear(3, 2))(torch.randn(4, 3)).save(path)
    return path


def rewritten(path, change):
    """The file with its members changed by `change(members)`, which is given their bytes by name."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_damage_is_found(saved):
    content = saved.read_bytes()
    directory = content.rindex(b"PK\x01\x02")
    places = [(at, 255) for at in range(0, len(content), 97)]
    places += [(at, 1 << bit) for at in range(directory, len(content)) for bit in range(8)]
    for at, change in places:
        saved.write_bytes(content[:at] + bytes([content[at] ^ change]) + content[at + 1 :])
        try:
            pyframe.export.load(saved)
        except pyframe.UserError as error:
            assert "damaged" in str(error) or "version" in str(error) or "no exported program" in str(error)
        except Exception as error:  # the archive's directory says nonsense
            pytest.fail(f"byte {at}: {type(error).__name__}: {error}")
    saved.write_bytes(content[:-30])
    with pytest.raises(pyframe.UserError, match="damaged"):
        pyframe.export.load(saved)


def test_a_changed_member_and_another_version(saved):
    rewritten(saved, lambda members: members.update({"storages/0": bytes(len(members["storages/0"]))}))
    with pytest.raises(pyframe.UserError, match="the checksum of storages/0 is wrong"):
        pyframe.export.load(saved)

    def newer(members):
        members["format.json"] = json.dumps({**json.loads(members["format.json"]), "version": 99}).encode()

    rewritten(saved, newer)
    with pytest.raises(pyframe.UserError, match="version 99 of the format, and this pyframe reads version 1"):
        pyframe.export.load(saved)


@pytest.mark.parametrize("name", [
    "os.system", "builtins.eval", "builtins.exec", "builtins.__import__", "torch.load", "torch.hub.load",
    "torch.ops.load_library", "torch.ops.aten.from_file.default", "torch.from_file", "torch.utils.cpp_extension.load",
    "operator.methodcaller", "operator.attrgetter", "pyframe.api.compile", "torch.ops.__class__.mro", "torch.save",
    "inductor.modes.threading", "torch.ops.aten.save", "torch.ops.prim.Print", "torch.ops.aten.__class__",
])  # fmt: skip
def test_files_cannot_call_anything_else(name):
    with pytest.raises(pyframe.UserError):
        target_of(name)


@pytest.mark.parametrize("change", [
    {"op": "placeholder", "target": "x=print('called')"}, {"op": "get_attr", "target": "a\"); print('called'); (\""},
    {"op": "call_method", "target": "__getattribute__"}, {"op": "call_method", "target": "__call__"},
    {"op": "call_method", "target": "__subclasses__"}, {"op": "call_method", "target": "relu().add"},
    {"op": "call_function", "target": "torch.relu", "kwargs": {"dict": [["a=print('called'), b", 1]]}},
    {"op": "call_function", "target": "builtins.getattr", "args": {"tuple": [{"node": "input_1"}, "__class__"]}},
    {"op": "call_module", "target": "0"},
])  # fmt: skip
def test_files_cannot_contain_code(saved, change, capsys):
    def edit(members):
        program = json.loads(members["program.json"])
        place = 0 if change["op"] == "placeholder" else 1
        node = {"name": "new", "args": {"tuple": []}, **change}
        program["graph"]["nodes"].insert(place, node)
        members["program.json"] = json.dumps(program).encode()
        head = json.loads(members["format.json"])
        head["sha256"]["program.json"] = hashlib.sha256(members["program.json"]).hexdigest()
        members["format.json"] = json.dumps(head).encode()

    rewritten(saved, edit)
    with pytest.raises(pyframe.UserError):
        pyframe.export.load(saved)
    assert capsys.readouterr().out == ""


def test_names_of_operators_are_found_again():
    import operator

    for target in (
        torch.relu, torch.nn.functional.linear, torch.nn.functional.gelu, operator.getitem, getattr, torch.zeros,
        torch.ops.aten.add.Tensor, torch.ops.aten.add, torch.ops.higher_order.cond, torch._C._set_grad_enabled,
        torch.sym_max, torch.nn.functional.scaled_dot_product_attention, torch.linalg.inv, torch.fft.fft,
    ):  # fmt: skip
        assert target_of(name_of(target)) is target or target_of(name_of(target)) == target


def test_an_operator_without_a_name_is_refused_when_saved(tmp_path):
    def local(x):
        return x + 1

    pyframe.allow_in_graph(local)
    exported = pyframe.export(lambda x: local(x))(torch.ones(2))
    assert Printed(exported).check(torch.ones(2)).equal
    with pytest.raises(pyframe.UserError, match="has no name under which a file can call it"):
        exported.save(tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


def test_classes_are_not_imported(tmp_path):
    from collections import namedtuple

    here = namedtuple("here", "a")
    exported = pyframe.export(lambda x: here(x + 1))(torch.ones(2))
    exported.save(tmp_path / "p")
    with pytest.raises(pyframe.UserError, match="pass the class: load"):
        pyframe.export.load(tmp_path / "p")
    loaded = pyframe.export.load(tmp_path / "p", classes=[here])
    assert type(loaded(torch.ones(2))) is here


def test_tensors_keep_dtypes_layouts_and_shared_memory(tmp_path):
    class Buffers(nn.Module):
        def __init__(self):
            super().__init__()
            base = torch.arange(6.0)
            self.register_buffer("base", base)
            self.register_buffer("part", base[2:].view(2, 2).t(), persistent=False)
            self.register_buffer("low", torch.ones(2, dtype=torch.bfloat16))
            self.register_buffer("none", torch.ones(0))
            self.register_buffer("flag", torch.tensor(True))

        def forward(self, x):
            return x + self.part, self.low, self.base, self.none, self.flag

    exported = pyframe.export(Buffers())(torch.ones(2, 2))
    exported.save(tmp_path / "p")
    loaded = pyframe.export.load(tmp_path / "p")
    assert list(loaded.graph_module.state_dict()) == ["base", "low", "none", "flag"]
    assert loaded.constants["part"].stride() == (1, 2)
    loaded.constants["base"][2] = 100
    assert loaded.constants["part"][0, 0] == 100
    for mine, theirs in zip(loaded(torch.ones(2, 2))[1:], exported(torch.ones(2, 2))[1:], strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape


def test_import_does_not_load_the_package():
    import subprocess
    import sys

    text = "import sys, pyframe; pyframe.compile; assert not any(m.startswith('pyframe.export') for m in sys.modules)"
    subprocess.run([sys.executable, "-c", text], check=True)


def test_the_module_is_callable_however_it_is_imported():
    import pyframe.export as module
    from pyframe.export import whole_graph

    assert pyframe.export is module and callable(whole_graph)
    assert torch.equal(pyframe.export(lambda x: x + 1)(torch.ones(1))(torch.ones(1)), torch.full((1,), 2.0))
