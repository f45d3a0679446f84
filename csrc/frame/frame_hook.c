#include "frame_hook.h"
#include "move_args.h"

PyObject *hook_skip_marker;
bool hook_stands_aside = true;

static cp_eval_function previous_eval; /* the evaluation function that was installed before ours */
static Py_ssize_t active_threads;      /* threads with a callback */
static Py_ssize_t n_suspended;         /* deep frames that run without the hook */
static PyObject *thread_key;           /* key of the ThreadHook in a thread's dict */

static _Thread_local ThreadHook *current;        /* borrowed from the thread's dict */
static _Thread_local int nesting;                /* depth of this thread's frames that the hook evaluates */
static _Thread_local cp_frame *being_passed_on;  /* breaks a ring of hooks that chain to each other */

static PyObject *evaluate(PyThreadState *tstate, cp_frame *frame, int throwflag);

/* ---- Installing ---- */
static void
install(void)
{
    cp_eval_function now = cp_get_eval();
    if (now != evaluate) {
        previous_eval = now;
        cp_set_eval(evaluate);
    }
}

static void
uninstall(void)
{
    /* A hook that was installed on top of ours may call it: then ours stays installed and passes every frame on. */
    if (cp_get_eval() == evaluate) {
        cp_set_eval(previous_eval);
    }
}

cp_eval_function
frame_hook_ensure(void)
{
    cp_eval_function before = cp_get_eval();
    install();
    return before;
}

void
frame_hook_put_back(cp_eval_function before)
{
    if (before != evaluate) {
        uninstall();
    }
}

static void
count_active(PyObject *before, PyObject *after)
{
    if (before == NULL && after != NULL && active_threads++ == 0) {
        install();
    }
    else if (before != NULL && after == NULL && --active_threads == 0) {
        uninstall();
    }
}

/* ---- The thread's setting ---- */
static void
ThreadHook_dealloc(PyObject *self)
{
    ThreadHook *hook = (ThreadHook *)self;
    if (current == hook) {
        current = NULL;
    }
    count_active(hook->callback, NULL);
    Py_CLEAR(hook->callback);
    Py_CLEAR(hook->owner);
    PyObject_Free(self);
}

PyTypeObject ThreadHook_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pyframe._C._ThreadHook",
    .tp_basicsize = sizeof(ThreadHook),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = ThreadHook_dealloc,
};

ThreadHook *
thread_hook(void)
{
    if (current != NULL) {
        return current;
    }
    PyObject *dict = PyThreadState_GetDict();
    if (dict == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this thread has no Python state");
        return NULL;
    }
    ThreadHook *hook = PyObject_New(ThreadHook, &ThreadHook_Type);
    if (hook == NULL) {
        return NULL;
    }
    hook->callback = hook->owner = NULL;
    hook->disabled = 0;
    int failed = PyDict_SetItem(dict, thread_key, (PyObject *)hook) < 0;
    Py_DECREF(hook);
    if (failed) {
        return NULL;
    }
    current = hook;
    return hook;
}

PyObject *
callback_owner(PyObject *callback)
{
    PyObject *owner = PyObject_GetAttrString(callback, "owner");
    if (owner == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        return Py_NewRef(callback);
    }
    return owner;
}

void
hook_push(ThreadHook *hook, PyObject *callback, PyObject *owner, hook_setting *saved)
{
    *saved = (hook_setting){hook->callback, hook->owner, hook->disabled};
    count_active(hook->callback, callback);
    hook->callback = Py_XNewRef(callback);
    hook->owner = Py_XNewRef(owner);
    hook->disabled = 0;
}

void
hook_pop(ThreadHook *hook, hook_setting *saved)
{
    PyObject *callback = hook->callback, *owner = hook->owner;
    count_active(callback, saved->callback);
    hook->callback = saved->callback;
    hook->owner = saved->owner;
    hook->disabled = saved->disabled;
    Py_XDECREF(callback);
    Py_XDECREF(owner);
}

static PyObject *
as_python(PyObject *callback)
{
    return Py_NewRef(callback == NULL ? Py_None : callback);
}

