/* The inputs of one call: checks them against what the plan was compiled for, and reports the writes to them. */
#include "plan_run.h"

#include <string.h>

enum { INPUT_ALIGNMENT = 16 };

static int
wrong_input(Py_ssize_t i, const char *what)
{
    PyErr_Format(PyExc_ValueError, "input %zd of a compiled graph has another %s than it was compiled for", i, what);
    return -1;
}

int
plan_check_input(const plan_object *plan, Py_ssize_t i, PyObject *object, void **data, int32_t *device_type)
{
    const shape *expected = &plan->inputs[i];
    tensor_view view;
    if (tv_read(object, &view) < 0) {
        return -1;
    }
    if (expected->device_type != TV_ANY_DEVICE && (view.device_type != expected->device_type
        || (view.device_type != TV_CPU && view.device_index != expected->device_index))) {
        return wrong_input(i, "device");
    }
    if (view.dtype != expected->dtype) {
        return wrong_input(i, "dtype");
    }
    if (view.ndim != expected->ndim) {
        return wrong_input(i, "number of dimensions");
    }
    for (int64_t d = 0; d < view.ndim; d++) {
        if (view.sizes[d] != expected->dims[d]) {
            return wrong_input(i, "size");
        }
        if (view.strides[d] != expected->dims[view.ndim + d] && view.sizes[d] > 1 && expected->numel > 0) {
            return wrong_input(i, "stride");
        }
    }
    if (view.data == NULL && expected->numel > 0 && expected->device_type != TV_ANY_DEVICE) {
        PyErr_Format(PyExc_ValueError, "input %zd of a compiled graph has no memory", i);
        return -1;
    }
    *data = view.data;
    *device_type = view.device_type;
    return 0;
}

static int
read_input(run *r, Py_ssize_t i, PyObject *object)
{
    buffer *b = &r->buffers[i];
    int32_t device_type;
    if (r->plan->inputs[i].dtype != -1 && plan_check_input(r->plan, i, object, &b->data, &device_type) < 0) {
        return -1;
    } /* else a Python int: nothing to read */
    b->tensor = Py_NewRef(object);
    return 0;
}

/* What identifies the memory that a call would use: 8 bytes for each input given, its address, or the value of an int;
 * 0 for those that `skip` marks with a byte other than 0. */
PyObject *
plan_addresses(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    const plan_object *plan = (plan_object *)self;
    if (n_args != 2 || !PyTuple_Check(args[0]) || !PyBytes_Check(args[1])
        || PyTuple_GET_SIZE(args[0]) != PyBytes_GET_SIZE(args[1]) || PyTuple_GET_SIZE(args[0]) > plan->n_inputs) {
        PyErr_SetString(PyExc_TypeError, "addresses() takes a tuple of inputs, and bytes of the same length");
        return NULL;
    }
    if (plan_check_status(plan) < 0) {
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(args[0]);
    const char *skip = PyBytes_AS_STRING(args[1]);
    PyObject *result = PyBytes_FromStringAndSize(NULL, n * (Py_ssize_t)sizeof(int64_t));
    for (Py_ssize_t i = 0; result != NULL && i < n; i++) {
        PyObject *object = PyTuple_GET_ITEM(args[0], i);
        void *data = NULL;
        int64_t word = 0;
        int32_t device_type;
        int failed;
        if (plan->inputs[i].dtype == -1) {
            word = PyLong_AsLongLong(object);
            failed = word == -1 && PyErr_Occurred() != NULL;
        } else {
            failed = plan_check_input(plan, i, object, &data, &device_type) < 0;
            word = (int64_t)(intptr_t)data;
        }
        if (failed) {
            Py_CLEAR(result);
            break;
        }
        word = skip[i] ? 0 : word;
        memcpy(PyBytes_AS_STRING(result) + i * (Py_ssize_t)sizeof word, &word, sizeof word);
    }
    return result;
}

int
plan_read_inputs(run *r, PyObject *const *args)
{
    const plan_object *plan = r->plan;
    Py_ssize_t n_args = plan->n_inputs - plan->n_fixed;
    for (Py_ssize_t i = 0; i < plan->n_inputs; i++) {
        if (read_input(r, i, i < n_args ? args[i] : PyTuple_GET_ITEM(plan->fixed, i - n_args)) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Whether an input that kernels write lies over another one. */
int
plan_writes_overlap(const run *r)
{
    const plan_object *plan = r->plan;
    for (Py_ssize_t m = 0; m < plan->n_mutated; m++) {
        Py_ssize_t i = plan->mutated[m];
        const char *start = r->buffers[i].data, *end = start + plan->extents[i];
        for (Py_ssize_t j = 0; j < plan->n_inputs; j++) {
            const char *other = r->buffers[j].data;
            if (j != i && plan->inputs[j].dtype != -1 && other < end && start < other + plan->extents[j]) {
                return 1;
            }
        }
    }
    return 0;
}

int
plan_misaligned(const run *r)
{
    const plan_object *plan = r->plan;
    for (Py_ssize_t i = 0; i < plan->n_aligned; i++) {
        if ((uintptr_t)r->buffers[plan->aligned[i]].data % INPUT_ALIGNMENT != 0) {
            return 1;
        }
    }
    return 0;
}

/* Autograd detects the writes by the tensors' version counters. */
int
plan_report_writes(run *r)
{
    const plan_object *plan = r->plan;
    PyObject *tensors = PyTuple_New(plan->n_mutated);
    if (tensors == NULL) {
        return -1;
    }
    for (Py_ssize_t m = 0; m < plan->n_mutated; m++) {
        PyTuple_SET_ITEM(tensors, m, Py_NewRef(r->buffers[plan->mutated[m]].tensor));
    }
    PyObject *done = PyObject_CallOneArg(plan->written, tensors);
    Py_DECREF(tensors);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}
