// FNV-1a, 64 bits: this tells runs apart, it defends against nobody.
#include "files/job_text.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FNV_START UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

static uint64_t add(uint64_t hash, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) hash = (hash ^ p[i]) * FNV_PRIME;
    return hash;
}

lp_status lp_job_source_hash(const struct lp_gguf *gguf, uint64_t *hash, struct lp_err *err) {
    *hash = FNV_START;
    for (uint32_t i = 0; i < lp_gguf_n_shards(gguf); i++) {
        struct stat st;
        char path[PATH_MAX];
        if (!realpath(lp_gguf_shard_path(gguf, i), path) || stat(path, &st))
            return lp_err_set(err, LP_STATUS_IO, "cannot look at %s: %s",
                              lp_gguf_shard_path(gguf, i), strerror(errno));
        const int64_t numbers[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
        *hash = add(*hash, path, strlen(path) + 1);
        *hash = add(*hash, numbers, sizeof numbers);
    }
    return LP_OK;
}

bool lp_job_text(struct lp_bytes *out, const char *command, uint64_t source_hash,
                 struct lp_str header, uint64_t n_bytes) {
    return lp_bytes_printf(
        out, "%s\nsource  %016" PRIx64 "\nheader  %016" PRIx64 "\nbytes   %" PRIu64 "\n", command,
        source_hash, add(FNV_START, header.data, header.len), n_bytes);
}
