"""Fully sharded training with `fully_shard` over two processes: shard first, then compile each block.

    python examples/recipes/fsdp2.py
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import pyframe

WORLD = 2


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block(32) for _ in range(3)), nn.Linear(32, 8))


def worker(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    mesh = init_device_mesh("cpu", (WORLD,))
    model = network()
    for block in model[:3]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    # The parameters of a block are gathered before it and freed after it, outside of its compiled graph.
    for number in range(3):
        model[number] = pyframe.compile(model[number])
    eager = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    eager_optimizer = torch.optim.AdamW(eager.parameters(), lr=1e-2)
    for step in range(3):
        torch.manual_seed(step)
        x = torch.randn(WORLD, 16, 32)
        model(x[rank]).square().mean().backward()
        eager(x.flatten(0, 1)).square().mean().backward()  # the batches of both processes
        for opt in (optimizer, eager_optimizer):
            opt.step()
            opt.zero_grad()
    for own, other in zip(model.parameters(), eager.parameters()):
        torch.testing.assert_close(own.full_tensor(), other, rtol=1e-3, atol=1e-4)
    if rank == 0:
        print(f"graphs {pyframe.counters['graphs']}, equal to one process with the whole batch after 3 steps")
        assert pyframe.counters["graphs"] == 2  # of the first block, whose input needs no gradient, and of all others
    dist.barrier()  # no process ends while another one still waits for it
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(os.path.join(folder, "store"),), nprocs=WORLD)
