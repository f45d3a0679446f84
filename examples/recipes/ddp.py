"""DistributedDataParallel over two processes: compile the network, then wrap what is compiled.

    python examples/recipes/ddp.py
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyframe

WORLD = 2


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))

    def forward(self, x):
        return self.layers(x).tanh()


def worker(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    model = DistributedDataParallel(pyframe.compile(Network()))
    eager = DistributedDataParallel(Network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    eager_optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    torch.manual_seed(rank)  # each process has data of its own
    for _ in range(4):
        x = torch.randn(16, 32)
        for module, opt in ((model, optimizer), (eager, eager_optimizer)):
            module(x).square().mean().backward()  # gradients are averaged over the processes
            opt.step()
            opt.zero_grad()
    for own, other in zip(model.parameters(), eager.parameters()):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)
    if rank == 0:
        print(f"graphs {pyframe.counters['graphs']}, equal to eager after 4 steps")
        assert pyframe.counters["graphs"] == 1
    dist.barrier()  # no process ends while another one still waits for it
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(os.path.join(folder, "store"),), nprocs=WORLD)
