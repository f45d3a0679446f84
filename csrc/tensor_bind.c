/* Finds torch's functions, types and dtypes, and the offsets in a tensor object at which its metadata is read. */
#include "tensor_bind.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

tv_state tv = {.handle_offset = -1, .keys_offset = -1, .dim_offset = -1, .dtype_offset = -1};

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
    *(void **)&tv.cuda_stream = tv_symbol("aoti_torch_get_current_cuda_stream");
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
        if (dtype == NULL) { /* this release of torch lacks the dtype */
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

int
tv_dispatch_keys_from_python(PyObject *tensor, uint64_t *keys)
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

/* The one 8-aligned offset in [first, last) at which bases[i] holds values[i] for every i, or -1. */
static Py_ssize_t
common_offset(const void *const *bases, const uint64_t *values, Py_ssize_t n, Py_ssize_t first, Py_ssize_t last)
{
    for (Py_ssize_t offset = first; offset < last; offset += 8) {
        Py_ssize_t agree = 0;
        while (agree < n && tv_word_at(bases[agree], offset) == values[agree]) {
            agree++;
        }
        if (agree == n) {
            return offset;
        }
    }
    return -1;
}

enum { N_SAMPLES_MAX = 80 };

static const char calibration_source[] =
    "import torch\n"
    "with torch.inference_mode():\n"
    "    inference = torch.empty(2)\n"
    "samples = [torch.empty(2), inference, torch.empty(2, requires_grad=True),\n"
    "           torch.empty(2, device='meta'), torch.empty(2, dtype=torch.complex64).conj(),\n"
    "           torch.nn.Parameter(torch.empty(3, 2))]\n";

/* GROUP tensors of each kind that differ only in storage and size, created in different orders, so that those of one
 * kind have nothing in common but the dtype and the kind of device. */
enum { GROUP = 6 };
static const char kinds_source[] =
    "import torch\n"
    "kinds = [(d, 'cpu') for d in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,\n"
    "         torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128)]\n"
    "kinds.append((torch.float32, 'meta'))\n"
    "made = {}\n"
    "for n in range(6):\n"
    "    for d, w in (kinds[5 * n % 13:] + kinds[:5 * n % 13])[::1 - n % 2 * 2]:\n"
    "        made.setdefault((d, w), []).append(torch.empty(n + 2, dtype=d, device=w))\n"
    "samples = [t for kind in kinds for t in made[kind]]\n";

static const char dims_source[] = "import torch\nsamples = [torch.empty((5,) * n) for n in (0, 1, 2, 3, 4, 5, 6, 7)]\n";

static PyObject *
calibration_samples(const char *source)
{
    PyObject *names = PyDict_New();
    if (names == NULL || PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins()) < 0) {
        Py_XDECREF(names);
        return NULL;
    }
    PyObject *done = PyRun_String(source, Py_file_input, names, names);
    PyObject *samples = done == NULL ? NULL : PyDict_GetItemString(names, "samples");
    Py_XINCREF(samples);
    Py_XDECREF(done);
    Py_DECREF(names);
    return samples;
}

static Py_ssize_t
read_impls(PyObject *samples, const void **impls)
{
    Py_ssize_t n = PyList_GET_SIZE(samples);
    for (Py_ssize_t i = 0; i < n; i++) {
        uint64_t cdata;
        if (attribute_word(PyList_GET_ITEM(samples, i), "_cdata", &cdata) < 0) {
            return -1;
        }
        impls[i] = (const void *)(uintptr_t)cdata;
    }
    return n;
}

/* Bits of the word at `offset` that are the same within each group. The others depend on something else, or are
 * padding that was never written. */
static uint64_t
common_bits(const void *const *impls, Py_ssize_t n, Py_ssize_t offset)
{
    uint64_t differing = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        differing |= tv_word_at(impls[i], offset) ^ tv_word_at(impls[i - i % GROUP], offset);
    }
    return ~differing;
}