PyObject *
frame_hook_set_callback(PyObject *Py_UNUSED(module), PyObject *callback)
{
    ThreadHook *hook = thread_hook();
    if (hook == NULL) {
        return NULL;
    }
    PyObject *owner = NULL;
    if (callback == Py_None) {
        callback = NULL;
    }
    else if (callback == Py_False) {
        owner = Py_XNewRef(hook->owner); /* keep using the entries of the previous owner */
    }
    else if (!PyCallable_Check(callback)) {
        return PyErr_Format(PyExc_TypeError, "expected a callable, None or False, got %.200s",
                            Py_TYPE(callback)->tp_name);
    }
    else if ((owner = callback_owner(callback)) == NULL) {
        return NULL;
    }
    hook_setting before;
    hook_push(hook, callback, owner, &before);
    hook->disabled = before.disabled; /* a callback that sets another one still runs with the hook disabled */
    Py_XDECREF(owner);
    Py_XDECREF(before.owner);
    PyObject *previous = as_python(before.callback);
    Py_XDECREF(before.callback);
    return previous;
}

PyObject *
frame_hook_get_callback(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return as_python(current == NULL ? NULL : current->callback);
}

PyObject *
frame_hook_set_stands_aside(PyObject *Py_UNUSED(module), PyObject *flag)
{
    int now = PyObject_IsTrue(flag);
    if (now < 0) {
        return NULL;
    }
    bool before = hook_stands_aside;
    hook_stands_aside = now;
    return PyBool_FromLong(before);
}

PyObject *
frame_hook_is_installed(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(cp_get_eval() == evaluate);
}

/* ---- Evaluating ---- */
static PyObject *
pass_on(PyThreadState *tstate, cp_frame *frame, int throwflag)
{
    if (previous_eval == cp_eval_default || previous_eval == NULL || being_passed_on == frame) {
        return cp_eval_default(tstate, frame, throwflag);
    }
    cp_frame *outer = being_passed_on;
    being_passed_on = frame;
    PyObject *result = previous_eval(tstate, frame, throwflag);
    being_passed_on = outer;
    return result;
}

/* Evaluate this frame, and all that it calls, with the hook disabled. */
static PyObject *
pass_on_disabled(ThreadHook *hook, PyThreadState *tstate, cp_frame *frame)
{
    int saved = hook_disable(hook);
    PyObject *result = pass_on(tstate, frame, 0);
    hook_enable(hook, saved);
    return result;
}

typedef enum {
    FRAME_DONE,   /* *result is the result of the frame (NULL: an exception is set) */
    FRAME_FAILED, /* an exception is set, and the frame is unchanged */
    FRAME_PASS,   /* evaluate the original frame */
} frame_verdict;

/* Run an entry whose guards held. The registers are released. */
static frame_verdict
run_entry(ThreadHook *hook, Entry *entry, const call_context *context, register_file *registers, PyObject **result)
{
    if (entry_is_direct(entry)) {
        int saved = hook_disable(hook);
        *result = direct_call_run(entry->direct, registers->items);
        hook_enable(hook, saved);
        registers_release(registers);
        return *result == NULL ? FRAME_FAILED : FRAME_DONE;
    }
    PyObject *function = entry_make_function(entry, context->function);
    if (function == NULL) {
        registers_release(registers);
        return FRAME_FAILED;
    }
    bool started = cp_get_eval() != evaluate; /* below another hook: unknown */
    *result = entry_run_code(entry, function, context, registers, &started);
    Py_DECREF(function);
    return *result == NULL && !started ? FRAME_FAILED : FRAME_DONE;
}

static PyObject *
ask_callback(ThreadHook *hook, const call_context *context, CodeState *state)
{
    PyObject *locals = PyTuple_New(context->n_locals);
    if (locals == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < context->n_locals; i++) {
        PyTuple_SET_ITEM(locals, i, Py_NewRef(context->locals[i]));
    }
    state->misses++;
    PyObject *callback = Py_NewRef(hook->callback);
    PyObject *args[] = {(PyObject *)context->function, locals, (PyObject *)state};
    int saved = hook_disable(hook);
    PyObject *answer = PyObject_Vectorcall(callback, args, 3, NULL);
    hook_enable(hook, saved);
    Py_DECREF(callback);
    Py_DECREF(locals);
    return answer;
}

