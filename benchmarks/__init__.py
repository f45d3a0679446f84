"""Benchmarks: eager, torch.compile and ours side by side from one run; medians of interleaved runs."""
