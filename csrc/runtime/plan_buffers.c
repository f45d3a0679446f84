/* The tensor objects of a plan's buffers. A slot or a view is only an address until something asks for its tensor. */
#include "plan_run.h"

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
PyObject *
plan_buffer_tensor(run *r, Py_ssize_t i)
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
    if (memory->kind == STEP_SLOT && r->arena_tensor != NULL && !memory->on_host) { /* a view of a slot needs no tensor of the slot */
        int32_t status = plan_api.part(tv_aten_handle(r->arena_tensor), (char *)b->data - r->arena, s->dtype, s->ndim,
                                       s->dims, s->dims + s->ndim, &handle);
        return b->tensor = wrap_and_drop(status, handle, "make a part of the arena");
    }
    if (memory->kind == STEP_SLOT) {
        int32_t status = plan_api.blob(b->data, s->ndim, s->dims, s->dims + s->ndim, 0, s->dtype, TV_CPU, 0, &handle);
        return b->tensor = wrap_and_drop(status, handle, "wrap a slot");
    }
    PyObject *base = plan_buffer_tensor(r, maker->base);
    if (base == NULL) {
        return NULL;
    }
    /* torch adds the offset to the base's own */
    int32_t status = plan_api.reinterpret(tv_aten_handle(base), s->ndim, s->dims, s->dims + s->ndim, maker->offset,
                                          &handle);
    return b->tensor = wrap_and_drop(status, handle, "make a view");
}

/* Takes over the reference. */
int
plan_set_tensor(run *r, Py_ssize_t i, PyObject *tensor)
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
