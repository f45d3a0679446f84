#include "move_args.h"
#include "frame_hook.h"

#include <stddef.h>
#include <structmember.h>

static _Thread_local moved_args *pending; /* set from the start of a call until its frame starts */

PyObject *
move_args_call(moved_args *given, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    moved_args *outer = pending;
    pending = given;
    PyObject *result = PyObject_Vectorcall(given->function, args, (size_t)n, names);
    pending = outer;
    return result;
}

/* The frame has its own references, so no object is freed here. */
PyObject *
move_args_take(cp_frame *frame)
{
    moved_args *given = pending;
    if (given == NULL || (PyObject *)cp_frame_function(frame) != given->function) {
        return NULL;
    }
    pending = NULL;
    given->taken = true;
    if (given->frame != NULL) {
        cp_frame_clear_locals(given->frame, given->n);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < given->n; i++) {
        Py_CLEAR(given->items[i]);
    }
    return given->error;
}

/* Not a builtin function: those count as a level of recursion. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
} MoveArgs;

/* Call with the items of `list`, which is emptied. `started` (or NULL): set if the frame of the callee has started. */
static PyObject *
call_with_items(PyObject *callable, PyObject *list, PyObject *names, PyObject *error, bool *started)
{
    enum { FEW = 16 };
    PyObject *few[FEW], **items = few, *result = NULL;
    Py_ssize_t is_method = PyMethod_Check(callable), n = PyList_GET_SIZE(list) + is_method;
    if (n > FEW && (items = PyMem_Malloc((size_t)n * sizeof *items)) == NULL) {
        return PyErr_NoMemory();
    }
    if (is_method) {
        items[0] = Py_NewRef(PyMethod_GET_SELF(callable));
        callable = PyMethod_GET_FUNCTION(callable);
    }
    for (Py_ssize_t i = is_method; i < n; i++) {
        items[i] = Py_NewRef(PyList_GET_ITEM(list, i - is_method));
    }
    Py_INCREF(callable);
    if (PyList_SetSlice(list, 0, n, NULL) == 0) {
        moved_args call = {.function = callable, .items = items, .n = n, .error = error};
        result = move_args_call(&call, items, n - (names == NULL ? 0 : PyTuple_GET_SIZE(names)), names);
        if (started != NULL) {
            *started = call.taken;
        }
    }
    Py_DECREF(callable);
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_XDECREF(items[i]);
    }
    if (items != few) {
        PyMem_Free(items);
    }
    return result;
}

static PyObject *
move_args(PyObject *Py_UNUSED(self), PyObject *const *args, size_t nargsf, PyObject *keywords)
{
    Py_ssize_t given = PyVectorcall_NARGS(nargsf);
    PyObject *names = given == 3 ? args[2] : NULL;
    if (given < 2 || given > 3 || keywords != NULL || !PyList_Check(args[1])
        || (names != NULL && (!PyTuple_Check(names) || PyTuple_GET_SIZE(names) > PyList_GET_SIZE(args[1])))) {
        PyErr_SetString(PyExc_TypeError, "move_args() takes a callable, a list and a tuple of names");
        return NULL;
    }
    return call_with_items(args[0], args[1], names, NULL, NULL);
}

static PyObject *
raise_in(PyObject *Py_UNUSED(self), PyObject *const *args, size_t nargsf, PyObject *keywords)
{
    if (PyVectorcall_NARGS(nargsf) != 3 || keywords != NULL || !PyFunction_Check(args[0]) || !PyList_Check(args[1])
        || !PyExceptionInstance_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "raise_in() takes a function, a list and an exception");
        return NULL;
    }
    cp_eval_function before = frame_hook_ensure();
    PyObject *result = call_with_items(args[0], args[1], NULL, args[2], NULL);
    frame_hook_put_back(before);
    return result;
}

static void
MoveArgs_dealloc(PyObject *self)
{
    PyObject_Free(self);
}

static PyTypeObject MoveArgs_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pyframe._C.MoveArgs",
    .tp_doc = "Calls a callable with the items of a list, which is emptied: only the callee holds them.",
    .tp_basicsize = sizeof(MoveArgs),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = MoveArgs_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(MoveArgs, vectorcall),
};

/* A frame of the program that waits for the call of the frame below it, or is about to run the instruction of a break. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function; /* of the resume function */
    PyObject *items;    /* a list: the arguments of the first call */
    PyObject *reason;
    PyObject *modes; /* enters modes of the thread before the call; or NULL */
} SuspendedFrame;

