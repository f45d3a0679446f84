"""Makes the package that `serve` runs: python make_model.py [model.pyframe]"""

import sys

import torch
from torch import nn

import pyframe


def main(path: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10), nn.Softmax(-1)).eval()
    pyframe.package(model, (torch.randn(8, 64),), path, dynamic={0: 0})
    x = torch.ones(8, 64)
    print("first result of a row of ones:", *(f"{value:.6f}" for value in model(x)[0].tolist()))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "model.pyframe")
