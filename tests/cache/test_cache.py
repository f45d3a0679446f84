"""The store under bad luck: damage, refusal, crowds, and the cap on its size. None of it needs torch."""

import errno
import os
import subprocess
import sys
import threading
import time
import warnings

import pytest

from inductor.cache import claims, private
from inductor.cache import file_store as cache_module
from inductor.cache.file_store import Cache, content_key, default_directory

KEY = content_key("a", "key")


@pytest.fixture
def store(tmp_path):
    return Cache(tmp_path / "cache")


def other_process(code, **options):
    """Runs code in a new process that has `Cache`; gives its output."""
    program = "import os, sys, time, warnings\nfrom pathlib import Path\nfrom inductor.cache.file_store import *\n" + code
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def age(path, seconds=10_000):
    os.utime(path, (time.time() - seconds,) * 2)


def test_what_is_put_is_got(store):
    assert store.get(KEY) is None and store.get_file(KEY, ".so") is None
    store.put(KEY, b"")
    store.put(KEY, b"other suffix", ".graph")
    path = store.put_file(KEY, ".so", b"elf" * 1000)
    again = Cache(store.directory)
    assert (again.get(KEY), again.get(KEY, ".graph")) == (b"", b"other suffix")
    assert again.get_file(KEY, ".so") == path and path.read_bytes().startswith(b"elf" * 1000)


def test_keys_tell_lists_of_parts_apart():
    assert len({content_key("ab", "c"), content_key("a", "bc"), content_key("abc"), content_key(b"abc", "")}) == 4


@pytest.mark.parametrize("damage", [
    lambda data: b"", lambda data: data[:1], lambda data: data[: len(data) // 2], lambda data: data[:-1],
    lambda data: bytes([data[0] ^ 1]) + data[1:], lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    lambda data: data + b"x", lambda data: os.urandom(len(data)),
])
def test_damaged_entries_are_misses_and_are_made_again(store, damage):
    path = store.put_file(KEY, ".so", b"elf" * 100)
    path.write_bytes(damage(path.read_bytes()))
    assert store.get_file(KEY, ".so") is None and store.get(KEY, ".so") is None
    made = []
    assert store.get_or_make_file(KEY, ".so", lambda: made.append(1) or b"new") == path
    assert made and store.get(KEY, ".so") == b"new"


def test_a_file_that_is_no_entry_is_not_read_however_long(store):
    path = store.put_file(KEY, ".so", b"elf")
    os.truncate(path, 1 << 42)  # 4 TiB, of which the disk holds nothing
    assert store.get(KEY, ".so") is None


def test_an_entry_that_is_a_directory_is_a_miss(store):
    path = store.put_file(KEY, ".so", b"x")
    path.unlink()
    path.mkdir()
    assert store.get_file(KEY, ".so") is None
    with pytest.warns(UserWarning, match="cannot write"):
        assert store.get_or_make_file(KEY, ".so", lambda: b"y").read_bytes().startswith(b"y")


def test_a_directory_that_cannot_be_made_is_one_warning(tmp_path):
    (tmp_path / "file").write_text("")
    first, second = Cache(tmp_path / "file" / "a"), Cache(tmp_path / "file" / "b")
    with pytest.warns(UserWarning, match="cannot write to the cache .*file/a.*Not a directory") as seen:
        first.put(KEY, b"data")
        path = first.get_or_make_file(KEY, ".so", lambda: b"elf")
        second.put(content_key("b"), b"second")
    assert len(seen) == 1
    assert first.get(KEY) == b"data" and first.get_file(KEY, ".so") == path
    assert second.get(content_key("b")) == b"second"
    assert path.stat().st_uid == os.getuid() and path.parent.parent.stat().st_mode & 0o77 == 0


def test_a_read_only_directory_still_serves(store, monkeypatch):
    store.put(KEY, b"old")
    other = content_key("other")

    def refuse(path, data, replace=cache_module.replace_file):
        if store.directory in path.parents:
            raise OSError(errno.EROFS, "Read-only file system")
        replace(path, data)

    monkeypatch.setattr(cache_module, "replace_file", refuse)
    opened = os.open

    def refuse_to_create(path, flags, *args, **kwargs):
        if flags & os.O_CREAT and store.directory in cache_module.Path(path).parents:
            raise OSError(errno.EROFS, "no")
        return opened(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse_to_create)
    again = Cache(store.directory)
    with pytest.warns(UserWarning, match="Read-only") as seen:
        again.put(other, b"new")
        again.get_or_make_file(other, ".so", lambda: b"elf")
    assert len(seen) == 1 and again.get(KEY) == b"old" and again.get(other) == b"new"


def test_a_full_disk_is_one_warning_and_memory_serves(store, monkeypatch, tmp_path):
    def full(path, data, replace=cache_module.replace_file):
        if not str(path).startswith("/dev/shm/"):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(path, data)

    monkeypatch.setattr(cache_module, "replace_file", full)
    with pytest.warns(UserWarning, match="No space left") as seen:
        store.put(KEY, b"data")
        path = store.put_file(KEY, ".so", b"elf")
    assert len(seen) == 1 and store.get(KEY) == b"data" and str(path).startswith("/dev/shm/")


def test_where_nothing_can_be_written_puts_are_forgotten_and_files_are_errors(tmp_path):
    out = other_process(f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))
