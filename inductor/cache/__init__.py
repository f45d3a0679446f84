"""The disk cache: keys, serialization, files, and which files are trusted."""
