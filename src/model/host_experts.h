// Routed experts of some layers that stay in the host's memory, and are computed there, of a model whose
// other parts are on a device with memory of its own (lp_load.expert_dev). A layer's rows, choices and
// weights come to the host, the experts' sum goes back; what else the layer has runs on the device meanwhile.
#ifndef LP_MODEL_HOST_EXPERTS_H
#define LP_MODEL_HOST_EXPERTS_H

#include "model/model.h"

// Bytes of all routed experts.
uint64_t lp_host_experts_bytes(const struct lp_model *m);
// The layers whose experts fit into n_bytes of the device's memory, from the first one on: of the others
// host_experts is set. *device_bytes: what those that fit take.
void lp_host_experts_divide(struct lp_model *m, uint64_t n_bytes, uint64_t *device_bytes);

struct lp_host_experts {    // of a runner
    struct lp_device *dev;  // a host backend's; not owned
    float *x, *weights, *y; // host: [max_rows, n_embd], [max_rows, n_used], [max_rows, n_embd]
    int32_t *ids;           // [max_rows, n_used]
    float *sum;             // on the model's device, [max_rows, n_embd]; not owned
};
// Nothing where the model has no such layers. Errors: MEMORY.
lp_status lp_host_experts_init(struct lp_host_experts *out, const struct lp_model *m,
                               int64_t max_rows, float *sum, struct lp_err *err);
void lp_host_experts_release(struct lp_host_experts *e);

// What the experts of a layer need, from the model's device; waits for it.
void lp_host_experts_fetch(struct lp_host_experts *e, const struct lp_model *m, const float *x,
                           const int32_t *ids, const float *weights, int64_t n_rows);
// h += the layer's experts of the rows that were fetched; h on the model's device.
void lp_host_experts_add(struct lp_host_experts *e, const struct lp_model *m, int32_t layer,
                         float *h, int64_t n_rows);

#endif
