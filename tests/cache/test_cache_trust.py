"""What others could have put into the cache is not used, and whatever odd thing is in it is a miss."""

import os
import pickle
import signal
import stat
import subprocess
import sys
import warnings

import pytest
import torch
from torch import fx

import inductor
import inductor.assembly
from inductor.artifact import Artifact
from inductor.cache import graph_store, private
from inductor.cache.file_store import Cache, content_key

KEY = content_key("a", "key")
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may give files to other users")


def used(store):
    """Whether an entry that is put is in the directory, with the warnings given."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        path = store.put_file(KEY, ".so", b"elf")
        assert store.get(KEY, ".so") == b"elf"
    assert path.parent.stat().st_mode & 0o077 == 0
    return store.directory.resolve() in path.parents, " ".join(str(w.message) for w in seen)


def test_a_new_directory_is_for_this_user_alone(tmp_path):
    before = os.umask(0)
    try:
        store = Cache(tmp_path / "a" / "cache")
        store.put(KEY, b"x")
        with store.claimed(KEY, ".so"):
            pass
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(p.lstat().st_mode) for p in (store.directory, store.directory.parent, *store.directory.rglob("*")) if p.is_dir()]
    assert len(modes) == 4 and set(modes) == {0o700}


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777, 0o720, 0o702])
def test_a_directory_that_others_may_write_is_refused(tmp_path, mode):
    store = Cache(tmp_path / "cache")
    store.put(KEY, b"x", ".so")
    os.chmod(store.directory, mode)
    again = Cache(store.directory)
    with pytest.warns(UserWarning, match="others may write"):
        assert again.get(KEY, ".so") is None
    inside, _ = used(again)
    assert not inside


@as_root
def test_a_directory_of_another_user_is_refused(tmp_path):
    store = Cache(tmp_path / "cache")
    store.put(KEY, b"x", ".so")
    os.chown(store.directory, 54321, -1)
    inside, warned = used(Cache(store.directory))
    assert not inside and "belongs to another user (54321)" in warned


@pytest.mark.parametrize("mode, group, is_used", [
    (0o777, -1, False), pytest.param(0o770, 54321, False, marks=as_root), (0o1777, -1, True), (0o755, -1, True),
])  # fmt: skip
def test_the_directories_above_it_matter(tmp_path, mode, group, is_used):
    (tmp_path / "above").mkdir()
    os.chown(tmp_path / "above", -1, group)
    os.chmod(tmp_path / "above", mode)
    inside, warned = used(Cache(tmp_path / "above" / "cache"))
    assert inside is is_used and ("others may replace" in warned) is not is_used


def test_a_link_to_the_directory_is_followed_and_what_it_leads_to_is_checked(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert used(Cache(tmp_path / "link"))[0]
    os.chmod(tmp_path / "real", 0o777)
    assert not used(Cache(tmp_path / "link"))[0]


def to_link(path):
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def to_pipe(path):
    path.unlink()
    os.mkfifo(path)


def to_folder(path):
    path.unlink()
    path.mkdir()


def other_name(path):
    path.with_name(content_key("other") + path.suffix).write_bytes(path.read_bytes())
    path.unlink()


@pytest.mark.parametrize("change", [
    to_link, to_pipe, to_folder, other_name, lambda path: os.chmod(path, 0o666),
    pytest.param(lambda path: os.chown(path, 54321, -1), marks=as_root),
    lambda path: os.truncate(path, 10), lambda path: path.write_bytes(os.urandom(100)),
])  # fmt: skip
def test_an_entry_that_is_no_plain_file_of_this_user_is_a_miss(tmp_path, change):
    store = Cache(tmp_path / "cache")
    path = store.put_file(KEY, ".so", b"x" * 100)
    change(path)
    assert store.get(KEY, ".so") is None and store.get_file(KEY, ".so") is None
    assert store.get(content_key("other"), ".so") is None


def test_a_directory_that_vanishes_meanwhile_is_made_again(tmp_path):
    import shutil

    store = Cache(tmp_path / "cache")
    for _ in range(3):
        store.put(KEY, b"x")
        assert store.get(KEY) == b"x"
        shutil.rmtree(store.directory)
        store.trim()
        assert store.get(KEY) is None


# ---- compiled graphs


class Evil:
    """Runs code where it is unpickled."""

    def __reduce__(self):
        return exec, ("import builtins; builtins.evil_ran = True",)


def graphs():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.sin, (graph.call_function(torch.add, (x, 1)),)),))
    return fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize("data", [
    b"", b"garbage", pickle.dumps(Evil()), pickle.dumps(subprocess.Popen), pickle.dumps(7), pickle.dumps(os.system),
    b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.", b"cinductor.compile\nnothing\n.", b"cos\nsystem\n(S'true'\ntR.",
    b"cinductor.runtime.triton_build\n_Worker\n(tR.", b"cinductor.runtime.cache\nos.system\n(S'true'\ntR.",
])  # fmt: skip
def test_bytes_that_are_no_graph_are_a_miss_and_run_nothing(data, tmp_path, monkeypatch):
    import builtins

    assert graph_store.load(data, Artifact) is None and not hasattr(builtins, "evil_ran")
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))
    gm, x = graphs(), torch.randn(4)
    inductor.compile_fx(gm, [x])
    (entry,) = tmp_path.glob("??/*.graph")
    Cache(tmp_path).put(entry.stem, data, ".graph")  # with a right checksum
    again = graphs()
    torch.testing.assert_close(inductor.compile_fx(again, [x])(x)[0], (x + 1).sin())
    assert again.meta["compile_report"].cache == "miss" and again.meta["compile_report"].fallback is None


def test_tensors_come_back_as_they_were():
    for x in (torch.arange(6.0).reshape(2, 3).t(), torch.tensor(3), torch.empty(0, 4), torch.tensor([True, False]),
              torch.randn(2, 3, dtype=torch.bfloat16), torch.ones(1).expand(3), torch.randn(2, dtype=torch.complex64)):  # fmt: skip
        back = graph_store.load(graph_store.dump(x), torch.Tensor)
        assert torch.equal(back, x) and back.stride() == x.stride() and back.dtype == x.dtype


def test_a_library_that_vanishes_before_it_is_loaded_is_built_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))
    build_all, times = inductor.assembly.build_all, []

    def build_and_lose(sources, **options):
        found = build_all(sources, **options)
        times.append(1)
        if len(times) == 1:
            found[0].unlink()
        return found

    monkeypatch.setattr(inductor.assembly, "build_all", build_and_lose)
    gm, x = graphs(), torch.randn(4)
    torch.testing.assert_close(inductor.compile_fx(gm, [x])(x)[0], (x + 1).sin())
    assert len(times) == 2 and gm.meta["compile_report"].fallback is None


# ---- what dead processes leave


def test_directories_of_dead_processes_are_swept(tmp_path):
    program = "import time; from inductor.cache.private import private_folders as f; print(next(f()), flush=True); time.sleep(99)"
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    processes = [subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True) for _ in "ab"]
    dead, alive = (process.stdout.readline().strip() for process in processes)
    (tmp_path / "pyframe-being-made").mkdir()
    (tmp_path / "pyframe-a-file").write_text("")
    try:
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait()
        assert os.path.isdir(dead) and os.path.isdir(alive)
        private.sweep(str(tmp_path))
        left = {"pyframe-being-made", "pyframe-a-file", os.path.basename(alive)}
        assert {p.name for p in tmp_path.iterdir()} == left
    finally:
        processes[1].kill()
        processes[1].wait()


def test_a_directory_that_is_being_made_is_not_swept(tmp_path, monkeypatch):
    lock = private.fcntl.flock

    def sweep_before_locking(descriptor, how):
        monkeypatch.setattr(private.fcntl, "flock", lock)
        private.sweep(str(tmp_path))
        lock(descriptor, how)

    monkeypatch.setattr(private.fcntl, "flock", sweep_before_locking)
    folder = private._make(str(tmp_path))
    private.sweep(str(tmp_path))
    assert folder.is_dir()


def test_a_directory_that_was_removed_is_made_again():
    folder = next(private.private_folders())
    private.shutil.rmtree(folder)
    assert next(private.private_folders()).is_dir()
