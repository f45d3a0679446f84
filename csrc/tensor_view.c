#include "tensor_view.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* ---- The DLPack C exchange ABI, version 1 (only what is used here) ---- */
typedef struct {
    int32_t device_type, device_id;
} dl_device;

typedef struct {
    void *data;
    dl_device device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct {
    uint32_t major, minor;
    void *previous;
    int (*allocate)(dl_tensor *prototype, void **out, void *context,
                    void (*set_error)(void *context, const char *kind, const char *message));
    int (*from_object)(void *object, void **out);
    int (*to_object)(void *managed, void **out_object);
    int (*view_object)(void *object, dl_tensor *out);
    int (*current_stream)(int32_t device_type, int32_t device_id, void **out);
} dl_exchange;

/* ---- Torch's own C functions; each may be absent ---- */
typedef int32_t (*get_pointer_fn)(void *handle, void *out);

static struct {
    bool bound, use_handle;
    PyTypeObject *tensor_type, *parameter_type;
    const dl_exchange *dlpack;
    PyObject *dtype_to_code, *code_to_dtype; /* dicts */
    getter requires_grad;                    /* C getter behind the attribute */
    void *requires_grad_closure;
    Py_ssize_t handle_offset; /* of the at::Tensor inside a tensor object; -1 unknown */
    bool handle_maybe_owned;  /* a "borrowed" flag precedes it (torch before 2.12) */
    Py_ssize_t keys_offset;   /* of the dispatch key set inside a TensorImpl; -1 unknown */
    PyObject *python_keys;    /* torch._C._dispatch_keys, the fallback */
    PyObject *python_empty;   /* torch.empty_strided, the fallback */
    get_pointer_fn get_sizes, get_strides, get_dim, get_dtype, get_data_ptr, get_device_type, get_device_index,
        get_storage_offset;
    int32_t (*empty_strided)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, void **);
    int32_t (*delete_handle)(void *);
    PyObject *(*wrap)(const void *);
    bool (*impl_requires_grad)(const void *impl); /* TensorImpl's method; spares the attribute protocol */
} tv = {.handle_offset = -1, .keys_offset = -1};

static void *libraries[8];
static int n_libraries;

/* c10::ScalarType numbers are part of torch's serialised formats and do not change. */
static const struct {
    const char *name;
    int32_t code;
} dtype_table[] = {
    {"uint8", 0},           {"int8", 1},           {"int16", 2},         {"int32", 3},
    {"int64", 4},           {"float16", 5},        {"float32", 6},       {"float64", 7},
    {"complex32", 8},       {"complex64", 9},      {"complex128", 10},   {"bool", 11},
    {"qint8", 12},          {"quint8", 13},        {"qint32", 14},       {"bfloat16", 15},
    {"quint4x2", 16},       {"quint2x4", 17},      {"float8_e5m2", 23},  {"float8_e4m3fn", 24},
    {"float8_e5m2fnuz", 25}, {"float8_e4m3fnuz", 26}, {"uint16", 27},    {"uint32", 28},
    {"uint64", 29},         {"float8_e8m0fnu", 44}, {"float4_e2m1fn_x2", 45},
};

/* ---- Binding ---- */
static void
open_libraries(const char *folder)
{
    static const char *const names[] = {"c10", "torch_cpu", "torch_python", "torch_cuda", "c10_cuda"};
#ifdef __APPLE__
    const char *suffix = "dylib";
#else
    const char *suffix = "so";
#endif
    n_libraries = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4096];
        int length = snprintf(path, sizeof path, "%s/lib/lib%s.%s", folder, names[i], suffix);
        if (length < 0 || (size_t)length >= sizeof path) {
            continue;
        }
        void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
        if (library != NULL) {
            libraries[n_libraries++] = library;
        }
    }
}

void *
tv_symbol(const char *name)
{
    for (int i = 0; i < n_libraries; i++) {
        void *address = dlsym(libraries[i], name);
        if (address != NULL) {
            return address;
        }
    }
    return dlsym(RTLD_DEFAULT, name);
}

