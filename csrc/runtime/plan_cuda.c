/* The steps of a plan that differ on a CUDA device. Nothing here waits for the device: kernels go to torch's current
 * stream, scratch memory comes from torch's allocator and goes back to that stream's pool when the call returns, and an
 * index out of bounds is reported by a later call. */
#include "plan_run.h"
#include "profile.h"

enum { MAX_PARAMS = 4096, MAX_BLOCK = 1024, TRITON_SCRATCH_PARAMS = 2, UINT8_CODE = 0 };

/* ---- Building ---- */
static int
fill_grid(launch *l, PyObject *grid)
{
    for (Py_ssize_t i = 0; i < 3; i++) {
        long long size = PyLong_AsLongLong(PyTuple_GET_ITEM(grid, i));
        if (size < 0 || size > (i == 0 ? INT32_MAX : UINT16_MAX)) {
            if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_ValueError, "plan: the grid %R of kernel %s is out of range", grid, l->name);
            }
            return -1;
        }
        l->grid[i] = (uint32_t)size;
        l->empty |= size == 0;
    }
    return 0;
}

/* Ints are 32 bits wide in a kernel; the two pointers behind them are scratch memory that our kernels do not use. */
static int
fill_tail(launch *l, PyObject *ints)
{
    static void *const no_scratch;
    Py_ssize_t n_ints = PyTuple_GET_SIZE(ints);
    l->n_tail = n_ints + TRITON_SCRATCH_PARAMS;
    l->ints = PyMem_Calloc((size_t)n_ints + 1, sizeof *l->ints);
    l->tail = PyMem_Calloc((size_t)l->n_tail, sizeof *l->tail);
    if (l->ints == NULL || l->tail == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < l->n_tail; i++) {
        l->tail[i] = i < n_ints ? (void *)&l->ints[i] : (void *)&no_scratch;
    }
    for (Py_ssize_t i = 0; i < n_ints; i++) {
        long long value = PyLong_AsLongLong(PyTuple_GET_ITEM(ints, i));
        if (value < INT32_MIN || value > INT32_MAX) {
            PyErr_Format(PyExc_ValueError, "plan: kernel %s takes 32-bit integers, not %lld", l->name, value);
        }
        if (PyErr_Occurred()) {
            return -1;
        }
        l->ints[i] = (int32_t)value;
    }
    return 0;
}

/* Pairs: the place of a buffer among the launch's, and where in it the number is, in bytes. */
static int
fill_by_value(launch *l, Py_ssize_t n_bufs, PyObject *pairs)
{
    if (PyTuple_GET_SIZE(pairs) == 0) {
        return 0;
    }
    l->by_value = PyMem_Malloc((size_t)n_bufs * sizeof *l->by_value);
    if (l->by_value == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n_bufs; i++) {
        l->by_value[i] = -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); i++) {
        long long place, offset;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, i), "LL:by_value", &place, &offset)) {
            return -1;
        }
        if (place < 0 || place >= n_bufs || offset < 0) {
            PyErr_Format(PyExc_ValueError, "plan: kernel %s has no argument %lld", l->name, place);
            return -1;
        }
        l->by_value[place] = offset;
    }
    return 0;
}

