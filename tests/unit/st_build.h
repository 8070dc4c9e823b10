// A folder of arrays in memory: what a test needs to ask for matrices of a checkpoint.
#ifndef ST_BUILD_H
#define ST_BUILD_H

#include "lp_test.h"

#include "hf/hf_folder.h"

struct st_build {
    struct lp_bytes header, data, file;
    struct lp_hf_folder folder;
};

// shape: as in JSON, "[2, 3]"
static inline void st_add(struct st_build *b, const char *name, const char *dtype,
                          const char *shape, const void *data, size_t n) {
    lp_bytes_printf(&b->header,
                    "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                    b->header.len ? "," : "{", name, dtype, shape, b->data.len, b->data.len + n);
    lp_bytes_append(&b->data, data, n);
}

// config: the text of config.json
static inline const struct lp_hf_folder *st_finish(struct st_build *b, const char *config) {
    struct lp_err err;
    lp_bytes_puts(&b->header, "}");
    uint64_t n = b->header.len;
    lp_bytes_append(&b->file, &n, sizeof n);
    lp_bytes_append(&b->file, b->header.data, b->header.len);
    lp_bytes_append(&b->file, b->data.data, b->data.len);
    b->folder.config = json_loads(config, 0, NULL);
    assert_non_null(b->folder.config);
    if (lp_safetensors_parse(&b->folder.weights, b->file.data, b->file.len, "test", &err))
        fail_msg("%s", err.text);
    return &b->folder;
}

static inline void st_release(struct st_build *b) {
    lp_hf_folder_release(&b->folder);
    lp_bytes_release(&b->header);
    lp_bytes_release(&b->data);
    lp_bytes_release(&b->file);
}

#endif
