/* Guard programs: construction from Python tuples, and the evaluator. The operations themselves are in
 * guard_accessors.c and guard_checks.c. */
#include "guard_memo.h"
#include "relation.h"
#include "tensor_guard.h"

#include <string.h>

const op_row op_rows[] = {
#define ACCESSOR(name, operands, doc) {#name, operands, doc, true, access_##name, NULL},
#define CHECK(name, operands, doc) {#name, operands, doc, false, NULL, check_##name},
#include "guard_ops.def"
#undef ACCESSOR
#undef CHECK
};
enum { MAX_WAIT = 1024 }; /* full passes between two memos, if memos are soon invalid */
enum { MAX_CHANGES = 3 }; /* of a root before memos leave it out */

const char *
guard_op_operands(op_code code)
{
    return op_rows[code].operands;
}

/* ---- Running ---- */
void
registers_release(register_file *registers)
{
    for (Py_ssize_t i = 0; i < registers->count; i++) {
        Py_XDECREF(registers->items[i]);
    }
    if (registers->items != registers->small) {
        PyMem_Free(registers->items);
    }
    registers->count = 0;
    registers->items = registers->small;
}

static int
registers_init(register_file *registers, Py_ssize_t count)
{
    registers->items = registers->small;
    if (count > REGISTERS_ON_STACK) {
        registers->items = PyMem_Malloc((size_t)count * sizeof(PyObject *));
        if (registers->items == NULL) {
            registers->items = registers->small;
            registers->count = 0;
            PyErr_NoMemory();
            return -1;
        }
    }
    registers->count = count;
    memset(registers->items, 0, (size_t)count * sizeof(PyObject *));
    return 0;
}

/* Run `n` operations; the index of the one that fails, n if none does, or GUARD_ERROR. */
static inline Py_ssize_t
run_ops(const guard_op *ops, Py_ssize_t n, const call_context *context, PyObject **registers)
{
    const guard_op *op = ops;
    for (Py_ssize_t i = 0; i < n; i++, op++) {
        bool ok;
        if (op->access != NULL) {
            PyObject *value = op->access(op, context, registers);
            registers[op->dst] = value;
            ok = value != NULL;
        }
        else {
            ok = op->check(op, context, registers) > 0;
        }
        if (ok) {
            continue;
        }
        if (PyErr_Occurred()) {
            if (!PyErr_ExceptionMatches(PyExc_Exception)) {
                return GUARD_ERROR;
            }
            PyErr_Clear();
        }
        return i;
    }
    return n;
}

/* Run the residual checks. */
static Py_ssize_t
run_with_memo(guard_memo *memo, const call_context *context, register_file *registers)
{
    if (registers_init(registers, memo->n_places) < 0) {
        return GUARD_ERROR;
    }
    memo->users++;
    memo->hits++;
    for (const memo_value *value = memo->values, *end = value + memo->n_values; value < end; value++) {
        registers->items[value->place] = Py_NewRef(value->object);
    }
    Py_ssize_t failed = run_ops(memo->residual, memo->n_residual, context, registers->items);
    failed = failed == memo->n_residual ? GUARD_PASS
             : failed == GUARD_ERROR    ? GUARD_ERROR
                                        : memo->residual_index[failed];
    guard_memo_release(memo);
    if (failed != GUARD_PASS) {
        registers_release(registers);
    }
    return failed;
}

static void
drop_memo(GuardProgram *program)
{
    guard_memo *memo = program->memo;
    program->memo = NULL;
    if (memo != NULL) {
        guard_memo_release(memo);
    }
}

/* A stamp differs. True if it is the version of a dict that was not known to change; the next memo allows for that. */
static bool
learn_change(GuardProgram *program, Py_ssize_t stamp)
{
    const guard_memo *memo = program->memo;
    if (stamp >= memo->n_stamps || !memo->is_version[stamp]) {
        return false;
    }
    uintptr_t address = (uintptr_t)memo->stamps[stamp].address;
    for (Py_ssize_t i = 0; i < program->n_changing; i++) {
        if (program->changing[i] == address) {
            return false;
        }
    }
    if (program->n_changing == (Py_ssize_t)Py_ARRAY_LENGTH(program->changing)) {
        return false;
    }
    program->changing[program->n_changing++] = address;
    return true;
}

