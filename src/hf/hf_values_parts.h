// What the forms of a matrix (hf_values_*.c) owe to hf_values.c, and the shapes that they share.
#ifndef LP_HF_HF_VALUES_PARTS_H
#define LP_HF_HF_VALUES_PARTS_H

#include "hf/hf_values.h"

#define LP_HF_BASE_BYTES 200

// A matrix that is being looked up.
struct lp_hf_search {
    const struct lp_hf_folder *folder;
    char base[LP_HF_BASE_BYTES]; // NAME.weight, or NAME of a stack: suffixes go behind it
    struct lp_hf_matrix *m;      // values are set
    struct lp_err *err;
};

// One form's part of the functions of hf_values.h.
struct lp_hf_form_row {
    // values are set, n_mats, n_out, n_in as the array says them, block_out and block_in the whole
    // matrix; sets the rest.
    lp_status (*find)(struct lp_hf_search *s);
    void (*rows)(const struct lp_hf_matrix *m, int64_t mat, int64_t first, int64_t n, float *out);
    lp_type (*type)(const struct lp_hf_matrix *m, bool for_file);
    // `type` is that of the matrix, and not F32: those are rows.
    void (*pack)(const struct lp_hf_matrix *m, lp_type type, int64_t mat, int64_t first, int64_t n,
                 void *out);
};
extern const struct lp_hf_form_row lp_hf_form_plain, lp_hf_form_fp8, lp_hf_form_nvfp4,
    lp_hf_form_int4;

// The array base + suffix, or NULL.
const struct lp_st_array *lp_hf_beside(const struct lp_hf_search *s, const char *suffix);
// As lp_hf_beside; a missing one is an error (FORMAT).
lp_status lp_hf_need(const struct lp_hf_search *s, const char *suffix,
                     const struct lp_st_array **out);
// An array that would change the values in a way that no form here has: where it is there, an error
// (UNSUPPORTED), in which `what` says what it makes of the matrix.
lp_status lp_hf_forbid(const struct lp_hf_search *s, const char *suffix, const char *what);

// Whether the array has `rows` times `cols` values for each matrix of m: [rows, cols], with the
// experts in front in a stack; dimensions of 1 at the end may be left out.
bool lp_hf_shape_is(const struct lp_hf_matrix *m, const struct lp_st_array *a, int64_t rows,
                    int64_t cols);
// Sets the error, FORMAT, of an array of another shape than `expected`; returns it.
lp_status lp_hf_bad_shape(const struct lp_hf_search *s, const struct lp_st_array *a,
                          const char *expected);

// What quantization_config says of blocks, {rows, columns}, all greater than 0: weight_block_size,
// and the block_structure or group_size (1 x g) of each of config_groups. Returns how many of at
// most `max` it wrote.
int lp_hf_config_blocks(const struct lp_hf_folder *folder, int64_t (*blocks)[2], int max);

// dtype F32, BF16, F16 or F8_E8M0.
bool lp_hf_is_scale(const struct lp_st_array *a);
// Value i of such an array, counted through all dimensions.
float lp_hf_scale_at(const struct lp_st_array *a, int64_t i);
// What each byte is worth as E4M3.
void lp_hf_fill_e4m3(float table[256]);

static inline int64_t lp_hf_ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}

#endif
