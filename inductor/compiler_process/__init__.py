"""A process that compiles graphs for this one, for `options={"background": True}`.

Tracing, lowering, scheduling and generating code are Python: in a thread they would hold the GIL, and calls of the
program would wait for it. `job` describes a graph as plain data, `client` starts the process and sends it jobs, and
`main` is the program that it runs.
"""
