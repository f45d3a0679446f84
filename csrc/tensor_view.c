/* Reads and creates tensors through the functions and offsets that tensor_bind.c found. */
#include "tensor_bind.h"

#include <stdio.h>

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
    if (tv.handle_maybe_owned && *(place - 8) != 0) { /* borrowed: the word points at an at::Tensor elsewhere */
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
        return tv_dispatch_keys_from_python(tensor, keys);
    }
    *keys = tv_word_at(*(void **)tv_aten_handle(tensor), tv.keys_offset);
    return 0;
}

int
tv_metadata_stamps(PyObject *tensor, const void **addresses)
{
    if (!tv.use_handle || tv.keys_offset < 0 || tv.dim_offset < 0 || tv.dtype_offset < 0 || !is_tensor(tensor)) {
        return 0;
    }
    void *handle = tv_aten_handle(tensor);
    const char *impl = *(char **)handle, *end = impl + TENSOR_IMPL_SCAN_BYTES;
    tensor_view view;
    if (handle != (char *)tensor + tv.handle_offset || read_by_handle(tensor, &view) < 0) {
        PyErr_Clear();
        return 0;
    }
    const char *sizes = (const char *)view.sizes, *strides = (const char *)view.strides;
    if (view.ndim > 5 || sizes < impl || sizes >= end || strides < impl || strides >= end) { /* kept elsewhere */
        return 0;
    }
    int n = 0;
    addresses[n++] = handle;
    addresses[n++] = impl + tv.dim_offset;
    for (int64_t i = 0; i < view.ndim; i++) {
        addresses[n++] = view.sizes + i;
        addresses[n++] = view.strides + i;
    }
    addresses[n++] = impl + tv.dtype_offset;
    addresses[n++] = impl + tv.keys_offset;
    return n;
}

bool
tv_on_cpu(PyObject *tensor)
{
    tensor_view view;
    return tv_read_meta(tensor, &view) == 0 && view.device_type == TV_CPU;
}

int
tv_unstamped_metadata(PyObject *tensor, bool on_cpu)
{
    void *handle = tv_aten_handle(tensor);
    int32_t index = -1;
    int requires_grad = handle != NULL && tv.impl_requires_grad != NULL ? tv.impl_requires_grad(*(void **)handle)
                                                                        : tv_requires_grad(tensor);
    if (on_cpu || requires_grad < 0) { /* the stamps hold the kind of device */
        return requires_grad;
    }
    return handle == NULL || tv.get_device_index(handle, &index) ? unreadable(tensor) : requires_grad | (index + 1) << 1;
}

/* ---- Making ---- */
PyObject *
tv_wrap_handle(void *handle)
{
    if (tv.wrap == NULL) {
        PyErr_SetString(PyExc_NotImplementedError, "this torch does not export THPVariable_Wrap");
        return NULL;
    }
    PyObject *tensor = tv_wrap_caught(tv.wrap, handle);
    if (tensor == NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_RuntimeError, "cannot make a tensor object");
    }
    return tensor;
}

PyObject *
tv_dims_tuple(const int64_t *values, int64_t n)
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
    PyObject *shape = tv_dims_tuple(sizes, ndim), *steps = tv_dims_tuple(strides, ndim);
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
    int32_t index = device_index < 0 ? 0 : device_index, status;
    if (device_type == TV_CPU) {
        status = tv.empty_strided(ndim, sizes, strides, dtype, device_type, index, &handle);
    }
    else { /* the allocator may wait for the device, which may wait for a callback that needs the GIL */
        Py_BEGIN_ALLOW_THREADS
        status = tv.empty_strided(ndim, sizes, strides, dtype, device_type, index, &handle);
        Py_END_ALLOW_THREADS
    }
    if (status != 0) { /* the C function gives no reason; torch's own exception does */
        return empty_by_python(ndim, sizes, strides, dtype, device_type, device_index);
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
    if (device_type == TV_CUDA && tv.cuda_stream != NULL) {
        if (tv.cuda_stream(device_index, stream) == 0) {
            return 0;
        }
        PyErr_Format(PyExc_RuntimeError, "torch has no current stream on cuda:%d", device_index);
        return -1;
    }
    if (tv.dlpack == NULL || tv.dlpack->current_stream == NULL || device_type != TV_CUDA) {
        PyErr_Format(PyExc_NotImplementedError, "no current stream for device type %d", device_type);
        return -1;
    }
    return tv.dlpack->current_stream(2, device_index, stream) == 0 ? 0 : -1;
}