static int
bind_libraries(PyObject *torch)
{
    PyObject *file = PyObject_GetAttrString(torch, "__file__");
    if (file == NULL) {
        return -1;
    }
    const char *path = PyUnicode_AsUTF8(file);
    const char *slash = path == NULL ? NULL : strrchr(path, '/');
    if (slash != NULL) {
        char folder[4096];
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        open_libraries(folder);
    }
    Py_DECREF(file);
    if (path == NULL) {
        return -1;
    }
    tv.get_sizes = (get_pointer_fn)tv_symbol("aoti_torch_get_sizes");
    tv.get_strides = (get_pointer_fn)tv_symbol("aoti_torch_get_strides");
    tv.get_dim = (get_pointer_fn)tv_symbol("aoti_torch_get_dim");
    tv.get_dtype = (get_pointer_fn)tv_symbol("aoti_torch_get_dtype");
    tv.get_data_ptr = (get_pointer_fn)tv_symbol("aoti_torch_get_data_ptr");
    tv.get_device_type = (get_pointer_fn)tv_symbol("aoti_torch_get_device_type");
    tv.get_device_index = (get_pointer_fn)tv_symbol("aoti_torch_get_device_index");
    tv.get_storage_offset = (get_pointer_fn)tv_symbol("aoti_torch_get_storage_offset");
    *(void **)&tv.empty_strided = tv_symbol("aoti_torch_empty_strided");
    *(void **)&tv.delete_handle = tv_symbol("aoti_torch_delete_tensor_object");
    *(void **)&tv.wrap = tv_symbol("_Z16THPVariable_WrapRKN2at10TensorBaseE");
    *(void **)&tv.impl_requires_grad = tv_symbol("_ZNK3c1010TensorImpl13requires_gradEv");
    return 0;
}

