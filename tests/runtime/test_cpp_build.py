"""From a source to code that runs, and every way in which that may fail: each is a BuildError that says why."""

import ctypes
import errno
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from inductor.cache import private
from inductor.cache.file_store import Cache
from inductor.runtime import cpp_build
from inductor.runtime.cpp_build import BuildError, build, build_all, kernel_addresses, load

SOURCE = 'extern "C" int %s() { return %d; }'


@pytest.fixture
def store(tmp_path):
    return Cache(tmp_path / "cache")


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Makes a shell script the compiler: `$real` is the real one, `$log` a file of ours."""
    log = tmp_path / "log"
    log.touch()

    def install(script):
        path = tmp_path / "compiler"
        path.write_text(f"#!/bin/sh\nreal=g++\nlog={log}\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("CXX", str(path))
        return log

    return install


def call(path, name):
    address, = kernel_addresses([path], [name])
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def test_sources_become_functions(store):
    paths = build_all([SOURCE % (f"f{i}", i) for i in (1, 2, 1)], store)
    assert paths[0] == paths[2] != paths[1]
    assert [call(path, name) for path, name in zip(paths, ("f1", "f2", "f1"))] == [1, 2, 1]
    assert build_all([], store) == []
    with pytest.raises(BuildError, match="no library defines the kernel nothing"):
        kernel_addresses(paths, ["nothing"])


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", None])
def test_a_damaged_library_is_built_again(store, damage):
    path = build(SOURCE % ("f", 7), store)
    path.write_bytes(path.read_bytes()[:-1] if damage is None else damage)
    assert call(build(SOURCE % ("f", 7), store), "f") == 7


# ---- SLEEF, which is in torch's library


SINE = f"""{cpp_build.USE_SLEEF}#include <vec.h>
extern "C" int f() {{ vf x = sin_(bcast(1.0f)); return (int)(x[W - 1] * 1000); }}"""


def test_sources_that_ask_for_sleef_are_loaded_with_torchs(store):
    assert call(build(SINE, store), "f") == 841
    torchs = ctypes.CDLL(str(cpp_build._torch_library()))
    symbols = cpp_build._sleef_symbols()
    assert "Sleef_sinf16_u10" in symbols and "Sleef_tanf8_u10" in symbols and "Sleef_powf8_u10" in symbols
    if platform.machine() == "x86_64":
        assert [name for name in symbols if not hasattr(torchs, name)] == []


def test_where_there_is_no_stand_in_for_torchs_library(store, compiler):
    compiler('case "$*" in *soname*) exit 3;; esac; exec $real "$@"')
    assert call(build(SINE, store), "f") == 841


def test_a_stand_in_that_cannot_be_linked_with(store, compiler):
    compiler('case "$*" in *stand_in.cpp*) for last; do :; done; echo text > "$last"; exit;; esac; exec $real "$@"')
    assert call(build(SINE, store), "f") == 841


# ---- compilers that are not there, or fail


@pytest.mark.parametrize("chosen, why", [
    ("/nonexistent/c++", "does not exist"), ("no-such-compiler -O1", "does not exist"), ("g++ '", "is not a command"),
])
def test_a_compiler_that_is_not_there(store, monkeypatch, chosen, why):
    monkeypatch.setenv("CXX", chosen)
    with pytest.raises(BuildError, match=why):
        build(SOURCE % ("f", 1), store)


def test_no_compiler_at_all(store, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", " ")
    cpp_build.find_compiler.cache_clear()
    with pytest.raises(BuildError, match=r"install g\+\+ or clang\+\+, or set \$CXX"):
        build(SOURCE % ("f", 1), store)


def test_a_compiler_that_went_away(store, compiler, tmp_path):
    compiler('exec $real "$@"')
    build(SOURCE % ("f", 1), store)
    (tmp_path / "compiler").unlink()
    with pytest.raises(BuildError, match="cannot be used.*No such file"):
        build(SOURCE % ("f", 2), store)


def test_a_compiler_with_flags(store, monkeypatch):
    monkeypatch.setenv("CXX", "g++ -DNUMBER=5")
    assert call(build('extern "C" int f() { return NUMBER; }', store), "f") == 5
    monkeypatch.setenv("CXX", "g++ -DNUMBER=6")
    assert call(build('extern "C" int f() { return NUMBER; }', store), "f") == 6


@pytest.mark.parametrize("source, why", [
    ("#include <no_such_header.h>\n", r"failed \(exit status 1\): .*no_such_header.h"), ("int f( {", "expected"),
    ("#error \xff\n", "error"),
])
def test_a_source_that_is_refused(store, source, why):
    with pytest.raises(BuildError, match=why):
        build(source, store)


@pytest.mark.parametrize("script, why", [
    ("exec $real --no-such-flag \"$@\"", "no-such-flag"),
    ("printf '\\377\\376 bad bytes' >&2; exit 3", r"exit status 3\): .*bad bytes"),
    ("exit 0", "made no library"),
    ("kill -9 $$", "killed by SIGKILL.*memory"),
    ("kill -SEGV $$", "killed by SIGSEGV"),
])
def test_a_compiler_that_fails(store, compiler, script, why):
    compiler(f'case "$*" in *--version*) echo 1; exit;; esac\n{script}')
    with pytest.raises(BuildError, match=why):
        build(SOURCE % ("f", 1), store)


def test_where_the_optimizer_fails_a_source_is_built_with_less(store, compiler):
    compiler('case "$*" in *--version*|*-O1*) exec $real "$@";; esac\necho internal compiler error >&2; exit 1')
    assert call(build(SOURCE % ("f", 5), store), "f") == 5


def test_a_file_that_is_no_program(store, compiler, tmp_path):
    compiler("")
    (tmp_path / "compiler").write_bytes(b"\x7fELF not really")
    with pytest.raises(BuildError, match="did not run: .*Exec format error"):
        build(SOURCE % ("f", 1), store)


def test_what_the_compiler_makes_may_be_no_library(store, compiler):
    compiler('case "$*" in *--version*) exit;; esac; for last; do :; done; echo text > "$last"')
    with pytest.raises(BuildError, match="cannot load .*(too short|invalid ELF)"):
        load(build(SOURCE % ("f", 1), store))


def test_a_compiler_that_hangs_ends_with_all_that_it_started(store, compiler, monkeypatch):
    log = compiler('case "$*" in *--version*) exit;; esac; sleep 1000 & echo $! > $log; wait')
    monkeypatch.setattr(cpp_build, "_TIMEOUT_SECONDS", 2)  # enough to start a shell
    start = time.monotonic()
    with pytest.raises(BuildError, match="did not finish in 2 seconds"):
        build(SOURCE % ("f", 1), store)
    assert time.monotonic() - start < 200  # and not 1000
    assert not is_running(int(log.read_text()))


def is_running(pid):
    for _ in range(2000):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] in "ZX":
                    return False
        except OSError:
            return False
        time.sleep(0.05)
    return True


def test_the_users_interrupt_ends_the_compilers(tmp_path, compiler):
    log = compiler('case "$*" in *--version*) exit;; esac; echo $$ >> $log; exec sleep 1000')
    program = f"""
