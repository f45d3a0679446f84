"""Vars of lists, dicts, sets, ranges, deques and iterators."""
