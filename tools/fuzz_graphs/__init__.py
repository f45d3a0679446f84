"""Compiles random tensor programs and compares them with eager. See `python -m tools.fuzz_graphs --help`."""