import signal
from pathlib import Path
from inductor.cache import private
from inductor.runtime import cpp_build
from inductor.cache.file_store import Cache
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it from the start
cpp_build._processors = lambda: 2
cpp_build.build_all(["int a;", "int b;"], Cache(Path({str(tmp_path)!r})))
"""
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    while len(log.read_text().split()) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate(timeout=200)[1]
    assert not any(is_running(int(pid)) for pid in log.read_text().split())


# ---- many at once


def test_independent_sources_are_built_at_the_same_time(store, compiler, monkeypatch):
    monkeypatch.setattr(cpp_build, "_processors", lambda: 2)
    log = compiler(
        'case "$*" in *--version*) exit;; esac; echo x >> $log; n=0\n'
        'while [ $(wc -l < $log) -lt 2 ]; do sleep 0.05; n=$((n+1)); [ $n -gt 400 ] && exit 9; done\nexec $real "$@"')
    paths = build_all([SOURCE % ("f", 1), SOURCE % ("g", 2)], store)
    assert [call(paths[0], "f"), call(paths[1], "g")] == [1, 2] and len(log.read_text().split()) == 2


def test_one_that_fails_stops_the_others(store, compiler, monkeypatch):
    monkeypatch.setattr(cpp_build, "_processors", lambda: 2)
    compiler('case "$*" in *--version*) exit;; esac; grep -q fails "$1" && exit 7; exec sleep 1000')
    start = time.monotonic()
    with pytest.raises(BuildError, match="exit status 7"):
        build_all(["// slow 1", "// fails", "// slow 2", "// slow 3"], store)
    assert time.monotonic() - start < 200  # and not 1000


# ---- the key


def test_a_warm_process_starts_no_compiler(tmp_path, compiler):
    log = compiler('echo "$@" >> $log; exec $real "$@"')
    program = f"""
