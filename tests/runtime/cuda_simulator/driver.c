/* A CUDA driver without a GPU: two devices whose memory is the host's, and a few kernels that run as they are launched.
 * It records every launch and refuses what the real driver would refuse. */
#include <stdint.h>
#include <string.h>

enum { INVALID_VALUE = 1, NO_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NOT_FOUND = 500, N_DEVICES = 2 };

typedef struct record {
    const char *kernel;
    uint32_t grid[3], block[3], shared;
    void *stream, *context;
    void *scratch[2];
    int32_t early;
} record;

record sim_last;
int64_t sim_launches, sim_loads, sim_unloads, sim_retains, sim_host_allocs, sim_context_sets;
const char *sim_failing = ""; /* the function that fails next, and how */
int32_t sim_failure, sim_set_attribute;
void *sim_stream = (void *)0x51;
int32_t sim_capturing;

static int device_tags[N_DEVICES], module_tag;
static __thread void *current;

#define API __attribute__((visibility("default"))) int32_t
#define FAIL_IF_ASKED(name)                                                                                            \
    if (strcmp(sim_failing, name) == 0) {                                                                              \
        sim_failing = "";                                                                                              \
        return sim_failure;                                                                                            \
    }

void *pyframe_simulated_stream(void) { return sim_stream; }
void *sim_context(int device) { return &device_tags[device]; }
void *sim_current(void) { return current; }

/* ---- Kernels: what each one does with its parameters ---- */
static void
add_one(void **p)
{
    const float *x = *(float **)p[0];
    float *y = *(float **)p[1];
    for (int32_t i = 0; i < *(int32_t *)p[2]; i++) {
        y[i] = x[i] + 1;
    }
}

static void
scale_add(void **p)
{
    const float *x = *(float **)p[0], *y = *(float **)p[1];
    float *out = *(float **)p[2];
    for (int32_t i = 0; i < *(int32_t *)p[3]; i++) {
        out[i] = (float)*(int32_t *)p[4] * x[i] + y[i];
    }
}

static void
scale_by(void **p)
{
    const float *x = *(float **)p[0];
    float *out = *(float **)p[1];
    for (int32_t i = 0; i < *(int32_t *)p[4]; i++) {
        out[i] = x[i] * *(float *)p[2] + (float)*(double *)p[3];
    }
}

static void
check_index(void **p)
{
    const int64_t *index = *(int64_t **)p[0];
    if (*index >= *(int32_t *)p[2]) {
        **(int64_t **)p[1] = 1;
    }
}

static const struct kernel {
    const char *name;
    int n_params;
    void (*run)(void **params);
} kernels[] = {{"add_one", 3, add_one}, {"scale_add", 5, scale_add}, {"check_index", 3, check_index},
             {"scale_by", 5, scale_by}};

/* ---- The driver ---- */
API
cuMemsetD8Async(void *memory, unsigned char value, size_t bytes, void *stream)
{
    (void)stream;
    memset(memory, value, bytes);
    return 0;
}

API
cuStreamIsCapturing(void *stream, int32_t *status)
{
    (void)stream;
    *status = sim_capturing;
    return 0;
}

API cuInit(uint32_t flags) { FAIL_IF_ASKED("cuInit") return flags == 0 ? 0 : INVALID_VALUE; }

API
cuGetErrorString(int32_t error, const char **text)
{
    *text = error == INVALID_IMAGE ? "device kernel image is invalid" : error == NOT_FOUND ? "named symbol not found"
            : error == NO_DEVICE ? "invalid device ordinal" : "some other failure";
    return 0;
}

API
cuDeviceGet(int32_t *device, int32_t ordinal)
{
    *device = ordinal;
    return ordinal >= 0 && ordinal < N_DEVICES ? 0 : NO_DEVICE;
}

API
cuDevicePrimaryCtxRetain(void **context, int32_t device)
{
    FAIL_IF_ASKED("cuDevicePrimaryCtxRetain")
    sim_retains++;
    *context = &device_tags[device];
    return 0;
}

API cuCtxGetCurrent(void **context) { *context = current; return 0; }
API cuCtxSetCurrent(void *context) { sim_context_sets++; current = context; return 0; }

API
cuModuleLoadData(void **module, const void *image)
{
    if (current == NULL) {
        return INVALID_CONTEXT;
    }
    sim_loads++;
    *module = &module_tag;
    return strncmp(image, "bad", 3) == 0 ? INVALID_IMAGE : 0;
}

API cuModuleUnload(void *module) { sim_unloads++; return module == &module_tag ? 0 : INVALID_VALUE; }

API
cuModuleGetFunction(void **function, void *module, const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        if (strcmp(kernels[i].name, name) == 0) {
            *function = (void *)&kernels[i];
            return 0;
        }
    }
    return NOT_FOUND;
}

API
cuFuncGetAttribute(int32_t *value, int32_t attribute, void *function)
{
    *value = sim_set_attribute > 49152 ? sim_set_attribute : 49152;
    return attribute == 8 ? 0 : INVALID_VALUE;
}

API
cuFuncSetAttribute(void *function, int32_t attribute, int32_t value)
{
    if (attribute != 8 || value > 227 << 10) {
        return INVALID_VALUE;
    }
    sim_set_attribute = value;
    return 0;
}

API
cuMemHostAlloc(void **memory, size_t bytes, uint32_t flags)
{
    static int64_t pages[8][512];
    if (current == NULL || flags != 3 || bytes != sizeof pages[0] || sim_host_allocs == 8) {
        return INVALID_VALUE;
    }
    *memory = memset(pages[sim_host_allocs++], 0xff, bytes);
    return 0;
}

API
cuLaunchKernel(void *function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,
               uint32_t shared, void *stream, void **params, void **extra)
{
    const struct kernel *kernel = function;
    FAIL_IF_ASKED("cuLaunchKernel")
    if (current == NULL || stream != sim_stream) {
        return INVALID_CONTEXT;
    }
    if (gx * gy * gz == 0 || bx * by * bz == 0 || bx > 1024 || extra != NULL
        || shared > (uint32_t)(sim_set_attribute > 49152 ? sim_set_attribute : 49152)) {
        return INVALID_VALUE;
    }
    sim_last = (record){kernel->name, {gx, gy, gz}, {bx, by, bz}, shared, stream, current, {NULL, NULL}, 0};
    for (int i = 0; i < 2; i++) {
        sim_last.scratch[i] = *(void **)params[kernel->n_params + i];
    }
    sim_launches++;
    kernel->run(params);
    return 0;
}

typedef struct attribute {
    int32_t id, padding, value[16];
} attribute;

typedef struct config {
    uint32_t grid[3], block[3], shared;
    void *stream;
    attribute *attributes;
    uint32_t n_attributes;
} config;

API
cuLaunchKernelEx(const config *c, void *function, void **params, void **extra)
{
    if (sizeof(attribute) != 72 || c->n_attributes != 1 || c->attributes[0].id != 6) {
        return INVALID_VALUE;
    }
    int32_t status = cuLaunchKernel(function, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1],
                                    c->block[2], c->shared, c->stream, params, extra);
    sim_last.early = c->attributes[0].value[0];
    return status;
}