/* A root has another object than the recorded one, for example because each call has a new argument, perhaps at the
 * same address. True if the next memo may leave the root out. */
static bool
learn_root(GuardProgram *program, Py_ssize_t differs)
{
    const guard_memo *memo = program->memo;
    if (differs <= memo->n_stamps || memo->roots[differs - memo->n_stamps - 1].op < 0) {
        return false;
    }
    program->roots[memo->roots[differs - memo->n_stamps - 1].op].changes++;
    return true;
}

/* After a full pass: create a memo, if memos stay valid and the call has the same roots as the previous one. */
static void
consider_memo(GuardProgram *program, const call_context *context, PyObject **registers)
{
    if (context->passing || program->n_ops < MIN_SAVED || ++program->passes < program->wait) {
        return;
    }
    char *eligible = PyMem_Malloc((size_t)program->n_ops);
    for (Py_ssize_t i = 0; eligible != NULL && i < program->n_ops; i++) {
        const guard_op *op = &program->ops[i];
        uintptr_t now = op->access != NULL ? (uintptr_t)registers[op->dst] : 0;
        eligible[i] = program->roots[i].last == now && program->roots[i].changes < MAX_CHANGES;
        program->roots[i].last = now;
    }
    if (eligible != NULL && program->passes > program->wait) {
        guard_memo *memo = guard_memo_new(program, context, registers, eligible);
        drop_memo(program); /* created by another evaluation in the meantime */
        program->memo = memo;
        program->n_memos += memo != NULL;
        program->passes = 0;
        program->wait = Py_MIN(2 * program->wait, MAX_WAIT);
    }
    PyMem_Free(eligible);
}

Py_ssize_t
guard_run(GuardProgram *program, const call_context *context, register_file *registers)
{
    if (program->cleared) { /* by the garbage collector; a finalizer still holds it */
        registers_init(registers, 0);
        return 0;
    }
    if (program->memo != NULL) {
        Py_ssize_t differs = guard_memo_check(program->memo, context);
        if (differs == GUARD_PASS) {
            return run_with_memo(program->memo, context, registers);
        }
        if (program->memo->hits > (uint64_t)program->wait || learn_change(program, differs)
            || learn_root(program, differs)) {
            program->wait = 1;
        }
        drop_memo(program);
    }
    if (registers_init(registers, program->n_registers) < 0) {
        return GUARD_ERROR;
    }
    Py_ssize_t failed = run_ops(program->ops, program->n_ops, context, registers->items);
    if (failed == program->n_ops) {
        consider_memo(program, context, registers->items);
        return GUARD_PASS;
    }
    registers_release(registers);
    return failed;
}

