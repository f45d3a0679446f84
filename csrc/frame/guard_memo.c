#include "guard_memo.h"
#include "guard_witness.h"
#include "tensor_guard.h"
#include "tensor_view.h"

#include <string.h>

/* ---- Holding ---- */
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

/* A dict that changes often has another tag: are the entries that were read as they were? Then that is its tag. */
static bool
renew(guard_memo *memo, Py_ssize_t index)
{
    bool known = false;
    for (Py_ssize_t i = 0; i < memo->n_entries; i++) {
        const memo_entry *entry = &memo->entries[i];
        if (entry->word != index) {
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
        memo->words[index].expected = *memo->words[index].address;
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
            return memo->n_words + 1 + i;
        }
    }
    const memory_word *end = memo->words + memo->n_words;
    for (const memory_word *word = memo->words; word < end; word++) {
        if (*word->address != word->expected && !renew(memo, word - memo->words)) {
            return word - memo->words;
        }
    }
    for (Py_ssize_t i = 0; i < memo->n_flags; i++) {
        if (tv_wordless(memo->flags[i].tensor, memo->flags[i].on_cpu) != memo->flags[i].expected) {
            PyErr_Clear();
            return memo->n_words;
        }
    }
    return GUARD_PASS;
}

/* ---- Taking down ---- */
typedef struct {
    const GuardProgram *program;
    const call_context *context;
    PyObject **registers;
    guard_memo *memo;
    word_list words;
    char *stable;    /* of each register: the memo tells its object */
    int32_t *places; /* of each register: where it is in the calls that the memo serves, or -1 */
} recorder;

