/* Replay: a callable in the place of a plan. A call for which a recording fits replays it, all from here; any other call
 * goes to `otherwise`, the Recorder in inductor/cudagraphs/recorder.py, which can do all of this as well and says why. */
#include "replay.h"
#include "profile.h"
#include "cuda_driver.h"

#include <string.h>

enum { SKIP_NOTHING, SKIP_COPIED, SKIP_IGNORED }; /* the bytes of `skip` */
enum { STACK_INPUTS = 256 };
enum { FEW_COPIES = 3 }; /* up to this many the driver is faster than one kernel that copies all */

/* The state of one call. */
typedef struct attempt {
    replay_object *replay;
    PyObject *const *args;
    PyObject *recordings, *skip; /* what was offered when the call began */
    recorded_object *recorded;
    int64_t *addresses; /* of all inputs, those that are copied included */
    void *stream;
} attempt;

static PyObject *
input_of(const attempt *a, Py_ssize_t i)
{
    return i < a->replay->count ? a->args[i] : PyTuple_GET_ITEM(a->replay->bound, i - a->replay->count);
}

/* What `callable` returns, as 1 or 0; -1 with an exception set. */
static int
is_true(PyObject *callable)
{
    PyObject *answer = PyObject_CallNoArgs(callable);
    int result = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return result;
}

/* ---- Which recording ---- */

/* The addresses of the inputs. 1; 0 if one of them is not what the plan was compiled for, or is on another device. */
static int
read_addresses(attempt *a, int64_t *key)
{
    const replay_object *r = a->replay;
    const char *skip = PyBytes_AS_STRING(a->skip);
    for (Py_ssize_t i = 0, n = PyBytes_GET_SIZE(a->skip); i < n; i++) {
        PyObject *object = input_of(a, i);
        const shape *expected = &r->target->inputs[i];
        void *data = NULL;
        if (expected->dtype == -1) {
            a->addresses[i] = PyLong_AsLongLong(object);
        } else {
            int32_t device_type;
            if (plan_check_input(r->target, i, object, &data, &device_type) == 0 && skip[i] != SKIP_IGNORED
                && device_type != r->target->device_type) {
                return 0;
            }
            a->addresses[i] = (int64_t)(intptr_t)data;
        }
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
        key[i] = skip[i] != SKIP_NOTHING ? 0 : a->addresses[i];
    }
    return 1;
}

/* Whether an input that the plan writes shares memory with one that is copied; the other pairs were compared when the
 * call was recorded. */
static int
overlaps(const attempt *a)
{
    const replay_object *r = a->replay;
    for (Py_ssize_t m = 0; m < r->n_mutated; m++) {
        int64_t start = a->addresses[r->mutated[m]], end = start + r->target->extents[r->mutated[m]];
        for (Py_ssize_t c = 0; c < a->recorded->n_copied; c++) {
            Py_ssize_t j = a->recorded->copied[c];
            if (a->addresses[j] < end && start < a->addresses[j] + r->target->extents[j]) {
                return 1;
            }
        }
    }
    return 0;
}

/* Whether the memory of the recording was used on this stream before, and the replay before this one was on it. */
static int
known_stream(const attempt *a)
{
    PyObject *last = PyObject_GetAttrString(a->replay->device, "raw"), *stream = NULL;
    int known = 0;
    if (last != NULL && last != Py_None && PyLong_AsVoidPtr(last) == a->stream) {
        stream = PyLong_FromVoidPtr(a->stream);
        known = stream == NULL ? -1 : PySet_Contains(a->recorded->used, stream);
    }
    Py_XDECREF(stream);
    Py_XDECREF(last);
    return PyErr_Occurred() ? -1 : known;
}