store = Cache(Path({str(tmp_path)!r}))
store.put("ab", b"data" * 100)
print(store.get("ab"))
try:
    store.put_file("ab", ".so", b"data" * 100)
except OSError as error:
    print("OSError", error)
print([p.name for p in Path({str(tmp_path)!r}).rglob("*.tmp")])
""")
    assert "None\nOSError" in out and "File too large" in out and "[]" in out and out.count("UserWarning") == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become a user that does not exist")
def test_a_user_without_name_and_home(tmp_path):
    os.chmod(tmp_path, 0o755)
    env = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME", "PYFRAME_CACHE_DIR")}
    out = other_process("""
os.setuid(54321)
store = shared_cache()
store.put("ab", b"data")
path = store.get_or_make_file("ab", ".so", lambda: b"elf")
print(default_directory(), store.get("ab"), store.get_file("ab", ".so") == path)
""", env=env)
    assert "None b'data' True" in out and out.count("no home directory") == 1


@pytest.mark.skipif(os.getuid() != 0, reason="a user's own rights are what is taken away")
def test_a_home_of_somebody_else(tmp_path):
    env = {**os.environ, "HOME": "/root", "PYFRAME_CACHE_DIR": "", "XDG_CACHE_HOME": "relative/is/ignored"}
    out = other_process("""
os.setuid(54321)
store = shared_cache()
store.put("ab", b"data")
print(store.get("ab"))
""", env=env)
    assert "b'data'" in out and out.count("Permission denied") == 1 and "/root/.cache/pyframe" in out


def test_private_directories_end_with_the_process_that_made_them():
    out = other_process("""
from inductor.cache.private import private_folders
folders = list(private_folders())
if os.fork() == 0:
    sys.exit(0)
