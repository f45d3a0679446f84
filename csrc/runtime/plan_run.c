/* One call of a plan. Everything a call owns is in its `run`; a tensor object is made for a slot or a view only when
 * something asks for the object rather than the address. */
#include "plan_run.h"
#include "profile.h"

#include <stdlib.h>

enum { STACK_BUFFERS = 64, STACK_KERNEL_BUFS = 64, ARENA_ALIGNMENT = 64, INPUT_ALIGNMENT = 16, MAX_DIMS = 3 };

static PyObject *
wrap_and_drop(int32_t status, void *handle, const char *what)
{
    if (status != 0) {
        PyErr_Format(PyExc_RuntimeError, "plan: torch could not %s", what);
        return NULL;
    }
    PyObject *tensor = tv_wrap_handle(handle);
    plan_api.drop(handle);
    return tensor;
}

/* The tensor object of a buffer, borrowed. */
static PyObject *
buffer_tensor(run *r, Py_ssize_t i)
{
    buffer *b = &r->buffers[i];
    if (b->tensor != NULL) {
        return b->tensor;
    }
    const step *maker = r->plan->makers[i];
    if (maker == NULL) {
        PyErr_Format(PyExc_RuntimeError, "plan: buffer %zd is read before it is made", i);
        return NULL;
    }
    const shape *s = &maker->shape;
    void *handle = NULL;
    const step *memory = maker;
    while (memory->kind == STEP_VIEW && r->buffers[memory->base].tensor == NULL
           && r->plan->makers[memory->base] != NULL) {
        memory = r->plan->makers[memory->base];
    }
    if (memory->kind == STEP_SLOT && r->arena_tensor != NULL) { /* a view of a slot needs no tensor of the slot */
        int32_t status = plan_api.part(tv_aten_handle(r->arena_tensor), (char *)b->data - r->arena, s->dtype, s->ndim,
                                       s->dims, s->dims + s->ndim, &handle);
        return b->tensor = wrap_and_drop(status, handle, "make a part of the arena");
    }
    if (memory->kind == STEP_SLOT) {
        int32_t status = plan_api.blob(b->data, s->ndim, s->dims, s->dims + s->ndim, 0, s->dtype, TV_CPU, 0, &handle);
        return b->tensor = wrap_and_drop(status, handle, "wrap a slot");
    }
    PyObject *base = buffer_tensor(r, maker->base);
    if (base == NULL) {
        return NULL;
    }
    /* torch adds the offset to the base's own */
    int32_t status = plan_api.reinterpret(tv_aten_handle(base), s->ndim, s->dims, s->dims + s->ndim, maker->offset,
                                          &handle);
    return b->tensor = wrap_and_drop(status, handle, "make a view");
}

/* Takes over the reference. */
static int
set_tensor(run *r, Py_ssize_t i, PyObject *tensor)
{
    tensor_view view;
    if (tensor == NULL) {
        return -1;
    }
    if (tv_read(tensor, &view) < 0) {
        Py_DECREF(tensor);
        return -1;
    }
    Py_XSETREF(r->buffers[i].tensor, tensor);
    r->buffers[i].data = view.data;
    return 0;
}

static int
wrong_input(Py_ssize_t i, const char *what)
{
    PyErr_Format(PyExc_ValueError, "input %zd of a compiled graph has another %s than it was compiled for", i, what);
    return -1;
}

static int
read_input(run *r, Py_ssize_t i, PyObject *object)
{
    const shape *expected = &r->plan->inputs[i];
    buffer *b = &r->buffers[i];
    if (expected->dtype == -1) { /* a Python int: nothing to read */
        b->tensor = Py_NewRef(object);
        return 0;
    }
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
    b->data = view.data;
    b->tensor = Py_NewRef(object);
    return 0;
}

