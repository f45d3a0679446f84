#include "global_state.h"
#include "tensor_view.h"

/* How a C++ getter is called. Each takes and returns plain scalars, so the C calling convention is the same. */
typedef enum {
    RETURNS_BOOL,
    RETURNS_BYTE,
    RETURNS_INT,
    RETURNS_LONG,
    DEVICE_BOOL,  /* of a device type */
    DEVICE_BYTE,
    CONTEXT_BOOL, /* method of at::Context */
    MODULE_INT,   /* no getter: the global `python` of torch.autograd.forward_ad */
} signature;

/* name, exported symbol, how to call it, device type, and the Python function to use if the symbol does not exist. */
static const struct {
    const char *name, *symbol;
    signature how;
    int device;
    const char *python, *python_argument;
    int only_if; /* index of the flag that must be set for this value to matter, or -1 */
} fields[] = {
    {"grad_mode", "_ZN3c108GradMode10is_enabledEv", RETURNS_BOOL, 0, "is_grad_enabled", NULL, -1},
    {"inference_mode", "_ZN3c1013InferenceMode10is_enabledEv", RETURNS_BOOL, 0, "is_inference_mode_enabled", NULL, -1},
    {"autocast_cpu", "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE", DEVICE_BOOL, TV_CPU,
     "is_autocast_enabled", "cpu", -1},
    {"autocast_cpu_dtype", "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", DEVICE_BYTE, TV_CPU,
     "get_autocast_dtype", "cpu", 2},
    {"autocast_cuda", "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE", DEVICE_BOOL, TV_CUDA,
     "is_autocast_enabled", "cuda", -1},
    {"autocast_cuda_dtype", "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", DEVICE_BYTE, TV_CUDA,
     "get_autocast_dtype", "cuda", 4},
    {"default_dtype", "_ZN3c1031get_default_dtype_as_scalartypeEv", RETURNS_BYTE, 0, "get_default_dtype", NULL, -1},
    {"deterministic", "_ZNK2at7Context23deterministicAlgorithmsEv", CONTEXT_BOOL, 0, "_get_deterministic_algorithms",
     NULL, -1},
    {"deterministic_warn_only", "_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv", CONTEXT_BOOL, 0,
     "_get_deterministic_algorithms_warn_only", NULL, 7},
    {"fill_uninitialized_memory", "_ZNK2at7Context36deterministicFillUninitializedMemoryEv", CONTEXT_BOOL, 0,
     "_get_deterministic_fill_uninitialized_memory", NULL, 7},
    {"num_threads", "_ZN2at15get_num_threadsEv", RETURNS_INT, 0, "get_num_threads", NULL, -1},
    {"torch_function_state", "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv", RETURNS_BYTE, 0,
     "_is_torch_function_all_disabled", NULL, -1},
    {"torch_function_modes", "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", RETURNS_LONG, 0,
     "_len_torch_function_stack", NULL, -1},
    {"torch_dispatch_modes", "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv", RETURNS_LONG, 0,
     "_len_torch_dispatch_stack", NULL, -1},
    {"jit_tracing", "_ZN2at6tracer4impl19is_dispatch_enabledEv", RETURNS_BOOL, 0, "_is_tracing", NULL, -1},
    {"forward_ad_level", NULL, MODULE_INT, 0, "_current_level", NULL, -1},
};
enum { N_FIELDS = sizeof fields / sizeof *fields, FUNCTION_MODES = 12 };

static struct {
    bool bound;
    void *symbols[N_FIELDS];
    PyObject *python[N_FIELDS];
    void *at_context;
    PyObject *function_mode_at; /* torch._C._get_function_stack_at */
    PyObject *device_context;   /* torch.utils._device.DeviceContext */
    PyObject *forward_ad;       /* the namespace of torch.autograd.forward_ad */
} getters;

typedef struct {
    PyObject_HEAD
    int64_t values[N_FIELDS];
    PyObject *modes; /* tuple of the active torch function modes: default devices, and the types of all others */
} GlobalState;

static PyObject *
find_in_torch(PyObject *torch, PyObject *native, const char *name)
{
    PyObject *found = PyObject_GetAttrString(native, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        found = PyObject_GetAttrString(torch, name);
    }
    return found;
}

