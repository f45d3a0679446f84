"""Packages compute what the function computes: in this process, and from C++ bit by bit the same."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from package_programs import PROGRAMS, Counting, Mlp, written
from package_util import ROOT, run_cpp
from torch.utils import _pytree as pytree

import pyframe


def tensors(value: object) -> list[torch.Tensor]:
    return [x for x in _leaves(value) if isinstance(x, torch.Tensor)]


def _leaves(value: object) -> list[object]:
    if hasattr(value, "__dataclass_fields__"):
        return [leaf for name in value.__dataclass_fields__ for leaf in _leaves(getattr(value, name))]
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in _leaves(each)]
    if isinstance(value, tuple | list):
        return [leaf for each in value for leaf in _leaves(each)]
    return [value]


def same_structure(a: object, b: object) -> bool:
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and all(same_structure(getattr(a, n), getattr(b, n)) for n in a.__dataclass_fields__)
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same_structure(a[k], b[k]) for k in a)
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same_structure, a, b))
    return True if isinstance(a, torch.Tensor) else type(a) is type(b) and a == b


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager_and_cpp(name: str, tmp_path: Path, programs: Path) -> None:
    make, arguments = PROGRAMS[name]
    torch.manual_seed(1)
    f = make()
    args, kwargs = arguments()
    path = tmp_path / "model.pyframe"
    pyframe.package(f, args, path, kwargs=kwargs)
    package = pyframe.load(path)
    for _ in range(2):
        args, kwargs = arguments()
        with torch.no_grad():
            want = f(*args, **kwargs)
        got = package(*args, **kwargs)
        plain = name != "gru"  # whose result has views that eager makes by other operators
        assert same_structure(got, want)
        for a, b in zip(tensors(got), tensors(want), strict=True):
            assert a.stride() == b.stride() or not plain
            torch.testing.assert_close(a, b, equal_nan=True)
            assert not a.requires_grad
    cpp, _ = run_cpp(programs, tmp_path, path, args, kwargs)
    for a, b in zip(cpp, tensors(got), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.expected_stride == b.stride()  # type: ignore[attr-defined]
        assert a.flatten().view(torch.uint8).equal(b.contiguous().flatten().view(torch.uint8))


def test_an_argument_that_is_written(tmp_path: Path, programs: Path) -> None:
    path = tmp_path / "model.pyframe"
    pyframe.package(written, (torch.rand(4, 3), torch.rand(3)), path)
    x, y = torch.rand(4, 3), torch.rand(3)
    expected, given = x.clone(), x.clone()
    want = written(expected, y)
    version = given._version
    got = pyframe.load(path)(given, y)
    torch.testing.assert_close(got, want)
    assert given.equal(expected) and given._version > version
    (cpp,), (after, _) = run_cpp(programs, tmp_path, path, (x, y), writes=True)
    assert cpp.equal(got) and after.equal(given)


def test_an_argument_that_is_written_must_overlap_none(tmp_path: Path, programs: Path) -> None:
    path = tmp_path / "model.pyframe"
    pyframe.package(written, (torch.rand(3), torch.rand(3)), path)
    x = torch.rand(4)
    with pytest.raises(ValueError, match="shares memory"):
        pyframe.load(path)(x[:3], x[1:])


def test_a_buffer_that_is_written_stays_with_the_package(tmp_path: Path) -> None:
    path = tmp_path / "model.pyframe"
    model = Counting()
    pyframe.package(model, (torch.rand(2, 6),), path)
    with torch.no_grad():
        model.total.zero_()
    first, second = pyframe.load(path), pyframe.load(path)
    start = first.constants["total"].clone()
    x = torch.rand(2, 6)
    first(x)
    assert first.constants["total"].equal(start + x.sum(0))
    assert second.constants["total"].equal(start)
    again = first(x)
    torch.testing.assert_close(again, x * (start + 2 * x.sum(0)))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda package: pickle.loads(pickle.dumps(package))])
def test_copies_and_pickles(copied: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.pyframe"
    pyframe.package(Counting(), (torch.rand(2, 6),), path, targets=["generic"])
    first, x = pyframe.load(path), torch.rand(2, 6)
    first(x)
    second = copied(first)
    assert second.constants["total"].equal(first.constants["total"])
    second(x)
    assert not second.constants["total"].equal(first.constants["total"])
    assert second(x).equal(x * second.constants["total"])


def test_a_pickle_is_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "model.pyframe"
    pyframe.package(torch.sin, (torch.rand(3),), path, targets=["generic"], key=b"key")
    data = pickle.dumps(pyframe.load(path, key=b"key"))
    assert pickle.loads(data)(torch.ones(3)).equal(torch.ones(3).sin())
    pyframe.package(torch.cos, (torch.rand(3),), path, targets=["generic"])
    with pytest.raises(pyframe.PackageError, match="not the file that was loaded"):
        pickle.loads(data)


def test_constants_have_the_names_of_the_module_and_are_stored_once(tmp_path: Path) -> None:
    path = tmp_path / "model.pyframe"
    big = torch.nn.Linear(256, 256).eval()

    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = self.second = big

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x))

    pyframe.package(Twice().eval(), (torch.rand(2, 256),), path, targets=["generic"])
    assert path.stat().st_size < 1.5 * big.weight.nbytes
    package = pyframe.load(path)
    assert set(package.constants) == {"second.weight", "second.bias"} or set(package.constants) == {
        "first.weight", "first.bias"}  # fmt: skip
    assert all(x.data_ptr() % 64 == 0 for x in package.constants.values())


def test_a_program_without_the_classes_of_the_results_gets_dicts(tmp_path: Path) -> None:
    path = tmp_path / "model.pyframe"
    make, arguments = PROGRAMS["nested"]
    args, kwargs = arguments()
    pyframe.package(make(), args, path, kwargs=kwargs, targets=["generic"])
    program = (
        "import sys, torch, pyframe\n"
        "got = pyframe.load(sys.argv[1])(torch.ones(4, 5), options={'shift': torch.ones(5), 'more': [torch.ones(2)]}, n=3)\n"
        "assert type(got['pair']) is dict and list(got['pair']) == ['left', 'right'], got\n"
        "assert type(got['named']) is dict and got['named']['second'] is True, got\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, cwd=ROOT)


def test_calls_from_c(tmp_path: Path, programs: Path) -> None:
    path = tmp_path / "model.pyframe"
    pyframe.package(lambda x: x * 2 + 1, (torch.rand(3),), path)
    done = subprocess.run([programs / "call_package", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == pyframe.load(path).target


@pytest.mark.parametrize("dynamic", [None, {0: 0}])
def test_eight_threads_call_one_package(dynamic: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.pyframe"
    model = Mlp().eval()
    pyframe.package(model, (torch.rand(4, 24),), path, dynamic=dynamic)
    package = pyframe.load(path)
    inputs = [torch.rand(4 if dynamic is None else 4 + k, 24) for k in range(8)]
    wanted = [package(x) for x in inputs]
    package = pyframe.load(path)  # none of its sizes is ready
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            for got, want in zip(pool.map(package, inputs), wanted, strict=True):
                assert got.equal(want)


def test_leaves_of_arguments_that_the_function_does_not_read(tmp_path: Path, programs: Path) -> None:
    path = tmp_path / "model.pyframe"
    pyframe.package(lambda x, unused, y: (y - x, x), (torch.rand(3), torch.rand(2), torch.rand(3)), path)
    args = torch.rand(3), torch.rand(5, 5), torch.rand(3)
    got = pyframe.load(path)(*args)
    assert got[0].equal(args[2] - args[0]) and got[1] is args[0]
    cpp, _ = run_cpp(programs, tmp_path, path, args)
    assert cpp[0].equal(got[0]) and cpp[1].equal(args[0])


def test_transformers(tmp_path: Path, programs: Path) -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=99)
    model = BertModel(config).eval()
    path = tmp_path / "bert.pyframe"
    pyframe.package(model, (torch.randint(99, (2, 8)),), path)
    ids = torch.randint(99, (2, 8))
    with torch.no_grad():
        want = model(ids)
    got = pyframe.load(path)(ids)
    assert type(got) is type(want)
    torch.testing.assert_close(got.last_hidden_state, want.last_hidden_state)
    cpp, _ = run_cpp(programs, tmp_path, path, (ids,))
    for a, b in zip(cpp, pytree.tree_leaves(got), strict=True):
        assert a.equal(b)
