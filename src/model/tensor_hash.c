#include "model/tensor_hash.h"

#include <xxhash.h>

#define SAMPLE_BYTES 256

// Pieces lie in one matrix each, where these have places of their own.
static uint64_t hash_bytes(uint64_t seed, const struct lp_gguf_tensor *t, uint64_t step,
                           uint64_t piece) {
    const uint64_t mat_bytes = t->mats ? t->n_bytes / t->ne[2] : t->n_bytes;
    for (uint64_t at = 0; at < t->n_bytes; at += step) {
        const uint64_t left = mat_bytes - at % mat_bytes;
        const uint8_t *data = t->mats ? t->mats[at / mat_bytes] : t->data;
        seed = XXH3_64bits_withSeed(data + at % mat_bytes, left < piece ? left : piece, seed);
    }
    return seed;
}

uint64_t lp_tensor_hash(const struct lp_gguf_tensor *t, uint64_t whole_bytes, int n_samples) {
    const uint32_t type = (uint32_t)t->type;
    const bool has_bytes = t->data || t->mats;
    uint64_t hash = XXH3_64bits(t->name.data, t->name.len);
    hash = XXH3_64bits_withSeed(&type, sizeof type, hash);
    hash = XXH3_64bits_withSeed(t->ne, sizeof t->ne, hash);
    if (!has_bytes || t->n_bytes == 0) return hash;
    const uint64_t mat_bytes = t->mats ? t->n_bytes / t->ne[2] : t->n_bytes;
    if (t->n_bytes <= whole_bytes) return hash_bytes(hash, t, mat_bytes, mat_bytes);
    if (n_samples <= 0) return hash;
    return hash_bytes(hash, t, t->n_bytes / (uint64_t)n_samples + 1, SAMPLE_BYTES);
}
