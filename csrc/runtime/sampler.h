/* The type of callables that are checked at some of their calls (inductor/verify). */
#ifndef PYFRAME_SAMPLER_H
#define PYFRAME_SAMPLER_H

#include <Python.h>

extern PyTypeObject sampler_type;

#endif