static int
bind_dlpack(void)
{
    PyObject *capsule = PyObject_GetAttrString((PyObject *)tv.tensor_type, "__dlpack_c_exchange_api__");
    if (capsule == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    const dl_exchange *api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_DECREF(capsule); /* the table is static storage of torch */
    if (api == NULL) {
        return -1;
    }
    tv.dlpack = api->major == 1 ? api : NULL;
    return 0;
}

static int
bind_dtypes(PyObject *torch)
{
    tv.dtype_to_code = PyDict_New();
    tv.code_to_dtype = PyDict_New();
    if (tv.dtype_to_code == NULL || tv.code_to_dtype == NULL) {
        return -1;
    }
    for (size_t i = 0; i < sizeof dtype_table / sizeof *dtype_table; i++) {
        PyObject *dtype = PyObject_GetAttrString(torch, dtype_table[i].name);
        if (dtype == NULL) { /* this torch has no such dtype */
            PyErr_Clear();
            continue;
        }
        PyObject *code = PyLong_FromLong(dtype_table[i].code);
        int failed = code == NULL || PyDict_SetItem(tv.dtype_to_code, dtype, code) < 0
                     || PyDict_SetItem(tv.code_to_dtype, code, dtype) < 0;
        Py_DECREF(dtype);
        Py_XDECREF(code);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

/* The getset descriptor of Tensor.requires_grad: calling its C getter skips attribute lookup. */
static int
bind_requires_grad(void)
{
    PyObject *descriptor = PyObject_GetAttrString((PyObject *)tv.tensor_type, "requires_grad");
    if (descriptor == NULL) {
        return -1;
    }
    if (Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
        PyGetSetDef *definition = ((PyGetSetDescrObject *)descriptor)->d_getset;
        tv.requires_grad = definition->get;
        tv.requires_grad_closure = definition->closure;
    }
    Py_DECREF(descriptor);
    return 0;
}

/* ---- Calibration: offsets found by comparing memory with what Python reports, on several tensors ---- */
static int
attribute_word(PyObject *object, const char *name, uint64_t *out)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    if (value == NULL) {
        return -1;
    }
    *out = PyLong_AsUnsignedLongLongMask(value);
    Py_DECREF(value);
    return PyErr_Occurred() ? -1 : 0;
}

static int
dispatch_keys_from_python(PyObject *tensor, uint64_t *keys)
{
    PyObject *set = PyObject_CallOneArg(tv.python_keys, tensor);
    if (set == NULL) {
        return -1;
    }
    PyObject *raw = PyObject_CallMethod(set, "raw_repr", NULL);
    Py_DECREF(set);
    if (raw == NULL) {
        return -1;
    }
    *keys = PyLong_AsUnsignedLongLongMask(raw);
    Py_DECREF(raw);
    return PyErr_Occurred() ? -1 : 0;
}

static uint64_t
word_at(const void *base, Py_ssize_t offset)
{
    uint64_t word;
    memcpy(&word, (const char *)base + offset, sizeof word);
    return word;
}

/* The one 8-aligned offset in [first, last) at which bases[i] holds values[i] for every i, or -1. */
static Py_ssize_t
common_offset(const void *const *bases, const uint64_t *values, Py_ssize_t n, Py_ssize_t first, Py_ssize_t last)
{
    for (Py_ssize_t offset = first; offset < last; offset += 8) {
        Py_ssize_t agree = 0;
        while (agree < n && word_at(bases[agree], offset) == values[agree]) {
            agree++;
        }
        if (agree == n) {
            return offset;
        }
    }
    return -1;
}

enum { N_SAMPLES_MAX = 8, TENSOR_IMPL_SCAN_BYTES = 208 };

static const char calibration_source[] =
    "import torch\n"
    "with torch.inference_mode():\n"
    "    inference = torch.empty(2)\n"
    "samples = [torch.empty(2), inference, torch.empty(2, requires_grad=True),\n"
    "           torch.empty(2, device='meta'), torch.empty(2, dtype=torch.complex64).conj(),\n"
    "           torch.nn.Parameter(torch.empty(3, 2))]\n";

static PyObject *
calibration_samples(void)
{
    PyObject *names = PyDict_New();
    if (names == NULL || PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins()) < 0) {
        Py_XDECREF(names);
        return NULL;
    }
    PyObject *done = PyRun_String(calibration_source, Py_file_input, names, names);
    PyObject *samples = done == NULL ? NULL : PyDict_GetItemString(names, "samples");
    Py_XINCREF(samples);
    Py_XDECREF(done);
    Py_DECREF(names);
    return samples;
}

static int
calibrate(void)
{
    PyObject *samples = calibration_samples();
    if (samples == NULL) {
        return -1;
    }
    const void *objects[N_SAMPLES_MAX], *impls[N_SAMPLES_MAX];
    uint64_t cdata[N_SAMPLES_MAX], keys[N_SAMPLES_MAX];
    Py_ssize_t n = PyList_GET_SIZE(samples);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *tensor = PyList_GET_ITEM(samples, i);
        objects[i] = tensor;
        if (attribute_word(tensor, "_cdata", &cdata[i]) < 0 || dispatch_keys_from_python(tensor, &keys[i]) < 0) {
            Py_DECREF(samples);
            return -1;
        }
        impls[i] = (const void *)(uintptr_t)cdata[i];
    }
    Py_ssize_t first = (Py_ssize_t)sizeof(PyObject), last = tv.tensor_type->tp_basicsize - 7;
    tv.handle_offset = common_offset(objects, cdata, n, first, last);
    tv.handle_maybe_owned = tv.handle_offset == first + 8;
    tv.keys_offset = -1;
    if (tv.handle_offset >= 0) {
        tv.keys_offset = common_offset(impls, keys, n, 8, TENSOR_IMPL_SCAN_BYTES);
    }
    Py_DECREF(samples);
    return 0;
}

static int
bind_types(PyObject *torch)
{
    PyObject *type = PyObject_GetAttrString(torch, "Tensor");
    PyObject *nn = PyObject_GetAttrString(torch, "nn");
    PyObject *parameter = nn == NULL ? NULL : PyObject_GetAttrString(nn, "Parameter");
    PyObject *native = PyObject_GetAttrString(torch, "_C");
    Py_XDECREF(nn);
    /* Kept for the life of the process, like torch itself. */
    tv.tensor_type = (PyTypeObject *)type;
    tv.parameter_type = (PyTypeObject *)parameter;
    tv.python_keys = native == NULL ? NULL : PyObject_GetAttrString(native, "_dispatch_keys");
    tv.python_empty = PyObject_GetAttrString(torch, "empty_strided");
    Py_XDECREF(native);
    return type && parameter && tv.python_keys && tv.python_empty ? 0 : -1;
}