os.wait()
assert folders and all(f.is_dir() for f in folders)
print(*folders)
""")
    assert out.split() and not any(os.path.exists(name) for name in out.split())


def test_the_default_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))
    assert default_directory() == tmp_path
    monkeypatch.delenv("PYFRAME_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "pyframe"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".cache" / "pyframe"


# ---- the cap


def test_what_was_used_longest_ago_goes_first(tmp_path):
    store = Cache(tmp_path, max_bytes=3500)
    keys = [content_key(str(i)) for i in range(6)]
    paths = [store.put_file(key, ".so", bytes(1000)) for key in keys]
    for i, path in enumerate(paths):
        age(path, 100_000 - i)
    store.get_file(keys[0], ".so")
    age(paths[0], 50_000)
    store.trim()
    assert [store.get_file(key, ".so") is not None for key in keys] == [True, False, False, False, True, True]


def test_entries_in_use_stay_whatever_their_size(tmp_path):
    store = Cache(tmp_path, max_bytes=0)
    path = store.put_file(KEY, ".so", bytes(1000))
    store.trim()
    assert path.exists()
    age(path)
    store.trim()
    assert not path.exists()


@pytest.mark.parametrize("put", ["put", "put_file"])
def test_writing_many_trims(tmp_path, put):
    store = Cache(tmp_path, max_bytes=20_000)
    for i in range(200):
        key = content_key(str(i))
        path = store.put_file(key, ".bin", bytes(1000)) if put == "put_file" else store.put(key, bytes(1000))
        path = path or store.get_file(key, ".bin")
        age(path)
    assert sum(p.stat().st_size for p in tmp_path.glob("??/*")) < 20_000 + 66 * 1100


def test_short_processes_trim_too(tmp_path):
    store = Cache(tmp_path, max_bytes=0)
    path = store.put_file(KEY, ".so", b"x")
    age(path)
    Cache(tmp_path, max_bytes=0).put(content_key("b"), b"y")
    assert path.exists()  # the last look was a moment ago
    age(tmp_path / "trimmed")
    Cache(tmp_path, max_bytes=0).put(content_key("c"), b"y")
    assert not path.exists()


def test_trim_removes_what_killed_writers_left(store):
    left = store.put_file(KEY, ".so", b"x").parent / ".abc.tmp"
    left.write_bytes(b"half")
    store.trim()
    assert left.exists()
    age(left)
    store.trim()
    assert not left.exists()


def test_trim_and_clear_remove_entries_only(tmp_path):
    store = Cache(tmp_path, max_bytes=0)
    path = store.put_file(KEY, ".so", bytes(1000))
    foreign = [tmp_path / "en" / "words.txt", path.parent / "notes.txt", path.parent / f"{content_key('other')}.so"]
    for each in foreign:
        each.parent.mkdir(exist_ok=True)
        each.write_bytes(bytes(1000))
        age(each)
    assert store.trim() == 0  # the entry was used a moment ago
    assert [found for found, _ in store.entries()] == [path]
    size = path.stat().st_size
    assert store.clear() == size and not path.exists()
    path = store.put_file(KEY, ".so", bytes(1000))
    age(path)
    assert store.trim() == size and store.entries() == []
    assert all(each.exists() for each in foreign)


@pytest.mark.parametrize("text, bytes_", [("123", 123), ("", 2 << 30), ("2GB", 2 << 30)])
def test_the_cap_comes_from_the_environment(monkeypatch, tmp_path, text, bytes_):
    monkeypatch.setenv("PYFRAME_CACHE_MAX_BYTES", text)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert Cache(tmp_path).max_bytes == bytes_
    assert len(seen) == (text == "2GB")


# ---- crowds


def test_many_processes_make_an_entry_once(tmp_path):
    code = f"""
def make():
    (Path({str(tmp_path)!r}) / f"made-{{os.getpid()}}").touch()
    time.sleep(0.3)
    return b"elf" * 1000
(Path({str(tmp_path)!r}) / f"ready-{{os.getpid()}}").touch()
while not (Path({str(tmp_path)!r}) / "go").exists():
    time.sleep(0.001)
path = Cache(Path({str(tmp_path / 'cache')!r})).get_or_make_file({KEY!r}, ".so", make)
assert path.read_bytes().startswith(b"elf" * 1000)
"""
    program = "import os, time\nfrom pathlib import Path\nfrom inductor.cache.file_store import *\n" + code
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(4)]
    while len(list(tmp_path.glob("ready-*"))) < 4:
        assert all(p.poll() is None for p in running)
        time.sleep(0.01)
    (tmp_path / "go").touch()
    assert [p.wait(200) for p in running] == [0] * 4
    assert len(list(tmp_path.glob("made-*"))) == 1


def test_writers_of_one_entry_never_show_half_of_it(tmp_path):
    program = f"""
