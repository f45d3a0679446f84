"""Compiled graphs as one file that runs without tracing and without a compiler: the format, how it is made, and how it
is loaded (`docs/package.md`)."""
