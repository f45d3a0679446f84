#include "callables.h"
#include "torch_stance.h"

#include <stddef.h>

typedef struct {
    wrapper_base base;
    PyObject *callback, *owner;
    Entry *last_entry;       /* the entry whose code `last_function` has */
    PyObject *last_function; /* kept here, not on the entry: it holds the user's closure */
} CompiledFunction;

/* The plain function that a call reaches, and the instance to put in front, if any. */
static PyFunctionObject *
target_of(PyObject *wrapped, PyObject **instance)
{
    *instance = NULL;
    if (PyMethod_Check(wrapped)) {
        *instance = PyMethod_GET_SELF(wrapped);
        wrapped = PyMethod_GET_FUNCTION(wrapped);
    }
    return PyFunction_Check(wrapped) ? (PyFunctionObject *)wrapped : NULL;
}

static PyObject *
replacement_function(CompiledFunction *self, Entry *entry, PyFunctionObject *original)
{
    if (self->last_entry != entry) {
        PyObject *function = entry_make_function(entry, original);
        if (function == NULL) {
            return NULL;
        }
        Py_XSETREF(self->last_function, function);
        Py_XSETREF(self->last_entry, (Entry *)Py_NewRef((PyObject *)entry));
    }
    return Py_NewRef(self->last_function);
}

static PyObject *
run_hit(CompiledFunction *self, ThreadHook *hook, Entry *entry, const call_context *context, register_file *registers)
{
    if (entry_is_direct(entry)) { /* the caller has disabled the hook */
        PyObject *result = direct_call_run(entry->direct, registers->items);
        registers_release(registers);
        return result;
    }
    PyObject *function = replacement_function(self, entry, context->function);
    if (function == NULL) {
        registers_release(registers);
        return NULL;
    }
    hook_setting saved;
    bool started = false;
    hook_push(hook, self->callback, self->owner, &saved);
    PyObject *result = entry_run_code(entry, function, context, registers, &started);
    hook_pop(hook, &saved);
    Py_DECREF(function);
    return result;
}

/* Try the entries of the function's code. 1 with *result (NULL: an exception is set) when one ran, 0 on a miss. */
static int
try_entries(CompiledFunction *self, ThreadHook *hook, PyFunctionObject *function, PyObject *const *args, Py_ssize_t n,
            PyObject *names, PyObject **result)
{
    PyCodeObject *code = (PyCodeObject *)function->func_code;
    CodeState *state = code_state_peek(code);
    if (state == NULL || state->n_entries == 0) {
        return 0;
    }
    bound_call bound;
    call_context context = {.function = function, .n_locals = cp_code_argument_count(code)};
    bool simple = names == NULL && n == code->co_argcount && context.n_locals == n;
    if (simple) {
        context.locals = args;
    }
    else {
        int fits = bind_call(function, args, n, names, &bound);
        if (fits <= 0) {
            unbind_call(&bound);
            return fits < 0;
        }
        context.locals = bound.locals;
    }
    Py_INCREF(function); /* guards run Python code, which may drop the last reference to it or change its code */
    Py_INCREF(code);
    int disabled = hook_disable(hook);
    register_file registers;
    Entry *entry = code_state_lookup(state, self->owner, &context, &registers);
    int done = 1;
    if (entry != NULL) {
        *result = run_hit(self, hook, entry, &context, &registers);
        Py_DECREF(entry);
    }
    else {
        done = PyErr_Occurred() != NULL;
    }
    hook_enable(hook, disabled);
    Py_DECREF(code);
    Py_DECREF(function);
    if (!simple) {
        unbind_call(&bound);
    }
    return done;
}

static int
try_method_entries(CompiledFunction *self, ThreadHook *hook, PyFunctionObject *function, PyObject *instance,
                   PyObject *const *args, Py_ssize_t n, PyObject *names, PyObject **result)
{
    enum { FEW = 12 };
    PyObject *few[FEW], **with_self = few;
    Py_ssize_t n_all = n + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    if (n_all + 1 > FEW) {
        with_self = PyMem_Malloc((size_t)(n_all + 1) * sizeof *with_self);
        if (with_self == NULL) {
            PyErr_NoMemory();
            return 1;
        }
    }
    with_self[0] = instance;
    for (Py_ssize_t i = 0; i < n_all; i++) {
        with_self[i + 1] = args[i];
    }
    int done = try_entries(self, hook, function, with_self, n + 1, names, result);
    if (with_self != few) {
        PyMem_Free(with_self);
    }
    return done;
}

static int run_eagerly; /* every CompiledFunction calls the wrapped function, with the hook disabled */

PyObject *
compiled_set_eager(PyObject *Py_UNUSED(module), PyObject *flag)
{
    int now = PyObject_IsTrue(flag), before = run_eagerly;
    if (now < 0) {
        return NULL;
    }
    run_eagerly = now;
    return PyBool_FromLong(before);
}

