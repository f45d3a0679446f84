/* Opening files for `open(..., opener=...)`.
 *
 * An opener in Python would leak the descriptor if a signal handler raised between the return of os.open and the use
 * of its result. This one returns to C code of `io.FileIO`, which owns the descriptor before any handler can run. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <fcntl.h>

#include "open_file.h"

PyObject *
open_file(PyObject *self, PyObject *args)
{
    PyObject *path;
    int flags, descriptor;
    if (!PyArg_ParseTuple(args, "O&i", PyUnicode_FSConverter, &path, &flags)) {
        return NULL;
    }
    do {
        Py_BEGIN_ALLOW_THREADS
        descriptor = open(PyBytes_AS_STRING(path), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        Py_END_ALLOW_THREADS
    } while (descriptor < 0 && errno == EINTR && PyErr_CheckSignals() == 0);
    if (descriptor < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, PyTuple_GET_ITEM(args, 0));
        }
        Py_DECREF(path);
        return NULL;
    }
    Py_DECREF(path);
    return PyLong_FromLong(descriptor);
}
