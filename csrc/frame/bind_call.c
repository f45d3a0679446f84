/* Arguments of a call -> fast locals, as CPython's initialize_locals does it. */
#include "callables.h"

#include <string.h>

static Py_ssize_t
find_name(PyCodeObject *code, PyObject *name, Py_ssize_t first, Py_ssize_t last)
{
    for (Py_ssize_t i = first; i < last; i++) { /* names are nearly always interned: compare pointers first */
        if (cp_code_local_name(code, i) == name) {
            return i;
        }
    }
    for (Py_ssize_t i = first; i < last; i++) {
        if (PyUnicode_Compare(cp_code_local_name(code, i), name) == 0) {
            return i;
        }
    }
    return -1;
}

static int
bind_keywords(PyCodeObject *code, PyObject *const *values, PyObject *names, bound_call *out)
{
    Py_ssize_t n_named = code->co_argcount + code->co_kwonlyargcount;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(names); k++) {
        PyObject *name = PyTuple_GET_ITEM(names, k);
        if (!PyUnicode_Check(name)) {
            return 0;
        }
        Py_ssize_t i = find_name(code, name, code->co_posonlyargcount, n_named);
        if (i >= 0) {
            if (out->locals[i] != NULL) {
                return 0;
            }
            out->locals[i] = values[k];
        }
        else if (out->keywords == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
        else if (PyDict_SetItem(out->keywords, name, values[k]) < 0) {
            return -1;
        }
    }
    return 1;
}

/* Fill missing arguments from the defaults; 0 if one of them has no default. */
static int
bind_defaults(PyFunctionObject *function, PyCodeObject *code, bound_call *out)
{
    Py_ssize_t n_defaults = function->func_defaults == NULL ? 0 : PyTuple_GET_SIZE(function->func_defaults);
    Py_ssize_t first_default = code->co_argcount - n_defaults;
    for (Py_ssize_t i = 0; i < code->co_argcount; i++) {
        if (out->locals[i] != NULL) {
            continue;
        }
        if (i < first_default) {
            return 0;
        }
        out->locals[i] = PyTuple_GET_ITEM(function->func_defaults, i - first_default);
    }
    for (Py_ssize_t i = code->co_argcount; i < code->co_argcount + code->co_kwonlyargcount; i++) {
        if (out->locals[i] == NULL && function->func_kwdefaults != NULL) {
            out->locals[i] = PyDict_GetItemWithError(function->func_kwdefaults, cp_code_local_name(code, i));
        }
        if (out->locals[i] == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
    }
    return 1;
}

int
bind_call(PyFunctionObject *function, PyObject *const *args, Py_ssize_t n, PyObject *names, bound_call *out)
{
    PyCodeObject *code = (PyCodeObject *)function->func_code;
    Py_ssize_t total = cp_code_argument_count(code), n_named = code->co_argcount + code->co_kwonlyargcount;
    out->star = out->keywords = NULL;
    out->locals = out->small;
    if (total > (Py_ssize_t)(sizeof out->small / sizeof *out->small)) {
        out->locals = PyMem_Malloc((size_t)total * sizeof *out->locals);
        if (out->locals == NULL) {
            out->locals = out->small;
            PyErr_NoMemory();
            return -1;
        }
    }
    Py_ssize_t n_positional = Py_MIN(n, code->co_argcount);
    memcpy(out->locals, args, (size_t)n_positional * sizeof *args);
    memset(out->locals + n_positional, 0, (size_t)(total - n_positional) * sizeof *args);
    if (code->co_flags & CO_VARARGS) {
        out->star = PyTuple_New(n - n_positional);
        if (out->star == NULL) {
            return -1;
        }
        for (Py_ssize_t i = n_positional; i < n; i++) {
            PyTuple_SET_ITEM(out->star, i - n_positional, Py_NewRef(args[i]));
        }
        out->locals[n_named] = out->star;
    }
    else if (n > n_positional) {
        return 0;
    }
    if (code->co_flags & CO_VARKEYWORDS) {
        out->keywords = PyDict_New();
        if (out->keywords == NULL) {
            return -1;
        }
        out->locals[total - 1] = out->keywords;
    }
    if (names != NULL && PyTuple_GET_SIZE(names) > 0) {
        int bound = bind_keywords(code, args + n, names, out);
        if (bound <= 0) {
            return bound;
        }
    }
    return n_positional == total ? 1 : bind_defaults(function, code, out);
}

void
unbind_call(bound_call *bound)
{
    Py_XDECREF(bound->star);
    Py_XDECREF(bound->keywords);
    if (bound->locals != bound->small) {
        PyMem_Free(bound->locals);
    }
}
