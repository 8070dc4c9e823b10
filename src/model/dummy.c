// As many random values as a piece on the host, and that again and again. Their deviation is 1 / sqrt(n_in), so
// that activations keep their size.
#include "model/dummy.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "quant/random_blocks.h"

#define PIECE_VALUES ((size_t)1 << 22)

struct lp_dummy_place lp_dummy_whole(const struct lp_weight *w) {
    return (struct lp_dummy_place){.n_mats = w->n_mats, .mat_rows = w->n_out, .n_columns = w->n_in};
}

static size_t bytes_of(const struct lp_weight *w, int64_t n_values) {
    uint64_t bytes = 0;
    lp_type_row_bytes((uint32_t)w->type, (uint64_t)n_values, &bytes); // less than a row of the file
    return (size_t)bytes;
}

// The piece's rows, of each the columns that w has: [n_rows, row_bytes].
static lp_status make_piece(const struct lp_weight *w, const struct lp_dummy_place *p,
                            size_t n_rows, uint8_t *out, struct lp_err *err) {
    const size_t skip = bytes_of(w, p->first_column), n_bytes = bytes_of(w, w->n_in),
                 whole = bytes_of(w, p->n_columns);
    struct lp_rng rng;
    uint8_t *row = lp_alloc(whole, 1);
    if (!row) return lp_err_memory(err, whole, "random weights");
    lp_rng_init(&rng, (uint64_t)w->type ^ (uint64_t)p->n_columns << 8);
    bool is_weight = true;
    for (size_t r = 0; r < n_rows && is_weight; r++) {
        is_weight = lp_random_blocks(w->type, 1.0f / sqrtf((float)p->n_columns), &rng, row,
                                     (size_t)p->n_columns);
        memcpy(out + r * w->row_bytes, row + skip, n_bytes);
    }
    lp_free(row);
    return is_weight ? LP_OK
                     : lp_err_set(err, LP_STATUS_INVALID, "%s is no type of a weight",
                                  lp_type_info((uint32_t)w->type)->name);
}

// Each matrix from the piece on the device, in runs up to the piece's end.
static void copy_rows(struct lp_device *dev, const struct lp_weight *w,
                      const struct lp_dummy_place *p, const uint8_t *piece, size_t n_piece,
                      uint8_t *to) {
    for (int64_t m = 0; m < w->n_mats; m++) {
        size_t row = (size_t)((p->first_mat + m) * p->mat_rows + p->first_row) % n_piece;
        for (size_t left = (size_t)w->n_out, n; left > 0; left -= n, row = 0) {
            n = left < n_piece - row ? left : n_piece - row;
            dev->backend->copy(dev, to, piece + row * w->row_bytes, n * w->row_bytes);
            to += n * w->row_bytes;
        }
    }
}

lp_status lp_dummy_fill(struct lp_device *dev, const struct lp_weight *w,
                        const struct lp_dummy_place *p, void *block, struct lp_err *err) {
    const struct lp_backend *backend = dev->backend;
    const size_t all = (size_t)p->mat_rows * (size_t)p->n_mats;
    size_t n_piece = PIECE_VALUES / (size_t)p->n_columns + 1;
    if (n_piece > all) n_piece = all;
    const size_t n_bytes = n_piece * w->row_bytes;
    uint8_t *host =
                lp_alloc(n_bytes, 1), // zeros, as between rows that are longer than their blocks
        *piece = backend->alloc(dev, n_bytes);
    lp_status status = host && piece ? make_piece(w, p, n_piece, host, err)
                                     : lp_err_memory(err, n_bytes, "random weights");
    if (!status) {
        backend->write(dev, piece, host, n_bytes);
        copy_rows(dev, w, p, piece, n_piece, block);
    }
    if (piece) backend->free(dev, piece);
    lp_free(host);
    return status;
}
