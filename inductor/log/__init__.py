"""Logs of the compilation stages, and warnings shown once."""