int
global_state_bind(void)
{
    if (getters.bound) {
        return 0;
    }
    PyObject *torch = PyImport_ImportModule("torch");
    PyObject *native = torch == NULL ? NULL : PyObject_GetAttrString(torch, "_C");
    int failed = native == NULL;
    void *(*context)(void) = NULL;
    *(void **)&context = tv_symbol("_ZN2at13globalContextEv");
    getters.at_context = context == NULL ? NULL : context();
    for (int i = 0; !failed && i < N_FIELDS; i++) {
        if (fields[i].how == MODULE_INT) {
            Py_XSETREF(getters.python[i], PyUnicode_InternFromString(fields[i].python));
            failed = getters.python[i] == NULL;
            continue;
        }
        getters.symbols[i] = tv_symbol(fields[i].symbol);
        if (fields[i].how == CONTEXT_BOOL && getters.at_context == NULL) {
            getters.symbols[i] = NULL;
        }
        Py_XSETREF(getters.python[i], find_in_torch(torch, native, fields[i].python));
        failed = getters.python[i] == NULL;
    }
    if (!failed) {
        Py_XSETREF(getters.function_mode_at, PyObject_GetAttrString(native, "_get_function_stack_at"));
        failed = getters.function_mode_at == NULL;
    }
    if (!failed) {
        PyObject *module = PyImport_ImportModule("torch.autograd.forward_ad");
        failed = module == NULL;
        Py_XSETREF(getters.forward_ad, failed ? NULL : Py_NewRef(PyModule_GetDict(module)));
        Py_XDECREF(module);
    }
    if (!failed) {
        PyObject *module = PyImport_ImportModule("torch.utils._device");
        Py_XSETREF(getters.device_context, module == NULL ? NULL : PyObject_GetAttrString(module, "DeviceContext"));
        failed = getters.device_context == NULL;
        Py_XDECREF(module);
    }
    Py_XDECREF(native);
    Py_XDECREF(torch);
    getters.bound = !failed;
    return failed ? -1 : 0;
}

static int
read_by_python(int field, int64_t *out)
{
    PyObject *value = fields[field].python_argument == NULL
                          ? PyObject_CallNoArgs(getters.python[field])
                          : PyObject_CallFunction(getters.python[field], "s", fields[field].python_argument);
    if (value == NULL) {
        return -1;
    }
    *out = PyLong_Check(value) ? PyLong_AsLongLong(value) : tv_dtype_code(value);
    Py_DECREF(value);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

static int
read_global(int field, int64_t *out)
{
    PyObject *value = PyDict_GetItemWithError(getters.forward_ad, getters.python[field]); /* borrowed */
    if (value == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_RuntimeError, "torch.autograd.forward_ad has no %U", getters.python[field]);
        }
        return -1;
    }
    *out = PyLong_AsLongLong(value);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

static int
read_field(int field, int64_t *out)
{
    if (fields[field].how == MODULE_INT) {
        return read_global(field, out);
    }
    void *symbol = getters.symbols[field];
    if (symbol == NULL) {
        return read_by_python(field, out);
    }
    switch (fields[field].how) {
    case RETURNS_BOOL: *out = ((bool (*)(void))symbol)(); break;
    case RETURNS_BYTE: *out = ((int8_t (*)(void))symbol)(); break;
    case RETURNS_INT: *out = ((int (*)(void))symbol)(); break;
    case RETURNS_LONG: *out = ((int64_t (*)(void))symbol)(); break;
    case DEVICE_BOOL: *out = ((bool (*)(int8_t))symbol)((int8_t)fields[field].device); break;
    case DEVICE_BYTE: *out = ((int8_t (*)(int8_t))symbol)((int8_t)fields[field].device); break;
    case CONTEXT_BOOL: *out = ((bool (*)(void *))symbol)(getters.at_context); break;
    case MODULE_INT: break; /* above */
    }
    return 0;
}

/* Index of the first field that differs from `expected`, N_FIELDS if none, -1 with an exception set. Fills `values`
 * up to there; with no expectation, fills all. */
static int
read_fields(const int64_t *expected, int64_t *values)
{
    for (int i = 0; i < N_FIELDS; i++) {
        if (fields[i].only_if >= 0 && !values[fields[i].only_if]) {
            values[i] = -1;
        }
        else if (read_field(i, &values[i]) < 0) {
            return -1;
        }
        if (expected != NULL && values[i] != expected[i]) {
            return i;
        }
    }
    return N_FIELDS;
}

/* Whether the modes have the same type, or are the same default device (each `with torch.device(d)` creates a new
 * context). A capture guards whatever else it assumed about other modes. */
static int
mode_matches(PyObject *expected, PyObject *actual)
{
    if (expected == actual) {
        return 1;
    }
    if (PyType_Check(expected)) {
        return (PyObject *)Py_TYPE(actual) == expected;
    }
    if (Py_TYPE(expected) != Py_TYPE(actual)) {
        return 0;
    }
    PyObject *a = PyObject_GetAttrString(expected, "device");
    PyObject *b = a == NULL ? NULL : PyObject_GetAttrString(actual, "device");
    int same = b == NULL ? 0 : PyObject_RichCompareBool(a, b, Py_EQ);
    Py_XDECREF(a);
    Py_XDECREF(b);
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    return PyErr_Occurred() ? -1 : same;
}