static int
take_arena(run *r)
{
    plan_object *plan = r->plan;
    if (plan->context != NULL) {
        return plan_cuda_arena(r);
    }
    size_t bytes = ((size_t)plan->arena_bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    if (!plan->arena_busy) {
        if (plan->arena == NULL) {
            plan->arena = aligned_alloc(ARENA_ALIGNMENT, bytes ? bytes : ARENA_ALIGNMENT);
        }
        r->arena = plan->arena;
        r->arena_is_plans = plan->arena_busy = plan->arena != NULL;
    } else {
        r->arena = aligned_alloc(ARENA_ALIGNMENT, bytes ? bytes : ARENA_ALIGNMENT);
    }
    if (r->arena == NULL) { /* the exception of torch's CPU allocator */
        PyErr_Format(PyExc_RuntimeError, "not enough memory: a compiled graph tried to allocate %zu bytes", bytes);
        return -1;
    }
    return 0;
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
    PyObject *range = r->labels == NULL ? NULL : profile_enter(PyTuple_GET_ITEM(r->labels, 1 + s->buf));
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
        return Py_XNewRef(buffer_tensor(r, op->buf));
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

/* A copy with the strides that what reads it expects. A new reference. */
static PyObject *
restrided(PyObject *tensor, const shape *expected, const tensor_view *view)
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
        return set_tensor(r, s->outs[i], tensor);
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
        Py_SETREF(tensor, restrided(tensor, expected, &view));
        return set_tensor(r, s->outs[i], tensor);
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
    return set_tensor(r, s->buf, tv_empty_strided(a.ndim, sizes, NULL, a.dtype, r->plan->device_type,
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

/* torch's C functions do not pass through the dispatcher, which tells the profiler of operators. */
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
        args[i] = buffer_tensor(r, s->bufs[i]);
        h[i] = args[i] == NULL ? NULL : tv_aten_handle(args[i]);
        if (h[i] == NULL) {
            return -1;
        }
    }
    if (!s->has_out && allocate_product(r, s, args[s->n_bufs - 2], args[s->n_bufs - 1]) < 0) {
        return -1;
    }
    out = buffer_tensor(r, s->buf);
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

static int
run_step(run *r, const step *s)
{
    const shape *shape = &s->shape;
    switch (s->kind) {
    case STEP_ALLOC:
        return set_tensor(r, s->buf,
                          tv_empty_strided(shape->ndim, shape->dims, shape->dims + shape->ndim, shape->dtype,
                                           r->plan->device_type, r->plan->device_index));
    case STEP_ARENA:
        return take_arena(r);
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
    case STEP_LAUNCH: /* run_steps takes these in runs */
        break;
    }
    Py_UNREACHABLE();
}

/* A result that autograd knows to be a view of an input, made under the caller's grad mode; borrowed from the run.
 * Where the memory is no input's it is the plain tensor of the buffer. */
static PyObject *
view_of_input(run *r, const output *out)
{
    const plan_object *plan = r->plan;
    const shape *s = plan->makers[out->index] == NULL ? NULL : &plan->makers[out->index]->shape;
    Py_ssize_t base = out->index;
    int64_t offset = 0;
    for (const step *maker; (maker = plan->makers[base]) != NULL && maker->kind == STEP_VIEW; base = maker->base) {
        offset += maker->offset;
    }
    if (s == NULL || base >= plan->n_inputs) {
        return buffer_tensor(r, out->index);
    }
    PyObject *size = tv_dims_tuple(s->dims, s->ndim), *stride = tv_dims_tuple(s->dims + s->ndim, s->ndim);
    PyObject *view = NULL;
    if (size != NULL && stride != NULL) {
        if (r->grad) {
            plan_api.set_grad(true);
        }
        view = PyObject_CallFunction(out->value, "OOOL", r->buffers[base].tensor, size, stride, (long long)offset);
        if (r->grad) {
            plan_api.set_grad(false);
        }
    }
    Py_XDECREF(size);
    Py_XDECREF(stride);
    if (view != NULL) {
        Py_XSETREF(r->buffers[out->index].tensor, view);
    }
    return view;
}

static PyObject *
result_of(run *r, const output *out)
{
    switch (out->kind) {
    case OUTPUT_CONST:
        return out->value;
    case OUTPUT_VIEW:
        return view_of_input(r, out);
    default:
        return buffer_tensor(r, out->index);
    }
}

static PyObject *
collect(run *r, PyObject *const *args)
{
    const plan_object *plan = r->plan;
    PyObject *result = NULL;
    if (plan->form != RESULT_SINGLE) {
        result = plan->form == RESULT_LIST ? PyList_New(plan->n_outputs) : PyTuple_New(plan->n_outputs);
        if (result == NULL) {
            return NULL;
        }
    }
    for (Py_ssize_t i = 0; i < plan->n_outputs; i++) {
        const output *out = &plan->outputs[i];
        PyObject *item = result_of(r, out);
        if (item == NULL) {
            Py_XDECREF(result);
            return NULL;
        }
        Py_INCREF(item);
        if (plan->form == RESULT_SINGLE) {
            return item;
        }
        if (plan->form == RESULT_LIST) {
            PyList_SET_ITEM(result, i, item);
        } else {
            PyTuple_SET_ITEM(result, i, item);
        }
    }
    return result;
}

/* Whether an input that kernels write lies over another one. */
static int
mutated_overlaps(const run *r)
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

static int
misaligned(const run *r)
{
    const plan_object *plan = r->plan;
    for (Py_ssize_t i = 0; i < plan->n_aligned; i++) {
        if ((uintptr_t)r->buffers[plan->aligned[i]].data % INPUT_ALIGNMENT != 0) {
            return 1;
        }
    }
    return 0;
}

/* Autograd learns of the writes from the tensors' version counters. */
static int
report_writes(run *r)
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

static int
run_steps(run *r)
{
    const plan_object *plan = r->plan;
    Py_ssize_t i = 0;
    while (i < plan->n_steps) {
        if (plan->steps[i].kind == STEP_LAUNCH) {
            i = plan_cuda_launches(r, i);
        } else {
            i = run_step(r, &plan->steps[i]) < 0 ? -1 : i + 1;
        }
        if (i < 0) {
            return -1;
        }
    }
    if (r->status != 0) {
        PyErr_SetString(PyExc_IndexError, "index out of range in a compiled graph");
        return -1;
    }
    return 0;
}

/* Whether a kernel before step `n` may have written to an input. */
static int
may_have_written(const plan_object *plan, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        const step *s = &plan->steps[i];
        if (s->kind != STEP_KERNEL && s->kind != STEP_LAUNCH) {
            continue;
        }
        for (Py_ssize_t b = 0; b < s->n_bufs; b++) {
            for (Py_ssize_t m = 0; m < plan->n_mutated; m++) {
                if (s->bufs[b] == plan->mutated[m]) {
                    return 1;
                }
            }
        }
    }
    return 0;
}

/* An operator returned something else than fake tensors said of it, so this plan computes nothing right: the captured
 * graph runs, if the inputs are still as they were. A warning says so. */
static PyObject *
run_fallback(run *r, PyObject *const *args)
{
    plan_object *plan = r->plan;
    if (plan->fallback == NULL || r->given != NULL || may_have_written(plan, r->unexpected - 1)) {
        return NULL;
    }
    PyErr_Clear();
    if (PyErr_WarnFormat(PyExc_UserWarning, 1, "inductor: a graph runs with ATen operators: %R returned a tensor of "
                         "another size or dtype than its fake tensors promised",
                         plan->steps[r->unexpected - 1].callee) < 0) {
        return NULL;
    }
    return PyObject_Vectorcall(plan->fallback, args, (size_t)(plan->n_inputs - plan->n_fixed), NULL);
}

/* Whether a call that raised has changed nothing, so that ATen's operators can raise what they raise. On CUDA the
 * exception may be that of an earlier call. */
static bool
may_run_eagerly(const run *r)
{
    const plan_object *plan = r->plan;
    return plan->fallback != NULL && plan->n_mutated == 0 && plan->context == NULL && r->given == NULL
           && PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_MemoryError);
}

static PyObject *
run_eagerly(plan_object *plan, PyObject *const *args, Py_ssize_t n_args)
{
    PyErr_Clear();
    return PyObject_Vectorcall(plan->fallback, args, (size_t)n_args, NULL);
}

static PyObject *
run_all(run *r, PyObject *const *args)
{
    plan_object *plan = r->plan;
    Py_ssize_t n_args = plan->n_inputs - plan->n_fixed;
    for (Py_ssize_t i = 0; i < plan->n_inputs; i++) {
        if (read_input(r, i, i < n_args ? args[i] : PyTuple_GET_ITEM(plan->fixed, i - n_args)) < 0) {
            return NULL;
        }
    }
    if ((plan->n_mutated > 0 && mutated_overlaps(r)) || misaligned(r)) {
        if (plan->fallback == NULL) {
            PyErr_SetString(PyExc_ValueError, misaligned(r) ? "an input of a compiled graph is not aligned to 16 bytes"
                            : "an input that a compiled graph writes shares memory with another");
            return NULL;
        }
        return PyObject_Vectorcall(plan->fallback, args, (size_t)n_args, NULL);
    }
    if (r->given != NULL && PyList_SetSlice(r->given, 0, PyList_GET_SIZE(r->given), NULL) < 0) {
        return NULL;
    }
    /* Outputs and externs must not record autograd history. */
    r->grad = plan->toggles_grad && plan_api.grad_enabled();
    if (r->grad) {
        plan_api.set_grad(false);
    }
    PyObject *result = NULL;
    if (run_steps(r) == 0 && (plan->n_mutated == 0 || report_writes(r) == 0)) {
        result = collect(r, args);
    }
    if (r->grad) {
        plan_api.set_grad(true);
    }
    if (result == NULL && r->unexpected > 0) {
        return run_fallback(r, args);
    }
    return result == NULL && may_run_eagerly(r) ? run_eagerly(plan, args, n_args) : result;
}

static PyObject *
run_on_cuda(run *r, PyObject *const *args)
{
    void *previous;
    if (plan_cuda_start(r, &previous) < 0) {
        return NULL;
    }
    PyObject *result = run_all(r, args);
    cuda_leave(r->plan->context, previous);
    return result;
}

static PyObject *
call(PyObject *self, PyObject *const *args, Py_ssize_t n_args, Py_ssize_t named, PyObject *given)
{
    plan_object *plan = (plan_object *)self;
    if (n_args != plan->n_inputs - plan->n_fixed || named > 0) {
        PyErr_Format(PyExc_TypeError, "a compiled graph takes %zd positional arguments, not %zd",
                     plan->n_inputs - plan->n_fixed, n_args);
        return NULL;
    }
    buffer stack[STACK_BUFFERS];
    run r = {.plan = plan, .buffers = stack, .given = given};
    if (plan->n_buffers > STACK_BUFFERS) {
        r.buffers = PyMem_Malloc((size_t)plan->n_buffers * sizeof *r.buffers);
        if (r.buffers == NULL) {
            return PyErr_NoMemory();
        }
    }
    for (Py_ssize_t i = 0; i < plan->n_buffers; i++) {
        r.buffers[i] = (buffer){NULL, NULL};
    }
    Py_INCREF(self);
    PyObject *range = NULL;
    if (plan->labels != NULL && profile_is_on()) {
        r.labels = plan->labels;
        range = profile_enter(PyTuple_GET_ITEM(r.labels, 0));
    }
    PyObject *result = plan->context != NULL ? run_on_cuda(&r, args) : run_all(&r, args);
    profile_leave(range);
    for (Py_ssize_t i = 0; i < plan->n_buffers; i++) {
        Py_XDECREF(r.buffers[i].tensor);
    }
    if (r.buffers != stack) {
        PyMem_Free(r.buffers);
    }
    if (plan->context != NULL) {
        Py_XDECREF(r.arena_tensor);
    } else if (r.arena_is_plans) {
        plan->arena_busy = 0;
    } else {
        free(r.arena);
    }
    Py_DECREF(self);
    return result;
}

PyObject *
plan_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return call(self, args, PyVectorcall_NARGS(nargsf), kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames), NULL);
}

PyObject *
plan_take(PyObject *self, PyObject *list)
{
    if (!PyList_Check(list)) {
        PyErr_Format(PyExc_TypeError, "take() needs a list, not %.100s", Py_TYPE(list)->tp_name);
        return NULL;
    }
    return call(self, PySequence_Fast_ITEMS(list), PyList_GET_SIZE(list), 0, list);
}
