"""Polyfills: functions written in C, rewritten in Python so that the tracer can inline them."""
