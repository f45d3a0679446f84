"""Numbers and sizes that vary between calls, and the symbols that stand for them."""
