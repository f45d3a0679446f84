"""Compiled graphs checked against ATen while the program runs: the option `verify`."""
