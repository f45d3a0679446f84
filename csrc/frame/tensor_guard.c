#include "tensor_guard.h"
#include "tensor_view.h"

#include <string.h>

enum { ANY_INT = INT32_MIN };
#define ANY_SIZE INT64_MIN

struct tensor_expectation {
    PyTypeObject *type; /* only compared by address; not kept alive by this guard */
    uint64_t keys;
    int32_t dtype, device_type, device_index, requires_grad, ndim;
    int8_t check_keys, check_sizes, check_strides;
    int64_t dims[]; /* sizes, then strides; ANY_SIZE is not checked */
};

static int
optional_int(PyObject *item, int32_t *out)
{
    *out = ANY_INT;
    if (item == Py_None) {
        return 0;
    }
    long value = PyLong_AsLong(item);
    *out = (int32_t)value;
    return value == -1 && PyErr_Occurred() ? -1 : 0;
}

static int
read_dims(PyObject *item, int32_t ndim, int64_t *out, int8_t *given, const char *what)
{
    *given = item != Py_None;
    if (item == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != ndim) {
        PyErr_Format(PyExc_ValueError, "TENSOR: %s must be None or a tuple of %d items", what, (int)ndim);
        return -1;
    }
    for (int32_t i = 0; i < ndim; i++) {
        PyObject *value = PyTuple_GET_ITEM(item, i);
        out[i] = value == Py_None ? ANY_SIZE : PyLong_AsLongLong(value);
        if (out[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

static int
read_dtype(PyObject *item, int32_t *out)
{
    if (item == Py_None || PyLong_Check(item)) {
        return optional_int(item, out);
    }
    *out = tv_dtype_code(item);
    return *out < 0 ? -1 : 0;
}

static int
fill_expectation(tensor_expectation *e, PyObject *payload, int32_t ndim)
{
    PyObject *type = PyTuple_GET_ITEM(payload, 0);
    if (type != Py_None && !PyType_Check(type)) {
        PyErr_SetString(PyExc_TypeError, "TENSOR: the first item must be a type or None");
        return -1;
    }
    e->type = type == Py_None ? NULL : (PyTypeObject *)type;
    e->ndim = ndim;
    PyObject *keys = PyTuple_GET_ITEM(payload, 8);
    e->check_keys = keys != Py_None;
    if (e->check_keys) {
        e->keys = PyLong_AsUnsignedLongLongMask(keys);
        if (PyErr_Occurred()) {
            return -1;
        }
    }
    int32_t n = ndim < 0 ? 0 : ndim;
    return read_dtype(PyTuple_GET_ITEM(payload, 1), &e->dtype) < 0
                   || optional_int(PyTuple_GET_ITEM(payload, 2), &e->device_type) < 0
                   || optional_int(PyTuple_GET_ITEM(payload, 3), &e->device_index) < 0
                   || read_dims(PyTuple_GET_ITEM(payload, 5), n, e->dims, &e->check_sizes, "sizes") < 0
                   || read_dims(PyTuple_GET_ITEM(payload, 6), n, e->dims + n, &e->check_strides, "strides") < 0
                   || optional_int(PyTuple_GET_ITEM(payload, 7), &e->requires_grad) < 0
               ? -1
               : 0;
}

tensor_expectation *
tensor_expectation_new(PyObject *payload)
{
    if (!tv_is_bound()) {
        PyErr_SetString(PyExc_RuntimeError, "TENSOR needs bind_torch() to have been called");
        return NULL;
    }
    if (!PyTuple_Check(payload) || PyTuple_GET_SIZE(payload) != 9) {
        PyErr_SetString(PyExc_ValueError, "TENSOR: expected a tuple of 9 items");
        return NULL;
    }
    int32_t ndim;
    if (optional_int(PyTuple_GET_ITEM(payload, 4), &ndim) < 0) {
        return NULL;
    }
    if (ndim != ANY_INT && (ndim < 0 || ndim > 1 << 16)) {
        PyErr_Format(PyExc_ValueError, "TENSOR: ndim %d is out of range", (int)ndim);
        return NULL;
    }
    size_t n = ndim == ANY_INT ? 0 : (size_t)ndim;
    tensor_expectation *e = PyMem_Calloc(1, sizeof *e + 2 * n * sizeof e->dims[0]);
    if (e == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (fill_expectation(e, payload, ndim) < 0) {
        tensor_expectation_free(e);
        return NULL;
    }
    return e;
}

void
tensor_expectation_free(tensor_expectation *expected)
{
    PyMem_Free(expected);
}

static int
dims_match(const int64_t *actual, const int64_t *expected, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (expected[i] != actual[i] && expected[i] != ANY_SIZE) {
            return 0;
        }
    }
    return 1;
}

static int
scalars_match(const tensor_view *view, const tensor_expectation *e)
{
    return (e->ndim == ANY_INT || view->ndim == e->ndim) && (e->dtype == ANY_INT || view->dtype == e->dtype)
           && (e->device_type == ANY_INT || view->device_type == e->device_type)
           && (e->device_index == ANY_INT || view->device_index == e->device_index);
}

int
tensor_matches(PyObject *object, const tensor_expectation *e)
{
    if (e->type != NULL && Py_TYPE(object) != e->type) {
        return 0;
    }
    if (e->check_keys) { /* first: sparse and functional tensors, whose strides cannot be read, differ in it */
        uint64_t keys;
        if (tv_dispatch_keys(object, &keys) < 0) {
            return -1;
        }
        if (keys != e->keys) {
            return 0;
        }
    }
    tensor_view view;
    if (tv_read_meta(object, &view) < 0) {
        return -1;
    }
    if (!scalars_match(&view, e) || (e->check_sizes && !dims_match(view.sizes, e->dims, e->ndim))
        || (e->check_strides && !dims_match(view.strides, e->dims + e->ndim, e->ndim))) {
        return 0;
    }
    if (e->requires_grad == ANY_INT) {
        return 1;
    }
    int requires_grad = tv_requires_grad(object);
    return requires_grad < 0 ? -1 : requires_grad == (e->requires_grad != 0);
}

PyObject *
tensor_payload_of(PyObject *tensor)
{
    tensor_view view;
    uint64_t keys;
    if (tv_read_meta(tensor, &view) < 0 || tv_dispatch_keys(tensor, &keys) < 0) {
        return NULL;
    }
    int requires_grad = tv_requires_grad(tensor);
    if (requires_grad < 0) {
        return NULL;
    }
    PyObject *dtype = tv_dtype_object(view.dtype);
    if (dtype == NULL) {
        return NULL;
    }
    return Py_BuildValue("(ONiiiNNNK)", (PyObject *)Py_TYPE(tensor), dtype, (int)view.device_type,
                         (int)view.device_index, (int)view.ndim, tv_dims_tuple(view.sizes, view.ndim),
                         tv_dims_tuple(view.strides, view.ndim), PyBool_FromLong(requires_grad),
                         (unsigned long long)keys);
}