/* Call `modes.leave()`, keeping the current exception. */
static void
leave_modes(PyObject *modes)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *left = PyObject_CallMethod(modes, "leave", NULL);
    if (left == NULL) {
        PyErr_WriteUnraisable(modes);
    }
    Py_XDECREF(left);
    PyErr_Restore(type, value, traceback);
}

/* The frame itself exits the modes, once it has started. */
static PyObject *
call_in_modes(SuspendedFrame *self)
{
    PyObject *entered = PyObject_CallMethod(self->modes, "enter_all", "O", self->items);
    if (entered == NULL) {
        return NULL;
    }
    Py_DECREF(entered);
    bool started = false;
    cp_eval_function before = frame_hook_ensure();
    PyObject *result = call_with_items(self->function, self->items, NULL, NULL, &started);
    frame_hook_put_back(before);
    if (result == NULL && !started) {
        leave_modes(self->modes);
    }
    return result;
}

static PyObject *
SuspendedFrame_call(PyObject *object, PyObject *const *Py_UNUSED(args), size_t Py_UNUSED(nargsf), PyObject *Py_UNUSED(k))
{
    SuspendedFrame *self = (SuspendedFrame *)object;
    if (self->items == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the frame was destroyed by the garbage collection");
        return NULL;
    }
    return self->modes != NULL ? call_in_modes(self) : call_with_items(self->function, self->items, NULL, NULL, NULL);
}

static PyObject *
SuspendedFrame_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *function, *items, *reason, *modes = NULL;
    if (keywords != NULL && PyDict_GET_SIZE(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "SuspendedFrame() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O!O!O|O", &PyFunction_Type, &function, &PyList_Type, &items, &reason, &modes)) {
        return NULL;
    }
    SuspendedFrame *self = (SuspendedFrame *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = SuspendedFrame_call;
        self->function = Py_NewRef(function);
        self->items = Py_NewRef(items);
        self->reason = Py_NewRef(reason);
        self->modes = Py_XNewRef(modes);
    }
    return (PyObject *)self;
}

static int
SuspendedFrame_traverse(PyObject *object, visitproc visit, void *arg)
{
    SuspendedFrame *self = (SuspendedFrame *)object;
    Py_VISIT(self->function);
    Py_VISIT(self->items);
    Py_VISIT(self->reason);
    Py_VISIT(self->modes);
    return 0;
}

static int
SuspendedFrame_clear(PyObject *object)
{
    SuspendedFrame *self = (SuspendedFrame *)object;
    Py_CLEAR(self->items);
    Py_CLEAR(self->reason);
    Py_CLEAR(self->modes);
    return 0;
}

static void
SuspendedFrame_dealloc(PyObject *object)
{
    SuspendedFrame *self = (SuspendedFrame *)object;
    PyObject_GC_UnTrack(object);
    SuspendedFrame_clear(object);
    Py_XDECREF(self->function);
    Py_TYPE(object)->tp_free(object);
}

static PyMemberDef SuspendedFrame_members[] = {
    {"reason", T_OBJECT_EX, offsetof(SuspendedFrame, reason), READONLY, NULL},
    {NULL},
};

static PyTypeObject SuspendedFrame_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pyframe._C.SuspendedFrame",
    .tp_doc = "Calls a function once with the items of a list, which is emptied; ignores the arguments that it is given.",
    .tp_basicsize = sizeof(SuspendedFrame),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_new = SuspendedFrame_new,
    .tp_dealloc = SuspendedFrame_dealloc,
    .tp_traverse = SuspendedFrame_traverse,
    .tp_clear = SuspendedFrame_clear,
    .tp_members = SuspendedFrame_members,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(SuspendedFrame, vectorcall),
};

static int
add_callable(PyObject *module, const char *name, vectorcallfunc function)
{
    MoveArgs *self = PyObject_New(MoveArgs, &MoveArgs_Type);
    if (self == NULL) {
        return -1;
    }
    self->vectorcall = function;
    int failed = PyModule_AddObjectRef(module, name, (PyObject *)self);
    Py_DECREF(self);
    return failed;
}

int
move_args_init(PyObject *module)
{
    if (PyType_Ready(&SuspendedFrame_Type) < 0
        || PyModule_AddObjectRef(module, "SuspendedFrame", (PyObject *)&SuspendedFrame_Type) < 0) {
        return -1;
    }
    if (PyType_Ready(&MoveArgs_Type) < 0 || add_callable(module, "move_args", move_args) < 0) {
        return -1;
    }
    return add_callable(module, "raise_in", raise_in);
}
