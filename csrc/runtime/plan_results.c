/* The results of one call, in the container that the plan returns: tensors of buffers, views of inputs, constants. */
#include "plan_run.h"

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
        return plan_buffer_tensor(r, out->index);
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
        return plan_buffer_tensor(r, out->index);
    }
}

PyObject *
plan_collect(run *r)
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
