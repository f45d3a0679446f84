#include "guard_memo.h"
#include "guard_dependency.h"
#include "tensor_guard.h"
#include "tensor_view.h"

#include <string.h>

/* ---- Checking ---- */
PyObject *
guard_root_object(op_code code, int64_t index, const call_context *context)
{
    switch (code) {
    case OP_LOCAL: return index >= 0 && index < context->n_locals ? context->locals[index] : NULL;
    case OP_CLOSURE: {
        PyObject *closure = context->function->func_closure;
        bool there = closure != NULL && index >= 0 && index < PyTuple_GET_SIZE(closure);
        return there ? PyCell_GET(PyTuple_GET_ITEM(closure, index)) : NULL;
    }
    case OP_FUNC: return (PyObject *)context->function;
    case OP_GLOBALS: return context->function->func_globals;
    case OP_BUILTINS: return context->function->func_builtins;
    default: return NULL;
    }
}

static bool
is_object_root(const guard_op *op)
{
    return op->code == OP_LOCAL || op->code == OP_CLOSURE || op->code == OP_FUNC;
}

/* The version of a dict that changes often differs: if the entries that were read are unchanged, expect the new
 * version. */
static bool
renew(guard_memo *memo, Py_ssize_t index)
{
    bool known = false;
    for (Py_ssize_t i = 0; i < memo->n_entries; i++) {
        const memo_entry *entry = &memo->entries[i];
        if (entry->stamp != index) {
            continue;
        }
        if (!known && !has_plain_keys(entry->dict)) {
            return false;
        }
        known = true;
        PyObject *now = PyDict_GetItemWithError(entry->dict, entry->key);
        if (entry->any ? now == NULL : now != entry->value) {
            return false;
        }
        if (entry->held != NULL && PyWeakref_Check(entry->held) && cp_weakref_get(entry->held) != now) {
            return false;
        }
    }
    if (known) {
        memo->stamps[index].expected = *memo->stamps[index].address;
    }
    return known;
}

Py_ssize_t
guard_memo_check(guard_memo *memo, const call_context *context)
{
    for (Py_ssize_t i = 0; i < memo->n_roots; i++) {
        const memo_root *root = &memo->roots[i];
        if (guard_root_object(root->code, root->index, context) != root->object
            || (root->weak != NULL && cp_weakref_get(root->weak) != root->object)) {
            return memo->n_stamps + 1 + i;
        }
    }
    const version_stamp *end = memo->stamps + memo->n_stamps;
    for (const version_stamp *stamp = memo->stamps; stamp < end; stamp++) {
        if (*stamp->address != stamp->expected && !renew(memo, stamp - memo->stamps)) {
            return stamp - memo->stamps;
        }
    }
    for (Py_ssize_t i = 0; i < memo->n_flags; i++) {
        if (tv_unstamped_metadata(memo->flags[i].tensor, memo->flags[i].on_cpu) != memo->flags[i].expected) {
            PyErr_Clear();
            return memo->n_stamps;
        }
    }
    return GUARD_PASS;
}

/* ---- Recording ---- */
typedef struct {
    const GuardProgram *program;
    const call_context *context;
    PyObject **registers;
    guard_memo *memo;
    stamp_list stamps;
    char *stable;    /* of each register: whether the stamps determine its object */
    int32_t *places; /* of each register: its index in the register file of later calls, or -1 */
} recorder;

/* Re-run the check. Its dependencies are already recorded, so no Python code runs. */
static bool
still_holds(const recorder *r, const guard_op *op)
{
    if (op->check == NULL) {
        return true; /* the object was compared when the dependencies were recorded */
    }
    int holds = op->check(op, r->context, r->registers);
    if (holds < 0) {
        PyErr_Clear();
    }
    return holds > 0;
}

static bool
sources_are_stable(const recorder *r, const guard_op *op, const char *operands)
{
    bool first = true;
    for (; *operands; operands++) {
        if (*operands == 'r') {
            if (!r->stable[first ? op->a : op->b]) {
                return false;
            }
            first = false;
        }
        for (int32_t i = 0; *operands == 'R' && i < op->n_registers; i++) {
            if (!r->stable[op->registers[i]]) {
                return false;
            }
        }
    }
    return true;
}

static void
add_root(recorder *r, op_code code, int64_t index, PyObject *object, PyObject *weak, Py_ssize_t op)
{
    r->memo->roots[r->memo->n_roots++] = (memo_root){code, index, object, Py_XNewRef(weak), op};
}

