"""Captures on disk: the guards, the new code and the compiled graph of a frame, for processes that start later."""
