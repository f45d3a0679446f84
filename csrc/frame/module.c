/* pyframe._C: the method table only. */
#include "callables.h"
#include "global_state.h"
#include "tensor_guard.h"
#include "tensor_view.h"

static PyObject *
bind_torch(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (tv_bind_torch() < 0 || global_state_bind() < 0) {
        return NULL;
    }
    return tv_describe();
}

static PyObject *
op_table(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return guard_op_table();
}

static PyObject *
disable_wrapper(PyObject *Py_UNUSED(module), PyObject *fn)
{
    return PyObject_CallOneArg((PyObject *)&DisabledFunction_Type, fn);
}

static PyObject *
equal_constants(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *a, *b;
    if (!PyArg_ParseTuple(args, "OO:const_equal", &a, &b)) {
        return NULL;
    }
    int same = const_equal(a, b);
    return same < 0 ? NULL : PyBool_FromLong(same);
}

/* The vectorcall function that CPython gives every Python function. */
static vectorcallfunc
plain_vectorcall(void)
{
    static vectorcallfunc found = NULL;
    if (found == NULL) {
        PyObject *globals = PyDict_New(), *code = (PyObject *)PyCode_NewEmpty("pyframe", "plain", 1);
        PyObject *function = globals == NULL || code == NULL ? NULL : PyFunction_New(code, globals);
        if (function != NULL) {
            found = ((PyFunctionObject *)function)->vectorcall;
        }
        Py_XDECREF(function);
        Py_XDECREF(code);
        Py_XDECREF(globals);
    }
    return found;
}

static PyObject *
runs_its_code(PyObject *Py_UNUSED(module), PyObject *function)
{
    if (!PyFunction_Check(function)) {
        return PyErr_Format(PyExc_TypeError, "expected a function, got %.200s", Py_TYPE(function)->tp_name);
    }
    vectorcallfunc plain = plain_vectorcall();
    return plain == NULL ? NULL : PyBool_FromLong(((PyFunctionObject *)function)->vectorcall == plain);
}

static PyObject *
takes_keywords(PyObject *Py_UNUSED(module), PyObject *method)
{
    if (!Py_IS_TYPE(method, &PyMethodDescr_Type)) {
        return PyErr_Format(PyExc_TypeError, "expected a method in C, got %.200s", Py_TYPE(method)->tp_name);
    }
    return PyBool_FromLong((((PyMethodDescrObject *)method)->d_method->ml_flags & METH_KEYWORDS) != 0);
}

/* Looks up exact strings. The dicts are namespaces of modules, so code of the program (`__eq__` of a key) runs only
 * where it has put a key into one that is no string and has the hash of a name looked up. */
static PyObject *
has_items(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *dict, *items, *key, *value;
    if (!PyArg_ParseTuple(args, "O!O!:has_items", &PyDict_Type, &dict, &PyDict_Type, &items)) {
        return NULL;
    }
    Py_ssize_t position = 0;
    while (PyDict_Next(items, &position, &key, &value)) {
        PyObject *found = PyDict_GetItemWithError(dict, key);
        if (found == NULL && PyErr_Occurred()) {
            return NULL;
        }
        if (found != value) {
            Py_RETURN_FALSE;
        }
    }
    Py_RETURN_TRUE;
}

static PyObject *
tensor_payload(PyObject *Py_UNUSED(module), PyObject *tensor)
{
    return tensor_payload_of(tensor);
}

