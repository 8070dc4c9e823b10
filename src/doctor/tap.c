// The tap's own versions of the operations that it knows.
#include "doctor/tap.h"

#include <stddef.h>

static struct lp_tap *tap_of(const struct lp_device *dev) {
    return (struct lp_tap *)((const char *)dev->backend - offsetof(struct lp_tap, table));
}

static void matmul(struct lp_device *dev, const struct lp_op_matmul *op) {
    struct lp_tap *tap = tap_of(dev);
    if (!tap->skips_matmul || !tap->skips_matmul(tap->user, op)) tap->real->matmul(dev, op);
}

static void experts(struct lp_device *dev, const struct lp_op_experts *op) {
    struct lp_tap *tap = tap_of(dev);
    if (!tap->skips_experts || !tap->skips_experts(tap->user, op)) tap->real->experts(dev, op);
}

static void mla_absorbed(struct lp_device *dev, const struct lp_op_mla_absorbed *op) {
    struct lp_tap *tap = tap_of(dev);
    struct lp_op_mla_absorbed whole = *op;
    if (tap->sees_all && tap->sees_all(tap->user, op)) {
        whole.visible.ids = whole.visible.counts = NULL;
        whole.visible.k = 0;
    }
    tap->real->mla_absorbed(dev, &whole);
}

void lp_tap_open(struct lp_tap *tap, struct lp_device *dev) {
    tap->dev = dev;
    tap->real = dev->backend;
    tap->table = *dev->backend;
    tap->table.matmul = matmul;
    tap->table.experts = experts;
    tap->table.mla_absorbed = mla_absorbed;
    dev->backend = &tap->table;
}

void lp_tap_close(struct lp_tap *tap) {
    tap->dev->backend = tap->real;
}
