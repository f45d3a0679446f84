/* inductor._C: the method table and the Plan type. */
#include "fake_dispatch.h"
#include "open_file.h"
#include "replay.h"
#include "sampler.h"
#include "training.h"
#include "unchanged.h"

#include <structmember.h>

plan_torch plan_api;

/* All or none. */
static void
bind_cuda_products(void)
{
    static const char *const names[MATMUL_KINDS] = {"aoti_torch_cuda_mm_out", "aoti_torch_cuda_addmm_out",
                                                    "aoti_torch_cuda_bmm_out", "aoti_torch_cuda_baddbmm_out"};
    void *found[MATMUL_KINDS];
    for (int i = 0; i < MATMUL_KINDS; i++) {
        found[i] = tv_symbol(names[i]);
        if (found[i] == NULL) {
            return;
        }
    }
    memcpy(plan_api.cuda_mm, found, sizeof found);
}

int
plan_bind_torch(void)
{
    static const char *const products[MATMUL_KINDS] = {"aoti_torch_cpu_mm_out", "aoti_torch_cpu_addmm_out",
                                                       "aoti_torch_cpu_bmm_out", "aoti_torch_cpu_baddbmm_out"};
    if (plan_api.drop != NULL) {
        return 0;
    }
    if (tv_bind_torch() < 0) {
        return -1;
    }
    *(void **)&plan_api.blob = tv_symbol("aoti_torch_create_tensor_from_blob");
    *(void **)&plan_api.reinterpret = tv_symbol("aoti_torch__reinterpret_tensor");
    *(void **)&plan_api.part = tv_symbol("aoti_torch__alloc_from_pool");
    *(void **)&plan_api.grad_enabled = tv_symbol("aoti_torch_grad_mode_is_enabled");
    *(void **)&plan_api.set_grad = tv_symbol("aoti_torch_grad_mode_set_enabled");
    int complete = plan_api.blob && plan_api.reinterpret && plan_api.part && plan_api.grad_enabled && plan_api.set_grad;
    for (int i = 0; i < MATMUL_KINDS; i++) {
        *(void **)&plan_api.mm[i] = tv_symbol(products[i]);
        complete = complete && plan_api.mm[i] != NULL;
    }
    bind_cuda_products();
    void *drop = tv_symbol("aoti_torch_delete_tensor_object");
    if (!complete || drop == NULL) {
        PyErr_SetString(PyExc_ImportError, "this torch lacks C functions that inductor._C needs");
        return -1;
    }
    *(void **)&plan_api.drop = drop;
    return 0;
}

static PyObject *
plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (plan_bind_torch() < 0) {
        return NULL;
    }
    plan_object *plan = (plan_object *)type->tp_alloc(type, 0);
    if (plan == NULL) {
        return NULL;
    }
    plan->vectorcall = plan_call;
    if (plan_fill(plan, args) < 0) {
        Py_DECREF(plan);
        return NULL;
    }
    return (PyObject *)plan;
}

static int
plan_traverse(plan_object *plan, visitproc visit, void *arg)
{
    Py_VISIT(plan->fixed);
    Py_VISIT(plan->fallback);
    Py_VISIT(plan->written);
    for (Py_ssize_t i = 0; i < plan->n_steps; i++) {
        Py_VISIT(plan->steps[i].callee);
        int stop = plan_traverse_operand(&plan->steps[i].operands, visit, arg);
        if (stop != 0) {
            return stop;
        }
    }
    for (Py_ssize_t i = 0; i < plan->n_outputs; i++) {
        Py_VISIT(plan->outputs[i].value);
    }
    return 0;
}

static int
plan_tp_clear(plan_object *plan)
{
    /* Only what can close a cycle; the rest stays valid for a call from a finalizer. */
    for (Py_ssize_t i = 0; i < plan->n_outputs; i++) {
        Py_XSETREF(plan->outputs[i].value, Py_NewRef(Py_None));
    }
    return 0;
}

static void
plan_dealloc(plan_object *plan)
{
    PyObject_GC_UnTrack(plan);
    plan_clear(plan);
    Py_TYPE(plan)->tp_free((PyObject *)plan);
}

