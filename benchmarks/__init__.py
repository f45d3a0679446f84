"""Benchmarks that compare eager, torch.compile and ours in one run, by medians of interleaved measurements."""
