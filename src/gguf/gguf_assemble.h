// A GGUF that is in no file: the header of a writer, and tensor data that lies wherever it is (in
// mapped files of another format, or in memory). Everything that reads an lp_gguf reads this one.
#ifndef LP_GGUF_GGUF_ASSEMBLE_H
#define LP_GGUF_GGUF_ASSEMBLE_H

#include "gguf/gguf_write.h"

struct lp_gguf_place {
    const uint8_t *data;        // all of the tensor, in one piece; or NULL and
    const uint8_t *const *mats; // [ne[2]], its matrices (ne[0] x ne[1]) one by one; the array must
                                // outlive the result too
    bool in_memory;             // the data was put together in memory
};

// `writer` has finished; its header is copied. `places`: one for each tensor (NULL where there are
// none), whose bytes outlive the result. `name` is what messages and lp_gguf_shard_path call it;
// lp_gguf_file_bytes is n_source_bytes. Tensors of types that no file has (LP_TYPE_F8_E4M3) are
// allowed here. Errors: as lp_gguf_parse.
lp_status lp_gguf_assemble(struct lp_gguf **out, const struct lp_gguf_writer *writer,
                           const struct lp_gguf_place *places, uint64_t n_source_bytes,
                           const char *name, struct lp_err *err);

#endif
