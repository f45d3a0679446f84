/* The type of what fake tensor modes have for `__torch_dispatch__` (inductor/aot/fake.py). */
#ifndef PYFRAME_FAKE_DISPATCH_H
#define PYFRAME_FAKE_DISPATCH_H

#include <Python.h>

extern PyTypeObject fake_dispatch_type;

#endif
