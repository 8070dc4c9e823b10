// The functions of struct lp_cpu_lanes in terms of one vector type. A file that includes this
// defines first: LANES (values of a vector), vf (the type) and the static inline functions
//   v_zero() v_set1(x) v_load(p) v_store(p, v) v_add v_mul v_div v_fma(a, b, c) = a * b + c
//   v_load_n(p, n, fill), v_store_n(p, v, n)   the first n values, 0 < n < LANES
//   v_max(a, b)                                 b where a or b is NaN
//   v_sum(v)                                    in a fixed order
//   v_sum4(v, out)                              out[i] = v_sum(v[i]) for 4 vectors, the same bits
//   v_exp(v)                                    exp(-inf) = 0, NaN stays
//   transpose_block(in, ld_in, out, ld_out)     of 8 x 8 values
//   load_f16 load_bf16 load_q8_0 load_f8 store_f16 store_bf16 store_q8_0(p, out, n)
// The tiles are sized so that the sums stay in the vector registers, 16 or (with 16 lanes) 32: of
// mul_nt 4 rows x 3 or 6 columns, of mul_nn 4 or 8 rows x 3 vectors, or 1 x 8.
#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define TILE_KEYS (LANES == 16 ? 6 : 3) // columns of a tile of mul_nt
#define TILE_ROWS (LANES == 16 ? 8 : 4) // rows of a tile of mul_nn

// mr x nr dot products; one vector of partial sums each, k in steps of LANES.
INLINE void nt_tile(const int mr, const int nr, int k, const float *a, ptrdiff_t lda,
                    const float *b, ptrdiff_t ldb, float *c, ptrdiff_t row_step,
                    ptrdiff_t col_step) {
    vf sum[8][4];
    UNROLL for (int j = 0; j < nr; j++) UNROLL for (int i = 0; i < 4; i++) sum[j][i] = v_zero();
    int at = 0;
    for (; at + LANES <= k; at += LANES) {
        vf x[4];
        UNROLL for (int i = 0; i < mr; i++) x[i] = v_load(a + i * lda + at);
        UNROLL for (int j = 0; j < nr; j++) {
            vf y = v_load(b + j * ldb + at);
            UNROLL for (int i = 0; i < mr; i++) sum[j][i] = v_fma(x[i], y, sum[j][i]);
        }
    }
    if (at < k) UNROLL for (int j = 0; j < nr; j++) {
            vf y = v_load_n(b + j * ldb + at, k - at, 0);
            UNROLL for (int i = 0; i < mr; i++) sum[j][i] =
                v_fma(v_load_n(a + i * lda + at, k - at, 0), y, sum[j][i]);
        }
    UNROLL for (int j = 0; j < nr; j++) {
        if (mr == 4) {
            float four[4];
            v_sum4(sum[j], four);
            UNROLL for (int i = 0; i < 4; i++) c[i * row_step + j * col_step] = four[i];
        } else
            c[j * col_step] = v_sum(sum[j][0]);
    }
}

static void mul_nt(int m, int n, int k, const float *a, ptrdiff_t lda, const float *b,
                   ptrdiff_t ldb, float *c, ptrdiff_t row_step, ptrdiff_t col_step) {
    int i = 0;
    for (; i + 4 <= m; i += 4) {
        const float *x = a + i * lda;
        float *out = c + i * row_step;
        int j = 0;
        for (; j + TILE_KEYS <= n; j += TILE_KEYS)
            nt_tile(4, TILE_KEYS, k, x, lda, b + j * ldb, ldb, out + j * col_step, row_step,
                    col_step);
        for (; j + 2 <= n; j += 2)
            nt_tile(4, 2, k, x, lda, b + j * ldb, ldb, out + j * col_step, row_step, col_step);
        for (; j < n; j++)
            nt_tile(4, 1, k, x, lda, b + j * ldb, ldb, out + j * col_step, row_step, col_step);
    }
    for (; i < m; i++) {
        const float *x = a + i * lda;
        float *out = c + i * row_step;
        int j = 0;
        for (; j + 8 <= n; j += 8)
            nt_tile(1, 8, k, x, lda, b + j * ldb, ldb, out + j * col_step, row_step, col_step);
        for (; j < n; j++)
            nt_tile(1, 1, k, x, lda, b + j * ldb, ldb, out + j * col_step, row_step, col_step);
    }
}

