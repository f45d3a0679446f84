/* The C runner of a PlanSpec (inductor/runtime/plan_spec.py); the tuples come from inductor/runtime/plan.py:encode. */
#ifndef PYFRAME_PLAN_H
#define PYFRAME_PLAN_H

#include "tensor_view.h"

/* The numbers are shared with plan.py. */
enum step_kind { STEP_ALLOC, STEP_ARENA, STEP_SLOT, STEP_KERNEL, STEP_EXTERN, STEP_MATMUL, STEP_VIEW, STEP_FREE,
                 STEP_STATUS, STEP_LAUNCH, STEP_COUNTERS };
enum matmul_kind { MATMUL_MM, MATMUL_ADDMM, MATMUL_BMM, MATMUL_BADDBMM, MATMUL_KINDS };
enum output_kind { OUTPUT_BUF, OUTPUT_INPUT, OUTPUT_CONST, OUTPUT_VIEW };
enum result_form { RESULT_TUPLE, RESULT_LIST, RESULT_SINGLE };

typedef void (*kernel_fn)(void **bufs, const int64_t *ints);

/* A shape with its element type: `dims` holds ndim sizes, then ndim strides. */
typedef struct shape {
    int64_t ndim;
    int64_t numel;
    int32_t dtype;
    int32_t itemsize;
    int64_t *dims;
    int32_t device_type, device_index; /* of an input or an ALLOC; elsewhere the plan's */
} shape;

/* An argument of an extern: a buffer's tensor, a fixed object, or a list of arguments. */
enum operand_kind { OPERAND_BUF, OPERAND_VALUE, OPERAND_LIST };
typedef struct operand {
    enum operand_kind kind;
    Py_ssize_t buf;
    PyObject *value;
    Py_ssize_t n_items;
    struct operand *items;
} operand;

/* A CUDA kernel with everything that does not change between calls. */
typedef struct launch {
    void *function;
    uint32_t grid[3], block, shared;
    int empty; /* no blocks: CUDA refuses such a launch */
    int waits; /* the kernel itself waits for the one ahead of it in the stream, so that it may be started early */
    Py_ssize_t n_tail;
    void **tail;   /* where the parameters behind the buffers are: the ints, then two null pointers of Triton's */
    int32_t *ints;
    int64_t *by_value; /* for each buffer: -1 if the kernel takes its address; else it takes the number that lies this
                        * many bytes behind the start of the buffer, which is memory of the host */
    char *name;
} launch;

typedef struct step {
    enum step_kind kind;
    enum matmul_kind matmul;
    int release_gil;
    int on_host;       /* ARENA, SLOT: in memory of the host, in a plan for CUDA */
    int has_out;
    Py_ssize_t buf;    /* ALLOC, SLOT, VIEW, FREE: the buffer; MATMUL: the result; KERNEL: the number of the kernel */
    Py_ssize_t base;   /* VIEW */
    int64_t offset;    /* SLOT: bytes; VIEW: elements; ARENA, COUNTERS: the size in bytes */
    shape shape;       /* ALLOC, SLOT, VIEW */
    kernel_fn kernel;  /* KERNEL */
    launch *launch;    /* LAUNCH */
    PyObject *callee;  /* EXTERN: takes `operand.items`, the last of them by the names of `keywords`;
                        * MATMUL: the operator, called where the C function fails, for its exception */
    PyObject *keywords;
    operand operands;
    double beta, alpha;
    Py_ssize_t n_bufs, n_outs, n_ints;
    int32_t *bufs, *outs;
    shape *results;    /* EXTERN: what each of `outs` must be like, ndim -1 where that does not matter; or NULL */
    int64_t *ints;
} step;

/* The memory of a COUNTERS step on one stream. */
typedef struct counters {
    void *stream, *data;
    Py_ssize_t buf; /* of the step */
    PyObject *tensor;
} counters;

typedef struct output {
    enum output_kind kind;
    Py_ssize_t index;
    PyObject *value; /* CONST: the result; VIEW: called with (input, size, stride, offset) for a view of the input */
} output;

