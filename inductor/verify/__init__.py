"""The option `verify`: compares compiled graphs with ATen while the program runs."""
