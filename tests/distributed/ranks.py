"""A group of processes, one per rank, that run programs of the tests together.

The processes stay alive between programs, because starting one takes seconds. Each program has a time limit: when one
rank does not answer in time, all processes of the group are killed, and the next program starts new ones. The
processes find each other through a file, so that no port has to be chosen.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import tempfile
import time
import traceback
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

START_LIMIT = 180.0  # seconds until the processes have imported torch and found each other, on a busy machine
END_LIMIT = 10.0


@dataclass(frozen=True)
class Rank:
    """What a program gets: its rank, the number of ranks, and the device of its tensors ("cpu" or "cuda:N")."""

    rank: int
    world: int
    device: str

    @property
    def device_type(self) -> str:
        return self.device.partition(":")[0]


class Ranks:
    """`world` processes joined in one process group: gloo for the device "cpu", NCCL for "cuda"."""

    def __init__(self, world: int, device: str = "cpu") -> None:
        self.world, self.device = world, device
        self.processes: list[Any] = []
        self.pipes: list[Connection] = []
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    def run(self, module: str, program: str, *args: Any, limit: float = 100.0) -> list[Any]:
        """The result of `module.program(rank, *args)` in each process. AssertionError with all tracebacks if one of
        them raises, or does not return within `limit` seconds."""
        if not self.processes:
            self._start()
        for pipe in self.pipes:
            pipe.send((module, program, args))
        answers = self._answers(limit, f"{module}.{program}")
        failed = [f"rank {rank}:\n{text}" for rank, (good, text) in enumerate(answers) if not good]
        if failed:
            raise AssertionError("\n".join(failed))
        return [value for _, value in answers]

    def close(self) -> None:
        """End the processes: they are asked to, and killed if they do not."""
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        deadline = time.monotonic() + END_LIMIT
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        self._kill()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.folder = tempfile.TemporaryDirectory(prefix="ranks_")
        for rank in range(self.world):
            ours, theirs = context.Pipe()
            given = (rank, self.world, self.device, str(Path(self.folder.name) / "store"), theirs)
            process = context.Process(target=_serve, args=given, daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes.append(ours)
        self._answers(START_LIMIT, "the start of the processes")

    def _answers(self, limit: float, what: str) -> list[tuple[bool, Any]]:
        deadline, answers = time.monotonic() + limit, []
        for rank, pipe in enumerate(self.pipes):
            try:
                if not pipe.poll(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                answers.append(pipe.recv())
            except (TimeoutError, EOFError, OSError) as error:
                self._kill()
                given = [f"rank {i}:\n{text}" for i, (good, text) in enumerate(answers) if not good]
                why = f"no answer within {limit:.0f} s" if isinstance(error, TimeoutError) else "the process ended"
                raise AssertionError("\n".join([f"{what}: rank {rank}: {why}", *given])) from None
        return answers

    def _kill(self) -> None:
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()
        for pipe in self.pipes:
            pipe.close()
        self.processes, self.pipes = [], []
        if self.folder is not None:
            self.folder.cleanup()


def _serve(rank: int, world: int, device: str, store: str, pipe: Connection) -> None:
    """The main function of a process: answer each program with (True, result) or (False, traceback)."""
    os.environ.setdefault("PYFRAME_STRICT", "internal")
    import torch
    import torch.distributed as dist

    import pyframe

    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
        torch.backends.cudnn.allow_tf32 = False  # so that tolerances of float32 hold for convolutions
        device = f"cuda:{rank}"
    kind = "nccl" if device.startswith("cuda") else "gloo"
    given = {"device_id": torch.device(device)} if kind == "nccl" else {}
    dist.init_process_group(
        kind, init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=60), **given
    )
    pipe.send((True, None))
    me = Rank(rank, world, device)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        if task is None:
            break
        module, program, args = task
        pyframe.reset()
        torch.manual_seed(0)
        try:
            answer = True, getattr(importlib.import_module(module), program)(me, *args)
        except Exception:  # noqa: BLE001  sent to the test, which fails
            answer = False, traceback.format_exc()
        pipe.send(answer)
    dist.destroy_process_group()