/* Install the entry that the callback returned, and run it for this call. */
static frame_verdict
run_new_entry(ThreadHook *hook, Entry *entry, CodeState *state, const call_context *context, PyObject **result)
{
    if (!entry->valid) { /* dropped while another thread was still in its callback */
        return FRAME_PASS;
    }
    if (code_state_install(state, entry) < 0) {
        return FRAME_FAILED;
    }
    register_file registers;
    int saved = hook_disable(hook);
    Py_ssize_t failed = guard_run(entry->guards, context, &registers);
    hook_enable(hook, saved);
    if (failed == GUARD_PASS) {
        return run_entry(hook, entry, context, &registers, result);
    }
    if (failed == GUARD_ERROR) {
        return FRAME_FAILED;
    }
    entry->last_failed = failed;
    /* Evaluating the original frame is still correct, but each such call would capture again: report it. */
    int raised = PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "guard %zd of the new entry for %U fails on the very call "
                                  "it was made for", failed, state->code->co_name);
    return raised < 0 ? FRAME_FAILED : FRAME_PASS;
}

static frame_verdict
ask_and_run(ThreadHook *hook, PyCodeObject *code, const call_context *context, PyObject **result)
{
    CodeState *state = code_state_get(code);
    if (state == NULL) {
        return FRAME_FAILED;
    }
    if (code_state_skips_owner(state, hook->owner)) {
        return FRAME_PASS;
    }
    PyObject *owner = Py_NewRef(hook->owner);
    PyObject *answer = ask_callback(hook, context, state);
    frame_verdict verdict = FRAME_PASS;
    if (answer == NULL) {
        verdict = FRAME_FAILED;
    }
    else if (Py_IS_TYPE(answer, &Entry_Type)) {
        verdict = run_new_entry(hook, (Entry *)answer, state, context, result);
    }
    else if (answer == hook_skip_marker) {
        verdict = code_state_skip_owner(state, owner) < 0 ? FRAME_FAILED : FRAME_PASS;
    }
    else if (answer != Py_None) {
        PyErr_Format(PyExc_TypeError, "a frame callback must return an Entry, SKIP or None, got %.200s",
                     Py_TYPE(answer)->tp_name);
        verdict = FRAME_FAILED;
    }
    Py_XDECREF(answer);
    Py_DECREF(owner);
    return verdict;
}

static frame_verdict
try_frame(ThreadHook *hook, PyCodeObject *code, const call_context *context, PyObject **result)
{
    CodeState *state = code_state_peek(code);
    if (state != NULL && state->n_entries > 0) {
        register_file registers;
        int saved = hook_disable(hook);
        Entry *entry = code_state_lookup(state, hook->owner, context, &registers);
        hook_enable(hook, saved);
        if (entry != NULL) {
            frame_verdict verdict = run_entry(hook, entry, context, &registers, result);
            Py_DECREF(entry);
            return verdict;
        }
        if (PyErr_Occurred()) {
            return FRAME_FAILED;
        }
    }
    if (hook->callback == NULL || hook->callback == Py_False) { /* NULL: a guard removed the callback */
        return FRAME_PASS;
    }
    return ask_and_run(hook, code, context, result);
}

/* Not inlined, so that its C stack is free while a frame that is passed on runs. Unless it returns FRAME_PASS, the
 * caller must still discard or evaluate the frame. */
static __attribute__((noinline)) frame_verdict
evaluate_hooked(ThreadHook *hook, cp_frame *frame, PyCodeObject *code, PyObject **result)
{
    enum { FEW = 16 };
    PyObject *few[FEW], **scratch = few;
    call_context context = {.function = cp_frame_function(frame), .n_locals = cp_code_argument_count(code)};
    if (context.function == NULL) {
        return FRAME_PASS;
    }
    if (context.n_locals > FEW) {
        scratch = PyMem_Malloc((size_t)context.n_locals * sizeof *scratch);
        if (scratch == NULL) {
            return FRAME_PASS;
        }
    }
    context.locals = cp_frame_locals(frame, scratch, context.n_locals);
    context.frame = frame;
    frame_verdict verdict = try_frame(hook, code, &context, result);
    if (scratch != few) {
        PyMem_Free(scratch);
    }
    return verdict;
}

