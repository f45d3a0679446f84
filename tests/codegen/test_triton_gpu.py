"""Properties of GPUs, and block sizes chosen by them."""

import itertools
from types import SimpleNamespace

import torch

from inductor.codegen.triton import gpu, heuristics


def devices(monkeypatch, *counts):
    """Makes torch report GPUs with these numbers of multiprocessors."""
    gpu._present.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(counts))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(counts))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    found = [SimpleNamespace(multi_processor_count=n, major=8, minor=6) for n in counts]
    monkeypatch.setattr(torch.cuda, "get_device_properties", found.__getitem__)


def test_a_device_that_is_there_is_asked(monkeypatch):
    devices(monkeypatch, 56, 78)
    found = [gpu.gpu_of(torch.device(d)).multiprocessors for d in ("cuda:0", "cuda:1", "cuda", "cuda:2")]
    assert gpu.gpu_of(torch.device("cuda")).shared_bytes == 99 << 10
    gpu._present.cache_clear()
    assert found == [56, 78, 78, gpu.DEFAULT.multiprocessors]


def test_without_a_device_the_table_answers(monkeypatch):
    devices(monkeypatch)
    assert gpu.gpu_of(torch.device("cuda:0")) == gpu.KNOWN[90] == gpu.Gpu(132, 227 << 10, True, True)


def test_more_multiprocessors_get_more_programs():
    few, many = (heuristics.pointwise(1 << 18, sms).block("x") for sms in (16, 132))
    assert few > many
    row = heuristics.Shape(4, 1 << 20, "r", False, True, 1, True, False, False, 1)
    assert heuristics.reduction(row, 16).split < heuristics.reduction(row, 132).split


def test_means_of_small_images_after_a_convolution_use_many_multiprocessors():
    """A mean over 28x28 positions of each of 120 channels, whose elements are sums over a window of 5x5."""
    config = heuristics.reduction(heuristics.Shape(120, 28 * 28, "x", False, True, 1, True, False, True, 25), 132)
    assert -(-120 // config.block("x")) * config.split >= 32
    light = heuristics.reduction(heuristics.Shape(120, 28 * 28, "x", False, True, 1, True, False, True, 1), 132)
    assert light.split == 1 and light.block("r") > config.block("r")


def test_means_of_few_channels_use_many_multiprocessors():
    """Means over the positions of an image in channels_last, of batch size 1, whose elements are stored, too. Those of
    larger batches have wide blocks, as there is enough to read."""
    def programs(rows, length):
        config = heuristics.reduction(heuristics.Shape(rows, length, "x", False, True, 1, True, False, True, 1), 132)
        return -(-rows // config.block("x")) * config.split, config.block("x")

    assert [programs(c, n * n) for c, n in ((72, 112), (72, 56), (216, 28), (576, 14))] == [
        (256, 64), (40, 16), (14, 16), (36, 16)]
    assert [programs(32 * c, n * n) for c, n in ((72, 112), (72, 56), (216, 28), (576, 14))] == [
        (288, 64), (288, 64), (432, 64), (288, 64)]


def test_configs_of_all_sizes_can_be_launched():
    """Blocks and warps are powers of 2, also for no rows, a few short ones, and tiles that are no power of 2."""
    kinds = ["rx", *[(False, True)] * 6, (1, 12)]  # the last: results per row
    for rows, length, tiles, itemsize, sms in itertools.product(
        (0, 1, 2, 1025, 1 << 20), (0, 1, 2, 40, 1025, 20000), (1, 3, 9), (1, 8), (1, 132)
    ):
        configs = [heuristics.chaining(rows, length, sms), heuristics.bounded(rows, length)]
        configs += [heuristics.pointwise(rows, sms), heuristics.tiled(rows, length, 1, sms)]
        configs += [heuristics.sorting(rows, min(length, 1025), way, bits) for way in "rx" for bits in (16, 32, 64)]
        configs += [heuristics.joining(rows, max(1, length // 100))]
        for contiguous, mixed, slow, product, matrix, shared, once, sums in itertools.product(*kinds):
            shape = heuristics.Shape(
                rows, length, contiguous, mixed, True, 2 - once, once, slow, False, tiles, product, matrix, sums, shared,
                itemsize,
            )  # fmt: skip
            configs += [heuristics.reduction(shape, sms), heuristics.scanning(shape, length, itemsize, sms)]
        for config in set(configs):
            assert all(n == heuristics.power(n) for n in (config.warps, *dict(config.blocks).values())), config
            assert 1 <= config.warps <= 32 and config.split >= 1 and config.programs >= 0, config
