// What a tensor of a file is, as a number: its name, type, shape and bytes.
#ifndef LP_MODEL_TENSOR_HASH_H
#define LP_MODEL_TENSOR_HASH_H

#include "gguf/gguf.h"

// All bytes count of a tensor of at most whole_bytes. Of a larger one n_samples pieces do: reading all
// of a 400 GB file takes minutes, and files that differ differ nearly everywhere.
uint64_t lp_tensor_hash(const struct lp_gguf_tensor *tensor, uint64_t whole_bytes, int n_samples);

#endif