static PyMemberDef plan_members[] = {
    {"n_inputs", T_PYSSIZET, offsetof(plan_object, n_inputs), READONLY, "inputs and fixed tensors together"},
    {"n_steps", T_PYSSIZET, offsetof(plan_object, n_steps), READONLY, "steps of one call"},
    {"n_buffers", T_PYSSIZET, offsetof(plan_object, n_buffers), READONLY, "buffers of one call"},
    {"arena_bytes", T_LONGLONG, offsetof(plan_object, arena_bytes), READONLY, "scratch memory of one call"},
    {"labels", T_OBJECT, offsetof(plan_object, labels), READONLY, "the names given to `label`, or None"},
    {NULL},
};

PyDoc_STRVAR(plan_label_doc, "label(names): a tuple of the names that profiles show for the graph and for each of "
             "`steps`; those of steps that call no kernel are not used.");

static PyObject *
plan_label(PyObject *self, PyObject *names)
{
    plan_object *plan = (plan_object *)self;
    if (plan->labels != NULL || !PyTuple_CheckExact(names) || PyTuple_GET_SIZE(names) != 1 + plan->n_steps) {
        PyErr_SetString(PyExc_ValueError, "a plan is labelled once, by the names of the graph and of each step");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(names, i))) {
            PyErr_SetString(PyExc_TypeError, "names are strings");
            return NULL;
        }
    }
    plan->labels = Py_NewRef(names);
    Py_RETURN_NONE;
}

static PyMethodDef plan_methods[] = {
    {"label", plan_label, METH_O, plan_label_doc},
    {"take", plan_take, METH_O,
     "take(list): a call with the arguments in `list`, which is empty from then on, so that the plan can release each\n"
     "as soon as it is not needed any more. Unchanged if the fallback is called."},
    {"addresses", (PyCFunction)(void (*)(void))plan_addresses, METH_FASTCALL,
     "addresses(inputs, skip): the addresses of the first inputs, given as a tuple, as 8 bytes each; 0 for those that\n"
     "the bytes `skip` mark. Raises what a call with these inputs would raise."},
    {NULL},
};

PyTypeObject plan_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "inductor._C.Plan",
    .tp_doc = "Plan(inputs, fixed, steps, outputs, kernels, n_buffers, form, mutated, aligned, fallback, written,\n"
              "device): a compiled graph.",
    .tp_basicsize = sizeof(plan_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = plan_new,
    .tp_dealloc = (destructor)plan_dealloc,
    .tp_traverse = (traverseproc)plan_traverse,
    .tp_clear = (inquiry)plan_tp_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(plan_object, vectorcall),
    .tp_members = plan_members,
    .tp_methods = plan_methods,
};

PyDoc_STRVAR(has_cuda_products_doc, "has_cuda_products() -> bool: whether matmul steps work in a plan for CUDA.");

static PyObject *
has_cuda_products(PyObject *self, PyObject *unused)
{
    return plan_bind_torch() < 0 ? NULL : PyBool_FromLong(plan_api.cuda_mm[0] != NULL);
}

static PyMethodDef methods[] = {
    {"has_cuda_products", has_cuda_products, METH_NOARGS, has_cuda_products_doc},
    {"open_file", open_file, METH_VARARGS, OPEN_FILE_DOC},
    {"unchanged", (PyCFunction)(void (*)(void))unchanged, METH_FASTCALL, UNCHANGED_DOC},
    {NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "inductor._C",
    .m_doc = "Runs compiled graphs.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__C(void)
{
    PyObject *m = PyModule_Create(&module);
    if (m == NULL || PyModule_AddType(m, &plan_type) < 0 || PyModule_AddType(m, &sampler_type) < 0
        || PyModule_AddType(m, &fake_dispatch_type) < 0 || PyModule_AddType(m, &recorded_type) < 0
        || PyModule_AddType(m, &replay_type) < 0 || PyModule_AddType(m, &node_forward_type) < 0
        || PyModule_AddType(m, &node_backward_type) < 0 || PyModule_AddType(m, &training_call_type) < 0) {
        Py_XDECREF(m);
        return NULL;
    }
    return m;
}