int
tv_bind_torch(void)
{
    if (tv.bound) {
        return 0;
    }
    PyObject *torch = PyImport_ImportModule("torch");
    if (torch == NULL) {
        return -1;
    }
    int failed = bind_types(torch) < 0 || bind_libraries(torch) < 0 || bind_dlpack() < 0 || bind_dtypes(torch) < 0
                 || bind_requires_grad() < 0 || calibrate() < 0;
    Py_DECREF(torch);
    if (failed) {
        return -1;
    }
    tv.use_handle = tv.handle_offset >= 0 && tv.get_sizes && tv.get_strides && tv.get_dim && tv.get_dtype
                    && tv.get_data_ptr && tv.get_device_type && tv.get_device_index;
    if (!tv.use_handle && tv.dlpack == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this torch has neither the aoti_torch C functions nor the DLPack C "
                                            "exchange table; torch 2.11 or later is needed");
        return -1;
    }
    tv.bound = true;
    return 0;
}

bool
tv_is_bound(void)
{
    return tv.bound;
}

int
tv_use_route(const char *route)
{
    if (strcmp(route, "handle") == 0 && tv.handle_offset >= 0 && tv.get_sizes != NULL) {
        tv.use_handle = true;
    }
    else if (strcmp(route, "dlpack") == 0 && tv.dlpack != NULL && tv.dlpack->view_object != NULL) {
        tv.use_handle = false;
    }
    else {
        PyErr_Format(PyExc_ValueError, "route '%s' is not available: expected 'handle' or 'dlpack'", route);
        return -1;
    }
    return 0;
}

PyObject *
tv_describe(void)
{
    return Py_BuildValue("{s:N,s:N,s:N,s:N,s:N,s:N,s:n,s:n}", "bound", PyBool_FromLong(tv.bound), "handle",
                         PyBool_FromLong(tv.use_handle), "dlpack", PyBool_FromLong(tv.dlpack != NULL), "wrap",
                         PyBool_FromLong(tv.wrap != NULL), "dispatch_keys", PyBool_FromLong(tv.keys_offset >= 0),
                         "requires_grad", PyBool_FromLong(tv.requires_grad != NULL), "handle_offset",
                         tv.handle_offset, "keys_offset", tv.keys_offset);
}

/* ---- Reading ---- */
int
tv_is_exact_tensor(PyObject *object)
{
    return Py_TYPE(object) == tv.tensor_type || Py_TYPE(object) == tv.parameter_type;
}

static bool
is_tensor(PyObject *object)
{
    return tv.tensor_type != NULL && PyObject_TypeCheck(object, tv.tensor_type);
}

void *
tv_aten_handle(PyObject *tensor)
{
    if (tv.handle_offset < 0) {
        return NULL;
    }
    char *place = (char *)tensor + tv.handle_offset;
    if (tv.handle_maybe_owned && *(place - 8) != 0) { /* borrowed: the word points at somebody else's at::Tensor */
        return *(void **)place;
    }
    return place;
}

static int
not_a_tensor(PyObject *object)
{
    if (!tv.bound) {
        PyErr_SetString(PyExc_RuntimeError, "bind_torch() has not been called");
    }
    else {
        PyErr_Format(PyExc_TypeError, "expected a torch.Tensor, got %.200s", Py_TYPE(object)->tp_name);
    }
    return -1;
}

static int
unreadable(PyObject *tensor)
{
    PyErr_Format(PyExc_RuntimeError, "cannot read the metadata of this %.200s", Py_TYPE(tensor)->tp_name);
    return -1;
}

/* ScalarType number for DLPack's (code, bits), or -1. */
static int32_t
dtype_from_dlpack(uint8_t code, uint8_t bits)
{
    switch (code) {
    case 0: return bits == 8 ? 1 : bits == 16 ? 2 : bits == 32 ? 3 : bits == 64 ? 4 : -1;
    case 1: return bits == 8 ? 0 : bits == 16 ? 27 : bits == 32 ? 28 : bits == 64 ? 29 : -1;
    case 2: return bits == 16 ? 5 : bits == 32 ? 6 : bits == 64 ? 7 : -1;
    case 4: return bits == 16 ? 15 : -1;
    case 5: return bits == 32 ? 8 : bits == 64 ? 9 : bits == 128 ? 10 : -1;
    case 6: return 11;
    case 10: return 24;
    case 11: return 26;
    case 12: return 23;
    case 13: return 25;
    case 14: return 44;
    case 17: return 45;
    default: return -1;
    }
}