static bool
add_entry(recorder *r, PyObject *dict, PyObject *key, PyObject *value, bool any)
{
    memo_entry entry = {.stamp = stamp_list_index(&r->stamps, cp_dict_version(dict)), .dict = dict, .key = key,
                        .value = value, .any = any};
    if (value != NULL && is_plain_constant(value)) {
        entry.held = Py_NewRef(value);
    }
    else if (value != NULL && (entry.held = PyWeakref_NewRef(value, NULL)) == NULL) {
        PyErr_Clear();
        /* Dicts and lists have stamps of their own, which differ for another object at the address. */
        if (!PyDict_Check(value) && !PyList_CheckExact(value)) {
            return false;
        }
    }
    r->memo->entries[r->memo->n_entries++] = entry;
    return true;
}

/* For an operation that reads a dict that changes often: record the entry. False: run the operation at each call. */
static bool
depend_on_entry(recorder *r, const guard_op *op)
{
    PyObject *value = op->check == NULL ? r->registers[op->dst] : NULL, *globals = r->context->function->func_globals;
    switch (op->code) {
    case OP_DICT_GET: return add_entry(r, r->registers[op->a], op->object, value, false);
    case OP_HAS_KEY: return add_entry(r, r->registers[op->a], op->object, NULL, true);
    case OP_NO_KEY: return add_entry(r, r->registers[op->a], op->object, NULL, false);
    case OP_ATTR:
        return PyModule_Check(r->registers[op->a])
               && add_entry(r, PyModule_GetDict(r->registers[op->a]), op->object, value, false);
    case OP_GLOBAL:
        return PyDict_GetItemWithError(globals, op->object) == value
                   ? add_entry(r, globals, op->object, value, false)
                   : add_entry(r, globals, op->object, NULL, false)
                         && add_entry(r, r->context->function->func_builtins, op->object, value, false);
    default: return false;
    }
}

/* One of the function's dicts: its stamp is the version. */
static bool
depend_on_own_dict(recorder *r, op_code code, PyObject **dict)
{
    *dict = guard_root_object(code, 0, r->context);
    if (!PyDict_CheckExact(*dict) || !depend_on_dict(&r->stamps, *dict)) {
        return false;
    }
    add_root(r, code, 0, *dict, NULL, -1);
    return true;
}

static bool
depend_on_global(recorder *r, const guard_op *op)
{
    PyObject *globals, *builtins, *value = r->registers[op->dst];
    if (!depend_on_own_dict(r, OP_GLOBALS, &globals)) {
        return false;
    }
    PyObject *found = PyDict_GetItemWithError(globals, op->object);
    if (found != NULL || !depend_on_own_dict(r, OP_BUILTINS, &builtins)) {
        return found == value;
    }
    return PyDict_GetItemWithError(builtins, op->object) == value;
}

static bool
depend_on_object_root(recorder *r, const guard_op *op, PyObject *weak)
{
    PyObject *object = guard_root_object(op->code, op->integer, r->context);
    if (object == NULL || weak == NULL || object != r->registers[op->dst]) {
        return false;
    }
    add_root(r, op->code, op->integer, object, weak, op - r->program->ops);
    return true;
}

/* A tensor: stamps for its metadata, and a flag for the rest, which tv_unstamped_metadata reads. */
static bool
depend_on_tensor(recorder *r, const guard_op *op)
{
    PyObject *tensor = r->registers[op->a];
    const void *addresses[TV_MAX_STAMPS];
    int n = tv_metadata_stamps(tensor, addresses);
    stamp_list_add(&r->stamps, &tensor->ob_type);
    for (int i = 0; i < n; i++) {
        stamp_list_add(&r->stamps, addresses[i]);
    }
    bool on_cpu = n > 0 && tv_on_cpu(tensor);
    int rest = n > 0 ? tv_unstamped_metadata(tensor, on_cpu) : -1;
    if (rest < 0) {
        PyErr_Clear();
        return false;
    }
    r->memo->flags[r->memo->n_flags++] = (memo_flag){tensor, rest, on_cpu};
    return true;
}

static bool
depend_on_stamps(recorder *r, const guard_op *op, PyObject *weak)
{
    PyObject *dict;
    switch (op->code) {
    case OP_LOCAL:
    case OP_CLOSURE:
    case OP_FUNC: return depend_on_object_root(r, op, weak);
    case OP_GLOBALS:
    case OP_BUILTINS: return depend_on_own_dict(r, op->code, &dict) && dict == r->registers[op->dst];
    case OP_GLOBAL: return depend_on_global(r, op);
    default: break;
    }
    if (!sources_are_stable(r, op, guard_op_operands(op->code))) {
        return false;
    }
    bool known = op->code == OP_TENSOR ? depend_on_tensor(r, op) : guard_dependency(&r->stamps, op, r->registers);
    return known && still_holds(r, op);
}

