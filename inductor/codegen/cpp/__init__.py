"""The C++ back end: turns groups into vectorized functions."""
