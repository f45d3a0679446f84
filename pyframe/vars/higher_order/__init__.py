"""Models of operators that take functions, which are traced into graphs of their own."""
