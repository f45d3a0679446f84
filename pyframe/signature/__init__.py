"""The signatures of programs that are exported or packaged, as data: how arguments become flat inputs and outputs a
result, and what a program requires of its inputs. Nothing here imports the tracer."""