/* Find the recording that this call can replay. 1, 0 if there is none, or -1 with an exception set. */
static int
find(attempt *a, const int64_t *key)
{
    const replay_object *r = a->replay;
    PyObject *generation = PyObject_GetAttrString(r->device, "generation");
    long long now = generation == NULL ? -1 : PyLong_AsLongLong(generation);
    Py_XDECREF(generation);
    int inference = PyErr_Occurred() ? -1 : is_true(r->inference);
    if (inference < 0) {
        return -1;
    }
    size_t bytes = (size_t)PyBytes_GET_SIZE(a->skip) * sizeof *key;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a->recordings); i++) {
        recorded_object *one = (recorded_object *)PyTuple_GET_ITEM(a->recordings, i);
        if (one->generation != now || one->inference != inference || memcmp(one->addresses, key, bytes) != 0) {
            continue;
        }
        int usable = recorded_usable(one, r->use_count);
        if (usable != 0) {
            a->recorded = one;
            return usable < 0 || overlaps(a) ? (usable < 0 ? -1 : 0) : known_stream(a);
        }
    }
    return 0;
}

/* ---- Results ---- */

/* Whether the driver can be asked to copy on the stream of this call. */
static int
driver_copies(const attempt *a)
{
    return a->replay->target->context != NULL && cuda_driver.copy_async != NULL && cuda_driver.simulated_stream == NULL;
}

/* A copy of the memory of results, with the same strides, which need not be dense. The driver is asked directly, where
 * it can be: `copy_` takes the host several times as long. */
static PyObject *
copied(const attempt *a, const memory *m)
{
    tensor_view v, to;
    PyObject *tensor = m->tensor;
    if (tv_read_meta(tensor, &v) < 0) {
        return NULL;
    }
    PyObject *copy = tv_empty_strided(v.ndim, v.sizes, v.strides, v.dtype, v.device_type, v.device_index);
    if (copy != NULL && m->bytes > 0 && driver_copies(a)) {
        int32_t status = -1;
        if (tv_read(copy, &to) == 0) {
            status = cuda_driver.copy_async((uint64_t)(uintptr_t)to.data, (uint64_t)(uintptr_t)m->address, m->bytes,
                                            a->stream);
            if (status != 0) {
                cuda_set_error(status, "cannot copy a result of a recorded graph");
            }
        }
        if (status != 0) {
            Py_CLEAR(copy);
        }
        return copy;
    }
    PyObject *done = copy == NULL ? NULL : PyObject_CallMethod(copy, "copy_", "O", tensor);
    Py_XDECREF(copy);
    return done;
}

/* A tensor over the memory of `base`, unrelated to it for autograd. */
static PyObject *
part_of(PyObject *base, const replay_result *result)
{
    tensor_view v;
    void *from = tv_aten_handle(base), *handle = NULL;
    int64_t ndim = result->ndim;
    const int64_t *sizes = result->dims, *strides = result->dims + (ndim < 0 ? 0 : ndim);
    if (from == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this torch has no handles of tensors");
        return NULL;
    }
    if (ndim < 0) {
        if (tv_read_meta(base, &v) < 0) {
            return NULL;
        }
        ndim = v.ndim, sizes = v.sizes, strides = v.strides;
    }
    if (plan_api.reinterpret(from, ndim, sizes, strides, result->offset, &handle) != 0) {
        PyErr_SetString(PyExc_RuntimeError, "torch could not make a result of a recorded graph");
        return NULL;
    }
    PyObject *tensor = tv_wrap_handle(handle);
    plan_api.drop(handle);
    return tensor;
}

/* A new reference. `copies`: for each memory the copy that results are made of, or NULL. */
static PyObject *
make_result(const attempt *a, const replay_result *result, PyObject **copies)
{
    switch (result->kind) {
    case REPLAY_CONSTANT:
        return Py_NewRef(result->value);
    case REPLAY_ARGUMENT:
        return Py_NewRef(input_of(a, result->index));
    case REPLAY_ARGUMENT_VIEW:
        return PyObject_CallFunction(result->value, "OOOL", input_of(a, result->index), result->size, result->stride,
                                     (long long)result->offset);
    case REPLAY_OWNED:
        break;
    }
    const memory *m = &a->recorded->memories[result->index];
    if (m->handed_out) {
        return part_of(m->tensor, result);
    }
    if (copies[result->index] == NULL && (copies[result->index] = copied(a, m)) == NULL) {
        return NULL;
    }
    return part_of(copies[result->index], result);
}

