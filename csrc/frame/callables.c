#include "callables.h"

#include <stddef.h>
#include <structmember.h>

/* ---- What both wrappers share ---- */
static int
copy_attribute(PyObject *dict, PyObject *from, const char *name)
{
    PyObject *value = PyObject_GetAttrString(from, name);
    if (value == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    int failed = PyDict_SetItemString(dict, name, value);
    Py_DECREF(value);
    return failed;
}

/* As functools.update_wrapper. */
int
wrapper_init(wrapper_base *self, PyObject *wrapped)
{
    static const char *const names[] = {"__module__",      "__name__",   "__qualname__",
                                        "__doc__", "__annotations__", "__type_params__"};
    self->wrapped = Py_NewRef(wrapped);
    self->dict = PyDict_New();
    if (self->dict == NULL) {
        return -1;
    }
    if (PyFunction_Check(wrapped)) { /* only of functions: the __dict__ of another object is its state */
        PyObject *extra = PyObject_GenericGetDict(wrapped, NULL);
        int failed = extra == NULL || PyDict_Update(self->dict, extra) < 0;
        Py_XDECREF(extra);
        if (failed) {
            return -1;
        }
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (copy_attribute(self->dict, wrapped, names[i]) < 0) {
            return -1;
        }
    }
    return PyDict_SetItemString(self->dict, "__wrapped__", wrapped);
}

int
wrapper_traverse(wrapper_base *self, visitproc visit, void *arg)
{
    Py_VISIT(self->wrapped);
    Py_VISIT(self->dict);
    return 0;
}

void
wrapper_clear(wrapper_base *self)
{
    Py_CLEAR(self->wrapped);
    Py_CLEAR(self->dict);
}

PyObject *
wrapper_bind(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    return instance == NULL || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

PyObject *
wrapper_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<%s of %R>", Py_TYPE(self)->tp_name, ((wrapper_base *)self)->wrapped);
}

static int
is_wrapper(PyObject *object)
{
    return Py_IS_TYPE(object, &CompiledFunction_Type) || Py_IS_TYPE(object, &DisabledFunction_Type);
}

/* For pickling: the function and the arguments by which `compile` or `disable` creates this object again. Borrowed;
 * NULL if unknown. */
static PyObject *
wrapper_maker(PyObject *self)
{
    PyObject *maker = PyDict_GetItemString(((wrapper_base *)self)->dict, "_pyframe_reduced");
    int valid = maker != NULL && PyTuple_Check(maker) && PyTuple_GET_SIZE(maker) == 2;
    return valid && PyTuple_Check(PyTuple_GET_ITEM(maker, 1)) ? maker : NULL;
}

static int
wraps_function(PyObject *self)
{
    PyObject *wrapped = PyDict_GetItemString(((wrapper_base *)self)->dict, "__wrapped__");
    return wrapped != NULL && PyFunction_Check(wrapped);
}

/* The object at the qualified name of `self` in its module; NULL (with or without an exception) if there is none. */
static PyObject *
found_by_name(PyObject *self, PyObject *qualname)
{
    PyObject *module_name = PyObject_GetAttrString(self, "__module__");
    if (module_name == NULL) {
        return NULL;
    }
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(PyImport_GetModuleDict(), module_name));
    Py_DECREF(module_name);
    PyObject *dot = found == NULL ? NULL : PyUnicode_FromString(".");
    PyObject *parts = dot == NULL ? NULL : PyUnicode_Split(qualname, dot, -1);
    Py_XDECREF(dot);
    for (Py_ssize_t i = 0; parts != NULL && found != NULL && i < PyList_GET_SIZE(parts); i++) {
        PyObject *next = PyObject_GetAttr(found, PyList_GET_ITEM(parts, i));
        Py_DECREF(found);
        found = next;
    }
    Py_XDECREF(parts);
    if (found == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    return found;
}

/* Pickled by reference to its name where that leads to it, as a function is. Otherwise what is wrapped is pickled, and
   compiled or disabled again when it is loaded; it may be found under a name that leads to another wrapper of it. */
PyObject *
wrapper_reduce(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *maker = wrapper_maker(self);
    if (maker != NULL && !wraps_function(self)) {
        return Py_NewRef(maker);
    }
    PyObject *qualname = PyObject_GetAttrString(self, "__qualname__");
    if (qualname == NULL || maker == NULL || !PyUnicode_Check(qualname)) {
        return qualname;
    }
    PyObject *found = found_by_name(self, qualname);
    if (found == self || (found == NULL && PyErr_Occurred())) {
        Py_XDECREF(found);
        return found == self ? qualname : (Py_DECREF(qualname), NULL);
    }
    Py_DECREF(qualname);
    PyObject *arguments = PyTuple_GET_ITEM(maker, 1), *result = NULL;
    if (found != NULL && is_wrapper(found) && ((wrapper_base *)found)->wrapped == ((wrapper_base *)self)->wrapped) {
        PyObject *rest = PyTuple_GetSlice(arguments, 1, PyTuple_GET_SIZE(arguments));
        PyObject *first = PyTuple_Pack(1, found);
        PyObject *both = rest == NULL || first == NULL ? NULL : PySequence_Concat(first, rest);
        Py_XDECREF(rest);
        Py_XDECREF(first);
        result = both == NULL ? NULL : PyTuple_Pack(2, PyTuple_GET_ITEM(maker, 0), both);
        Py_XDECREF(both);
    }
    else {
        result = Py_NewRef(maker);
    }
    Py_XDECREF(found);
    return result;
}

/* A copy of a compiled or disabled function is the function itself, as with other functions. Other objects are copied
   and then compiled again. `memo`: NULL for a shallow copy. */
static PyObject *
wrapper_copied(PyObject *self, PyObject *memo)
{
    PyObject *maker = wrapper_maker(self);
    if (maker == NULL || wraps_function(self)) {
        return Py_NewRef(self);
    }
    PyObject *arguments = Py_NewRef(PyTuple_GET_ITEM(maker, 1));
    if (memo != NULL) {
        PyObject *module = PyImport_ImportModule("copy");
        PyObject *copied = module == NULL ? NULL : PyObject_CallMethod(module, "deepcopy", "OO", arguments, memo);
        Py_XDECREF(module);
        Py_SETREF(arguments, copied);
    }
    PyObject *result = arguments == NULL ? NULL : PyObject_Call(PyTuple_GET_ITEM(maker, 0), arguments, NULL);
    Py_XDECREF(arguments);
    return result;
}

static PyObject *
wrapper_copy(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return wrapper_copied(self, NULL);
}

static PyObject *
wrapper_deepcopy(PyObject *self, PyObject *memo)
{
    return wrapper_copied(self, memo);
}

static PyGetSetDef wrapper_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* ---- DisabledFunction ---- */
static PyObject *
DisabledFunction_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    ThreadHook *hook = thread_hook();
    if (hook == NULL) {
        return NULL;
    }
    PyObject *wrapped = Py_NewRef(((wrapper_base *)self)->wrapped);
    int saved = hook_disable(hook);
    PyObject *result = PyObject_Vectorcall(wrapped, args, nargsf, names);
    hook_enable(hook, saved);
    Py_DECREF(wrapped);
    return result;
}

