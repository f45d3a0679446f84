/* Ranges of torch's profiler around a call of a plan and around each of its kernels. */
#ifndef PYFRAME_PROFILE_H
#define PYFRAME_PROFILE_H

#include <Python.h>

/* Whether torch's profiler records now. Needs the interpreter; raises nothing. */
int profile_is_on(void);

/* Begin a range of this name, a str: a new reference for profile_leave, or NULL where there can be none. Neither raises
 * an exception, nor changes one that is set. */
PyObject *profile_enter(PyObject *name);
void profile_leave(PyObject *range);

#endif