/* ---- Construction ---- */
static int
parse_register(PyObject *item, Py_ssize_t n_registers, const char *written, bool destination, int32_t *out)
{
    Py_ssize_t index = PyLong_AsSsize_t(item);
    if (index == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (index < 0 || index >= n_registers || (written[index] != 0) == destination) {
        PyErr_Format(PyExc_ValueError, "register %zd is %s", index,
                     index < 0 || index >= n_registers ? "out of range"
                     : destination                     ? "written twice"
                                                       : "read before it is written");
        return -1;
    }
    *out = (int32_t)index;
    return 0;
}

static int
parse_register_tuple(guard_op *op, PyObject *item, Py_ssize_t n_registers, const char *written)
{
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of registers");
        return -1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(item);
    op->registers = PyMem_Calloc((size_t)n + 1, sizeof *op->registers);
    if (op->registers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    op->n_registers = (int32_t)n;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (parse_register(PyTuple_GET_ITEM(item, i), n_registers, written, false, &op->registers[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
parse_operand(guard_op *op, char letter, PyObject *item, Py_ssize_t n_registers, const char *written, int *n_sources,
              int *n_integers)
{
    switch (letter) {
    case 'd': return parse_register(item, n_registers, written, true, &op->dst);
    case 'r': return parse_register(item, n_registers, written, false, (*n_sources)++ ? &op->b : &op->a);
    case 'R': return parse_register_tuple(op, item, n_registers, written);
    case 'i': {
        int64_t value = PyLong_AsLongLong(item);
        *((*n_integers)++ ? &op->integer2 : &op->integer) = value;
        return value == -1 && PyErr_Occurred() ? -1 : 0;
    }
    default: op->object = Py_NewRef(item); return 0;
    }
}

static const op_row *
find_row(PyObject *name)
{
    for (int i = 0; PyUnicode_Check(name) && i < N_OPS; i++) {
        if (PyUnicode_CompareWithASCIIString(name, op_rows[i].name) == 0) {
            return &op_rows[i];
        }
    }
    PyErr_Format(PyExc_ValueError, "unknown guard operation %R", name);
    return NULL;
}

static int
parse_op(guard_op *op, PyObject *item, Py_ssize_t n_registers, char *written)
{
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) < 1) {
        PyErr_SetString(PyExc_TypeError, "a guard operation is a tuple (name, *operands)");
        return -1;
    }
    const op_row *row = find_row(PyTuple_GET_ITEM(item, 0));
    if (row == NULL) {
        return -1;
    }
    op->code = (op_code)(row - op_rows);
    op->access = row->access;
    op->check = row->check;
    Py_ssize_t n = (Py_ssize_t)strlen(row->operands);
    if (PyTuple_GET_SIZE(item) != n + 1) {
        PyErr_Format(PyExc_ValueError, "%s takes %zd operands (\"%s\"), got %zd", row->name, n, row->operands,
                     PyTuple_GET_SIZE(item) - 1);
        return -1;
    }
    int n_sources = 0, n_integers = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (parse_operand(op, row->operands[i], PyTuple_GET_ITEM(item, i + 1), n_registers, written, &n_sources,
                          &n_integers) < 0) {
            return -1;
        }
    }
    if (row->is_accessor) {
        written[op->dst] = 1;
    }
    return guard_op_prepare(op, row);
}

static void
free_op(guard_op *op)
{
    Py_CLEAR(op->object);
    Py_CLEAR(op->weak);
    PyMem_Free(op->registers);
    tensor_expectation_free(op->tensor);
    relation_free(op->relation);
    op->registers = NULL;
    op->tensor = NULL;
    op->relation = NULL;
}

static int
GuardProgram_clear(PyObject *self)
{
    GuardProgram *program = (GuardProgram *)self;
    for (Py_ssize_t i = 0; i < program->n_ops; i++) {
        free_op(&program->ops[i]);
    }
    program->n_ops = 0;
    program->cleared = true;
    drop_memo(program);
    return 0;
}

static void
GuardProgram_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    GuardProgram_clear(self);
    PyMem_Free(((GuardProgram *)self)->ops);
    PyMem_Free(((GuardProgram *)self)->roots);
    PyObject_GC_Del(self);
}

static int
GuardProgram_traverse(PyObject *self, visitproc visit, void *arg)
{
    GuardProgram *program = (GuardProgram *)self;
    for (Py_ssize_t i = 0; i < program->n_ops; i++) {
        Py_VISIT(program->ops[i].object);
        Py_VISIT(program->ops[i].weak);
    }
    return 0;
}

/* A program with room for `n` operations, all of them empty, that has seen no call. NULL with an exception set. */
static GuardProgram *
new_program(PyTypeObject *type, Py_ssize_t n, Py_ssize_t n_registers, Py_ssize_t n_results)
{
    guard_op *ops = PyMem_Calloc((size_t)n + 1, sizeof *ops);
    root_history *roots = PyMem_Calloc((size_t)n + 1, sizeof *roots);
    GuardProgram *program = ops == NULL || roots == NULL ? NULL : PyObject_GC_New(GuardProgram, type);
    if (program == NULL) {
        PyMem_Free(ops);
        PyMem_Free(roots);
        return PyErr_Occurred() ? NULL : (GuardProgram *)PyErr_NoMemory();
    }
    program->ops = ops;
    program->n_ops = n;
    program->n_registers = n_registers;
    program->n_results = n_results;
    program->cleared = false;
    program->memo = NULL;
    program->roots = roots;
    program->n_changing = 0;
    program->n_memos = 0;
    program->passes = 0;
    program->wait = 1;
    PyObject_GC_Track(program);
    return program;
}

static PyObject *
GuardProgram_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"ops", "n_registers", "n_results", NULL};
    PyObject *given;
    Py_ssize_t n_registers, n_results = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "On|n:GuardProgram", names, &given, &n_registers, &n_results)) {
        return NULL;
    }
    n_results = n_results < 0 ? n_registers : n_results;
    if (n_registers < 0 || n_registers > INT32_MAX || n_results > n_registers) {
        PyErr_Format(PyExc_ValueError, "n_registers %zd or n_results %zd is out of range", n_registers, n_results);
        return NULL;
    }
    PyObject *items = PySequence_Tuple(given);
    if (items == NULL) {
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    GuardProgram *program = new_program(type, n, n_registers, n_results);
    char *written = PyMem_Calloc((size_t)n_registers + 1, 1);
    if (program == NULL || written == NULL) {
        PyMem_Free(written);
        Py_DECREF(items);
        Py_XDECREF(program);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < n; i++) {
        failed = parse_op(&program->ops[i], PyTuple_GET_ITEM(items, i), n_registers, written) < 0;
    }
    for (Py_ssize_t i = 0; !failed && i < n_registers; i++) {
        if (!written[i]) {
            PyErr_Format(PyExc_ValueError, "register %zd is never written", i);
            failed = 1;
        }
    }
    PyMem_Free(written);
    Py_DECREF(items);
    if (failed) {
        Py_DECREF(program);
        return NULL;
    }
    return (PyObject *)program;
}

