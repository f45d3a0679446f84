"""Programs under `python -W error`."""

import subprocess
import sys

PROGRAM = """
import torch, pyframe
from torch import nn

net = nn.Linear(4, 4)

def program(x):
    y = net(x)
    pyframe.graph_break()
    return (y * 2).sum()

compiled = pyframe.compile(program)
x = torch.ones(2, 4)
for _ in range(2):
    compiled(x).backward()
assert net.bias.grad.tolist() == [8, 8, 8, 8]
print("right")
"""


def test_a_graph_break_in_training():
    """The second graph has an input that is no leaf: torch reads its `.grad`, which warns."""
    line = [sys.executable, "-W", "error", "-c", PROGRAM]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "right\n", done.stderr[-3000:]
