/* Calls of functions of torch that throw. A C++ exception must pass neither through C nor through CPython's evaluation
 * loop, which would not undo what it has done. */
#include <Python.h>

/* `wrap(tensor)`; NULL with a Python exception set where it throws: there is no memory for the object. */
extern "C" PyObject *
tv_wrap_caught(PyObject *(*wrap)(const void *), const void *tensor)
{
    try {
        return wrap(tensor);
    } catch (...) {
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        return nullptr;
    }
}