typedef struct plan_object {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t n_inputs, n_fixed, n_steps, n_outputs, n_buffers;
    enum result_form form;
    int toggles_grad;    /* some step calls ATen */
    int32_t device_type, device_index; /* where the tensors of this plan are */
    int32_t device_number; /* of the CUDA device that the kernels run on */
    void *context;         /* its context; NULL for a plan of the CPU */
    int64_t *status_word; /* of a CUDA plan with a STATUS step */
    void (*const *products)(void);
    shape *inputs;       /* arguments, then fixed tensors; dtype -1 marks a Python int */
    int64_t *extents;    /* of each input: bytes from its first to its last element */
    int32_t *mutated;    /* the inputs that kernels write */
    Py_ssize_t n_mutated;
    Py_ssize_t first_write; /* the first step that may write an input; n_steps if there is none */
    int64_t undo_bytes;  /* of the inputs that kernels write, where each call keeps copies of them; else 0 */
    int32_t *aligned;    /* the inputs that kernels expect at a multiple of INPUT_ALIGNMENT */
    Py_ssize_t n_aligned;
    PyObject *fallback;  /* called in place of the plan where inputs overlap or are not aligned as they must; or NULL */
    PyObject *written;   /* called with a tuple of the mutated inputs after a run */
    PyObject *labels;    /* what profiles show: a tuple of the names of the graph and of each step; or NULL */
    PyObject *fixed;     /* tuple: bound attributes and constants, read again on every call */
    counters *counters;  /* one for each COUNTERS step and stream that the plan has run on */
    Py_ssize_t n_counters;
    step *steps;
    output *outputs;
    step **makers;       /* for each buffer the SLOT or VIEW step that makes it, or NULL */
    void *arena;         /* on the host: kept between calls; a nested or concurrent call takes its own */
    int arena_busy;
    int64_t arena_bytes, host_arena_bytes; /* host: of a plan for CUDA, besides the arena on the device */
} plan_object;

/* torch's functions that the runner calls; looked up once. */
typedef struct plan_torch {
    int32_t (*blob)(void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t, int32_t, int32_t, void **);
    int32_t (*reinterpret)(void *, int64_t, const int64_t *, const int64_t *, int64_t, void **);
    int32_t (*part)(void *, int64_t, int32_t, int64_t, const int64_t *, const int64_t *, void **);
    int32_t (*drop)(void *);
    bool (*grad_enabled)(void);
    void (*set_grad)(bool);
    void (*mm[MATMUL_KINDS])(void);
    void (*cuda_mm[MATMUL_KINDS])(void); /* all NULL in a torch without CUDA */
} plan_torch;

extern plan_torch plan_api;
extern PyTypeObject plan_type;
int plan_bind_torch(void);

/* plan_build.c: fill `plan` from the tuples. 0, or -1 with an exception set. */
int plan_fill(plan_object *plan, PyObject *args);
void plan_clear(plan_object *plan);
/* From (dtype code, itemsize, sizes, strides) at `first` of `tuple`; `out->dims` is the caller's to free. */
int plan_fill_shape(shape *out, PyObject *tuple, Py_ssize_t first);
int plan_traverse_operand(const operand *op, visitproc visit, void *arg);

/* plan_writes.c: fill `first_write` and `undo_bytes` from the steps. 0, or -1 with an exception set. */
int plan_find_writes(plan_object *plan);

/* plan_cuda.c: raise what an earlier call left in the status word; 0, or -1 with an exception set. */
int plan_check_status(const plan_object *plan);

/* plan_cuda.c: resolve a kernel given as (code, name, threads of a block, bytes of shared memory), and one launch of it.
 * `by_value` holds pairs: the place among the buffers, and the position of the number in bytes. 0, or -1 with an exception
 * set. */
int plan_fill_launch(const plan_object *plan, step *out, PyObject *kernel, PyObject *grid, PyObject *ints,
                     PyObject *by_value);
void plan_clear_launch(launch *l);

/* plan_run.c */
PyObject *plan_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *plan_take(PyObject *self, PyObject *list);

/* plan_steps.c: a copy of a tensor with the strides that what reads it expects. NULL with an exception set. */
PyObject *plan_restrided(PyObject *tensor, const shape *expected, const tensor_view *view);

/* plan_inputs.c.
 * check_input: check a tensor input against what the plan was compiled for; its address, and the kind of device that it
 *              is on. 0, or -1 with an exception set.
 * addresses: a METH_FASTCALL method. */
int plan_check_input(const plan_object *plan, Py_ssize_t i, PyObject *object, void **data, int32_t *device_type);
PyObject *plan_addresses(PyObject *self, PyObject *const *args, Py_ssize_t n_args);

#endif
