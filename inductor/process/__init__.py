"""What compiling does to the whole process: the compile lock, imports, signals, forks, thread state."""