/* Set the empty operation `to` to what `from` does. 0, or -1 with an exception set. */
static int
copy_op(guard_op *to, const guard_op *from)
{
    *to = *from;
    Py_XINCREF(to->object);
    Py_XINCREF(to->weak);
    to->registers = NULL;
    to->tensor = NULL;
    to->relation = NULL;
    if (from->registers != NULL) {
        size_t size = ((size_t)from->n_registers + 1) * sizeof *to->registers;
        if ((to->registers = PyMem_Malloc(size)) == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(to->registers, from->registers, size);
    }
    if (from->tensor != NULL && (to->tensor = tensor_expectation_new(from->object)) == NULL) {
        return -1;
    }
    if (from->relation != NULL && (to->relation = relation_new(from->object, from->n_registers)) == NULL) {
        return -1;
    }
    return 0;
}

/* ---- Python methods ---- */
static PyObject *
GuardProgram_copy(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    GuardProgram *program = (GuardProgram *)self;
    if (program->cleared) {
        PyErr_SetString(PyExc_ValueError, "the garbage collector has cleared this program");
        return NULL;
    }
    GuardProgram *copy = new_program(Py_TYPE(self), program->n_ops, program->n_registers, program->n_results);
    for (Py_ssize_t i = 0; copy != NULL && i < program->n_ops; i++) {
        if (copy_op(&copy->ops[i], &program->ops[i]) < 0) {
            Py_CLEAR(copy);
        }
    }
    return (PyObject *)copy;
}

static PyObject *
GuardProgram_check(PyObject *self, PyObject *args)
{
    PyObject *function, *locals;
    int remember = true;
    if (!PyArg_ParseTuple(args, "O!O!|p:check", &PyFunction_Type, &function, &PyTuple_Type, &locals, &remember)) {
        return NULL;
    }
    call_context context = {
        .passing = !remember,
        .function = (PyFunctionObject *)function,
        .locals = &PyTuple_GET_ITEM(locals, 0),
        .n_locals = PyTuple_GET_SIZE(locals),
    };
    register_file registers;
    Py_ssize_t result = guard_run((GuardProgram *)self, &context, &registers);
    if (result == GUARD_ERROR) {
        return NULL;
    }
    Py_ssize_t n = Py_MIN(registers.count, ((GuardProgram *)self)->n_results);
    PyObject *snapshot = PyTuple_New(n);
    for (Py_ssize_t i = 0; snapshot != NULL && i < n; i++) {
        PyTuple_SET_ITEM(snapshot, i, Py_NewRef(registers.items[i]));
    }
    registers_release(&registers);
    return snapshot == NULL ? NULL : Py_BuildValue("nN", result, snapshot);
}

static PyObject *
GuardProgram_length(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(((GuardProgram *)self)->n_ops);
}

static PyObject *
GuardProgram_n_registers(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(((GuardProgram *)self)->n_registers);
}

static PyObject *
GuardProgram_n_residual(PyObject *self, void *Py_UNUSED(closure))
{
    GuardProgram *program = (GuardProgram *)self;
    return PyLong_FromSsize_t(program->memo == NULL ? program->n_ops : program->memo->n_residual);
}

static PyObject *
GuardProgram_n_memos(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((GuardProgram *)self)->n_memos);
}