import sys
from pathlib import Path
from inductor.cache.file_store import *
store = Cache(Path({str(tmp_path)!r}))
for i in range(300):
    store.put({KEY!r}, sys.argv[1].encode() * (1 + i * 50))
"""
    running = [subprocess.Popen([sys.executable, "-c", program, letter]) for letter in "ab"]
    store, seen = Cache(tmp_path), set()
    while any(p.poll() is None for p in running):
        data = store.get(KEY)
        if data is None:
            assert not seen
        else:
            assert len(set(data)) == 1
            seen.add(data[:1])
    assert [p.wait() for p in running] == [0, 0] and store.get(KEY)
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_claim_of_a_process_that_is_gone_is_taken_over(store):
    other_process(f"""
store = Cache(Path({str(store.directory)!r}))
with store.claimed({KEY!r}, ".so"):
    os._exit(0)
""")
    assert claims_in(store) == [f"{KEY}.so"]
    start = time.monotonic()
    assert store.get_or_make_file(KEY, ".so", lambda: b"x").exists()
    assert time.monotonic() - start < 5 and not claims_in(store)


@pytest.mark.parametrize("content", ["1 another-machine pid:[1]", "", "x y z", "{pid} another-machine"])
def test_a_claim_of_another_machine_is_waited_for_only_so_long(store, monkeypatch, content):
    monkeypatch.setattr(claims, "WAIT_SECONDS", 0.2)
    store.put(content_key("other"), b"")
    (store.directory / "claims").mkdir(mode=0o700)
    path = store.directory / "claims" / f"{KEY}.so"
    path.touch(mode=0o600)
    path.write_text(content.replace("{pid}", str(os.getpid())))
    start = time.monotonic()
    assert store.get_or_make_file(KEY, ".so", lambda: b"x").exists()
    assert time.monotonic() - start >= 0.2 and not claims_in(store)


def test_a_thread_waits_for_another_one(store):
    made = []

    def make():
        made.append(1)
        time.sleep(0.1)
        return b"x"

    threads = [threading.Thread(target=store.get_or_make_file, args=(KEY, ".so", make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1] and store.get(KEY, ".so") == b"x"


def test_those_that_wait_for_one_that_fails_make_the_entry_at_the_same_time(store):
    entered = threading.Barrier(3)

    def make():
        entered.wait(10)  # all of those that waited are here
        return b"x"

    with pytest.raises(ZeroDivisionError), store.claimed(KEY, ".so"):
        threads = [threading.Thread(target=store.get_or_make_file, args=(KEY, ".so", make)) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        assert all(thread.is_alive() for thread in threads)
        1 / 0
    for thread in threads:
        thread.join()
    assert store.get(KEY, ".so") == b"x" and not claims_in(store)


def test_no_process_waits_while_others_make_other_entries(store):
    other = KEY[:2] + content_key("other")[2:]
    with store.claimed(KEY, ".so"), store.claimed(KEY, ".graph"):
        start = time.monotonic()
        assert store.get_or_make_file(other, ".so", lambda: b"x").exists()
        assert time.monotonic() - start < 5


def test_claims_that_were_left_are_removed_some_day(store):
    store.put(KEY, b"")
    (store.directory / "claims").mkdir(mode=0o700)
    for name, seconds in (("old", 10_000), ("new", 0)):
        (store.directory / "claims" / name).touch()
        age(store.directory / "claims" / name, seconds)
    store.trim()
    assert claims_in(store) == ["new"]


def test_the_claim_is_released_when_making_fails(store):
    with pytest.raises(ZeroDivisionError):
        store.get_or_make_file(KEY, ".so", lambda: 1 / 0)
    assert not claims_in(store)
    assert store.get_or_make_file(KEY, ".so", lambda: b"x").exists()


def claims_in(store):
    return [path.name for path in (store.directory / "claims").glob("*")]


def test_replacing_a_file_cleans_up_after_itself(tmp_path):
    with pytest.raises(TypeError):
        private.replace_file(tmp_path / "x", "not bytes")
    assert not list(tmp_path.iterdir())
