// The top-k of the indexer, by histograms (cpu_index_choose.h).
#include "backend/cpu/cpu_index_choose.h"

#include <math.h>
#include <string.h>

// A score as an integer of the same order: -inf .. -0 = 0 .. +inf, then NaN.
static uint32_t rank_of(float score) {
    uint32_t bits;
    if (isnan(score)) return UINT32_MAX;
    score += 0.0f; // -0 becomes 0: they are equal
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The k-th largest rank of n > k scores; *n_equal = how many of that rank are among the k.
static uint32_t find_threshold(const float *scores, int64_t n, int64_t k, int64_t *n_equal) {
    static const int shifts[] = {21, 10, 0}, widths[] = {11, 11, 10};
    uint32_t known = 0, known_mask = 0;
    int64_t left = k;
    for (int pass = 0; pass < 3; pass++) {
        uint32_t counts[2048] = {0}, digit_mask = (1u << widths[pass]) - 1, digit = digit_mask;
        for (int64_t i = 0; i < n; i++) {
            uint32_t rank = rank_of(scores[i]);
            if ((rank & known_mask) == known) counts[(rank >> shifts[pass]) & digit_mask]++;
        }
        for (; counts[digit] < left; digit--) left -= counts[digit];
        known |= digit << shifts[pass];
        known_mask |= digit_mask << shifts[pass];
    }
    *n_equal = left;
    return known;
}

void lp_cpu_index_best(const float *scores, int64_t n, int64_t k, int32_t *ids) {
    int64_t n_equal, n_ids = 0;
    uint32_t threshold = find_threshold(scores, n, k, &n_equal);
    for (int64_t i = 0; i < n && n_ids < k; i++) {
        uint32_t rank = rank_of(scores[i]);
        if (rank > threshold || (rank == threshold && n_equal-- > 0)) ids[n_ids++] = (int32_t)i;
    }
}

#define N_BUCKETS 2048

void lp_cpu_index_bounds(const float *scores, int64_t n, int64_t k, float least, float most,
                         float *low, float *high) {
    uint32_t counts[4][N_BUCKETS] = {{0}}; // four, so that equal neighbours do not wait
    double step = ((double)most - least) / N_BUCKETS;
    const float inverse = (float)(1 / step);
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int c = 0; c < 4; c++) {
            int bucket = (int)((scores[i + c] - least) * inverse);
            counts[c][bucket < N_BUCKETS ? bucket : N_BUCKETS - 1]++;
        }
    for (; i < n; i++) {
        int bucket = (int)((scores[i] - least) * inverse);
        counts[0][bucket < N_BUCKETS ? bucket : N_BUCKETS - 1]++;
    }
    int bucket = N_BUCKETS;
    for (int64_t above = 0; above < k && bucket > 0;) {
        bucket--;
        for (int c = 0; c < 4; c++) above += counts[c][bucket];
    }
    // A bucket more on each side for the rounding of the division.
    *low = (float)(least + step * (bucket - 1));
    *high = (float)(least + step * (bucket + 2));
}

void lp_cpu_index_merge(int32_t *ids, int64_t n_sure, const int32_t *more, int64_t n_more) {
    for (int64_t to = n_sure + n_more; n_more > 0;) // from the end, so that nothing is overwritten
        ids[--to] =
            n_sure > 0 && ids[n_sure - 1] > more[n_more - 1] ? ids[--n_sure] : more[--n_more];
}