static PyMethodDef GuardProgram_methods[] = {
    {"check", GuardProgram_check, METH_VARARGS,
     "check(function, locals, remember=True) -> (index, registers): index of the failing operation with no registers, "
     "or -1 with the results. The calling thread's frame hook is not switched off. remember: count it as a call."},
    {"copy", GuardProgram_copy, METH_NOARGS,
     "copy() -> a program with the same operations that remembers nothing of earlier calls, for an entry whose calls "
     "have other objects."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef GuardProgram_getset[] = {
    {"n_ops", GuardProgram_length, NULL, "number of operations", NULL},
    {"n_residual", GuardProgram_n_residual, NULL,
     "number of residual checks: operations that the next call runs if no version stamp changed", NULL},
    {"n_memos", GuardProgram_n_memos, NULL, "times that the program took down a call that passed", NULL},
    {"n_registers", GuardProgram_n_registers, NULL, "number of registers", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject GuardProgram_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pyframe._C.GuardProgram",
    .tp_doc = "GuardProgram(ops, n_registers, n_results=-1)\n--\n\nA flat list of accessors and checks; op_table() lists them.",
    .tp_basicsize = sizeof(GuardProgram),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = GuardProgram_new,
    .tp_dealloc = GuardProgram_dealloc,
    .tp_traverse = GuardProgram_traverse,
    .tp_clear = GuardProgram_clear,
    .tp_methods = GuardProgram_methods,
    .tp_getset = GuardProgram_getset,
};

PyObject *
call_with_registers(PyObject *callable, const int32_t *which, Py_ssize_t n, PyObject *const *registers)
{
    enum { FEW = 12 };
    PyObject *few[FEW + 1] = {NULL}, **args = few; /* args[0] is room for a callee that prepends self */
    if (n > FEW && (args = PyMem_New(PyObject *, n + 1)) == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        args[i + 1] = registers[which[i]];
    }
    PyObject *result = PyObject_Vectorcall(callable, args + 1, (size_t)n | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (args != few) {
        PyMem_Free(args);
    }
    return result;
}

PyObject *
guard_op_table(void)
{
    PyObject *table = PyTuple_New(N_OPS);
    for (int i = 0; table != NULL && i < N_OPS; i++) {
        PyObject *row = Py_BuildValue("ssss", op_rows[i].name, op_rows[i].is_accessor ? "accessor" : "check",
                                      op_rows[i].operands, op_rows[i].doc);
        if (row == NULL) {
            Py_CLEAR(table);
            break;
        }
        PyTuple_SET_ITEM(table, i, row);
    }
    return table;
}