static PyObject *
make_results(const attempt *a)
{
    const replay_object *r = a->replay;
    Py_ssize_t n = r->n_results, n_memories = a->recorded->n_memories;
    PyObject **copies = PyMem_Calloc((size_t)n_memories + 1, sizeof *copies);
    PyObject *all = r->form == RESULT_LIST ? PyList_New(n) : PyTuple_New(n);
    if (copies == NULL || all == NULL) {
        PyMem_Free(copies);
        Py_XDECREF(all);
        return PyErr_NoMemory();
    }
    PyObject **items = r->form == RESULT_LIST ? ((PyListObject *)all)->ob_item : ((PyTupleObject *)all)->ob_item;
    for (Py_ssize_t i = 0; i < n && all != NULL; i++) {
        const replay_result *result = &r->results[i];
        items[i] = result->same_as >= 0 ? Py_NewRef(items[result->same_as]) : make_result(a, result, copies);
        if (items[i] == NULL) {
            Py_CLEAR(all);
        }
    }
    for (Py_ssize_t i = 0; i < n_memories; i++) {
        Py_XDECREF(copies[i]);
    }
    PyMem_Free(copies);
    if (all != NULL && r->form == RESULT_SINGLE) {
        Py_SETREF(all, Py_NewRef(items[0]));
    }
    return all;
}

/* ---- Running ---- */

/* An input and the memory it is copied to have the same sizes and strides. What is between their elements is copied
 * too, and not read. */
static int
copy_few(const attempt *a)
{
    for (Py_ssize_t i = 0; i < a->recorded->n_copied; i++) {
        Py_ssize_t at = a->recorded->copied[i];
        size_t bytes = (size_t)a->replay->target->extents[at];
        tensor_view to;
        if (tv_read(PyList_GET_ITEM(a->recorded->targets, i), &to) < 0) {
            return -1;
        }
        int32_t status = bytes == 0 ? 0
                                    : cuda_driver.copy_async((uint64_t)(uintptr_t)to.data, (uint64_t)a->addresses[at],
                                                             bytes, a->stream);
        if (status != 0) {
            cuda_set_error(status, "cannot copy an input of a recorded graph");
            return -1;
        }
    }
    return 0;
}

