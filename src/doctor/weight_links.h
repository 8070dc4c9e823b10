// Which matrices of a layer meet in one space, and how well they fit there.
//
// Two matrices that read the same vector, or of which one reads what the other writes, were trained
// together: the vectors they hold in the space between them point more often into the same
// directions than chance would have it. The overlap of A and B, vectors of n values,
//   log( n |A B'|^2 / (|A|^2 |B|^2) )        (Frobenius norms)
// is 0 for matrices that know nothing of each other and 0.3 to 5 in trained models. The units
// inside an FFN have no direction in common but a size: there the fit is the correlation of the log
// norms of gate's, up's and down's units. A matrix that is stored transposed, or in another's
// place, fits nothing, and fits again when it is read the other way.
#ifndef LP_DOCTOR_WEIGHT_LINKS_H
#define LP_DOCTOR_WEIGHT_LINKS_H

#include "model/hparams.h"

enum lp_fit_kind { LP_FIT_OVERLAP, LP_FIT_UNITS };

// The vectors that a tensor holds in the space. Part p (a head or an expert) is matrix p of a
// stack, or begins `step` rows or columns behind part p - 1 (step 0: all parts share it).
struct lp_link_side {
    const struct lp_gguf_tensor *tensor;
    bool by_row; // row i is coordinate i, and columns are the vectors; else the other way round
    bool by_matrix;
    uint64_t first, step, width; // rows or columns; width is the n of the space
};

struct lp_link {
    int32_t id; // the same for the same pair of slots in all layers
    enum lp_fit_kind kind;
    struct lp_link_side a, b;
    uint32_t n_parts;
};

#define LP_MAX_LINKS 24

// The links of a layer (a block number), of those tensors that are there with the shapes that h
// asks for. Returns their number.
int32_t lp_weight_links(const struct lp_gguf *gguf, const struct lp_hparams *h, int32_t layer,
                        struct lp_link out[LP_MAX_LINKS]);
const char *lp_link_space(int32_t id); // "the query's part of a head", for texts

// A side's vectors, or (UNITS) log norms, of every part_step-th part.
struct lp_link_values {
    float *values; // [n_parts, n_vectors, width]; UNITS: [n_parts, width]
    uint32_t n_parts, n_vectors;
    uint64_t width;
};

struct lp_link_sample { // how much is read of a side
    uint32_t part_step; // every how many parts
    uint32_t n_vectors; // OVERLAP: chance lies at 0 +- 1.4 / n_vectors
    uint32_t n_units;   // vectors of UNITS: a norm's error is 1 / sqrt(2 n_units)
};

// turned: the bytes of each matrix are read as those of its transpose. Errors: MEMORY (false).
bool lp_link_read(const struct lp_link *link, const struct lp_link_side *side, bool turned,
                  const struct lp_link_sample *sample, struct lp_link_values *out);
void lp_link_release(struct lp_link_values *values);

// How well part i of a fits part j of b.
double lp_link_fit(const struct lp_link *link, const struct lp_link_values *a, uint32_t i,
                   const struct lp_link_values *b, uint32_t j);

#endif
