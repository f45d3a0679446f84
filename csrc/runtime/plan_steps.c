/* The steps of one call: allocations, kernels of the CPU, ATen operators, matrix products. */
#include "large_pages.h"
#include "plan_run.h"
#include "profile.h"

#include <stdlib.h>

enum { STACK_KERNEL_BUFS = 64, ARENA_ALIGNMENT = 64, MAX_DIMS = 3 };

static int
take_arena(run *r, const step *s)
{
    plan_object *plan = r->plan;
    if (plan->context != NULL && !s->on_host) {
        return plan_cuda_arena(r);
    }
    char **arena = s->on_host ? &r->host_arena : &r->arena;
    size_t wanted = (size_t)(s->on_host ? plan->host_arena_bytes : plan->arena_bytes);
    size_t bytes = (wanted + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    if (!plan->arena_busy) {
        if (plan->arena == NULL) {
            plan->arena = aligned_alloc(ARENA_ALIGNMENT, bytes ? bytes : ARENA_ALIGNMENT);
        }
        *arena = plan->arena;
        r->arena_is_plans = plan->arena_busy = plan->arena != NULL;
    } else {
        *arena = aligned_alloc(ARENA_ALIGNMENT, bytes ? bytes : ARENA_ALIGNMENT);
    }
    if (*arena == NULL) { /* the exception of torch's CPU allocator */
        PyErr_Format(PyExc_RuntimeError, "not enough memory: a compiled graph tried to allocate %zu bytes", bytes);
        return -1;
    }
    return 0;
}

PyObject *
plan_enter_step(const run *r, const step *s)
{
    return r->labels == NULL ? NULL : profile_enter(PyTuple_GET_ITEM(r->labels, 1 + (s - r->plan->steps)));
}

static int
run_kernel(run *r, const step *s)
{
    void *stack[STACK_KERNEL_BUFS], **bufs = stack;
    if (s->n_bufs > STACK_KERNEL_BUFS && (bufs = PyMem_Malloc((size_t)s->n_bufs * sizeof *bufs)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < s->n_bufs; i++) {
        bufs[i] = r->buffers[s->bufs[i]].data;
    }
    PyObject *range = plan_enter_step(r, s);
    if (s->release_gil) {
        Py_BEGIN_ALLOW_THREADS
        s->kernel(bufs, s->ints);
        Py_END_ALLOW_THREADS
    } else {
        s->kernel(bufs, s->ints);
    }
    if (bufs != stack) {
        PyMem_Free(bufs);
    }
    profile_leave(range);
    return 0;
}

/* A new reference. */
static PyObject *
operand_value(run *r, const operand *op)
{
    if (op->kind == OPERAND_BUF) {
        return Py_XNewRef(plan_buffer_tensor(r, op->buf));
    }
    if (op->kind == OPERAND_VALUE) {
        return Py_NewRef(op->value);
    }
    PyObject *list = PyList_New(op->n_items);
    for (Py_ssize_t i = 0; list != NULL && i < op->n_items; i++) {
        PyObject *item = operand_value(r, &op->items[i]);
        if (item == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, i, item);
        }
    }
    return list;
}

static PyObject *
call_extern(run *r, const step *s)
{
    PyObject *small[24], **args = small, *result = NULL;
    Py_ssize_t n = s->operands.n_items, made = 0;
    if (n > 24 && (args = PyMem_Malloc((size_t)n * sizeof *args)) == NULL) {
        return PyErr_NoMemory();
    }
    while (made < n && (args[made] = operand_value(r, &s->operands.items[made])) != NULL) {
        made++;
    }
    if (made == n) {
        Py_ssize_t named = s->keywords == NULL ? 0 : PyTuple_GET_SIZE(s->keywords);
        result = PyObject_Vectorcall(s->callee, args, (size_t)(n - named), s->keywords);
    }
    for (Py_ssize_t i = 0; i < made; i++) {
        Py_DECREF(args[i]);
    }
    if (args != small) {
        PyMem_Free(args);
    }
    return result;
}

PyObject *
plan_restrided(PyObject *tensor, const shape *expected, const tensor_view *view)
{
    PyObject *copy = tv_empty_strided(expected->ndim, expected->dims, expected->dims + expected->ndim, view->dtype,
                                      view->device_type, view->device_index);
    PyObject *done = copy == NULL ? NULL : PyObject_CallMethod(copy, "copy_", "O", tensor);
    Py_XDECREF(copy);
    return done;
}

/* Takes over the reference to a result of an operator. What fake tensors say of strides is not always true. */
static int
set_result(run *r, const step *s, Py_ssize_t i, PyObject *tensor)
{
    const shape *expected = s->results == NULL || s->results[i].ndim < 0 ? NULL : &s->results[i];
    tensor_view view;
    if (expected == NULL) {
        return plan_set_tensor(r, s->outs[i], tensor);
    }
    if (tv_read(tensor, &view) < 0) {
        Py_DECREF(tensor);
        return -1;
    }
    int same = view.ndim == expected->ndim && view.dtype == expected->dtype, strides = 1;
    for (int64_t d = 0; d < expected->ndim && same; d++) {
        same = view.sizes[d] == expected->dims[d];
        strides = strides && (view.sizes[d] == 1 || view.strides[d] == expected->dims[view.ndim + d]);
    }
    if (!same) {
        r->unexpected = s - r->plan->steps + 1;
        PyErr_Format(PyExc_RuntimeError, "plan: %R returned a tensor of another size or dtype than its fake tensors "
                     "promised", s->callee);
        Py_DECREF(tensor);
        return -1;
    }
    if (!strides && expected->numel > 0) {
        Py_SETREF(tensor, plan_restrided(tensor, expected, &view));
        return plan_set_tensor(r, s->outs[i], tensor);
    }
    Py_XSETREF(r->buffers[s->outs[i]].tensor, tensor);
    r->buffers[s->outs[i]].data = view.data;
    return 0;
}

static int
run_extern(run *r, const step *s)
{
    int failed = 0;
    PyObject *result = call_extern(r, s);
    if (result == NULL) {
        return -1;
    }
    if (s->n_outs == 1 && !PyTuple_Check(result) && !PyList_Check(result)) {
        if (s->outs[0] >= 0) {
            return set_result(r, s, 0, result);
        }
    } else if (s->n_outs > 0) {
        PyObject *items = PySequence_Fast(result, "plan: an operator returned something else than its results");
        failed = items == NULL || PySequence_Fast_GET_SIZE(items) < s->n_outs;
        for (Py_ssize_t i = 0; i < s->n_outs && !failed; i++) {
            PyObject *item = PySequence_Fast_GET_ITEM(items, i);
            if (s->outs[i] >= 0 && item != Py_None) { /* a result that was not asked for: nobody reads it */
                failed = set_result(r, s, i, Py_NewRef(item)) < 0;
            }
        }
        if (failed && !PyErr_Occurred()) {
            PyErr_SetString(PyExc_RuntimeError, "plan: an operator returned fewer results than were expected");
        }
        Py_XDECREF(items);
    }
    Py_DECREF(result);
    return failed ? -1 : 0;
}

/* The result of a matmul that brings none: the sizes follow from the two factors. */
static int
allocate_product(run *r, const step *s, PyObject *left, PyObject *right)
{
    tensor_view a, b;
    if (tv_read_meta(left, &a) < 0 || tv_read_meta(right, &b) < 0) {
        return -1;
    }
    if (a.ndim < 2 || a.ndim > MAX_DIMS || b.ndim != a.ndim) {
        PyErr_SetString(PyExc_ValueError, "plan: matmul takes matrices or batches of them");
        return -1;
    }
    int64_t sizes[MAX_DIMS];
    for (int64_t i = 0; i < a.ndim - 1; i++) {
        sizes[i] = a.sizes[i];
    }
    sizes[a.ndim - 1] = b.sizes[b.ndim - 1];
    return plan_set_tensor(r, s->buf, tv_empty_strided(a.ndim, sizes, NULL, a.dtype, r->plan->device_type,
                                                       r->plan->device_index));
}

/* The C functions do not say why they fail. The operator does, by an exception, or it succeeds. */
static int
retry_product(const step *s, PyObject *const *factors, PyObject *out)
{
    PyObject *args = PyTuple_New(s->n_bufs), *kwargs = NULL, *result = NULL;
    for (Py_ssize_t i = 0; args != NULL && i < s->n_bufs; i++) {
        PyTuple_SET_ITEM(args, i, Py_NewRef(factors[i]));
    }
    if (args != NULL) {
        kwargs = s->n_bufs == 2 ? Py_BuildValue("{s:O}", "out", out)
                                : Py_BuildValue("{s:O,s:d,s:d}", "out", out, "beta", s->beta, "alpha", s->alpha);
    }
    if (kwargs != NULL) {
        result = PyObject_Call(s->callee, args, kwargs);
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* torch's C functions do not pass through the dispatcher, which reports operators to the profiler. */
static PyObject *
product_range(enum matmul_kind kind)
{
    static const char *const names[MATMUL_KINDS] = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"};
    PyObject *name = PyUnicode_FromString(names[kind]);
    if (name == NULL) { /* no memory: the profile lacks a range */
        PyErr_Clear();
        return NULL;
    }
    PyObject *range = profile_enter(name);
    Py_DECREF(name);
    return range;
}

static int
run_matmul(run *r, const step *s)
{
    typedef int32_t (*product)(void *, void *, void *);
    typedef int32_t (*sum_of_product)(void *, void *, void *, void *, double, double);
    PyObject *args[3], *out;
    void *h[3];
    for (Py_ssize_t i = 0; i < s->n_bufs; i++) {
        args[i] = plan_buffer_tensor(r, s->bufs[i]);
        h[i] = args[i] == NULL ? NULL : tv_aten_handle(args[i]);
        if (h[i] == NULL) {
            return -1;
        }
    }
    if (!s->has_out && allocate_product(r, s, args[s->n_bufs - 2], args[s->n_bufs - 1]) < 0) {
        return -1;
    }
    out = plan_buffer_tensor(r, s->buf);
    void *target = out == NULL ? NULL : tv_aten_handle(out);
    if (target == NULL) {
        return -1;
    }
    int32_t status;
    PyObject *range = r->labels == NULL ? NULL : product_range(s->matmul);
    Py_BEGIN_ALLOW_THREADS
    if (s->n_bufs == 2) {
        status = ((product)r->plan->products[s->matmul])(target, h[0], h[1]);
    } else {
        status = ((sum_of_product)r->plan->products[s->matmul])(target, h[0], h[1], h[2], s->beta, s->alpha);
    }
    Py_END_ALLOW_THREADS
    profile_leave(range);
    return status == 0 ? 0 : retry_product(s, args, out);
}

/* A result or an intermediate that the caller or ATen may keep. */
static int
run_alloc(run *r, const step *s)
{
    const shape *shape = &s->shape;
    if (plan_set_tensor(r, s->buf,
                        tv_empty_strided(shape->ndim, shape->dims, shape->dims + shape->ndim, shape->dtype,
                                         shape->device_type, shape->device_index)) < 0) {
        return -1;
    }
    if (shape->device_type == TV_CPU) { /* such tensors have no gaps between their elements */
        size_t bytes = (size_t)shape->itemsize;
        for (int64_t d = 0; d < shape->ndim; d++) {
            bytes *= (size_t)shape->dims[d];
        }
        ask_for_large_pages(r->buffers[s->buf].data, bytes);
    }
    return 0;
}

static int
run_step(run *r, const step *s)
{
    switch (s->kind) {
    case STEP_ALLOC:
        return run_alloc(r, s);
    case STEP_ARENA:
        return take_arena(r, s);
    case STEP_SLOT:
        Py_CLEAR(r->buffers[s->buf].tensor);
        plan_place(r, s);
        return 0;
    case STEP_KERNEL:
        return run_kernel(r, s);
    case STEP_EXTERN:
        return run_extern(r, s);
    case STEP_MATMUL:
        return run_matmul(r, s);
    case STEP_VIEW:
        plan_place(r, s);
        return 0;
    case STEP_FREE:
        Py_CLEAR(r->buffers[s->buf].tensor);
        return 0;
    case STEP_STATUS:
        r->buffers[s->buf].data = r->plan->status_word != NULL ? r->plan->status_word : &r->status;
        return 0;
    case STEP_COUNTERS:
        return plan_cuda_counters(r, s);
    case STEP_LAUNCH: /* plan_run_steps takes these in runs */
        break;
    }
    Py_UNREACHABLE();
}

static int
check_indices(const run *r)
{
    if (r->status == 2) {
        PyErr_SetString(PyExc_RuntimeError, "ZeroDivisionError"); /* what ATen raises */
        return -1;
    }
    if (r->status != 0) {
        PyErr_SetString(PyExc_IndexError, "index out of range in a compiled graph");
        return -1;
    }
    return 0;
}

int
plan_run_steps(run *r)
{
    const plan_object *plan = r->plan;
    Py_ssize_t i = 0;
    while (i < plan->n_steps) {
        if (i == plan->first_write) {
            if (check_indices(r) < 0) {
                return -1;
            }
            r->wrote = true;
        }
        if (plan->steps[i].kind == STEP_LAUNCH) {
            i = plan_cuda_launches(r, i);
        } else {
            i = run_step(r, &plan->steps[i]) < 0 ? -1 : i + 1;
        }
        if (i < 0) {
            return -1;
        }
    }
    return check_indices(r);
}
