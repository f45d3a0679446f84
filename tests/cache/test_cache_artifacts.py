"""Cache entries as bytes: a process on another machine compiles nothing that is in them."""

import os

import forked_python
import pytest

import pyframe
from inductor.cache.artifacts import pack, unpack
from inductor.cache.file_store import Cache, content_key

PROGRAM = """
import sys
from pathlib import Path
import torch
import pyframe, inductor.generate as pipeline
from inductor.runtime.processes import Processes

file = Path(sys.argv[1])
if file.exists():
    def never(*args, **options):
        raise AssertionError("compiles")
    pipeline.to_joint = pipeline.partition = pipeline.lower_graph = pipeline.schedule = pipeline.codegen = never
    assert pyframe.load_cache_artifacts(file.read_bytes()) > 3
    Processes.run = never
assert not pyframe.save_cache_artifacts() or file.exists()
f = pyframe.compile(lambda x: (x.sin() * 3).sum(), options={"strict": True})
x = torch.arange(12.).requires_grad_()
torch.testing.assert_close(f(x.detach()), (x.detach().sin() * 3).sum())
f(x).backward()
torch.testing.assert_close(x.grad, x.detach().cos() * 3)
if not file.exists():
    file.write_bytes(pyframe.save_cache_artifacts())
"""


def test_another_machine_compiles_nothing(tmp_path):
    for cache in ("first", "second"):
        environment = {**os.environ, "PYFRAME_CACHE_DIR": str(tmp_path / cache)}
        done = forked_python.run(PROGRAM, arguments=[str(tmp_path / "artifacts")], environment=environment)
        assert done.returncode == 0, done.stderr


def test_only_what_was_used_is_packed(tmp_path):
    first, second = Cache(tmp_path / "a"), Cache(tmp_path / "b")
    read, written, other, gone = (content_key(name) for name in ("read", "written", "other", "gone"))
    for key in (read, other):
        Cache(tmp_path / "a").put(key, key.encode())
    assert pack(first) is None
    assert first.get(read) and first.get(content_key("absent")) is None
    first.put(written, b"", ".so")
    first.put(gone, b"x")
    for path, _ in first.entries():
        if path.stem == gone:
            path.unlink()
    assert unpack(second, pack(first)) == 2
    assert second.get(read) == read.encode() and second.get(written, ".so") == b"" and second.get(other) is None
    assert unpack(Cache(tmp_path / "c"), pack(second)) == 2


def test_entries_that_exist_are_kept(tmp_path):
    first, second = Cache(tmp_path / "a"), Cache(tmp_path / "b")
    first.put(content_key("key"), b"first")
    second.put(content_key("key"), b"second")
    assert unpack(second, pack(first)) == 1
    assert second.get(content_key("key")) == b"second"


@pytest.mark.parametrize("change", [
    lambda data: b"", lambda data: data[:-1], lambda data: data[:20], lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    lambda data: b"x" + data, lambda data: data + b"x",
], ids=["empty", "cut", "header", "flipped", "before", "after"])  # fmt: skip
def test_damaged_bytes_are_refused(tmp_path, change):
    first = Cache(tmp_path / "a")
    first.put(content_key("key"), b"contents")
    with pytest.raises(pyframe.UserError, match="load_cache_artifacts"):
        pyframe.load_cache_artifacts(change(pack(first)))