static bool
depend_on_op(recorder *r, const guard_op *op, PyObject *weak)
{
    r->stamps.n_touched = 0;
    bool known = depend_on_stamps(r, op, weak);
    /* GLOBALS and BUILTINS are those dicts themselves, whatever is in them. */
    bool reads = op->code != OP_GLOBALS && op->code != OP_BUILTINS;
    return known && (r->stamps.n_touched == 0 || !reads || depend_on_entry(r, op));
}

/* The index of a register in the register file of later calls. */
static int32_t
place_of(recorder *r, int32_t reg)
{
    if (r->places[reg] < 0) {
        r->places[reg] = (int32_t)r->memo->n_places++;
        if (r->stable[reg]) {
            r->memo->values[r->memo->n_values++] = (memo_value){r->registers[reg], r->places[reg]};
        }
    }
    return r->places[reg];
}

/* DISTINCT over registers most of which are stable and known to be distinct: a set of those, and the others. */
static bool
split_distinct(recorder *r, const guard_op *op, guard_op *residual)
{
    size_t size = 32;
    while (size < 2 * (size_t)op->n_registers) {
        size *= 2;
    }
    residual->others = PyMem_Calloc(size, sizeof *residual->others);
    if (residual->others == NULL) {
        return false;
    }
    residual->n_others = size;
    residual->n_registers = 0;
    for (int32_t i = 0; i < op->n_registers; i++) {
        int32_t reg = op->registers[i];
        if (!r->stable[reg]) {
            residual->registers[residual->n_registers++] = place_of(r, reg);
        }
        else {
            *guard_address_place(residual->others, size, r->registers[reg]) = r->registers[reg];
        }
    }
    return true;
}

/* Add the operation to the residual checks; its registers become places. */
static bool
add_residual(recorder *r, const guard_op *op)
{
    guard_memo *memo = r->memo;
    guard_op *residual = &memo->residual[memo->n_residual];
    memo->residual_index[memo->n_residual] = op - r->program->ops;
    *residual = *op;
    residual->registers = NULL;
    memo->n_residual++;
    if (op->n_registers > 0) {
        residual->registers = PyMem_Calloc((size_t)op->n_registers, sizeof *residual->registers);
        if (residual->registers == NULL) {
            return false;
        }
    }
    if (op->code == OP_DISTINCT) {
        return split_distinct(r, op, residual);
    }
    bool first = true;
    for (const char *operand = guard_op_operands(op->code); *operand; operand++) {
        if (*operand == 'r') {
            *(first ? &residual->a : &residual->b) = place_of(r, first ? op->a : op->b);
            first = false;
        }
        for (int32_t i = 0; *operand == 'R' && i < op->n_registers; i++) {
            residual->registers[i] = place_of(r, op->registers[i]);
        }
    }
    if (op->check == NULL) {
        residual->dst = place_of(r, op->dst);
    }
    return true;
}

static bool
record(recorder *r, PyObject *const *weak)
{
    const GuardProgram *program = r->program;
    guard_memo *memo = r->memo;
    memo->n_places = program->n_results;
    for (Py_ssize_t i = 0; i < program->n_registers; i++) {
        r->places[i] = i < program->n_results ? (int32_t)i : -1;
    }
    for (Py_ssize_t i = 0; i < program->n_ops; i++) {
        const guard_op *op = &program->ops[i];
        bool known = depend_on_op(r, op, weak[i]);
        if (op->check == NULL) {
            r->stable[op->dst] = known;
            if (known && is_plain_constant(r->registers[op->dst])) {
                memo->constants[memo->n_constants++] = Py_NewRef(r->registers[op->dst]);
            }
            if (known && op->dst < program->n_results) {
                memo->values[memo->n_values++] = (memo_value){r->registers[op->dst], op->dst};
            }
        }
        if ((!known && !add_residual(r, op)) || r->stamps.failed) {
            return false;
        }
    }
    memo->stamps = r->stamps.stamps;
    memo->is_version = r->stamps.is_version;
    memo->n_stamps = r->stamps.n;
    r->stamps.stamps = NULL;
    r->stamps.is_version = NULL;
    return memo->n_residual + MIN_SAVED <= program->n_ops;
}

