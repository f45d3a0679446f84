/* Calls that move their arguments to the callee. Otherwise CPython's caller holds references until the call returns. */
#ifndef PYFRAME_MOVE_ARGS_H
#define PYFRAME_MOVE_ARGS_H

#include "compat.h"

/* References that the caller drops once the frame of `function` has its own: `n` items, or the first `n` locals of a
 * frame that will not be evaluated. */
typedef struct {
    PyObject *function;
    PyObject **items; /* owned; NULL once dropped */
    cp_frame *frame;  /* or NULL */
    Py_ssize_t n;
    PyObject *error;  /* an exception that the frame of `function` raises at its RESUME, or NULL */
    bool taken;       /* whether that frame has started */
} moved_args;

/* Call `given->function`; `n` counts positional arguments.  The caller still owns what was not dropped. */
PyObject *move_args_call(moved_args *given, PyObject *const *args, Py_ssize_t n, PyObject *names);

/* For the evaluation hook, with each frame that starts: the exception that it is to raise (borrowed), or NULL. */
PyObject *move_args_take(cp_frame *frame);

/* Adds to the module: move_args(callable, arguments, names), a call with the items of a list, which is emptied; and
 * raise_in(function, arguments, exception), the same of a function that raises the exception at its RESUME;
 * SuspendedFrame(function, arguments, reason), an object that makes such a call when it is called. */
int move_args_init(PyObject *module);

#endif