/* Does the operation, run again, say what it said? No Python code runs: its words were taken down. */
static bool
still_holds(const recorder *r, const guard_op *op)
{
    if (op->check == NULL) {
        return true; /* the witness compared the object */
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
    memo_entry entry = {.word = word_list_index(&r->words, cp_dict_version(dict)), .dict = dict, .key = key,
                        .value = value, .any = any};
    if (value != NULL && is_plain_constant(value)) {
        entry.held = Py_NewRef(value);
    }
    else if (value != NULL && (entry.held = PyWeakref_NewRef(value, NULL)) == NULL) {
        PyErr_Clear();
        if (!PyDict_Check(value) && !PyList_CheckExact(value)) { /* another one in its place: its words tell */
            return false;
        }
    }
    r->memo->entries[r->memo->n_entries++] = entry;
    return true;
}

/* An operation that reads a dict that changes often: take the entry down. False: it has to be run. */
static bool
witness_entry(recorder *r, const guard_op *op)
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

/* One of the function's dicts: the word is its version. */
static bool
witness_own_dict(recorder *r, op_code code, PyObject **dict)
{
    *dict = guard_root_object(code, 0, r->context);
    if (!PyDict_CheckExact(*dict) || !witness_dict(&r->words, *dict)) {
        return false;
    }
    add_root(r, code, 0, *dict, NULL, -1);
    return true;
}

static bool
witness_global(recorder *r, const guard_op *op)
{
    PyObject *globals, *builtins, *value = r->registers[op->dst];
    if (!witness_own_dict(r, OP_GLOBALS, &globals)) {
        return false;
    }
    PyObject *found = PyDict_GetItemWithError(globals, op->object);
    if (found != NULL || !witness_own_dict(r, OP_BUILTINS, &builtins)) {
        return found == value;
    }
    return PyDict_GetItemWithError(builtins, op->object) == value;
}

static bool
witness_object_root(recorder *r, const guard_op *op, PyObject *weak)
{
    PyObject *object = guard_root_object(op->code, op->integer, r->context);
    if (object == NULL || weak == NULL || object != r->registers[op->dst]) {
        return false;
    }
    add_root(r, op->code, op->integer, object, weak, op - r->program->ops);
    return true;
}

/* A tensor whose metadata words tell, all but what tv_wordless gives. */
static bool
witness_tensor(recorder *r, const guard_op *op)
{
    PyObject *tensor = r->registers[op->a];
    const void *addresses[TV_MAX_WORDS];
    int n = tv_meta_words(tensor, addresses);
    word_list_add(&r->words, &tensor->ob_type);
    for (int i = 0; i < n; i++) {
        word_list_add(&r->words, addresses[i]);
    }
    bool on_cpu = n > 0 && tv_on_cpu(tensor);
    int rest = n > 0 ? tv_wordless(tensor, on_cpu) : -1;
    if (rest < 0) {
        PyErr_Clear();
        return false;
    }
    r->memo->flags[r->memo->n_flags++] = (memo_flag){tensor, rest, on_cpu};
    return true;
}

static bool
witness_by_words(recorder *r, const guard_op *op, PyObject *weak)
{
    PyObject *dict;
    switch (op->code) {
    case OP_LOCAL:
    case OP_CLOSURE:
    case OP_FUNC: return witness_object_root(r, op, weak);
    case OP_GLOBALS:
    case OP_BUILTINS: return witness_own_dict(r, op->code, &dict) && dict == r->registers[op->dst];
    case OP_GLOBAL: return witness_global(r, op);
    default: break;
    }
    if (!sources_are_stable(r, op, guard_op_operands(op->code))) {
        return false;
    }
    bool told = op->code == OP_TENSOR ? witness_tensor(r, op) : guard_witness(&r->words, op, r->registers);
    return told && still_holds(r, op);
}

static bool
witness_op(recorder *r, const guard_op *op, PyObject *weak)
{
    r->words.n_touched = 0;
    bool told = witness_by_words(r, op, weak);
    /* GLOBALS and BUILTINS are those dicts themselves, whatever is in them. */
    bool reads = op->code != OP_GLOBALS && op->code != OP_BUILTINS;
    return told && (r->words.n_touched == 0 || !reads || witness_entry(r, op));
}

/* The place of a register in the calls that the memo serves. */
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

/* DISTINCT over registers of which most are stable, and distinct: a set of those, and the others. */
static bool
split_distinct(recorder *r, const guard_op *op, guard_op *live)
{
    size_t size = 32;
    while (size < 2 * (size_t)op->n_registers) {
        size *= 2;
    }
    live->others = PyMem_Calloc(size, sizeof *live->others);
    if (live->others == NULL) {
        return false;
    }
    live->n_others = size;
    live->n_registers = 0;
    for (int32_t i = 0; i < op->n_registers; i++) {
        int32_t reg = op->registers[i];
        if (!r->stable[reg]) {
            live->registers[live->n_registers++] = place_of(r, reg);
        }
        else {
            *guard_address_place(live->others, size, r->registers[reg]) = r->registers[reg];
        }
    }
    return true;
}

/* The operation as it is run at each call: its registers are places. */
static bool
add_live(recorder *r, const guard_op *op)
{
    guard_memo *memo = r->memo;
    guard_op *live = &memo->live[memo->n_live];
    memo->live_index[memo->n_live] = op - r->program->ops;
    *live = *op;
    live->registers = NULL;
    memo->n_live++;
    if (op->n_registers > 0) {
        live->registers = PyMem_Calloc((size_t)op->n_registers, sizeof *live->registers);
        if (live->registers == NULL) {
            return false;
        }
    }
    if (op->code == OP_DISTINCT) {
        return split_distinct(r, op, live);
    }
    bool first = true;
    for (const char *operand = guard_op_operands(op->code); *operand; operand++) {
        if (*operand == 'r') {
            *(first ? &live->a : &live->b) = place_of(r, first ? op->a : op->b);
            first = false;
        }
        for (int32_t i = 0; *operand == 'R' && i < op->n_registers; i++) {
            live->registers[i] = place_of(r, op->registers[i]);
        }
    }
    if (op->check == NULL) {
        live->dst = place_of(r, op->dst);
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
        bool told = witness_op(r, op, weak[i]);
        if (op->check == NULL) {
            r->stable[op->dst] = told;
            if (told && is_plain_constant(r->registers[op->dst])) {
                memo->constants[memo->n_constants++] = Py_NewRef(r->registers[op->dst]);
            }
            if (told && op->dst < program->n_results) {
                memo->values[memo->n_values++] = (memo_value){r->registers[op->dst], op->dst};
            }
        }
        if ((!told && !add_live(r, op)) || r->words.failed) {
            return false;
        }
    }
    memo->words = r->words.words;
    memo->is_version = r->words.is_version;
    memo->n_words = r->words.n;
    r->words.words = NULL;
    r->words.is_version = NULL;
    return memo->n_live + LEAST_WORTH <= program->n_ops;
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
    memo->live = PyMem_Calloc(n, sizeof *memo->live);
    memo->live_index = PyMem_Calloc(n, sizeof *memo->live_index);
    if (!memo->entries || !memo->roots || !memo->flags || !memo->values || !memo->constants || !memo->live
        || !memo->live_index) {
        guard_memo_release(memo);
        return NULL;
    }
    return memo;
}

/* Give back what the arrays have too much: most operations are not run any more. */
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
    TRIM(live, n_live);
    TRIM(live_index, n_live);
#undef TRIM
}

/* Weak references to the roots. Made before anything is taken down: making one may run the garbage collector. */
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
    r.words.changing = program->changing;
    r.words.n_changing = program->n_changing;
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
    word_list_free(&r.words);
    if (made) {
        trim(r.memo);
        /* Once more: weak references to entries were made in between, which may have run the garbage collector. */
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
    for (Py_ssize_t i = 0; i < memo->n_live; i++) {
        PyMem_Free(memo->live[i].registers);
        PyMem_Free(memo->live[i].others);
    }
    for (Py_ssize_t i = 0; i < memo->n_constants; i++) {
        Py_DECREF(memo->constants[i]);
    }
    PyMem_Free(memo->constants);
    PyMem_Free(memo->roots);
    PyMem_Free(memo->words);
    PyMem_Free(memo->is_version);
    PyMem_Free(memo->entries);
    PyMem_Free(memo->flags);
    PyMem_Free(memo->values);
    PyMem_Free(memo->live);
    PyMem_Free(memo->live_index);
    PyMem_Free(memo);
}
