"""CPython's object model: functions, classes, instances, descriptors, exceptions, modules."""
