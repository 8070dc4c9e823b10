// A device some of whose operations are watched or left out while a model runs on it.
//
// The device gets a copy of its backend's table in which these operations go through the tap; all
// others, and what a backend calls by itself, stay as they are.
#ifndef LP_DOCTOR_TAP_H
#define LP_DOCTOR_TAP_H

#include "backend/backend.h"

struct lp_tap {
    // What the caller wants, each or NULL; set before lp_tap_open.
    void *user;
    bool (*skips_matmul)(void *user, const struct lp_op_matmul *op); // true: it is not done
    bool (*skips_experts)(void *user, const struct lp_op_experts *op);
    // Before latents are attended to; true: every earlier key is seen, whatever was selected.
    bool (*sees_all)(void *user, const struct lp_op_mla_absorbed *op);

    struct lp_backend table; // the rest is the tap's own
    const struct lp_backend *real;
    struct lp_device *dev;
};

// The tap must stay where it is until lp_tap_close, which gives the device its own table back.
void lp_tap_open(struct lp_tap *tap, struct lp_device *dev);
void lp_tap_close(struct lp_tap *tap);

#endif