static guard_memo *
memo_alloc(const GuardProgram *program)
{
    guard_memo *memo = PyMem_Calloc(1, sizeof *memo);
    if (memo == NULL) {
        return NULL;
    }
    size_t n = (size_t)program->n_ops + 1, n_registers = (size_t)program->n_registers + 1;
    memo->users = 1;
    memo->roots = PyMem_Calloc(2 * n, sizeof *memo->roots); /* a global may need both dicts */
    memo->flags = PyMem_Calloc(n, sizeof *memo->flags);
    memo->entries = PyMem_Calloc(2 * n, sizeof *memo->entries);
    memo->values = PyMem_Calloc(n_registers, sizeof *memo->values);
    memo->constants = PyMem_Calloc(n_registers, sizeof *memo->constants);
    memo->residual = PyMem_Calloc(n, sizeof *memo->residual);
    memo->residual_index = PyMem_Calloc(n, sizeof *memo->residual_index);
    if (!memo->entries || !memo->roots || !memo->flags || !memo->values || !memo->constants || !memo->residual
        || !memo->residual_index) {
        guard_memo_release(memo);
        return NULL;
    }
    return memo;
}

/* Shrink the arrays: most operations are not residual. */
static void
trim(guard_memo *memo)
{
#define TRIM(array, n)                                                                                                 \
    do {                                                                                                               \
        void *smaller = PyMem_Realloc(memo->array, ((size_t)memo->n + 1) * sizeof *memo->array);                       \
        memo->array = smaller != NULL ? smaller : memo->array;                                                         \
    } while (0)
    TRIM(roots, n_roots);
    TRIM(entries, n_entries);
    TRIM(flags, n_flags);
    TRIM(values, n_values);
    TRIM(constants, n_constants);
    TRIM(residual, n_residual);
    TRIM(residual_index, n_residual);
#undef TRIM
}

/* Create weak references to the roots, before anything is recorded, as this may run the garbage collector. */
static bool
refer_weakly(const recorder *r, const char *eligible, PyObject **weak)
{
    for (Py_ssize_t i = 0; i < r->program->n_ops; i++) {
        const guard_op *op = &r->program->ops[i];
        if (!eligible[i] || !is_object_root(op)) {
            continue;
        }
        weak[i] = PyWeakref_NewRef(r->registers[op->dst], NULL);
        if (weak[i] == NULL) {
            bool cannot = PyErr_ExceptionMatches(PyExc_TypeError);
            PyErr_Clear();
            if (!cannot) {
                return false;
            }
        }
    }
    return true;
}

guard_memo *
guard_memo_new(GuardProgram *program, const call_context *context, PyObject **registers, const char *eligible)
{
    recorder r = {.program = program, .context = context, .registers = registers};
    r.stamps.changing = program->changing;
    r.stamps.n_changing = program->n_changing;
    PyObject **weak = PyMem_Calloc((size_t)program->n_ops + 1, sizeof *weak);
    r.stable = PyMem_Calloc((size_t)program->n_registers + 1, 1);
    r.places = PyMem_Calloc((size_t)program->n_registers + 1, sizeof *r.places);
    bool made = false;
    if (weak != NULL && r.stable != NULL && r.places != NULL && refer_weakly(&r, eligible, weak) && !program->cleared) {
        r.memo = memo_alloc(program);
        made = r.memo != NULL && record(&r, weak);
    }
    for (Py_ssize_t i = 0; weak != NULL && i < program->n_ops; i++) {
        Py_XDECREF(weak[i]);
    }
    PyMem_Free(weak);
    PyMem_Free(r.stable);
    PyMem_Free(r.places);
    stamp_list_free(&r.stamps);
    if (made) {
        trim(r.memo);
        /* Check again: creating weak references to entries may have run the garbage collector. */
        if (guard_memo_check(r.memo, context) == GUARD_PASS) {
            return r.memo;
        }
    }
    if (r.memo != NULL) {
        guard_memo_release(r.memo);
    }
    return NULL;
}

void
guard_memo_release(guard_memo *memo)
{
    if (--memo->users > 0) {
        return;
    }
    for (Py_ssize_t i = 0; i < memo->n_roots; i++) {
        Py_XDECREF(memo->roots[i].weak);
    }
    for (Py_ssize_t i = 0; i < memo->n_entries; i++) {
        Py_XDECREF(memo->entries[i].held);
    }
    for (Py_ssize_t i = 0; i < memo->n_residual; i++) {
        PyMem_Free(memo->residual[i].registers);
        PyMem_Free(memo->residual[i].others);
    }
    for (Py_ssize_t i = 0; i < memo->n_constants; i++) {
        Py_DECREF(memo->constants[i]);
    }
    PyMem_Free(memo->constants);
    PyMem_Free(memo->roots);
    PyMem_Free(memo->stamps);
    PyMem_Free(memo->is_version);
    PyMem_Free(memo->entries);
    PyMem_Free(memo->flags);
    PyMem_Free(memo->values);
    PyMem_Free(memo->residual);
    PyMem_Free(memo->residual_index);
    PyMem_Free(memo);
}
