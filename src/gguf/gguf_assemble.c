#include "gguf/gguf_assemble.h"

#include "gguf/gguf_parts.h"

static lp_status place(struct lp_gguf *gguf, const struct lp_gguf_place *places,
                       struct lp_err *err) {
    for (uint64_t i = 0; i < gguf->n_tensors; i++) {
        struct lp_gguf_tensor *t = &gguf->tensors[i];
        t->data = places[i].data;
        t->mats = places[i].mats;
        t->in_memory = places[i].in_memory;
        t->file_offset = 0;
        if ((t->data == NULL) == (t->mats == NULL))
            return lp_err_set(err, LP_STATUS_INVALID,
                              "tensor %.*s needs either data or a list of matrices",
                              LP_STR_ARGS(t->name));
    }
    return LP_OK;
}

lp_status lp_gguf_assemble(struct lp_gguf **out, const struct lp_gguf_writer *writer,
                           const struct lp_gguf_place *places, uint64_t n_source_bytes,
                           const char *name, struct lp_err *err) {
    *out = NULL;
    struct lp_gguf *gguf = lp_gguf_shards_new(name, err);
    if (!gguf) return LP_STATUS_MEMORY;
    struct lp_gguf_part *part = &gguf->parts[0];
    struct lp_str header = lp_gguf_writer_header(writer);
    part->header_only = true;
    part->image = lp_strndup(header.data, header.len);
    part->data = (const uint8_t *)part->image;
    part->n_bytes = header.len;
    lp_status status = part->image ? LP_OK : lp_err_memory(err, header.len, "the header");
    if (!status) status = lp_gguf_read_metadata(part, err);
    if (!status) status = lp_gguf_tensors_read(gguf, 0, err);
    if (!status) status = place(gguf, places, err);
    part->n_bytes = n_source_bytes;
    if (status)
        lp_gguf_close(gguf);
    else
        *out = gguf;
    return status;
}