// mr rows x nv vectors of outputs (or n_tail > 0 values of one vector); k ascending in every lane.
INLINE void nn_tile(const int mr, const int nv, int n_tail, int k, const float *a, ptrdiff_t lda,
                    const float *b, ptrdiff_t ldb, const int32_t *rows, float *c, ptrdiff_t ldc,
                    bool add) {
    vf sum[TILE_ROWS][8];
    UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) {
        if (!add)
            sum[i][j] = v_zero();
        else if (n_tail)
            sum[i][j] = v_load_n(c + i * ldc, n_tail, 0);
        else
            sum[i][j] = v_load(c + i * ldc + j * LANES);
    }
    for (int t = 0; t < k; t++) {
        const float *row = b + (rows ? rows[t] : t) * ldb;
        vf y[8];
        UNROLL for (int j = 0; j < nv; j++) y[j] =
            n_tail ? v_load_n(row, n_tail, 0) : v_load(row + j * LANES);
        UNROLL for (int i = 0; i < mr; i++) {
            vf x = v_set1(a[i * lda + t]);
            UNROLL for (int j = 0; j < nv; j++) sum[i][j] = v_fma(x, y[j], sum[i][j]);
        }
    }
    UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) {
        if (n_tail)
            v_store_n(c + i * ldc, sum[i][j], n_tail);
        else
            v_store(c + i * ldc + j * LANES, sum[i][j]);
    }
}

static void mul_nn(int m, int n, int k, const float *a, ptrdiff_t lda, const float *b,
                   ptrdiff_t ldb, float *c, ptrdiff_t ldc, bool add) {
    const int m4 = m / 4 * 4, m8 = m / TILE_ROWS * TILE_ROWS;
    int j = 0;
#define BAND(rows, nv, tail)                                                                       \
    nn_tile(rows, nv, tail, k, a + i * lda, lda, b + j, ldb, NULL, c + i * ldc + j, ldc, add)
    for (; j + 3 * LANES <= n; j += 3 * LANES) {
        int i = 0;
        for (; i < m8; i += TILE_ROWS) BAND(TILE_ROWS, 3, 0);
        for (; i < m4; i += 4) BAND(4, 3, 0);
    }
    for (; j + LANES <= n; j += LANES) {
        int i = 0;
        for (; i < m8; i += TILE_ROWS) BAND(TILE_ROWS, 1, 0);
        for (; i < m4; i += 4) BAND(4, 1, 0);
    }
    for (int i = 0; j < n && i < m4; i += 4) BAND(4, 1, n - j);
#undef BAND
    for (int i = m4; i < m; i++) {
        const float *x = a + i * lda;
        float *out = c + i * ldc;
        for (j = 0; j + 8 * LANES <= n; j += 8 * LANES)
            nn_tile(1, 8, 0, k, x, lda, b + j, ldb, NULL, out + j, ldc, add);
        for (; j + LANES <= n; j += LANES)
            nn_tile(1, 1, 0, k, x, lda, b + j, ldb, NULL, out + j, ldc, add);
        if (j < n) nn_tile(1, 1, n - j, k, x, lda, b + j, ldb, NULL, out + j, ldc, add);
    }
}

static void mul_rows(int n, int k, const float *a, const int32_t *rows, const float *b,
                     ptrdiff_t ldb, float *c) {
    int j = 0;
    for (; j + 8 * LANES <= n; j += 8 * LANES)
        nn_tile(1, 8, 0, k, a, 0, b + j, ldb, rows, c + j, 0, true);
    for (; j + LANES <= n; j += LANES) nn_tile(1, 1, 0, k, a, 0, b + j, ldb, rows, c + j, 0, true);
    if (j < n) nn_tile(1, 1, n - j, k, a, 0, b + j, ldb, rows, c + j, 0, true);
}

static void transpose(int n_rows, int n_cols, const float *in, ptrdiff_t ld_in, float *out,
                      ptrdiff_t ld_out) {
    int r8 = n_rows / 8 * 8, c8 = n_cols / 8 * 8;
    for (int r = 0; r < r8; r += 8)
        for (int c = 0; c < c8; c += 8)
            transpose_block(in + r * ld_in + c, ld_in, out + c * ld_out + r, ld_out);
    for (int r = 0; r < n_rows; r++)
        for (int c = r < r8 ? c8 : 0; c < n_cols; c++) out[c * ld_out + r] = in[r * ld_in + c];
}

