/* From the tuples of plan.py:encode to the structs that plan_run.c walks. Errors here are bugs of encode, so the
 * messages are short. */
#include "cuda_driver.h"
#include "plan.h"

#include <stdlib.h>

static int64_t
int_at(PyObject *tuple, Py_ssize_t i)
{
    if (!PyTuple_Check(tuple) || i >= PyTuple_GET_SIZE(tuple)) {
        PyErr_SetString(PyExc_ValueError, "plan: a tuple is too short");
        return -1;
    }
    return PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
}

static PyObject *
tuple_at(PyObject *tuple, Py_ssize_t i)
{
    if (!PyTuple_Check(tuple) || i >= PyTuple_GET_SIZE(tuple) || !PyTuple_Check(PyTuple_GET_ITEM(tuple, i))) {
        PyErr_SetString(PyExc_ValueError, "plan: a tuple was expected");
        return NULL;
    }
    return PyTuple_GET_ITEM(tuple, i);
}

static void *
zeroed(Py_ssize_t count, size_t size)
{
    void *memory = PyMem_Calloc(count > 0 ? (size_t)count : 1, size);
    if (memory == NULL) {
        PyErr_NoMemory();
    }
    return memory;
}

int
plan_fill_shape(shape *out, PyObject *tuple, Py_ssize_t first)
{
    PyObject *sizes = tuple_at(tuple, first + 2), *strides = tuple_at(tuple, first + 3);
    if (sizes == NULL || strides == NULL) {
        return -1;
    }
    out->dtype = (int32_t)int_at(tuple, first);
    out->itemsize = (int32_t)int_at(tuple, first + 1);
    out->ndim = PyTuple_GET_SIZE(sizes);
    out->numel = 1;
    if (PyTuple_GET_SIZE(strides) != out->ndim) {
        PyErr_SetString(PyExc_ValueError, "plan: as many strides as sizes are needed");
        return -1;
    }
    out->dims = zeroed(2 * out->ndim, sizeof *out->dims);
    if (out->dims == NULL) {
        return -1;
    }
    for (int64_t i = 0; i < out->ndim; i++) {
        out->dims[i] = int_at(sizes, i);
        out->dims[out->ndim + i] = int_at(strides, i);
        if (__builtin_mul_overflow(out->numel, out->dims[i], &out->numel)) {
            out->numel = INT64_MAX; /* allocating it raises */
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int
check_buf(const plan_object *plan, int64_t buf)
{
    if (buf >= 0 && buf < plan->n_buffers) {
        return 0;
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "plan: buffer %lld is out of range", (long long)buf);
    }
    return -1;
}

static int32_t *
fill_bufs(const plan_object *plan, PyObject *tuple, Py_ssize_t at, Py_ssize_t *count, int allow_none)
{
    PyObject *numbers = tuple_at(tuple, at);
    if (numbers == NULL) {
        return NULL;
    }
    *count = PyTuple_GET_SIZE(numbers);
    int32_t *bufs = zeroed(*count, sizeof *bufs);
    for (Py_ssize_t i = 0; bufs != NULL && i < *count; i++) {
        int64_t buf = int_at(numbers, i);
        if (!(allow_none && buf == -1 && !PyErr_Occurred()) && check_buf(plan, buf) < 0) {
            PyMem_Free(bufs);
            return NULL;
        }
        bufs[i] = (int32_t)buf;
    }
    return bufs;
}

static int
fill_kernel(const plan_object *plan, step *out, PyObject *tuple, PyObject *kernels)
{
    PyObject *ints = tuple_at(tuple, 3);
    int64_t number = int_at(tuple, 1);
    if (ints == NULL || number < 0 || number >= PyTuple_GET_SIZE(kernels)) {
        PyErr_SetString(PyExc_ValueError, "plan: no such kernel");
        return -1;
    }
    if (!PyLong_Check(PyTuple_GET_ITEM(kernels, number))) {
        PyErr_SetString(PyExc_ValueError, "plan: a kernel of the CPU was expected");
        return -1;
    }
    *(void **)&out->kernel = PyLong_AsVoidPtr(PyTuple_GET_ITEM(kernels, number));
    out->buf = number;
    out->bufs = fill_bufs(plan, tuple, 2, &out->n_bufs, 0);
    out->n_ints = PyTuple_GET_SIZE(ints);
    out->ints = zeroed(out->n_ints, sizeof *out->ints);
    if (out->bufs == NULL || out->ints == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < out->n_ints; i++) {
        out->ints[i] = int_at(ints, i);
    }
    out->release_gil = (int)int_at(tuple, 4);
    if (out->kernel == NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "plan: a kernel's address is null");
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* (kind, kernel, buffers, grid, ints, by_value) */
static int
fill_launch(const plan_object *plan, step *out, PyObject *tuple, PyObject *kernels)
{
    PyObject *grid = tuple_at(tuple, 3), *ints = tuple_at(tuple, 4), *by_value = tuple_at(tuple, 5);
    int64_t number = int_at(tuple, 1);
    if (grid == NULL || ints == NULL || by_value == NULL || number < 0 || number >= PyTuple_GET_SIZE(kernels)) {
        PyErr_SetString(PyExc_ValueError, "plan: no such kernel");
        return -1;
    }
    out->bufs = fill_bufs(plan, tuple, 2, &out->n_bufs, 0);
    return out->bufs == NULL
           ? -1 : plan_fill_launch(plan, out, PyTuple_GET_ITEM(kernels, number), grid, ints, by_value);
}

/* ("buf", number), ("value", object) or ("list", (operands)) */
static int
fill_operand(const plan_object *plan, operand *out, PyObject *tuple)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 2) {
        PyErr_SetString(PyExc_ValueError, "plan: a malformed operand");
        return -1;
    }
    out->kind = (enum operand_kind)int_at(tuple, 0);
    if (out->kind == OPERAND_BUF) {
        out->buf = int_at(tuple, 1);
        return check_buf(plan, out->buf);
    }
    if (out->kind == OPERAND_VALUE) {
        out->value = Py_NewRef(PyTuple_GET_ITEM(tuple, 1));
        return 0;
    }
    PyObject *items = tuple_at(tuple, 1);
    if (items == NULL) {
        return -1;
    }
    out->items = zeroed(PyTuple_GET_SIZE(items), sizeof *out->items);
    if (out->items == NULL) {
        return -1;
    }
    for (; out->n_items < PyTuple_GET_SIZE(items); out->n_items++) {
        if (fill_operand(plan, &out->items[out->n_items], PyTuple_GET_ITEM(items, out->n_items)) < 0) {
            out->n_items++;
            return -1;
        }
    }
    return 0;
}

static void
clear_operand(operand *op)
{
    for (Py_ssize_t i = 0; i < op->n_items; i++) {
        clear_operand(&op->items[i]);
    }
    PyMem_Free(op->items);
    Py_CLEAR(op->value);
    op->items = NULL;
    op->n_items = 0;
}

int
plan_traverse_operand(const operand *op, visitproc visit, void *arg)
{
    Py_VISIT(op->value);
    for (Py_ssize_t i = 0; i < op->n_items; i++) {
        int stop = plan_traverse_operand(&op->items[i], visit, arg);
        if (stop != 0) {
            return stop;
        }
    }
    return 0;
}

/* What the results of an operator must be like; () where that does not matter. */
static int
fill_results(step *out, PyObject *results)
{
    if (results == NULL || PyTuple_GET_SIZE(results) == 0) {
        return results == NULL ? -1 : 0;
    }
    if (PyTuple_GET_SIZE(results) != out->n_outs) {
        PyErr_SetString(PyExc_ValueError, "plan: as many results as outs are needed");
        return -1;
    }
    out->results = zeroed(out->n_outs, sizeof *out->results);
    for (Py_ssize_t i = 0; out->results != NULL && i < out->n_outs; i++) {
        PyObject *result = tuple_at(results, i);
        if (result == NULL) {
            return -1;
        }
        if (PyTuple_GET_SIZE(result) == 0) {
            out->results[i].ndim = -1;
        } else if (plan_fill_shape(&out->results[i], result, 0) < 0) {
            return -1;
        }
    }
    return out->results == NULL ? -1 : 0;
}

static int
fill_extern(const plan_object *plan, step *out, PyObject *tuple)
{
    PyObject *keywords = tuple_at(tuple, 3);
    out->outs = fill_bufs(plan, tuple, 4, &out->n_outs, 1);
    if (keywords == NULL || out->outs == NULL) {
        return -1;
    }
    out->callee = Py_NewRef(PyTuple_GET_ITEM(tuple, 1));
    out->keywords = PyTuple_GET_SIZE(keywords) > 0 ? Py_NewRef(keywords) : NULL;
    if (fill_operand(plan, &out->operands, PyTuple_GET_ITEM(tuple, 2)) < 0) {
        return -1;
    }
    if (out->operands.n_items < PyTuple_GET_SIZE(keywords)) {
        PyErr_SetString(PyExc_ValueError, "plan: more keywords than operands");
        return -1;
    }
    return fill_results(out, tuple_at(tuple, 5));
}

static int
fill_matmul(const plan_object *plan, step *out, PyObject *tuple)
{
    static const Py_ssize_t arity[MATMUL_KINDS] = {2, 3, 2, 3};
    int64_t kind = int_at(tuple, 1);
    out->bufs = fill_bufs(plan, tuple, 2, &out->n_bufs, 0);
    out->buf = int_at(tuple, 3);
    out->has_out = (int)int_at(tuple, 4);
    if (out->bufs == NULL || check_buf(plan, out->buf) < 0) {
        return -1;
    }
    if (kind < 0 || kind >= MATMUL_KINDS || out->n_bufs != arity[kind] || PyTuple_GET_SIZE(tuple) < 8) {
        PyErr_SetString(PyExc_ValueError, "plan: a malformed matmul");
        return -1;
    }
    out->matmul = (enum matmul_kind)kind;
    out->callee = Py_NewRef(PyTuple_GET_ITEM(tuple, 7));
    out->beta = PyFloat_AsDouble(PyTuple_GET_ITEM(tuple, 5));
    out->alpha = PyFloat_AsDouble(PyTuple_GET_ITEM(tuple, 6));
    return PyErr_Occurred() ? -1 : 0;
}

/* Where a tensor is, -1 for the index of a device that has none. The tensors of a simulated CUDA device are the CPU's. */
static int
fill_device(int32_t *type, int32_t *index, PyObject *tuple, Py_ssize_t first)
{
    *type = (int32_t)int_at(tuple, first);
    *index = (int32_t)int_at(tuple, first + 1);
    if (*type == TV_CUDA && cuda_driver.simulated_stream != NULL) {
        *type = TV_CPU;
        *index = -1;
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int
fill_step(plan_object *plan, step *out, PyObject *tuple, PyObject *kernels)
{
    out->kind = (enum step_kind)int_at(tuple, 0);
    switch (out->kind) {
    case STEP_ARENA:
        out->on_host = (int)int_at(tuple, 2);
        *(out->on_host ? &plan->host_arena_bytes : &plan->arena_bytes) = int_at(tuple, 1);
        return PyErr_Occurred() ? -1 : 0;
    case STEP_ALLOC:
        out->buf = int_at(tuple, 1);
        return check_buf(plan, out->buf) < 0 || plan_fill_shape(&out->shape, tuple, 2) < 0
               ? -1 : fill_device(&out->shape.device_type, &out->shape.device_index, tuple, 6);
    case STEP_SLOT:
        out->buf = int_at(tuple, 1);
        out->offset = int_at(tuple, 2);
        if (check_buf(plan, out->buf) < 0) {
            return -1;
        }
        plan->makers[out->buf] = out;
        out->on_host = (int)int_at(tuple, 7);
        return plan_fill_shape(&out->shape, tuple, 3);
    case STEP_VIEW:
        out->buf = int_at(tuple, 1);
        out->base = int_at(tuple, 2);
        out->offset = int_at(tuple, 3);
        if (check_buf(plan, out->buf) < 0 || check_buf(plan, out->base) < 0) {
            return -1;
        }
        plan->makers[out->buf] = out;
        return plan_fill_shape(&out->shape, tuple, 4);
    case STEP_FREE:
        out->buf = int_at(tuple, 1);
        return check_buf(plan, out->buf);
    case STEP_STATUS:
        out->buf = int_at(tuple, 1);
        if (plan->context != NULL && plan->status_word == NULL
            && (plan->status_word = cuda_status_word(plan->device_number)) == NULL) {
            return -1;
        }
        return check_buf(plan, out->buf);
    case STEP_COUNTERS:
        out->buf = int_at(tuple, 1);
        out->offset = int_at(tuple, 2);
        if (plan->context == NULL) {
            PyErr_SetString(PyExc_ValueError, "plan: counters need a CUDA plan");
        }
        return PyErr_Occurred() ? -1 : check_buf(plan, out->buf);
    case STEP_LAUNCH:
        return fill_launch(plan, out, tuple, kernels);
    case STEP_KERNEL:
        return fill_kernel(plan, out, tuple, kernels);
    case STEP_MATMUL:
        plan->toggles_grad = 1;
        return fill_matmul(plan, out, tuple);
    case STEP_EXTERN:
        plan->toggles_grad = 1;
        return fill_extern(plan, out, tuple);
    }
    PyErr_SetString(PyExc_ValueError, "plan: unknown step");
    return -1;
}

static int
fill_output(plan_object *plan, output *out, PyObject *tuple)
{
    out->kind = (enum output_kind)int_at(tuple, 0);
    if (out->kind == OUTPUT_CONST) {
        out->value = Py_NewRef(PyTuple_GET_ITEM(tuple, 1));
        return 0;
    }
    out->index = int_at(tuple, 1);
    if (out->kind == OUTPUT_VIEW) {
        if (PyTuple_GET_SIZE(tuple) != 3) {
            PyErr_SetString(PyExc_ValueError, "plan: a view of an input needs the function that makes it");
            return -1;
        }
        out->value = Py_NewRef(PyTuple_GET_ITEM(tuple, 2));
    }
    if (out->kind == OUTPUT_INPUT && (out->index < 0 || out->index >= plan->n_inputs)) {
        PyErr_SetString(PyExc_ValueError, "plan: an output names an input that there is not");
    }
    return check_buf(plan, out->index);
}

static int
fill_mutated(plan_object *plan, PyObject *numbers)
{
    plan->mutated = zeroed(PyTuple_GET_SIZE(numbers), sizeof *plan->mutated);
    plan->extents = zeroed(plan->n_inputs, sizeof *plan->extents);
    if (plan->mutated == NULL || plan->extents == NULL) {
        return -1;
    }
    for (; plan->n_mutated < PyTuple_GET_SIZE(numbers); plan->n_mutated++) {
        int64_t i = int_at(numbers, plan->n_mutated);
        if (i < 0 || i >= plan->n_inputs || plan->inputs[i].dtype == -1) {
            PyErr_SetString(PyExc_ValueError, "plan: only a tensor input can be mutated");
            return -1;
        }
        plan->mutated[plan->n_mutated] = (int32_t)i;
    }
    for (Py_ssize_t i = 0; i < plan->n_inputs; i++) {
        const shape *s = &plan->inputs[i];
        int64_t elements = 1;
        for (int64_t d = 0; d < s->ndim; d++) {
            elements += (s->dims[d] - 1) * s->dims[s->ndim + d];
        }
        plan->extents[i] = s->numel > 0 ? elements * s->itemsize : 0;
    }
    return 0;
}

static int
fill_place(plan_object *plan, PyObject *device)
{
    plan->products = plan_api.mm;
    if (int_at(device, 0) == TV_CUDA) {
        plan->device_number = (int32_t)int_at(device, 1);
        plan->context = PyErr_Occurred() ? NULL : cuda_context(plan->device_number);
        if (plan->context == NULL) {
            return -1;
        }
        if (cuda_driver.simulated_stream == NULL) {
            plan->products = plan_api.cuda_mm;
        }
    }
    return fill_device(&plan->device_type, &plan->device_index, device, 0);
}

static int
fill_aligned(plan_object *plan, PyObject *numbers)
{
    plan->aligned = zeroed(PyTuple_GET_SIZE(numbers), sizeof *plan->aligned);
    for (; plan->aligned != NULL && plan->n_aligned < PyTuple_GET_SIZE(numbers); plan->n_aligned++) {
        int64_t i = int_at(numbers, plan->n_aligned);
        if (i < 0 || i >= plan->n_inputs || plan->inputs[i].dtype == -1) {
            PyErr_SetString(PyExc_ValueError, "plan: only a tensor input can be aligned");
            return -1;
        }
        plan->aligned[plan->n_aligned] = (int32_t)i;
    }
    return plan->aligned == NULL ? -1 : 0;
}

static int
fill_inputs(plan_object *plan, PyObject *inputs)
{
    for (Py_ssize_t i = 0; i < plan->n_inputs; i++) {
        PyObject *input = tuple_at(inputs, i);
        shape *s = &plan->inputs[i];
        if (input == NULL || plan_fill_shape(s, input, 0) < 0
            || fill_device(&s->device_type, &s->device_index, input, 4) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
fill_steps(plan_object *plan, PyObject *steps, PyObject *kernels)
{
    for (; plan->n_steps < PyTuple_GET_SIZE(steps); plan->n_steps++) {
        PyObject *tuple = tuple_at(steps, plan->n_steps);
        /* Counted before it is filled, so that plan_clear sees what a failure left behind. */
        if (tuple == NULL || fill_step(plan, &plan->steps[plan->n_steps], tuple, kernels) < 0) {
            plan->n_steps += tuple != NULL;
            return -1;
        }
    }
    return plan_find_writes(plan);
}

static int
fill_outputs(plan_object *plan, PyObject *outputs)
{
    for (; plan->n_outputs < PyTuple_GET_SIZE(outputs); plan->n_outputs++) {
        PyObject *tuple = tuple_at(outputs, plan->n_outputs);
        if (tuple == NULL || fill_output(plan, &plan->outputs[plan->n_outputs], tuple) < 0) {
            return -1;
        }
    }
    if (plan->form == RESULT_SINGLE && plan->n_outputs != 1) {
        PyErr_SetString(PyExc_ValueError, "plan: a single result needs exactly one output");
        return -1;
    }
    return 0;
}

int
plan_fill(plan_object *plan, PyObject *args)
{
    PyObject *inputs, *fixed, *steps, *outputs, *kernels, *mutated, *aligned, *fallback, *written,
        *device;
    int form;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!niO!O!OOO!:Plan", &PyTuple_Type, &inputs, &PyTuple_Type, &fixed, &PyTuple_Type,
                          &steps, &PyTuple_Type, &outputs, &PyTuple_Type, &kernels, &plan->n_buffers, &form,
                          &PyTuple_Type, &mutated, &PyTuple_Type, &aligned, &fallback, &written, &PyTuple_Type, &device)
        || fill_place(plan, device) < 0) {
        return -1;
    }
    plan->form = (enum result_form)form;
    plan->fixed = Py_NewRef(fixed);
    plan->n_inputs = PyTuple_GET_SIZE(inputs);
    plan->n_fixed = PyTuple_GET_SIZE(fixed);
    if (plan->n_buffers < plan->n_inputs || plan->n_inputs < plan->n_fixed) {
        PyErr_SetString(PyExc_ValueError, "plan: every input needs a buffer");
        return -1;
    }
    plan->inputs = zeroed(plan->n_inputs, sizeof *plan->inputs);
    plan->steps = zeroed(PyTuple_GET_SIZE(steps), sizeof *plan->steps);
    plan->outputs = zeroed(PyTuple_GET_SIZE(outputs), sizeof *plan->outputs);
    plan->makers = zeroed(plan->n_buffers, sizeof *plan->makers);
    if (plan->inputs == NULL || plan->steps == NULL || plan->outputs == NULL || plan->makers == NULL) {
        return -1;
    }
    if (fill_inputs(plan, inputs) < 0 || fill_mutated(plan, mutated) < 0 || fill_aligned(plan, aligned) < 0) {
        return -1;
    }
    plan->fallback = fallback == Py_None ? NULL : Py_NewRef(fallback);
    plan->written = Py_NewRef(written);
    return fill_steps(plan, steps, kernels) < 0 || fill_outputs(plan, outputs) < 0 ? -1 : 0;
}

void
plan_clear(plan_object *plan)
{
    Py_CLEAR(plan->labels);
    for (Py_ssize_t i = 0; i < plan->n_steps; i++) {
        step *s = &plan->steps[i];
        Py_CLEAR(s->callee);
        Py_CLEAR(s->keywords);
        clear_operand(&s->operands);
        PyMem_Free(s->shape.dims);
        for (Py_ssize_t k = 0; s->results != NULL && k < s->n_outs; k++) {
            PyMem_Free(s->results[k].dims);
        }
        PyMem_Free(s->results);
        PyMem_Free(s->bufs);
        PyMem_Free(s->outs);
        PyMem_Free(s->ints);
        plan_clear_launch(s->launch);
    }
    for (Py_ssize_t i = 0; i < plan->n_outputs; i++) {
        Py_CLEAR(plan->outputs[i].value);
    }
    for (Py_ssize_t i = 0; plan->inputs != NULL && i < plan->n_inputs; i++) {
        PyMem_Free(plan->inputs[i].dims);
    }
    for (Py_ssize_t i = 0; i < plan->n_counters; i++) {
        Py_CLEAR(plan->counters[i].tensor);
    }
    PyMem_Free(plan->counters);
    PyMem_Free(plan->steps);
    PyMem_Free(plan->outputs);
    PyMem_Free(plan->inputs);
    PyMem_Free(plan->makers);
    PyMem_Free(plan->mutated);
    PyMem_Free(plan->aligned);
    PyMem_Free(plan->extents);
    plan->mutated = NULL;
    plan->aligned = NULL;
    plan->extents = NULL;
    plan->n_mutated = plan->n_aligned = 0;
    Py_CLEAR(plan->fallback);
    Py_CLEAR(plan->written);
    plan->steps = NULL;
    plan->outputs = NULL;
    plan->inputs = NULL;
    plan->makers = NULL;
    plan->n_steps = plan->n_outputs = plan->n_inputs = 0;
    Py_CLEAR(plan->fixed);
    free(plan->arena);
    plan->arena = NULL;
}
