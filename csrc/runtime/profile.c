/* Ranges of torch's profiler (`torch.autograd.profiler`, which `torch.profiler` uses as well). torch keeps a flag of the
 * module for fast checks from Python; it is read from the module's dict at each call of a plan. */
#include "profile.h"

static PyObject *flags, *flag; /* the dict of torch.autograd.profiler, and the name of its flag; NULL before first use */

static int
find_flag(void)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed, as what is found in it */
    PyObject *module = PyDict_GetItemString(modules, "torch.autograd.profiler");
    if (module == NULL || !PyModule_Check(module)) { /* not imported: nothing records */
        return -1;
    }
    flag = PyUnicode_InternFromString("_is_profiler_enabled");
    flags = flag == NULL ? NULL : Py_NewRef(PyModule_GetDict(module));
    PyErr_Clear();
    return flags == NULL ? -1 : 0;
}

int
profile_is_on(void)
{
    if (flags == NULL && find_flag() < 0) {
        return 0;
    }
    return PyDict_GetItemWithError(flags, flag) == Py_True;
}

PyObject *
profile_enter(PyObject *name)
{
    PyObject *native = PyImport_ImportModule("torch._C._profiler");
    PyObject *range = native == NULL ? NULL : PyObject_CallMethod(native, "_RecordFunctionFast", "O", name);
    PyObject *entered = range == NULL ? NULL : PyObject_CallMethod(range, "__enter__", NULL);
    Py_XDECREF(native);
    if (entered == NULL) {
        PyErr_WriteUnraisable(name);
        Py_CLEAR(range);
    }
    Py_XDECREF(entered);
    return range;
}

void
profile_leave(PyObject *range)
{
    PyObject *kind, *value, *traceback;
    if (range == NULL) {
        return;
    }
    PyErr_Fetch(&kind, &value, &traceback);
    PyObject *left = PyObject_CallMethod(range, "__exit__", "OOO", Py_None, Py_None, Py_None);
    if (left == NULL) {
        PyErr_WriteUnraisable(range);
    }
    Py_XDECREF(left);
    Py_DECREF(range);
    PyErr_Restore(kind, value, traceback);
}
