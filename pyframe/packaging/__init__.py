"""`pyframe.package` and `pyframe.load`: a function as a file that runs without tracing and without a compiler."""
