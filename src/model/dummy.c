// Random weights in a device's memory, for a model whose own are not read (lp_load.dummy): as many as a
// piece on the host, and that again and again. Their deviation is 1 / sqrt(n_in), so that activations
// keep their size.
#include "model/dummy.h"

#include <math.h>

#include "base/alloc.h"
#include "quant/random_blocks.h"

#define PIECE_VALUES ((size_t)1 << 22)

lp_status lp_dummy_fill(struct lp_device *dev, const struct lp_weight *w, void *block,
                        struct lp_err *err) {
    const struct lp_backend *backend = dev->backend;
    const size_t n_rows = (size_t)w->n_out * (size_t)w->n_mats, all = n_rows * w->row_bytes;
    size_t some = PIECE_VALUES / (size_t)w->n_in + 1; // rows of the piece
    if (some > n_rows) some = n_rows;
    size_t n = some * w->row_bytes;
    struct lp_rng rng;
    uint8_t *piece = lp_alloc(n, 1); // zeros, as between rows that are longer than their blocks
    if (!piece) return lp_err_memory(err, n, "random weights");
    lp_rng_init(&rng, (uint64_t)w->type ^ (uint64_t)w->n_in << 8);
    bool is_weight = true;
    for (size_t r = 0; r < some && is_weight; r++)
        is_weight = lp_random_blocks(w->type, 1.0f / sqrtf((float)w->n_in), &rng,
                                     piece + r * w->row_bytes, (size_t)w->n_in);
    if (is_weight) backend->write(dev, block, piece, n);
    for (size_t done = n, part; is_weight && done < all; done += part) {
        part = done < all - done ? done : all - done;
        backend->copy(dev, (uint8_t *)block + done, block, part);
    }
    lp_free(piece);
    return is_weight ? LP_OK
                     : lp_err_set(err, LP_STATUS_INVALID, "%s is no type of a weight",
                                  lp_type_info((uint32_t)w->type)->name);
}
