"""The commands of `python -m pyframe`: one module each, with `run(arguments) -> exit status`."""
