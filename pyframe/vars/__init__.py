"""Represents the program's Python values while tracing: a Var class for each kind of value, chosen by `wrap`. The
packages also contain *models*, the handlers of calls that the trace does not enter (`registry`)."""
