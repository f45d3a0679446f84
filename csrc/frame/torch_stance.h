/* Whether torch's own stance tells all compiled functions to run eagerly. */
#ifndef PYFRAME_TORCH_STANCE_H
#define PYFRAME_TORCH_STANCE_H

#include "../compat.h"

/* The stance that `torch.compiler.set_stance` has set. torch keeps it in a variable of a module that only programs import
   which use it. `forces_eager` is valid while sys.modules and the variables of the module are unchanged. */
extern struct torch_stance_seen {
    PyObject *modules, *variables;
    const uint64_t *modules_version, *variables_version; /* NULL: unknown */
    uint64_t modules_seen, variables_seen;
    int forces_eager;
} torch_stance;

/* Reads the stance again. As torch_forces_eager(). */
int update_torch_stance(void);

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

#endif
