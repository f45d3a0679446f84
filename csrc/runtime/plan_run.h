/* What one call of a plan owns, and the parts of a call. Private to the files that run a plan. */
#ifndef PYFRAME_PLAN_RUN_H
#define PYFRAME_PLAN_RUN_H

#include "cuda_driver.h"
#include "plan.h"

typedef struct buffer {
    void *data;
    PyObject *tensor; /* owned; NULL for a slot or a view that is only an address */
} buffer;

typedef struct run {
    plan_object *plan;
    buffer *buffers;
    char *arena;
    char *host_arena; /* CUDA: scratch memory of the host besides the arena on the device */
    int arena_is_plans;     /* the arena on the host is the one that the plan keeps */
    PyObject *arena_tensor; /* CUDA: what the arena is memory of */
    void *stream;           /* CUDA */
    int launched;           /* CUDA: a kernel of this run has been launched */
    PyObject *given; /* the list that the arguments are in, to be emptied once they are read; NULL for a plain call */
    int64_t status; /* set by kernels of the CPU: 1 if an index was out of bounds, 2 if an integer was divided by zero */
    PyObject *labels;       /* names for the profiler's ranges, borrowed from the plan; NULL while nothing records */
    bool wrote;             /* a step that may write an input has begun */
    bool grad;              /* recording of gradients is on for the caller, and off while the steps run */
    Py_ssize_t unexpected; /* 1 + the step whose operator returned another size or dtype than was promised; or 0 */
} run;

/* plan_buffers.c. Exceptions: NULL or -1.
 * buffer_tensor: the tensor object of a buffer, borrowed; made on first use.
 * set_tensor: `tensor` becomes the buffer's; takes over the reference. */
PyObject *plan_buffer_tensor(run *r, Py_ssize_t i);
int plan_set_tensor(run *r, Py_ssize_t i, PyObject *tensor);

/* plan_inputs.c. Exceptions: -1.
 * writes_overlap: whether an input that kernels write shares memory with another one.
 * misaligned: whether an input is not at the alignment that kernels expect.
 * report_writes: tell autograd of the writes, through the version counters. */
int plan_read_inputs(run *r, PyObject *const *args);
int plan_writes_overlap(const run *r);
int plan_misaligned(const run *r);
int plan_report_writes(run *r);

/* plan_steps.c: all steps in order. 0, or -1 with an exception set. */
int plan_run_steps(run *r);

/* plan_steps.c: begin the profiler's range of a step that calls a kernel, for profile_leave; NULL if nothing records. */
PyObject *plan_enter_step(const run *r, const step *s);

/* plan_results.c: a new reference; NULL with an exception set. */
PyObject *plan_collect(run *r);

/* plan_cuda.c. Each is 0 or more, or -1 with an exception set.
 * start: check the status, make the device current and find torch's stream;
 *        `*previous` is for cuda_leave().
 * launches: carry out step `first` and those after it, up to the first that needs the interpreter; its number. */
int plan_cuda_start(run *r, void **previous);
int plan_cuda_arena(run *r);
Py_ssize_t plan_cuda_launches(run *r, Py_ssize_t first);

/* plan_cuda.c: the step COUNTERS. 0, or -1 with an exception set. */
int plan_cuda_counters(run *r, const step *s);

/* A buffer that is only an address; needs no interpreter. */
static inline void
plan_place(run *r, const step *s)
{
    if (s->kind == STEP_SLOT) {
        r->buffers[s->buf].data = (s->on_host ? r->host_arena : r->arena) + s->offset;
    } else { /* STEP_VIEW */
        r->buffers[s->buf].data = (char *)r->buffers[s->base].data + s->offset * s->shape.itemsize;
    }
}

#endif
