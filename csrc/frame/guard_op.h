/* Inside of guard programs: one operation, and the functions that guard_ops.def names. */
#ifndef PYFRAME_GUARD_OP_H
#define PYFRAME_GUARD_OP_H

#include "guard_eval.h"

struct tensor_expectation;
struct relation;

/* The number of each row of guard_ops.def. */
typedef enum {
#define ACCESSOR(name, operands, doc) OP_##name,
#define CHECK(name, operands, doc) OP_##name,
#include "guard_ops.def"
#undef ACCESSOR
#undef CHECK
    N_OPS
} op_code;

/* An accessor returns a new reference, or NULL with or without an exception. */
typedef PyObject *(*access_function)(const guard_op *op, const call_context *context, PyObject **registers);
/* A check returns 1, 0, or -1 with an exception set. */
typedef int (*check_function)(const guard_op *op, const call_context *context, PyObject **registers);

struct guard_op {
    access_function access; /* one of these two */
    check_function check;
    op_code code;
    int32_t dst, a, b; /* destination and source registers */
    int32_t n_registers;
    int32_t *registers;        /* of an 'R' operand */
    int64_t integer, integer2; /* the 'i' operands */
    PyObject *object;          /* the 'o' operand; NULL if `weak` refers to it */
    PyObject *weak;            /* weak reference to the object of an identity check */
    struct tensor_expectation *tensor;
    struct relation *relation;
    unsigned int type_version; /* of a CLASS_FINDS: the version tag of the class when the check last passed, or 0 */
    PyObject **others; /* of a DISTINCT in a memo: a set of addresses that the registers must not be in either, ... */
    size_t n_others;   /* ... open-addressed, of this size */
};

typedef struct {
    const char *name, *operands, *doc;
    bool is_accessor;
    access_function access;
    check_function check;
} op_row;

/* Convert the parsed operands to the form that the operation uses (weak references, tensor expectations), and check
 * their types. 0, or -1 with an exception set. */
int guard_op_prepare(guard_op *op, const op_row *row);

/* The operand letters of an operation. */
const char *guard_op_operands(op_code code);

/* Where an address is, or would go, in an open-addressed set of them; `size` is a power of two. */
PyObject **guard_address_place(PyObject **table, size_t size, PyObject *object);

#define ACCESSOR(name, operands, doc)                                                                                  \
    PyObject *access_##name(const guard_op *op, const call_context *context, PyObject **registers);
#define CHECK(name, operands, doc)                                                                                     \
    int check_##name(const guard_op *op, const call_context *context, PyObject **registers);
#include "guard_ops.def"
#undef ACCESSOR
#undef CHECK

#endif
