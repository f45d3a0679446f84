#include "relation.h"

#include <stdbool.h>
#include <string.h>

typedef enum {
    OP_CONST, OP_VALUE,
    OP_ADD, OP_SUB, OP_MUL, OP_FLOORDIV, OP_MOD, OP_MIN, OP_MAX,
    OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_AND, OP_OR,
    OP_NEG, OP_ABS, OP_NOT,
} opcode;

static const struct {
    const char *name;
    opcode code;
} names[] = {
    {"+", OP_ADD}, {"-", OP_SUB}, {"*", OP_MUL}, {"//", OP_FLOORDIV}, {"%", OP_MOD}, {"min", OP_MIN},
    {"max", OP_MAX}, {"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT}, {"<=", OP_LE}, {">", OP_GT}, {">=", OP_GE},
    {"and", OP_AND}, {"or", OP_OR}, {"neg", OP_NEG}, {"abs", OP_ABS}, {"not", OP_NOT},
};
enum { N_NAMES = sizeof names / sizeof *names, MAX_DEPTH = 64 };

typedef struct {
    opcode code;
    int64_t operand;
} step;

struct relation {
    Py_ssize_t n;
    step steps[];
};

/* ---- Construction ---- */
static int
parse_step(step *s, PyObject *item, Py_ssize_t n_values)
{
    if (PyLong_Check(item)) {
        s->code = OP_CONST;
        s->operand = PyLong_AsLongLong(item);
        return s->operand == -1 && PyErr_Occurred() ? -1 : 0;
    }
    if (PyTuple_Check(item) && PyTuple_GET_SIZE(item) == 1) {
        s->code = OP_VALUE;
        s->operand = PyLong_AsLongLong(PyTuple_GET_ITEM(item, 0));
        if (s->operand >= 0 && s->operand < n_values) {
            return 0;
        }
    }
    for (int i = 0; PyUnicode_Check(item) && i < N_NAMES; i++) {
        if (PyUnicode_CompareWithASCIIString(item, names[i].name) == 0) {
            s->code = names[i].code;
            return 0;
        }
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "RELATION: not a step of a program over %zd values: %R", n_values, item);
    }
    return -1;
}

/* A well-formed program never reads below its stack, and leaves one value. */
static int
check_depth(const relation *r)
{
    Py_ssize_t depth = 0;
    for (Py_ssize_t i = 0; i < r->n; i++) {
        opcode code = r->steps[i].code;
        depth += code <= OP_VALUE ? 1 : code >= OP_NEG ? 0 : -1;
        if (depth < 1 || depth > MAX_DEPTH) {
            PyErr_SetString(PyExc_ValueError, "RELATION: the program's stack runs empty or too deep");
            return -1;
        }
    }
    if (depth != 1) {
        PyErr_SetString(PyExc_ValueError, "RELATION: the program must leave one value");
        return -1;
    }
    return 0;
}

relation *
relation_new(PyObject *program, Py_ssize_t n_values)
{
    if (!PyTuple_Check(program)) {
        PyErr_SetString(PyExc_TypeError, "RELATION: the program must be a tuple");
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(program);
    relation *r = PyMem_Calloc(1, sizeof *r + (size_t)n * sizeof r->steps[0]);
    if (r == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    r->n = n;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (parse_step(&r->steps[i], PyTuple_GET_ITEM(program, i), n_values) < 0) {
            relation_free(r);
            return NULL;
        }
    }
    if (check_depth(r) < 0) {
        relation_free(r);
        return NULL;
    }
    return r;
}

void
relation_free(relation *r)
{
    PyMem_Free(r);
}

/* ---- Running ---- */
static bool
read_int(PyObject *object, int64_t *out)
{
    int overflow = 0;
    if (object == NULL || !PyLong_CheckExact(object)) {
        return false;
    }
    *out = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow;
}

/* Division as in Python: rounds towards minus infinity. */
static bool
divide(int64_t a, int64_t b, int64_t *quotient, int64_t *rest)
{
    if (b == 0 || (a == INT64_MIN && b == -1)) {
        return false;
    }
    int64_t q = a / b, m = a % b;
    bool adjust = m != 0 && (m < 0) != (b < 0);
    *quotient = q - adjust;
    *rest = adjust ? m + b : m;
    return true;
}

static bool
apply(opcode code, int64_t a, int64_t b, int64_t *out)
{
    int64_t other;
    switch (code) {
    case OP_ADD: return !__builtin_add_overflow(a, b, out);
    case OP_SUB: return !__builtin_sub_overflow(a, b, out);
    case OP_MUL: return !__builtin_mul_overflow(a, b, out);
    case OP_FLOORDIV: return divide(a, b, out, &other);
    case OP_MOD: return divide(a, b, &other, out);
    case OP_MIN: *out = a < b ? a : b; return true;
    case OP_MAX: *out = a > b ? a : b; return true;
    case OP_EQ: *out = a == b; return true;
    case OP_NE: *out = a != b; return true;
    case OP_LT: *out = a < b; return true;
    case OP_LE: *out = a <= b; return true;
    case OP_GT: *out = a > b; return true;
    case OP_GE: *out = a >= b; return true;
    case OP_AND: *out = a && b; return true;
    case OP_OR: *out = a || b; return true;
    case OP_NEG: return !__builtin_sub_overflow((int64_t)0, a, out);
    case OP_ABS: *out = a < 0 ? -a : a; return a != INT64_MIN;
    case OP_NOT: *out = !a; return true;
    case OP_CONST:
    case OP_VALUE: break;
    }
    Py_UNREACHABLE();
}

int
relation_holds(const relation *r, PyObject *const *registers, const int32_t *indices)
{
    int64_t stack[MAX_DEPTH + 1];
    int64_t *top = stack; /* the top of the stack; stack[0] is not used */
    for (const step *s = r->steps; s < r->steps + r->n; s++) {
        if (s->code == OP_CONST) {
            *++top = s->operand;
        }
        else if (s->code == OP_VALUE) {
            if (!read_int(registers[indices[s->operand]], ++top)) {
                return 0;
            }
        }
        else if (s->code >= OP_NEG) {
            if (!apply(s->code, *top, 0, top)) {
                return 0;
            }
        }
        else {
            top--;
            if (!apply(s->code, top[0], top[1], top)) {
                return 0;
            }
        }
    }
    return *top != 0;
}
