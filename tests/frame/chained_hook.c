/* A second PEP 523 hook for the chaining test: counts the frames it sees and evaluates them by default. */
#include <Python.h>

struct _PyInterpreterFrame;
PyAPI_FUNC(PyObject *) _PyEval_EvalFrameDefault(PyThreadState *, struct _PyInterpreterFrame *, int);
typedef PyObject *(*eval_function)(PyThreadState *, struct _PyInterpreterFrame *, int);
PyAPI_FUNC(void) _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState *, eval_function);
PyAPI_FUNC(eval_function) _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState *);

static long seen;
static eval_function below;

static PyObject *
count_frame(PyThreadState *tstate, struct _PyInterpreterFrame *frame, int throwflag)
{
    seen++;
    return below(tstate, frame, throwflag);
}

static PyObject *
install(PyObject *module, PyObject *ignored)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    below = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    _PyInterpreterState_SetEvalFrameFunc(interpreter, count_frame);
    Py_RETURN_NONE;
}

static PyObject *
uninstall(PyObject *module, PyObject *ignored)
{
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), below);
    Py_RETURN_NONE;
}

static PyObject *
count(PyObject *module, PyObject *ignored)
{
    return PyLong_FromLong(seen);
}

static PyMethodDef methods[] = {
    {"install", install, METH_NOARGS, NULL},
    {"uninstall", uninstall, METH_NOARGS, NULL},
    {"count", count, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "chained_hook", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC
PyInit_chained_hook(void)
{
    return PyModule_Create(&definition);
}