static int32_t
device_from_dlpack(int32_t type)
{
    return type == 1 ? TV_CPU : type == 2 || type == 10 ? TV_CUDA : -1;
}

static int
read_by_dlpack(PyObject *tensor, tensor_view *view)
{
    dl_tensor dl;
    if (tv.dlpack->view_object == NULL) {
        return unreadable(tensor);
    }
    if (tv.dlpack->view_object(tensor, &dl) != 0) {
        return -1;
    }
    view->data = (char *)dl.data + dl.byte_offset;
    view->sizes = dl.shape;
    view->strides = dl.strides;
    view->ndim = dl.ndim;
    view->storage_offset = 0;
    view->dtype = dtype_from_dlpack(dl.dtype.code, dl.dtype.bits);
    view->device_type = device_from_dlpack(dl.device.device_type);
    view->device_index = view->device_type == TV_CPU ? -1 : dl.device.device_id;
    return view->dtype < 0 || view->device_type < 0 ? unreadable(tensor) : 0;
}

static int
read_by_handle(PyObject *tensor, tensor_view *view)
{
    void *handle = tv_aten_handle(tensor);
    view->device_index = -1;
    if (tv.get_dim(handle, &view->ndim) || tv.get_sizes(handle, &view->sizes)
        || tv.get_strides(handle, &view->strides) || tv.get_dtype(handle, &view->dtype)
        || tv.get_device_type(handle, &view->device_type)) {
        return unreadable(tensor);
    }
    if (view->device_type == TV_CPU) { /* the common case spares a call */
        return 0;
    }
    return tv.get_device_index(handle, &view->device_index) ? unreadable(tensor) : 0;
}

int
tv_read_meta(PyObject *tensor, tensor_view *view)
{
    view->data = NULL;
    view->storage_offset = 0;
    if (!is_tensor(tensor)) {
        return not_a_tensor(tensor);
    }
    return tv.use_handle ? read_by_handle(tensor, view) : read_by_dlpack(tensor, view);
}

int
tv_read(PyObject *tensor, tensor_view *view)
{
    if (tv_read_meta(tensor, view) < 0) {
        return -1;
    }
    if (!tv.use_handle || view->device_type == TV_META) {
        return 0;
    }
    void *handle = tv_aten_handle(tensor);
    if (tv.get_data_ptr(handle, &view->data)
        || (tv.get_storage_offset != NULL && tv.get_storage_offset(handle, &view->storage_offset))) {
        return unreadable(tensor);
    }
    return 0;
}

int
tv_requires_grad(PyObject *tensor)
{
    if (tv.use_handle && tv.impl_requires_grad != NULL && is_tensor(tensor)) {
        return tv.impl_requires_grad(*(void **)tv_aten_handle(tensor));
    }
    PyObject *value;
    if (tv.requires_grad != NULL && is_tensor(tensor)) {
        value = tv.requires_grad(tensor, tv.requires_grad_closure);
    }
    else {
        value = PyObject_GetAttrString(tensor, "requires_grad");
    }
    if (value == NULL) {
        return -1;
    }
    int truth = value == Py_True ? 1 : value == Py_False ? 0 : PyObject_IsTrue(value);
    Py_DECREF(value);
    return truth;
}

int
tv_dispatch_keys(PyObject *tensor, uint64_t *keys)
{
    if (!is_tensor(tensor)) {
        return not_a_tensor(tensor);
    }
    if (tv.keys_offset < 0) {
        return dispatch_keys_from_python(tensor, keys);
    }
    *keys = word_at(*(void **)tv_aten_handle(tensor), tv.keys_offset);
    return 0;
}

