/* Torch's process- and thread-wide modes that change what a graph means, captured and compared in C. */
#ifndef PYFRAME_GLOBAL_STATE_H
#define PYFRAME_GLOBAL_STATE_H

#include "compat.h"

extern PyTypeObject GlobalState_Type;

/* Find the getters; after tv_bind_torch(). 0, or -1 with an exception set. */
int global_state_bind(void);
/* 1 where every mode is as captured, 0 where one differs, -1 with an exception set. */
int global_state_matches(PyObject *state);

#endif