static bool
tells_groups(const void *const *impls, Py_ssize_t n, Py_ssize_t offset)
{
    uint64_t mask = common_bits(impls, n, offset);
    for (Py_ssize_t i = 0; i < n; i += GROUP) {
        for (Py_ssize_t j = 0; j < i; j += GROUP) {
            if (((tv_word_at(impls[i], offset) ^ tv_word_at(impls[j], offset)) & mask) == 0) {
                return false;
            }
        }
    }
    return true;
}

/* The offset of the one word that distinguishes any two groups by bits that are the same within each, or -1. */
static Py_ssize_t
telling_offset(const void *const *impls, Py_ssize_t n)
{
    Py_ssize_t found = -1;
    for (Py_ssize_t offset = 8; offset < TENSOR_IMPL_SCAN_BYTES; offset += 8) {
        if (tells_groups(impls, n, offset)) {
            if (found >= 0) {
                return -1;
            }
            found = offset;
        }
    }
    return found;
}

static int
calibrate_words(void)
{
    const void *impls[N_SAMPLES_MAX];
    PyObject *samples = calibration_samples(kinds_source);
    Py_ssize_t n = samples == NULL ? -1 : read_impls(samples, impls);
    tv.dtype_offset = n < 0 ? -1 : telling_offset(impls, n);
    Py_XDECREF(samples);
    samples = n < 0 ? NULL : calibration_samples(dims_source);
    n = samples == NULL ? -1 : read_impls(samples, impls);
    uint64_t dims[N_SAMPLES_MAX];
    for (Py_ssize_t i = 0; i < n; i++) {
        dims[i] = (uint64_t)i;
    }
    tv.dim_offset = n < 0 ? -1 : common_offset(impls, dims, n, 8, TENSOR_IMPL_SCAN_BYTES);
    Py_XDECREF(samples);
    return n < 0 ? -1 : 0;
}

static int
calibrate(void)
{
    PyObject *samples = calibration_samples(calibration_source);
    if (samples == NULL) {
        return -1;
    }
    const void *objects[N_SAMPLES_MAX], *impls[N_SAMPLES_MAX];
    uint64_t cdata[N_SAMPLES_MAX], keys[N_SAMPLES_MAX];
    Py_ssize_t n = PyList_GET_SIZE(samples);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *tensor = PyList_GET_ITEM(samples, i);
        objects[i] = tensor;
        if (attribute_word(tensor, "_cdata", &cdata[i]) < 0 || tv_dispatch_keys_from_python(tensor, &keys[i]) < 0) {
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
        if (tv.keys_offset < 0) { /* they are the last field: in torch 2.11 objects are one word longer */
            tv.keys_offset = common_offset(impls, keys, n, TENSOR_IMPL_SCAN_BYTES, TENSOR_IMPL_SCAN_BYTES + 8);
        }
    }
    Py_DECREF(samples);
    return calibrate_words();
}

static int
bind_types(PyObject *torch)
{
    PyObject *type = PyObject_GetAttrString(torch, "Tensor");
    PyObject *nn = PyObject_GetAttrString(torch, "nn");
    PyObject *parameter = nn == NULL ? NULL : PyObject_GetAttrString(nn, "Parameter");
    PyObject *native = PyObject_GetAttrString(torch, "_C");
    Py_XDECREF(nn);
    /* Kept until the process ends, as torch itself is. */
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
    return Py_BuildValue("{s:N,s:N,s:N,s:N,s:N,s:N,s:n,s:n,s:n,s:n}", "bound", PyBool_FromLong(tv.bound), "handle",
                         PyBool_FromLong(tv.use_handle), "dlpack", PyBool_FromLong(tv.dlpack != NULL), "wrap",
                         PyBool_FromLong(tv.wrap != NULL), "dispatch_keys", PyBool_FromLong(tv.keys_offset >= 0),
                         "requires_grad", PyBool_FromLong(tv.requires_grad != NULL), "handle_offset",
                         tv.handle_offset, "keys_offset", tv.keys_offset, "dim_offset", tv.dim_offset,
                         "dtype_offset", tv.dtype_offset);
}

/* ---- Dtypes ---- */
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