static PyObject *
DisabledFunction_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"fn", NULL};
    PyObject *wrapped;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:DisabledFunction", keywords, &wrapped)) {
        return NULL;
    }
    if (!PyCallable_Check(wrapped)) {
        return PyErr_Format(PyExc_TypeError, "expected a callable, got %.200s", Py_TYPE(wrapped)->tp_name);
    }
    wrapper_base *self = (wrapper_base *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = DisabledFunction_call;
    if (wrapper_init(self, wrapped) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int
DisabledFunction_traverse(PyObject *self, visitproc visit, void *arg)
{
    return wrapper_traverse((wrapper_base *)self, visit, arg);
}

static int
DisabledFunction_clear(PyObject *self)
{
    wrapper_clear((wrapper_base *)self);
    return 0;
}

static void
DisabledFunction_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    if (((wrapper_base *)self)->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    wrapper_clear((wrapper_base *)self);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef wrapper_methods[] = {
    {"__reduce__", wrapper_reduce, METH_NOARGS, "pickle by name, or as what is wrapped"},
    {"__copy__", wrapper_copy, METH_NOARGS, "a shallow copy"},
    {"__deepcopy__", wrapper_deepcopy, METH_O, "a deep copy"},
    {NULL, NULL, 0, NULL},
};

PyTypeObject DisabledFunction_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pyframe._C.DisabledFunction",
    .tp_doc = "DisabledFunction(fn)\n--\n\nCalls fn with the frame hook off.",
    .tp_basicsize = sizeof(wrapper_base),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = DisabledFunction_new,
    .tp_dealloc = DisabledFunction_dealloc,
    .tp_traverse = DisabledFunction_traverse,
    .tp_clear = DisabledFunction_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(wrapper_base, vectorcall),
    .tp_dictoffset = offsetof(wrapper_base, dict),
    .tp_weaklistoffset = offsetof(wrapper_base, weakrefs),
    .tp_descr_get = wrapper_bind,
    .tp_repr = wrapper_repr,
    .tp_getset = wrapper_getset,
    .tp_methods = wrapper_methods,
};

/* ---- CompiledFunction ---- */
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

/* The stance that `torch.compiler.set_stance` has set. torch keeps it in a variable of a module that only programs import
   which use it. `forces_eager` is valid while sys.modules and the variables of the module are unchanged. */
static struct {
    PyObject *modules, *variables;
    const uint64_t *modules_version, *variables_version; /* NULL: unknown */
    uint64_t modules_seen, variables_seen;
    int forces_eager;
} torch_stance;

/* Whether the stance is "force_eager"; -1 with an exception. */
static int
read_torch_stance(PyObject *variables)
{
    PyObject *stance = PyDict_GetItemString(variables, "_stance");
    if (stance == NULL) {
        return 0;
    }
    PyObject *name = PyObject_GetAttrString(stance, "stance");
    if (name == NULL) {
        return -1;
    }
    int is_eager = PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "force_eager") == 0;
    Py_DECREF(name);
    return is_eager;
}

static int
update_torch_stance(void)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *module = PyDict_GetItemString(modules, "torch._dynamo.eval_frame");
    PyObject *variables = module != NULL && PyModule_Check(module) ? PyModule_GetDict(module) : NULL;
    const uint64_t *modules_version = cp_dict_version(modules);
    const uint64_t *variables_version = variables == NULL ? modules_version : cp_dict_version(variables);
    uint64_t modules_seen = modules_version == NULL ? 0 : *modules_version;
    uint64_t variables_seen = variables_version == NULL ? 0 : *variables_version;
    int forces_eager = variables == NULL ? 0 : read_torch_stance(variables);
    if (forces_eager < 0) {
        return -1;
    }
    Py_XSETREF(torch_stance.modules, Py_NewRef(modules));
    Py_XSETREF(torch_stance.variables, Py_XNewRef(variables));
    torch_stance.modules_version = modules_version;
    torch_stance.variables_version = variables_version;
    torch_stance.modules_seen = modules_seen;
    torch_stance.variables_seen = variables_seen;
    torch_stance.forces_eager = forces_eager;
    return forces_eager;
}

/* Whether `torch.compiler.set_stance` has set "force_eager": 1, 0, or -1 with an exception. */
static inline int
torch_forces_eager(void)
{
    if (torch_stance.modules_version != NULL && torch_stance.variables_version != NULL
        && *torch_stance.modules_version == torch_stance.modules_seen
        && *torch_stance.variables_version == torch_stance.variables_seen) {
        return torch_stance.forces_eager;
    }
    return update_torch_stance();
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