static float softmax_step(float *s, int n, float scale, float *max, float *sum) {
    vf best = v_set1(-INFINITY), factor = v_set1(scale);
    int at = 0;
    for (; at + LANES <= n; at += LANES) {
        vf x = v_mul(v_load(s + at), factor);
        v_store(s + at, x);
        best = v_max(x, best); // drops NaN; exp brings it back
    }
    float lanes[LANES], new_max = *max;
    v_store(lanes, best);
    for (; at < n; at++) {
        s[at] *= scale;
        if (s[at] > new_max) new_max = s[at];
    }
    for (int i = 0; i < LANES; i++)
        if (lanes[i] > new_max) new_max = lanes[i];
    // While all scores are -infinity their exponentials are 0, not exp(-inf + inf).
    vf shift = v_set1(new_max == -INFINITY ? 0.0f : -new_max), total = v_zero();
    for (at = 0; at + LANES <= n; at += LANES) {
        vf p = v_exp(v_add(v_load(s + at), shift));
        v_store(s + at, p);
        total = v_add(total, p);
    }
    if (at < n) {
        vf p = v_exp(v_add(v_load_n(s + at, n - at, -INFINITY), shift));
        v_store_n(s + at, p, n - at);
        total = v_add(total, p);
    }
    float rescale = 1.0f;
    if (new_max != *max) {
        v_store(lanes, v_exp(v_set1(*max - new_max)));
        rescale = lanes[0];
    }
    *sum = *sum * rescale + v_sum(total);
    *max = new_max;
    return rescale;
}

static void relu_sum(int m, int n, const float *s, ptrdiff_t lds, const float *w, float *acc) {
    int j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES) {
        vf sum[4];
        UNROLL for (int v = 0; v < 4; v++) sum[v] = v_load(acc + j + v * LANES);
        for (int i = 0; i < m; i++) {
            vf factor = v_set1(w[i]);
            const float *row = s + i * lds + j;
            UNROLL for (int v = 0; v < 4; v++) sum[v] =
                v_fma(factor, v_max(v_zero(), v_load(row + v * LANES)), sum[v]);
        }
        UNROLL for (int v = 0; v < 4; v++) v_store(acc + j + v * LANES, sum[v]);
    }
    for (; j < n; j += LANES) {
        int count = n - j < LANES ? n - j : LANES;
        vf sum = count < LANES ? v_load_n(acc + j, count, 0) : v_load(acc + j);
        for (int i = 0; i < m; i++) {
            const float *row = s + i * lds + j;
            vf x = count < LANES ? v_load_n(row, count, 0) : v_load(row);
            sum = v_fma(v_set1(w[i]), v_max(v_zero(), x), sum);
        }
        if (count < LANES)
            v_store_n(acc + j, sum, count);
        else
            v_store(acc + j, sum);
    }
}

static void scale(float *x, size_t n, float factor) {
    for (size_t i = 0; i < n; i++) x[i] *= factor;
}

static void silu_mul(const float *gate, const float *up, float *y, size_t n) {
    for (size_t at = 0; at < n; at += LANES) {
        int count = n - at < LANES ? (int)(n - at) : LANES;
        vf a = count < LANES ? v_load_n(gate + at, count, 0) : v_load(gate + at);
        vf b = count < LANES ? v_load_n(up + at, count, 0) : v_load(up + at);
        vf e = v_exp(v_mul(a, v_set1(-1.0f)));
        vf out = v_mul(v_div(a, v_add(v_set1(1.0f), e)), b);
        if (count < LANES)
            v_store_n(y + at, out, count);
        else
            v_store(y + at, out);
    }
}

static void load(lp_type type, const void *row, float *out, size_t n) {
    if (type == LP_TYPE_F16)
        load_f16(row, out, n);
    else if (type == LP_TYPE_BF16)
        load_bf16(row, out, n);
    else if (type == LP_TYPE_Q8_0)
        load_q8_0(row, out, n);
    else if (type == LP_TYPE_F8_E4M3)
        load_f8(row, out, n);
    else
        memcpy(out, row, n * sizeof *out);
}

static void store(lp_type type, const float *in, void *row, size_t n) {
    if (type == LP_TYPE_F16)
        store_f16(in, row, n);
    else if (type == LP_TYPE_BF16)
        store_bf16(in, row, n);
    else if (type == LP_TYPE_Q8_0)
        store_q8_0(in, row, n);
    else if (type == LP_TYPE_F8_E4M3) // a loop that the compiler makes vectors of
        lp_type_info(type)->quantize(in, row, n);
    else
        memcpy(row, in, n * sizeof *in);
}

#define LP_CPU_LANES_TABLE(isa)                                                                    \
    const struct lp_cpu_lanes lp_cpu_lanes_##isa = {.name = #isa,                                  \
                                                    .mul_nt = mul_nt,                              \
                                                    .mul_nn = mul_nn,                              \
                                                    .mul_rows = mul_rows,                          \
                                                    .transpose = transpose,                        \
                                                    .softmax_step = softmax_step,                  \
                                                    .relu_sum = relu_sum,                          \
                                                    .scale = scale,                                \
                                                    .silu_mul = silu_mul,                          \
                                                    .load = load,                                  \
                                                    .store = store}