int
plan_fill_launch(const plan_object *plan, step *out, PyObject *kernel, PyObject *grid, PyObject *ints,
                 PyObject *by_value)
{
    PyObject *code, *name;
    int threads, shared, waits = 0;
    if (plan->context == NULL || !PyTuple_Check(kernel) || PyTuple_GET_SIZE(grid) != 3) {
        PyErr_SetString(PyExc_ValueError, "plan: a launch needs a CUDA plan, a compiled kernel and a grid of three");
        return -1;
    }
    if (!PyArg_ParseTuple(kernel, "O!O!ii|p:kernel", &PyBytes_Type, &code, &PyUnicode_Type, &name, &threads, &shared,
                          &waits)) {
        return -1;
    }
    const char *text = PyUnicode_AsUTF8(name);
    launch *l = out->launch = text == NULL ? NULL : PyMem_Calloc(1, sizeof *l);
    if (l == NULL || (l->name = PyMem_Malloc(strlen(text) + 1)) == NULL) {
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    }
    strcpy(l->name, text);
    if (threads <= 0 || threads > MAX_BLOCK || shared < 0 || out->n_bufs + PyTuple_GET_SIZE(ints) > MAX_PARAMS) {
        PyErr_Format(PyExc_ValueError, "plan: kernel %s cannot be launched with %d threads, %d bytes of shared memory "
                     "and %zd parameters", text, threads, shared, out->n_bufs + PyTuple_GET_SIZE(ints));
        return -1;
    }
    l->block = (uint32_t)threads;
    l->shared = (uint32_t)shared;
    l->waits = waits;
    if (fill_grid(l, grid) < 0 || fill_tail(l, ints) < 0 || fill_by_value(l, out->n_bufs, by_value) < 0) {
        return -1;
    }
    l->function = cuda_function(plan->device_number, code, name, shared);
    return l->function == NULL ? -1 : 0;
}

void
plan_clear_launch(launch *l)
{
    if (l != NULL) {
        PyMem_Free(l->ints);
        PyMem_Free(l->tail);
        PyMem_Free(l->by_value);
        PyMem_Free(l->name);
        PyMem_Free(l);
    }
}

/* ---- Running ---- */
int
plan_check_status(const plan_object *plan)
{
    volatile int64_t *word = plan->status_word; /* kernels write it at any time */
    if (word != NULL && *word != 0) {
        *word = 0;
        PyErr_SetString(PyExc_IndexError, "index out of range in a compiled graph (reported asynchronously)");
        return -1;
    }
    return 0;
}

int
plan_cuda_start(run *r, void **previous)
{
    plan_object *plan = r->plan;
    if (plan_check_status(plan) < 0) {
        return -1;
    }
    if (cuda_driver.simulated_stream != NULL) {
        r->stream = cuda_driver.simulated_stream();
    } else if (tv_current_stream(TV_CUDA, plan->device_number, &r->stream) < 0) {
        return -1;
    }
    return cuda_enter(plan->context, previous);
}

int
plan_cuda_arena(run *r)
{
    const plan_object *plan = r->plan;
    tensor_view view;
    r->arena_tensor = tv_empty_strided(1, &plan->arena_bytes, NULL, UINT8_CODE, plan->device_type, plan->device_index);
    if (r->arena_tensor == NULL || tv_read(r->arena_tensor, &view) < 0) {
        return -1;
    }
    r->arena = view.data;
    return 0;
}

/* CU_STREAM_PER_THREAD: the handle of a different stream in each thread. */
#define PER_THREAD_STREAM ((void *)2)

/* Whether the counters of this call may not be used by others on the stream. */
static int
needs_own_counters(void *stream)
{
    int32_t status = 0; /* CU_STREAM_CAPTURE_STATUS_NONE */
    return stream == PER_THREAD_STREAM
           || (cuda_driver.is_capturing != NULL && (cuda_driver.is_capturing(stream, &status) != 0 || status != 0));
}

/* Kernels leave counters as the next call needs them, so those of a stream are made once. A graph that is being captured gets its own, and
 * sets them to 0 at each replay: graphs that were captured on one stream may run at the same time on others. */