/* ---- Making ---- */
PyObject *
tv_wrap_handle(void *handle)
{
    if (tv.wrap == NULL) {
        PyErr_SetString(PyExc_NotImplementedError, "this torch does not export THPVariable_Wrap");
        return NULL;
    }
    PyObject *tensor = tv.wrap(handle);
    if (tensor == NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_RuntimeError, "cannot make a tensor object");
    }
    return tensor;
}

static PyObject *
integer_tuple(const int64_t *values, int64_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (int64_t i = 0; tuple != NULL && i < n; i++) {
        PyObject *item = PyLong_FromLongLong(values[i]);
        if (item == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, item);
    }
    return tuple;
}

static PyObject *
empty_by_python(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t device_type,
                int32_t device_index)
{
    static const char *const device_names[] = {"cpu", "cuda"};
    if (device_type != TV_CPU && device_type != TV_CUDA) {
        PyErr_Format(PyExc_NotImplementedError, "cannot allocate on device type %d", device_type);
        return NULL;
    }
    char device[32];
    snprintf(device, sizeof device, device_index < 0 ? "%s" : "%s:%d", device_names[device_type], device_index);
    PyObject *shape = integer_tuple(sizes, ndim), *steps = integer_tuple(strides, ndim);
    PyObject *type = tv_dtype_object(dtype);
    PyObject *result = NULL;
    if (shape != NULL && steps != NULL && type != NULL) {
        PyObject *args = PyTuple_Pack(2, shape, steps);
        PyObject *kwargs = Py_BuildValue("{s:O,s:s}", "dtype", type, "device", device);
        if (args != NULL && kwargs != NULL) {
            result = PyObject_Call(tv.python_empty, args, kwargs);
        }
        Py_XDECREF(args);
        Py_XDECREF(kwargs);
    }
    Py_XDECREF(shape);
    Py_XDECREF(steps);
    Py_XDECREF(type);
    return result;
}

PyObject *
tv_empty_strided(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t device_type,
                 int32_t device_index)
{
    int64_t contiguous[64];
    if (strides == NULL) {
        if (ndim > 64) {
            PyErr_SetString(PyExc_ValueError, "more than 64 dimensions");
            return NULL;
        }
        int64_t step = 1;
        for (int64_t i = ndim - 1; i >= 0; i--) {
            contiguous[i] = step;
            step *= sizes[i] > 1 ? sizes[i] : 1;
        }
        strides = contiguous;
    }
    if (tv.empty_strided == NULL || tv.wrap == NULL || tv.delete_handle == NULL) {
        return empty_by_python(ndim, sizes, strides, dtype, device_type, device_index);
    }
    void *handle = NULL;
    int32_t index = device_index < 0 ? 0 : device_index;
    if (tv.empty_strided(ndim, sizes, strides, dtype, device_type, index, &handle)) {
        PyErr_SetString(PyExc_RuntimeError, "cannot allocate a tensor");
        return NULL;
    }
    PyObject *tensor = tv_wrap_handle(handle);
    tv.delete_handle(handle);
    return tensor;
}

int
tv_current_stream(int32_t device_type, int32_t device_index, void **stream)
{
    *stream = NULL;
    if (device_type == TV_CPU) {
        return 0;
    }
    if (tv.dlpack == NULL || device_type != TV_CUDA) {
        PyErr_Format(PyExc_NotImplementedError, "no current stream for device type %d", device_type);
        return -1;
    }
    return tv.dlpack->current_stream(2, device_index, stream) == 0 ? 0 : -1;
}

int32_t
tv_dtype_code(PyObject *dtype)
{
    PyObject *code = tv.dtype_to_code == NULL ? NULL : PyDict_GetItemWithError(tv.dtype_to_code, dtype);
    if (code == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_ValueError, "not a torch.dtype that is known here: %R", dtype);
        }
        return -1;
    }
    return (int32_t)PyLong_AsLong(code);
}

PyObject *
tv_dtype_object(int32_t code)
{
    PyObject *key = PyLong_FromLong(code);
    if (key == NULL) {
        return NULL;
    }
    PyObject *dtype = tv.code_to_dtype == NULL ? NULL : PyDict_GetItemWithError(tv.code_to_dtype, key);
    Py_DECREF(key);
    if (dtype == NULL && !PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "no torch.dtype has the number %d", code);
    }
    Py_XINCREF(dtype);
    return dtype;
}