static PyObject *
mode_at(Py_ssize_t i)
{
    PyObject *index = PyLong_FromSsize_t(i);
    if (index == NULL) {
        return NULL;
    }
    PyObject *mode = PyObject_CallOneArg(getters.function_mode_at, index);
    Py_DECREF(index);
    return mode;
}

int
global_state_matches(PyObject *object)
{
    GlobalState *state = (GlobalState *)object;
    int64_t values[N_FIELDS];
    int differs = read_fields(state->values, values);
    if (differs != N_FIELDS) {
        return differs < 0 ? -1 : 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(state->modes); i++) {
        PyObject *mode = mode_at(i);
        if (mode == NULL) {
            return -1;
        }
        int same = mode_matches(PyTuple_GET_ITEM(state->modes, i), mode);
        Py_DECREF(mode);
        if (same <= 0) {
            return same;
        }
    }
    return 1;
}

static PyObject *
capture_modes(Py_ssize_t n)
{
    PyObject *modes = PyTuple_New(n);
    for (Py_ssize_t i = 0; modes != NULL && i < n; i++) {
        PyObject *mode = mode_at(i);
        if (mode == NULL) {
            Py_CLEAR(modes);
            break;
        }
        if ((PyObject *)Py_TYPE(mode) != getters.device_context) {
            Py_SETREF(mode, Py_NewRef((PyObject *)Py_TYPE(mode)));
        }
        PyTuple_SET_ITEM(modes, i, mode);
    }
    return modes;
}

static PyObject *
GlobalState_capture(PyObject *Py_UNUSED(cls), PyObject *Py_UNUSED(ignored))
{
    if (!getters.bound) {
        PyErr_SetString(PyExc_RuntimeError, "bind_torch() has not been called");
        return NULL;
    }
    GlobalState *state = PyObject_GC_New(GlobalState, &GlobalState_Type);
    if (state == NULL) {
        return NULL;
    }
    state->modes = NULL;
    if (read_fields(NULL, state->values) < 0
        || (state->modes = capture_modes((Py_ssize_t)state->values[FUNCTION_MODES])) == NULL) {
        PyObject_GC_Del(state);
        return NULL;
    }
    PyObject_GC_Track(state);
    return (PyObject *)state;
}

static PyObject *
GlobalState_matches(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    int same = global_state_matches(self);
    return same < 0 ? NULL : PyBool_FromLong(same);
}

static PyObject *
as_dict(const int64_t *values, PyObject *modes)
{
    PyObject *dict = PyDict_New();
    for (int i = 0; dict != NULL && i < N_FIELDS; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);
        if (value == NULL || PyDict_SetItemString(dict, fields[i].name, value) < 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(value);
    }
    if (dict != NULL && PyDict_SetItemString(dict, "modes", modes) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
GlobalState_as_dict(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return as_dict(((GlobalState *)self)->values, ((GlobalState *)self)->modes);
}

static int
GlobalState_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((GlobalState *)self)->modes);
    return 0;
}

static int
GlobalState_clear(PyObject *self)
{
    Py_CLEAR(((GlobalState *)self)->modes);
    return 0;
}

static void
GlobalState_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    GlobalState_clear(self);
    PyObject_GC_Del(self);
}

static PyObject *
GlobalState_repr(PyObject *self)
{
    PyObject *dict = GlobalState_as_dict(self, NULL);
    if (dict == NULL) {
        return NULL;
    }
    PyObject *text = PyUnicode_FromFormat("GlobalState(%R)", dict);
    Py_DECREF(dict);
    return text;
}

static PyMethodDef GlobalState_methods[] = {
    {"capture", GlobalState_capture, METH_NOARGS | METH_CLASS, "capture() -> GlobalState of this thread, now"},
    {"matches", GlobalState_matches, METH_NOARGS, "matches() -> bool: is every mode as captured?"},
    {"as_dict", GlobalState_as_dict, METH_NOARGS, "as_dict() -> {mode name: number}, for messages"},
    {NULL, NULL, 0, NULL},
};

PyTypeObject GlobalState_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pyframe._C.GlobalState",
    .tp_doc = "Torch's modes that change what a graph means; made by capture().",
    .tp_basicsize = sizeof(GlobalState),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = GlobalState_dealloc,
    .tp_traverse = GlobalState_traverse,
    .tp_clear = GlobalState_clear,
    .tp_repr = GlobalState_repr,
    .tp_methods = GlobalState_methods,
};
