// The top-k of scores, for the indexer (cpu_indexer.c).
#ifndef LP_CPU_INDEX_CHOOSE_H
#define LP_CPU_INDEX_CHOOSE_H

#include <stdint.h>

// The indices of the k < n best, ascending; ties: lower index; NaN ranks above all. No sorting: the
// k-th largest is found by three passes of histograms over the scores' bits.
void lp_cpu_index_best(const float *scores, int64_t n, int64_t k, int32_t *ids);

// Bounds of the k-th largest of n > k scores, all between least and most, whose difference is finite
// and at least LP_CPU_INDEX_MIN_RANGE (of less, buckets per unit leave float32): one histogram, so
// *low < *high are about three 2,048ths of the range apart.
#define LP_CPU_INDEX_MIN_RANGE 1e-30f
void lp_cpu_index_bounds(const float *scores, int64_t n, int64_t k, float least, float most,
                         float *low, float *high);

// ids[0 .. n_sure - 1] (ascending) takes up n_more others from more (ascending), in order.
void lp_cpu_index_merge(int32_t *ids, int64_t n_sure, const int32_t *more, int64_t n_more);

#endif
