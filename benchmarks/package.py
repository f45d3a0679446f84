"""Measures one call of a packaged model: from C++ beside AOTInductor, and from Python beside the JIT.

    python -m benchmarks.package [--only NAME] [--threads 1]

The same model is written by `pyframe.package` and by `torch._inductor.aoti_compile_and_package`. `package_cpp` calls
both with the same input, in alternating rounds, as does this process, in which `pyframe.compile` runs the model as
well. The columns are medians over the rounds; "load ms" is the time to load a file in Python.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import pyframe

from .harness import interleaved, report
from .torchvision_stub import stub_torchvision

ROOT = Path(__file__).resolve().parent.parent
TORCH = Path(torch.__file__).resolve().parent
ROUNDS = 41


def tiny_mlp() -> tuple[nn.Module, torch.Tensor, int, int]:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10), nn.Softmax(-1))
    return model, torch.randn(4, 64), 0, 200


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        self.bert = BertModel(BertConfig(
            hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=1024, vocab_size=1000
        ))  # fmt: skip

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.bert(ids).last_hidden_state


def bert() -> tuple[nn.Module, torch.Tensor, int, int]:
    return Bert(), torch.randint(1000, (1, 32)), 1000, 8


def resnet() -> tuple[nn.Module, torch.Tensor, int, int]:
    stub_torchvision()
    import timm

    return timm.create_model("resnet18"), torch.randn(1, 3, 224, 224), 0, 1


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor, int, int]]] = {
    "MLP, 2 layers": tiny_mlp, "BERT, 2 layers": bert, "ResNet-18": resnet,
}  # fmt: skip


def built(folder: Path) -> Path:
    """The program of `package_cpp`."""
    source = ROOT / "benchmarks" / "package_cpp"
    for line in (
        ["cmake", "-S", str(source), "-B", str(folder), f"-DPYFRAME_LIBTORCH={TORCH}"],
        ["cmake", "--build", str(folder), "-j", "2"],
    ):
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    return folder / "bench"


def measured(name: str, program: Path, folder: Path, threads: int) -> dict[str, Any]:
    """The row of one model."""
    torch.manual_seed(0)
    model, x, ids, calls = MODELS[name]()
    model.eval()
    ours, theirs = folder / "model.pyframe", folder / "model.pt2"
    with torch.no_grad():
        pyframe.package(model, (x,), ours)
        exported = torch.export.export(model, (x,), strict=False)
        torch._inductor.aoti_compile_and_package(exported, package_path=str(theirs))
        start = time.perf_counter()
        package = pyframe.load(ours)
        loading = time.perf_counter() - start
        start = time.perf_counter()
        aoti = torch._inductor.aoti_load_package(str(theirs))
        aoti_loading = time.perf_counter() - start
        compiled = pyframe.compile(model)
        want = model(x)
        for system in (package, aoti, compiled):
            torch.testing.assert_close(system(x), want, rtol=1e-3, atol=1e-4)
        variants = {"package": lambda: package(x), "JIT": lambda: compiled(x), "AOTInductor": lambda: aoti(x)}
        python = interleaved(variants, ROUNDS, calls)
    arguments = map(str, (ROUNDS, calls, threads, ours, theirs, ids, *x.shape))
    done = subprocess.run([str(program), *arguments], check=True, capture_output=True, text=True)
    cpp, aoti_cpp = map(float, done.stdout.split())
    return {
        "model": name, "C++ us": cpp, "AOTInductor C++ us": aoti_cpp, "C++ / AOTInductor": cpp / aoti_cpp,
        "Python us": python["package"] * 1e6, "JIT us": python["JIT"] * 1e6,
        "AOTInductor Python us": python["AOTInductor"] * 1e6, "Python / JIT": python["package"] / python["JIT"],
        "load ms": loading * 1e3, "AOTInductor load ms": aoti_loading * 1e3,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = built(folder / "build")
        for model in MODELS:
            if chosen.only in (None, model):
                rows.append(measured(model, program, folder, chosen.threads))
                print(rows[-1], flush=True)
    report("package", rows)


if __name__ == "__main__":
    main()
