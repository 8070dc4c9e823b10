// The list of backends in this build, and what they share.
#include "backend/backend.h"

#include <string.h>

static const struct lp_backend *const backends[] = {
    &lp_backend_cpu,
    &lp_backend_ref,
#if defined(LIMPID_CUDA)
    &lp_backend_cuda,
#endif
};

#ifdef LIMPID_FAULTS
const struct lp_backend *lp_faulty_backend(void); // tests/clinic/faulty_backend.c
#endif

const struct lp_backend *lp_backend_find(const char *name) {
#ifdef LIMPID_FAULTS
    if (strcmp(name, "cpu") == 0) return lp_faulty_backend();
#endif
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++)
        if (strcmp(backends[i]->name, name) == 0) return backends[i];
    return NULL;
}

lp_status lp_backend_choose(const struct lp_backend **out, const char *name, struct lp_err *err) {
    *out = lp_backend_find(name ? name : "cpu");
    if (*out) return LP_OK;
    if (strcmp(name, "cuda") == 0)
        return lp_err_set(
            err, LP_STATUS_UNSUPPORTED,
            "this build has no CUDA backend; build limpid with -DLIMPID_CUDA=ON, or use "
            "--backend cpu");
    return lp_err_set(err, LP_STATUS_INVALID, "backend is '%s', expected cpu, cuda or ref", name);
}

struct lp_reserve lp_reserve_merge(struct lp_reserve a, const struct lp_reserve *b) {
#define LARGER(field)                                                                              \
    if (b->field > a.field) a.field = b->field;
    LARGER(n_rows)
    LARGER(n_context)
    LARGER(max_width)
    LARGER(n_experts)
    LARGER(n_used)
    LARGER(expert_width)
    LARGER(n_embd)
    LARGER(n_heads)
    LARGER(latent)
    LARGER(rope)
    LARGER(nope)
    LARGER(v_dim)
    LARGER(index_heads)
    LARGER(index_width)
#undef LARGER
    return a;
}