static int
copy_inputs(const attempt *a)
{
    const recorded_object *recorded = a->recorded;
    if (recorded->n_copied == 0) {
        return 0;
    }
    if (recorded->n_copied <= FEW_COPIES && driver_copies(a)) {
        return copy_few(a);
    }
    PyObject *sources = PyList_New(recorded->n_copied);
    for (Py_ssize_t i = 0; sources != NULL && i < recorded->n_copied; i++) {
        PyList_SET_ITEM(sources, i, Py_NewRef(input_of(a, recorded->copied[i])));
    }
    PyObject *args[] = {recorded->targets, sources};
    PyObject *done = sources == NULL ? NULL : PyObject_Vectorcall(a->replay->foreach_copy, args, 2, NULL);
    Py_XDECREF(sources);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Autograd detects the writes by the tensors' version counters. */
static int
report_writes(const attempt *a)
{
    const replay_object *r = a->replay;
    if (r->written == Py_None) {
        return 0;
    }
    PyObject *tensors = PyList_New(r->n_mutated);
    for (Py_ssize_t m = 0; tensors != NULL && m < r->n_mutated; m++) {
        PyList_SET_ITEM(tensors, m, Py_NewRef(input_of(a, r->mutated[m])));
    }
    PyObject *done = tensors == NULL ? NULL : PyObject_CallOneArg(r->written, tensors);
    Py_XDECREF(tensors);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *
run_graph(const attempt *a)
{
    static PyObject *name;
    if (name == NULL && (name = PyUnicode_InternFromString("replay")) == NULL) {
        return NULL;
    }
    PyObject *labels = a->replay->target->labels;
    PyObject *range = labels != NULL && profile_is_on() ? profile_enter(PyTuple_GET_ITEM(labels, 0)) : NULL;
    bool grad = plan_api.grad_enabled();
    if (grad) {
        plan_api.set_grad(false);
    }
    int failed = copy_inputs(a) < 0;
    if (!failed) {
        PyObject *done = PyObject_CallMethodNoArgs(a->recorded->graph, name);
        Py_XDECREF(done);
        failed = done == NULL || report_writes(a) < 0;
    }
    if (grad) {
        plan_api.set_grad(true);
    }
    PyObject *results = failed ? NULL : make_results(a);
    profile_leave(range);
    return results;
}

/* With the device's lock held. NULL without an exception if the call is not for us. */
static PyObject *
run_locked(attempt *a)
{
    Py_ssize_t n = PyBytes_GET_SIZE(a->skip);
    int64_t stack[2 * STACK_INPUTS], *heap = NULL;
    if (n > STACK_INPUTS && (heap = PyMem_Malloc(2 * (size_t)n * sizeof *heap)) == NULL) {
        return PyErr_NoMemory();
    }
    int64_t *key = (heap != NULL ? heap : stack) + n;
    a->addresses = heap != NULL ? heap : stack;
    PyObject *result = NULL;
    if (plan_check_status(a->replay->target) == 0 && read_addresses(a, key) && find(a, key) == 1) {
        result = run_graph(a);
    }
    PyMem_Free(heap);
    return result;
}

static PyObject *
run_exclusive(attempt *a)
{
    PyObject *blocking = Py_False;
    PyObject *got = PyObject_Vectorcall(a->replay->acquire, &blocking, 1, NULL);
    int locked = got == NULL ? -1 : PyObject_IsTrue(got);
    Py_XDECREF(got);
    if (locked <= 0) {
        return NULL;
    }
    PyObject *result = run_locked(a);
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *done = PyObject_CallNoArgs(a->replay->release);
    if (done == NULL) { /* cannot be: it is held */
        PyErr_WriteUnraisable(a->replay->release);
    }
    Py_XDECREF(done);
    PyErr_Restore(type, value, trace);
    return result;
}

/* The results of a replay; NULL without an exception if `otherwise` has to be called. */
static PyObject *
attempt_replay(replay_object *r, PyObject *const *args)
{
    attempt a = {.replay = r, .args = args};
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(r->modes); i++) {
        if (is_true(PyTuple_GET_ITEM(r->modes, i)) != 0) {
            return NULL;
        }
    }
    if (r->target->context != NULL) {
        void *current = NULL; /* `otherwise` makes another device current */
        if (cuda_driver.context_get(&current) != 0 || current != r->target->context) {
            return NULL;
        }
        if (cuda_driver.simulated_stream == NULL
            && tv_current_stream(TV_CUDA, r->target->device_number, &a.stream) < 0) {
            return NULL;
        }
    }
    if (is_true(r->capturing) != 0) {
        return NULL;
    }
    a.recordings = r->recordings;
    a.skip = r->skip;
    PyObject *offered = Py_NewRef(r->offered); /* what runs here may make the Recorder offer something else */
    PyObject *result = run_exclusive(&a);
    Py_DECREF(offered);
    return result;
}

/* From now on call the plan. */
static int
stop(replay_object *r)
{
    PyObject *plan = PyObject_GetAttrString(r->otherwise, "plan");
    if (plan == NULL) {
        return -1;
    }
    r->stopped = 1;
    r->recordings = r->skip = NULL;
    Py_CLEAR(r->offered);
    Py_XSETREF(r->otherwise, plan);
    return 0;
}

/* Take over what the Recorder offers: its recordings, and a byte for each input. */
static int
refresh(replay_object *r)
{
    PyObject *offered = PyObject_GetAttrString(r->otherwise, "offered");
    if (offered == NULL || offered == r->offered) {
        Py_XDECREF(offered);
        return offered == NULL ? -1 : 0;
    }
    if (offered == Py_None) {
        Py_DECREF(offered);
        return stop(r);
    }
    PyObject *recordings, *skip;
    int fits = PyArg_ParseTuple(offered, "O!O!:offered", &PyTuple_Type, &recordings, &PyBytes_Type, &skip);
    Py_ssize_t n = fits ? PyBytes_GET_SIZE(skip) : 0;
    if (fits) {
        fits = n == r->count + PyTuple_GET_SIZE(r->bound) && n <= r->target->n_inputs;
        for (Py_ssize_t i = 0; fits && i < PyTuple_GET_SIZE(recordings); i++) {
            PyObject *one = PyTuple_GET_ITEM(recordings, i);
            fits = Py_TYPE(one) == &recorded_type && ((recorded_object *)one)->n_inputs == n
                   && ((recorded_object *)one)->n_memories >= r->n_memories;
        }
        if (!fits) {
            PyErr_SetString(PyExc_ValueError, "Replay: recordings of another plan");
        }
    }
    if (!fits) {
        Py_DECREF(offered);
        return -1;
    }
    r->recordings = recordings;
    r->skip = skip;
    Py_XSETREF(r->offered, offered);
    return 0;
}

/* A call of the Recorder, by vectorcall or, where `given` is not NULL, of its method take. Its recordings change only in
 * such calls. */
static PyObject *
call_otherwise(replay_object *r, PyObject *const *args, size_t nargsf, PyObject *kwnames, PyObject *given)
{
    PyObject *callee = Py_NewRef(r->otherwise); /* may be replaced meanwhile */
    PyObject *result = given != NULL ? PyObject_CallMethod(callee, "take", "O", given)
                                     : PyObject_Vectorcall(callee, args, nargsf, kwnames);
    Py_DECREF(callee);
    if (r->stopped) {
        return result;
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (refresh(r) < 0) {
        PyErr_WriteUnraisable(r->otherwise);
    }
    PyErr_Restore(type, value, trace);
    return result;
}

PyObject *
replay_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    replay_object *r = (replay_object *)self;
    PyObject *result = NULL;
    Py_INCREF(self);
    if (r->offered != NULL && PyTuple_GET_SIZE(r->recordings) > 0 && PyVectorcall_NARGS(nargsf) == r->count && kwnames == NULL) {
        result = attempt_replay(r, args);
    }
    if (result == NULL && !PyErr_Occurred()) {
        result = call_otherwise(r, args, nargsf, kwnames, NULL);
    }
    Py_DECREF(self);
    return result;
}

PyObject *
replay_take(PyObject *self, PyObject *given)
{
    replay_object *r = (replay_object *)self;
    PyObject *result = NULL;
    if (r->offered != NULL && PyTuple_GET_SIZE(r->recordings) > 0 && PyList_Check(given)
        && PyList_GET_SIZE(given) == r->count) {
        PyObject *held = PySequence_Tuple(given);
        if (held == NULL) {
            return NULL;
        }
        result = attempt_replay(r, ((PyTupleObject *)held)->ob_item);
        if (result != NULL && PyList_SetSlice(given, 0, PyList_GET_SIZE(given), NULL) < 0) {
            Py_CLEAR(result);
        }
        Py_DECREF(held);
    }
    return result != NULL || PyErr_Occurred() ? result : call_otherwise(r, NULL, 0, NULL, given);
}
