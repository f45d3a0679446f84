"""Random tensor programs, compiled and compared with eager. See `python -m tools.fuzz_graphs --help`."""