import subprocess
from pathlib import Path
from inductor.cache.file_store import Cache
from inductor.runtime.cpp_build import *
store = Cache(Path({str(tmp_path / "cache")!r}))
print(build({SOURCE % ("f", 1)!r}, store), kernel_addresses([build({SOURCE % ("f", 1)!r}, store)], ["f"]) != [0])
"""
    outputs = []
    for _ in range(2):
        outputs.append(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        assert [line.split()[0] == "--version" for line in log.read_text().splitlines()] == [True, False]
    assert outputs[0] == outputs[1]


def test_another_compiler_at_the_same_path_is_another_key(store, compiler):
    script = 'case "$*" in *--version*) echo %s; exit;; esac; exec $real "$@"'
    keys = []
    for version in ("one", "two", "one"):
        compiler(script % version)
        os.utime(os.environ["CXX"], ns=(len(keys), len(keys)))
        keys.append(cpp_build.build_key("", store))
    assert keys[0] != keys[1] and keys[0] == keys[2]


def test_a_compiler_that_does_not_tell_its_version_is_asked_again(tmp_path, compiler):
    log = compiler("echo x >> $log; exit 1")
    for count in (1, 2):
        cpp_build.build_key("", Cache(tmp_path / "cache"))
        assert len(log.read_text().split()) == count


# ---- where the library goes


def test_a_library_that_cannot_be_stored(store, monkeypatch):
    def full(self, key, suffix, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Cache, "put_file", full)
    with pytest.raises(BuildError, match="cannot be stored.*No space left"):
        build(SOURCE % ("f", 11), store)


def test_no_place_for_the_compilers_files(store, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    monkeypatch.setattr(private, "_roots", lambda: [])
    with pytest.raises(BuildError, match="cannot be written.*nowhere"):
        build(SOURCE % ("f", 12), store)


def test_a_file_system_that_forbids_code(tmp_path):
    """The cache on a file system mounted noexec: the library is loaded from a copy elsewhere."""
    program = f"""
import ctypes, os
from pathlib import Path
from inductor.cache.file_store import Cache
from inductor.runtime.cpp_build import *
path = build({SOURCE % ("f", 42)!r}, Cache(Path({str(tmp_path)!r}) / "cache"))
assert os.statvfs(path).f_flag & os.ST_NOEXEC
print(ctypes.CFUNCTYPE(ctypes.c_int)(kernel_addresses([path], ["f"])[0])())
"""
    mount = f"mount -t tmpfs -o noexec none {tmp_path} || exit 77; exec \"$@\""
    line = ["unshare", "-m", "sh", "-c", mount, "sh", sys.executable, "-c", program]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    except FileNotFoundError:
        pytest.skip("no unshare")
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("may not mount")
    assert done.stdout == "42\n", done.stderr


def test_nowhere_to_run_code_from(store, monkeypatch):
    path = build(SOURCE % ("f", 43), store)
    monkeypatch.setattr(cpp_build, "_loaded", {})

    def refuse(path):
        raise OSError(f"{path}: refused")

    monkeypatch.setattr(cpp_build, "_open", refuse)
    with pytest.raises(BuildError, match="cannot load .*refused"):
        load(path)


def test_a_library_that_only_a_copy_of_can_be_loaded(store, monkeypatch):
    """For example, because a security module forbids code in the folder; what the loader says does not matter."""
    path = build(SOURCE % ("f", 44), store)
    monkeypatch.setattr(cpp_build, "_loaded", {})

    def refuse(library, allowed=cpp_build._open):
        if library == path:
            raise OSError("not here")
        return allowed(library)

    monkeypatch.setattr(cpp_build, "_open", refuse)
    assert ctypes.CFUNCTYPE(ctypes.c_int)(kernel_addresses([path], ["f"])[0])() == 44


def test_a_failing_compiler_shows_its_first_error_and_where_the_log_is(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = "int before;\nint f() { return not_declared; }\nint g() { return nor_this; }\n"
    with pytest.raises(BuildError, match="not_declared") as caught:
        build_all([source])
    message = str(caught.value)
    assert "nor_this" not in message and "\n" not in message
    log = Path(message.rpartition("log: ")[2].rstrip(")"))
    assert log.parent == tmp_path and "nor_this" in log.read_text() and source in log.read_text()
    log.unlink()
    monkeypatch.setattr(cpp_build, "_logs", [None] * cpp_build._MAX_LOGS)
    with pytest.raises(BuildError) as caught:
        build_all([source + "\n"])
    assert "log: " not in str(caught.value)
