/* One call of a plan: checks the inputs, carries out the steps, collects the results, and runs the captured graph where
 * the plan must not be used. Everything a call owns is in its `run`. */
#include "plan_run.h"
#include "profile.h"

#include <stdlib.h>
#include <string.h>

enum { STACK_BUFFERS = 64 };

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

/* Copy the inputs that kernels write to `copies`, or back. */
static void
copy_mutated(const run *r, char *copies, bool back)
{
    const plan_object *plan = r->plan;
    for (Py_ssize_t m = 0; m < plan->n_mutated; m++) {
        char *data = r->buffers[plan->mutated[m]].data;
        size_t size = (size_t)plan->extents[plan->mutated[m]];
        if (size > 0) {
            memcpy(back ? data : copies, back ? copies : data, size);
        }
        copies += size;
    }
}

/* Whether a call that raised has changed nothing, or what `copies` restores, so that ATen's operators can raise what
 * they raise. On CUDA the exception may be that of an earlier call. */
static bool
may_run_eagerly(const run *r, const char *copies)
{
    const plan_object *plan = r->plan;
    return plan->fallback != NULL && (!r->wrote || plan->n_mutated == 0 || copies != NULL) && plan->context == NULL
           && r->given == NULL && PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_MemoryError);
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
    if (plan_read_inputs(r, args) < 0) {
        return NULL;
    }
    if ((plan->n_mutated > 0 && plan_writes_overlap(r)) || plan_misaligned(r)) {
        if (plan->fallback == NULL) {
            PyErr_SetString(PyExc_ValueError, plan_misaligned(r)
                            ? "an input of a compiled graph is not aligned to 16 bytes"
                            : "an input that a compiled graph mutates shares memory with another input");
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
    char *copies = plan->undo_bytes > 0 && r->given == NULL ? PyMem_Malloc((size_t)plan->undo_bytes) : NULL;
    if (copies != NULL) {
        copy_mutated(r, copies, false);
    }
    PyObject *result = NULL;
    if (plan_run_steps(r) == 0 && (plan->n_mutated == 0 || plan_report_writes(r) == 0)) {
        result = plan_collect(r);
    }
    if (r->grad) {
        plan_api.set_grad(true);
    }
    if (result == NULL && r->unexpected > 0) {
        result = run_fallback(r, args);
    }
    else if (result == NULL && may_run_eagerly(r, copies)) {
        if (copies != NULL) {
            copy_mutated(r, copies, true);
        }
        result = run_eagerly(plan, args, n_args);
    }
    PyMem_Free(copies);
    return result;
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
    Py_XDECREF(r.arena_tensor);
    if (r.arena_is_plans) {
        plan->arena_busy = 0;
    } else {
        free(plan->context != NULL ? r.host_arena : r.arena);
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
