"""Ctrl-C at any time of the first compile: the process is as before, and the next call is right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import gc, os, random, shutil, signal, sys, tempfile, threading, time, traceback
import torch, pyframe, inductor
from tools.fault_injection.state import differences, state

torch.set_num_threads(1)
x = torch.linspace(-1, 1, 20, requires_grad=True)

def program(x, k):
    with torch.no_grad():
        y = x.cos() * k
    with torch.autocast("cpu", torch.bfloat16):
        return (x.sin() * k).softmax(0).sum() + y.sum()

def step(fn, k):
    x.grad = None
    loss = fn(x, k)
    loss.backward()
    return loss.item(), x.grad.tolist()

def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)

def children():
    # processes that run, but for those that only ask the compiler which one it is
    found = []
    for task in os.listdir("/proc/self/task"):
        try:
            for pid in open(f"/proc/self/task/{task}/children").read().split():
                line, status = (open(f"/proc/{pid}/{name}").read() for name in ("cmdline", "stat"))
                if "--version" not in line and status.rpartition(") ")[2][0] != "Z":
                    found.append(pid)
        except OSError:  # ended meanwhile
            continue
    return found

def when_the_compiler_runs():
    while not children():
        time.sleep(0.001)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

def interrupted(number, delay):
    os.environ["PYFRAME_CACHE_DIR"] = os.path.join(cache, str(number))
    compiled = pyframe.compile(program)
    state()
    before = state()
    thread = None
    if delay is None:
        thread = threading.Thread(target=when_the_compiler_runs)
        thread.start()
    else:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, delay)
    try:
        close(step(compiled, float(number)), step(program, float(number)))
        ended = "before"
    except KeyboardInterrupt:
        ended = "interrupted"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if thread is not None:
        thread.join()
        assert ended == "interrupted"
    for _ in range(300):  # what was killed, and the thread that waits for it, end soon
        changed = [text for text in differences(before, state()) if not text.startswith(USUAL)]
        if not changed and not children():
            break
        time.sleep(0.01)
    assert not changed and not children(), (delay, changed, children())
    for _ in range(2):
        close(step(compiled, float(number)), step(program, float(number)))
    return ended

# what a whole first compile changes: modules that it loads open files and add filters of warnings
USUAL = ("warnings", "file descriptors", "loggers", "meta path")
cache = os.environ["PYFRAME_CACHE_DIR"]
start = time.perf_counter()
step(pyframe.compile(program), 0.5)  # loads what the compiler needs
step(pyframe.compile(program), 0.25)
start = time.perf_counter()
step(pyframe.compile(program), 0.75)
whole = time.perf_counter() - start
random.seed(int(sys.argv[1]))
delays = [None, *(random.uniform(0, whole) for _ in range(int(sys.argv[2])))]
ended = []
for number, delay in enumerate(delays, 2):
    pid = os.fork()
    if pid == 0:
        try:
            ended = interrupted(number, delay)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(2 if ended == "interrupted" else 3)
    ended.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
assert set(ended) <= {2, 3} and 2 in ended, ended
print("right", *ended)
"""


@pytest.mark.skipif(torch.version.cuda is not None, reason="its autograd does not run in a fork of a process that trained")
def test_ctrl_c_while_compiling(tmp_path):
    files, cache = tmp_path / "files", tmp_path / "cache"
    files.mkdir()
    own = {"TMPDIR": str(files), "PYFRAME_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-W", "ignore", "-c", PROGRAM, "0", "3"]
    done = subprocess.run(
        line, capture_output=True, text=True, timeout=200, check=False, env={**os.environ, **own}, cwd=ROOT
    )
    assert done.stdout.startswith("right"), done.stdout + done.stderr[-4000:]
    # but for the folders that each process has until it ends, which the next one sweeps
    left = [path for path in files.rglob("*") if path.name != "alive" and path.parent != files]
    assert not left
    assert not list(cache.rglob("*.tmp"))
