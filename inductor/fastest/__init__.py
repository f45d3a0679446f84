"""The faster of a compiled graph and of ATen's operators is kept, as measured on calls of the program itself."""
