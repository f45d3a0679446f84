/* What the steps of a plan write to its inputs: how much each call must keep copies of, and from which step on. */
#include "plan.h"

/* Bytes of the inputs that kernels write, if they are few enough to copy them at each call: where a step raises, the
 * captured graph then runs on the inputs as they were. 0 if not, or if no step may raise. */
static int64_t
undo_bytes(const plan_object *plan)
{
    enum { MAX_BYTES = 1 << 14 };
    int raises = 0;
    for (Py_ssize_t i = 0; i < plan->n_steps; i++) {
        raises |= plan->steps[i].kind == STEP_STATUS || plan->steps[i].kind == STEP_EXTERN;
    }
    int64_t bytes = 0;
    for (Py_ssize_t m = 0; m < plan->n_mutated; m++) {
        Py_ssize_t i = plan->mutated[m];
        if (plan->inputs[i].device_type != TV_CPU) {
            return 0;
        }
        bytes += plan->extents[i];
    }
    return raises && plan->fallback != NULL && plan->context == NULL && bytes <= MAX_BYTES ? bytes : 0;
}

static bool
reads_any(const operand *op, const char *marked)
{
    if (op->kind == OPERAND_BUF) {
        return marked[op->buf];
    }
    for (Py_ssize_t i = 0; op->kind == OPERAND_LIST && i < op->n_items; i++) {
        if (reads_any(&op->items[i], marked)) {
            return true;
        }
    }
    return false;
}

/* Whether a step accesses one of the marked buffers. */
static bool
accesses(const step *s, const char *marked)
{
    if (s->kind != STEP_KERNEL && s->kind != STEP_LAUNCH && s->kind != STEP_EXTERN && s->kind != STEP_MATMUL) {
        return false;
    }
    for (Py_ssize_t i = 0; i < s->n_bufs; i++) {
        if (s->bufs[i] >= 0 && marked[s->bufs[i]]) {
            return true;
        }
    }
    for (Py_ssize_t i = 0; i < s->n_outs; i++) {
        if (s->outs[i] >= 0 && marked[s->outs[i]]) {
            return true;
        }
    }
    return (s->kind == STEP_MATMUL && marked[s->buf])
           || ((s->kind == STEP_EXTERN || s->kind == STEP_MATMUL) && reads_any(&s->operands, marked));
}

/* The first step that accesses an input which kernels write, n_steps if there is none; -1 with an exception set. */
static Py_ssize_t
first_write(const plan_object *plan)
{
    char *marked = PyMem_Calloc((size_t)plan->n_buffers + 1, 1);
    if (marked == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t m = 0; m < plan->n_mutated; m++) {
        marked[plan->mutated[m]] = 1;
    }
    Py_ssize_t i = 0;
    for (; i < plan->n_steps && !accesses(&plan->steps[i], marked); i++) {
        if (plan->steps[i].kind == STEP_VIEW && marked[plan->steps[i].base]) {
            marked[plan->steps[i].buf] = 1;
        }
    }
    PyMem_Free(marked);
    return i;
}

int
plan_find_writes(plan_object *plan)
{
    plan->undo_bytes = undo_bytes(plan);
    plan->first_write = first_write(plan);
    return plan->first_write < 0 ? -1 : 0;
}