/* Under a hook, each call from Python to Python uses C stack, which deep recursion would exhaust. Deeply nested frames
 * therefore run without the hook. It is then off in the other threads too, as it is installed per interpreter. */
static PyObject *
evaluate_without_hook(PyThreadState *tstate, cp_frame *frame, int throwflag)
{
    n_suspended++;
    uninstall();
    PyObject *result = pass_on(tstate, frame, throwflag);
    if (--n_suspended == 0 && active_threads > 0) {
        install();
    }
    return result;
}

/* Evaluate a frame that has not started and has a handler for the exception that is set. */
static PyObject *
evaluate_with_error(PyThreadState *tstate, cp_frame *frame)
{
    cp_frame_raise_at_resume(frame);
    return pass_on(tstate, frame, 1);
}

static PyObject *
evaluate_frame(PyThreadState *tstate, cp_frame *frame, int throwflag)
{
    enum { SUSPENDABLE = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE };
    ThreadHook *hook = current;
    if (hook == NULL || hook->callback == NULL || being_passed_on == frame) {
        return pass_on(tstate, frame, throwflag);
    }
    if (hook_is_watched(tstate)) { /* under a hook, coroutines report other events to it */
        return active_threads == 1 ? evaluate_without_hook(tstate, frame, throwflag) : pass_on(tstate, frame, throwflag);
    }
    if (hook->disabled || throwflag) {
        return pass_on(tstate, frame, throwflag);
    }
    PyCodeObject *code = cp_frame_code(frame);
    if ((code->co_flags & SUSPENDABLE) || !(code->co_flags & CO_OPTIMIZED)) { /* generators; class and module bodies */
        return pass_on(tstate, frame, throwflag);
    }
    CodeState *state = code_state_peek(code);
    if (state != NULL && (state->flags & CODE_SKIPPED) != 0) {
        return state->flags & CODE_SKIP_RECURSIVE ? pass_on_disabled(hook, tstate, frame)
                                                  : pass_on(tstate, frame, throwflag);
    }
    PyObject *result = NULL;
    frame_verdict verdict = evaluate_hooked(hook, frame, code, &result);
    if (verdict == FRAME_PASS) {
        return pass_on(tstate, frame, throwflag);
    }
    if (verdict == FRAME_FAILED && (state = code_state_peek(code)) != NULL && (state->flags & CODE_HANDLES_ERRORS)) {
        return evaluate_with_error(tstate, frame);
    }
    cp_frame_discard(tstate, frame);
    return result;
}

static PyObject *
evaluate(PyThreadState *tstate, cp_frame *frame, int throwflag)
{
    enum { MAX_NESTED = 500 };
    PyObject *error = move_args_take(frame);
    if (nesting >= MAX_NESTED && error == NULL) {
        return evaluate_without_hook(tstate, frame, throwflag);
    }
    nesting++;
    cp_lend_c_recursion(tstate, 1);
    PyObject *result;
    if (error == NULL) {
        result = evaluate_frame(tstate, frame, throwflag);
    }
    else {
        PyErr_Restore(Py_NewRef(Py_TYPE(error)), Py_NewRef(error), PyException_GetTraceback(error));
        result = evaluate_with_error(tstate, frame);
    }
    cp_lend_c_recursion(tstate, -1);
    nesting--;
    return result;
}

int
frame_hook_init(PyObject *module)
{
    previous_eval = cp_eval_default;
    thread_key = PyUnicode_InternFromString("pyframe._C.thread_hook");
    hook_skip_marker = PyUnicode_InternFromString("pyframe._C.SKIP");
    if (thread_key == NULL || hook_skip_marker == NULL) {
        return -1;
    }
    return move_args_init(module) < 0 ? -1 : PyModule_AddObjectRef(module, "SKIP", hook_skip_marker);
}