int
plan_cuda_counters(run *r, const step *s)
{
    plan_object *plan = r->plan;
    int own = needs_own_counters(r->stream);
    for (Py_ssize_t i = 0; i < plan->n_counters && !own; i++) {
        if (plan->counters[i].stream == r->stream && plan->counters[i].buf == s->buf) {
            r->buffers[s->buf].data = plan->counters[i].data;
            return 0;
        }
    }
    tensor_view view;
    PyObject *tensor =
        tv_empty_strided(1, &s->offset, NULL, UINT8_CODE, plan->device_type, plan->device_index);
    if (tensor == NULL || tv_read(tensor, &view) < 0) {
        Py_XDECREF(tensor);
        return -1;
    }
    int32_t status = cuda_driver.memset_bytes(view.data, 0, (size_t)s->offset, r->stream);
    if (status != 0) {
        Py_DECREF(tensor);
        cuda_set_error(status, "cannot set counters to 0");
        return -1;
    }
    if (own) {
        return plan_set_tensor(r, s->buf, tensor);
    }
    counters *more = PyMem_Realloc(plan->counters, (size_t)(plan->n_counters + 1) * sizeof *more);
    if (more == NULL) {
        Py_DECREF(tensor);
        PyErr_NoMemory();
        return -1;
    }
    plan->counters = more;
    more[plan->n_counters++] = (counters){r->stream, view.data, s->buf, tensor};
    r->buffers[s->buf].data = view.data;
    return 0;
}

/* The driver reads each parameter, before it returns, from the address given for it: for a buffer that is its entry in
 * the run, for a number in memory of the host the number itself.
 *
 * The first kernel of a run starts when all work before it has ended. Those behind it may then read inputs that no
 * kernel of the plan writes at any time. */
static int32_t
launch_kernel(run *r, const step *s)
{
    const launch *l = s->launch;
    if (l->empty) {
        return 0;
    }
    void *params[s->n_bufs + l->n_tail];
    for (Py_ssize_t i = 0; i < s->n_bufs; i++) {
        void **data = &r->buffers[s->bufs[i]].data;
        params[i] = l->by_value == NULL || l->by_value[i] < 0 ? (void *)data : (char *)*data + l->by_value[i];
    }
    for (Py_ssize_t i = 0; i < l->n_tail; i++) {
        params[s->n_bufs + i] = l->tail[i];
    }
    int first = !r->launched;
    r->launched = 1;
    if (l->waits && !first && cuda_driver.launch_with != NULL) {
        cuda_launch_attribute early = {CUDA_PROGRAMMATIC_STREAM_SERIALIZATION, 0, {.allowed = 1}};
        cuda_launch how = {{l->grid[0], l->grid[1], l->grid[2]}, {l->block, 1, 1}, l->shared, r->stream, &early, 1};
        return cuda_driver.launch_with(&how, l->function, params, NULL);
    }
    return cuda_driver.launch(l->function, l->grid[0], l->grid[1], l->grid[2], l->block, 1, 1, l->shared, r->stream,
                              params, NULL);
}

/* Whether the step touches no Python object in this run, so that it needs no interpreter. */
static int
is_plain(const run *r, const step *s)
{
    switch (s->kind) {
    case STEP_LAUNCH:
    case STEP_VIEW:
        return 1;
    case STEP_SLOT:
    case STEP_FREE:
        return r->buffers[s->buf].tensor == NULL;
    default:
        return 0;
    }
}

Py_ssize_t
plan_cuda_launches(run *r, Py_ssize_t first)
{
    const plan_object *plan = r->plan;
    int32_t status = 0;
    Py_ssize_t i = first;
    Py_ssize_t end = r->labels == NULL ? plan->n_steps : first + 1; /* in a profile each launch has a range */
    PyObject *range = plan_enter_step(r, &plan->steps[first]);
    /* A launch waits while the stream's queue is full, and what the queue waits for may want the interpreter. */
    Py_BEGIN_ALLOW_THREADS
    for (; status == 0 && i < end && is_plain(r, &plan->steps[i]); i++) {
        const step *s = &plan->steps[i];
        if (s->kind == STEP_LAUNCH) {
            status = launch_kernel(r, s);
        } else if (s->kind != STEP_FREE) {
            plan_place(r, s);
        }
    }
    Py_END_ALLOW_THREADS
    profile_leave(range);
    if (status != 0) {
        char what[256];
        PyOS_snprintf(what, sizeof what, "cannot launch the kernel %.200s", plan->steps[i - 1].launch->name);
        cuda_set_error(status, what);
        return -1;
    }
    return i;
}