static PyObject *
CompiledFunction_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    int eager = run_eagerly ? 1 : torch_forces_eager();
    if (eager != 0) {
        return eager < 0 ? NULL : DisabledFunction_call(object, args, nargsf, names);
    }
    CompiledFunction *self = (CompiledFunction *)object;
    ThreadHook *hook = thread_hook();
    if (hook == NULL) {
        return NULL;
    }
    PyObject *instance, *result = NULL;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    PyFunctionObject *function = target_of(self->base.wrapped, &instance);
    Py_INCREF(self);
    if (function != NULL && self->callback != NULL && !hook_is_watched(PyThreadState_Get())) {
        int done = instance == NULL
                       ? try_entries(self, hook, function, args, n, names, &result)
                       : try_method_entries(self, hook, function, instance, args, n, names, &result);
        if (done) {
            Py_DECREF(self);
            return result;
        }
    }
    hook_setting saved;
    hook_push(hook, self->callback, self->owner, &saved);
    result = PyObject_Vectorcall(self->base.wrapped, args, nargsf, names);
    hook_pop(hook, &saved);
    Py_DECREF(self);
    return result;
}

static int
CompiledFunction_set_callback(PyObject *object, PyObject *callback, void *Py_UNUSED(closure))
{
    CompiledFunction *self = (CompiledFunction *)object;
    PyObject *owner = NULL;
    if (callback == Py_None || callback == NULL) {
        callback = NULL;
    }
    else if (callback == Py_False) {
        owner = Py_XNewRef(self->owner);
    }
    else if (!PyCallable_Check(callback)) {
        PyErr_Format(PyExc_TypeError, "callback must be a callable, False or None, got %.200s",
                     Py_TYPE(callback)->tp_name);
        return -1;
    }
    else if ((owner = callback_owner(callback)) == NULL) {
        return -1;
    }
    Py_XSETREF(self->callback, Py_XNewRef(callback));
    Py_XSETREF(self->owner, owner);
    return 0;
}

static PyObject *
CompiledFunction_get_callback(PyObject *object, void *Py_UNUSED(closure))
{
    PyObject *callback = ((CompiledFunction *)object)->callback;
    return Py_NewRef(callback == NULL ? Py_None : callback);
}

static PyObject *
CompiledFunction_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"fn", "callback", NULL};
    PyObject *wrapped, *callback;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:CompiledFunction", keywords, &wrapped, &callback)) {
        return NULL;
    }
    if (!PyCallable_Check(wrapped)) {
        return PyErr_Format(PyExc_TypeError, "expected a callable, got %.200s", Py_TYPE(wrapped)->tp_name);
    }
    CompiledFunction *self = (CompiledFunction *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->base.vectorcall = CompiledFunction_call;
    if (wrapper_init(&self->base, wrapped) < 0
        || CompiledFunction_set_callback((PyObject *)self, callback, NULL) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int
CompiledFunction_traverse(PyObject *object, visitproc visit, void *arg)
{
    CompiledFunction *self = (CompiledFunction *)object;
    Py_VISIT(self->callback);
    Py_VISIT(self->owner);
    Py_VISIT(self->last_entry);
    Py_VISIT(self->last_function);
    return wrapper_traverse(&self->base, visit, arg);
}

static int
CompiledFunction_clear(PyObject *object)
{
    CompiledFunction *self = (CompiledFunction *)object;
    Py_CLEAR(self->callback);
    Py_CLEAR(self->owner);
    Py_CLEAR(self->last_entry);
    Py_CLEAR(self->last_function);
    wrapper_clear(&self->base);
    return 0;
}

static void
CompiledFunction_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    if (((CompiledFunction *)object)->base.weakrefs != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    CompiledFunction_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyGetSetDef CompiledFunction_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"callback", CompiledFunction_get_callback, CompiledFunction_set_callback,
     "asked on a miss; False: run installed entries only; None: run the function eagerly", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject CompiledFunction_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pyframe._C.CompiledFunction",
    .tp_doc = "CompiledFunction(fn, callback)\n--\n\nCalls fn through its compiled entries, with the frame hook on.",
    .tp_basicsize = sizeof(CompiledFunction),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = CompiledFunction_new,
    .tp_dealloc = CompiledFunction_dealloc,
    .tp_traverse = CompiledFunction_traverse,
    .tp_clear = CompiledFunction_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(CompiledFunction, base.vectorcall),
    .tp_dictoffset = offsetof(CompiledFunction, base.dict),
    .tp_weaklistoffset = offsetof(CompiledFunction, base.weakrefs),
    .tp_descr_get = wrapper_bind,
    .tp_repr = wrapper_repr,
    .tp_getset = CompiledFunction_getset,
    .tp_methods = wrapper_methods,
};
