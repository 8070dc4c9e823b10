// A vocabulary of any size for a model with random weights: byte-level BPE whose every merge makes
// a token of the vocabulary, with the special tokens of GLM at its end.
#ifndef LP_FILES_SYNTH_TEXT_H
#define LP_FILES_SYNTH_TEXT_H

#include "gguf/gguf_write.h"

#define LP_SYNTH_MIN_VOCAB 320     // bytes, special tokens, and some merges
#define LP_SYNTH_MAX_VOCAB 1048576 // four times the largest known; words that are new get rare

// Sets the tokenizer.* keys: n_vocab tokens, within these bounds; equal seeds give equal ones.
// Errors: INVALID, MEMORY.
lp_status lp_synth_text(struct lp_gguf_writer *w, int64_t n_vocab, uint64_t seed,
                        struct lp_err *err);

#endif