static PyObject *
tensor_route(PyObject *Py_UNUSED(module), PyObject *route)
{
    const char *name = PyUnicode_AsUTF8(route);
    if (name == NULL || tv_use_route(name) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
dtype_code(PyObject *Py_UNUSED(module), PyObject *dtype)
{
    int32_t code = tv_dtype_code(dtype);
    return code < 0 ? NULL : PyLong_FromLong(code);
}

static PyObject *
data_pointer(PyObject *Py_UNUSED(module), PyObject *tensor)
{
    tensor_view view;
    return tv_read(tensor, &view) < 0 ? NULL : PyLong_FromVoidPtr(view.data);
}

static int
read_sizes(PyObject *tuple, int64_t *out)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
        if (out[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
empty_strided(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { MAX_DIMS = 64 };
    PyObject *sizes, *strides, *dtype;
    int device_type = TV_CPU, device_index = -1;
    int64_t shape[MAX_DIMS], steps[MAX_DIMS];
    if (!PyArg_ParseTuple(args, "O!OO|ii:empty_strided", &PyTuple_Type, &sizes, &strides, &dtype, &device_type,
                          &device_index)) {
        return NULL;
    }
    Py_ssize_t ndim = PyTuple_GET_SIZE(sizes);
    bool given = strides != Py_None;
    if (ndim > MAX_DIMS || (given && (!PyTuple_Check(strides) || PyTuple_GET_SIZE(strides) != ndim))) {
        PyErr_SetString(PyExc_ValueError, "strides must be None or as long as sizes, with at most 64 dimensions");
        return NULL;
    }
    int32_t code = tv_dtype_code(dtype);
    if (code < 0 || read_sizes(sizes, shape) < 0 || (given && read_sizes(strides, steps) < 0)) {
        return NULL;
    }
    return tv_empty_strided(ndim, shape, given ? steps : NULL, code, device_type, device_index);
}

static PyMethodDef methods[] = {
    {"set_callback", frame_hook_set_callback, METH_O,
     "set_callback(callback) -> previous: this thread's callback: a callable, None (off) or False (run entries only)"},
    {"get_callback", frame_hook_get_callback, METH_NOARGS, "get_callback() -> this thread's callback"},
    {"set_stands_aside", frame_hook_set_stands_aside, METH_O,
     "set_stands_aside(flag) -> before: whether threads that are traced or profiled run the program's own frames only"},
    {"is_hook_installed", frame_hook_is_installed, METH_NOARGS, "is_hook_installed() -> bool"},
    {"skip_code", (PyCFunction)(void (*)(void))code_cache_skip_code, METH_VARARGS | METH_KEYWORDS,
     "skip_code(code, recursive=False): never ask about this code; recursive: nor about anything that it calls"},
    {"handles_errors", code_cache_handles_errors, METH_O,
     "handles_errors(code): raise an exception that comes before its first instruction at its RESUME"},
    {"entries", code_cache_entries, METH_O, "entries(code) -> list of its entries, newest hit first"},
    {"code_state", code_cache_state, METH_O, "code_state(code) -> its CodeState"},
    {"install", code_cache_install, METH_VARARGS, "install(code, entry)"},
    {"evict", code_cache_evict, METH_VARARGS, "evict(code, entry) -> whether it was there"},
    {"reset_code", code_cache_reset_code, METH_O, "reset_code(code): forget its entries"},
    {"reset_all", code_cache_reset_all, METH_NOARGS, "reset_all(): forget the entries of every code object"},
    {"op_table", op_table, METH_NOARGS, "op_table() -> ((name, 'accessor' or 'check', operands, doc), ...)"},
    {"const_equal", equal_constants, METH_VARARGS, "const_equal(a, b) -> bool: the EQUALS check"},
    {"disable_wrapper", disable_wrapper, METH_O, "disable_wrapper(fn): fn with the hook off"},
    {"run_disabled", disable_wrapper, METH_O, "run_disabled(callable): the same, for compiled graphs"},
    {"set_eager", compiled_set_eager, METH_O,
     "set_eager(flag) -> before: whether CompiledFunctions call the original function, in all threads"},
    {"bind_torch", bind_torch, METH_NOARGS, "bind_torch() -> dict of what was found; call after importing torch"},
    {"tensor_payload", tensor_payload, METH_O, "tensor_payload(tensor) -> the TENSOR payload that it satisfies"},
    {"tensor_route", tensor_route, METH_O, "tensor_route('handle' or 'dlpack'): how metadata is read"},
    {"runs_its_code", runs_its_code, METH_O, "runs_its_code(function): no C function was set to be called in its place"},
    {"takes_keywords", takes_keywords, METH_O, "takes_keywords(method descriptor): its C function can get keywords"},
    {"has_items", has_items, METH_VARARGS,
     "has_items(dict, items): the dict has these items, whose keys are strings, by identity of the values"},
    {"dtype_code", dtype_code, METH_O, "dtype_code(dtype) -> c10::ScalarType's number"},
    {"data_pointer", data_pointer, METH_O, "data_pointer(tensor) -> address of its first element"},
    {"empty_strided", empty_strided, METH_VARARGS,
     "empty_strided(sizes, strides or None, dtype, device_type=0, device_index=-1) -> uninitialised tensor"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "pyframe._C",
    .m_doc = "Frame hook, entries, guard programs and tensor metadata, in C.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__C(void)
{
    static PyTypeObject *const types[] = {&GuardProgram_Type,     &VersionCell_Type, &GlobalState_Type, &GraphCall_Type,
                                          &DirectCall_Type,       &Entry_Type,       &CodeState_Type,
                                          &CompiledFunction_Type, &DisabledFunction_Type};
    if (PyType_Ready(&ThreadHook_Type) < 0 || code_cache_init() < 0) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (PyModule_AddType(module, types[i]) < 0) {
            Py_DECREF(module);
            return NULL;
        }
    }
    if (frame_hook_init(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
