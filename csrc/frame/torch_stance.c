#include "torch_stance.h"

struct torch_stance_seen torch_stance;

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

int
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
