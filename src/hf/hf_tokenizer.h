// tokenizer.json (or tiktoken.model), tokenizer_config.json and the chat template -> the
// tokenizer.* keys of GGUF. The pre-tokenizer is recognised by its regular expressions, never by
// the model's name; one that limpid does not have refuses the folder and prints the expressions.
#ifndef LP_HF_HF_TOKENIZER_H
#define LP_HF_HF_TOKENIZER_H

#include "hf/hf_config.h"

// Of the model n_vocab counts, the rows of the embedding: ids past the tokenizer's get padding
// tokens "[PAD<id>]" of type unused, as the usual converter names them. Weights are not needed.
// What GGUF cannot say is a warning in the log. Errors: FORMAT, UNSUPPORTED, LIMIT, MEMORY.
lp_status lp_hf_tokenizer(struct lp_gguf_writer *w, const struct lp_hf_folder *folder,
                          const struct lp_hf_model *model, struct lp_err *err);

#endif
