/* Whether tensors are as they were when something was computed from them: see inductor/runtime/fold.py. */
#include "tensor_view.h"
#include "unchanged.h"

#include <string.h>

typedef struct fact {
    int64_t version, address, copy, length;
} fact;

static PyObject *version_name;

/* 1, or 0 if the tensor has changed; -1 with an exception set. */
static int
is_as(PyObject *tensor, PyObject *ref, const fact *known)
{
    if (!PyWeakref_Check(ref) || cp_weakref_get(ref) != tensor) {
        return 0;
    }
    PyObject *version = PyObject_GetAttr(tensor, version_name);
    if (version == NULL) {
        return -1;
    }
    int64_t counted = PyLong_AsLongLong(version);
    Py_DECREF(version);
    tensor_view view;
    if ((counted == -1 && PyErr_Occurred()) || tv_read(tensor, &view) < 0) {
        return -1;
    }
    if (counted != known->version || (int64_t)(intptr_t)view.data != known->address) {
        return 0;
    }
    return known->length == 0 || memcmp(view.data, (const void *)(intptr_t)known->copy, (size_t)known->length) == 0;
}

PyObject *
unchanged(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (n_args != 3 || !PyList_Check(args[0]) || !PyTuple_Check(args[1]) || !PyBytes_Check(args[2])
        || PyList_GET_SIZE(args[0]) != PyTuple_GET_SIZE(args[1])
        || PyBytes_GET_SIZE(args[2]) != PyTuple_GET_SIZE(args[1]) * (Py_ssize_t)sizeof(fact)) {
        PyErr_SetString(PyExc_TypeError, "unchanged() takes a list, a tuple of the same length, and bytes for each item");
        return NULL;
    }
    if (tv_bind_torch() < 0) {
        return NULL;
    }
    if (version_name == NULL && (version_name = PyUnicode_InternFromString("_version")) == NULL) {
        return NULL;
    }
    const char *facts = PyBytes_AS_STRING(args[2]);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[0]); i++) {
        fact known;
        memcpy(&known, facts + i * (Py_ssize_t)sizeof known, sizeof known);
        PyObject *tensor = Py_NewRef(PyList_GET_ITEM(args[0], i));
        int same = is_as(tensor, PyTuple_GET_ITEM(args[1], i), &known);
        Py_DECREF(tensor);
        if (same <= 0) {
            return same < 0 ? NULL : PyBool_FromLong(0);
        }
    }
    return PyBool_FromLong(1);
}
