#include "model/expert_profile.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/file.h"

#define MAGIC "LPEXPROF"
#define VERSION 1u
#define HEAD_BYTES 24 // magic, version, n_items, identity
#define SUM_BYTES 8

// FNV-1a of 64 bits: enough to know a file that was damaged, and a model by its directory.
#define SUM_START 0xcbf29ce484222325u
static uint64_t add_bytes(uint64_t sum, const void *data, size_t n) {
    const uint8_t *bytes = data;
    for (size_t i = 0; i < n; i++) sum = (sum ^ bytes[i]) * 0x100000001b3u;
    return sum;
}

static bool is_router(struct lp_str name) {
    static const char end[] = ".ffn_gate_inp.weight";
    size_t n = sizeof end - 1;
    return name.len > n && memcmp(name.data + name.len - n, end, n) == 0;
}

uint64_t lp_expert_profile_identity(const struct lp_gguf *gguf) {
    uint64_t sum = SUM_START;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(gguf, i);
        uint64_t numbers[] = {(uint64_t)t->type, t->ne[0],   t->ne[1],      t->ne[2],
                              t->ne[3],          t->n_bytes, t->file_offset};
        sum = add_bytes(sum, t->name.data, t->name.len);
        sum = add_bytes(sum, numbers, sizeof numbers);
        if (is_router(t->name) && t->data) sum = add_bytes(sum, t->data, (size_t)t->n_bytes);
    }
    return sum;
}

static lp_status unpack(const uint8_t *data, size_t n_bytes, uint64_t identity, uint32_t n_items,
                        float *counts) {
    uint32_t numbers[2];
    uint64_t id, sum, want = HEAD_BYTES + (uint64_t)n_items * sizeof *counts + SUM_BYTES;
    if (n_bytes != want || memcmp(data, MAGIC, 8) != 0) return LP_STATUS_FORMAT;
    memcpy(numbers, data + 8, sizeof numbers);
    memcpy(&id, data + 16, sizeof id);
    memcpy(&sum, data + n_bytes - SUM_BYTES, sizeof sum);
    if (numbers[0] != VERSION || numbers[1] != n_items || id != identity ||
        sum != add_bytes(SUM_START, data, n_bytes - SUM_BYTES))
        return LP_STATUS_FORMAT;
    memcpy(counts, data + HEAD_BYTES, n_items * sizeof *counts);
    for (uint32_t i = 0; i < n_items; i++)
        if (!(counts[i] >= 0) || isinf(counts[i])) return LP_STATUS_FORMAT;
    return LP_OK;
}

lp_status lp_expert_profile_read(const char *path, uint64_t identity, uint32_t n_items,
                                 float *counts, bool *missing, struct lp_err *err) {
    char *data = NULL;
    size_t n_bytes = 0;
    *missing = access(path, F_OK) != 0 && errno == ENOENT;
    if (*missing) return lp_err_set(err, LP_STATUS_IO, "there is no %s", path);
    lp_status status =
        lp_file_read(path, HEAD_BYTES + (uint64_t)n_items * 4 + SUM_BYTES, &data, &n_bytes, err);
    if (status) return status;
    status = unpack((const uint8_t *)data, n_bytes, identity, n_items, counts);
    lp_free(data);
    if (!status) return LP_OK;
    return lp_err_set(err, status,
                      "%s is damaged, or no expert profile of this model; it is not used", path);
}

static bool write_all(int fd, const char *data, size_t n) {
    while (n > 0) {
        ssize_t done = write(fd, data, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        data += done;
        n -= (size_t)done;
    }
    return fsync(fd) == 0;
}

// The bytes under a name of this process, then the name that was asked for.
static lp_status place(const char *path, const struct lp_bytes *file, struct lp_err *err) {
    struct lp_bytes draft = {0};
    if (!lp_bytes_printf(&draft, "%s.%ld.part", path, (long)getpid()))
        return lp_err_memory(err, strlen(path), "a path");
    int fd = open(draft.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool ok = fd >= 0 && write_all(fd, file->data, file->len);
    int error = errno;
    if (fd >= 0 && close(fd) != 0 && ok) {
        ok = false;
        error = errno;
    }
    if (ok && rename(draft.data, path) != 0) {
        ok = false;
        error = errno;
    }
    if (!ok && fd >= 0) unlink(draft.data);
    lp_bytes_release(&draft);
    if (ok) return LP_OK;
    return lp_err_set(err, LP_STATUS_IO, "cannot write %s: %s", path, strerror(error));
}

lp_status lp_expert_profile_write(const char *path, uint64_t identity, uint32_t n_items,
                                  const float *counts, struct lp_err *err) {
    struct lp_bytes file = {0};
    uint32_t numbers[] = {VERSION, n_items};
    lp_bytes_append(&file, MAGIC, 8);
    lp_bytes_append(&file, numbers, sizeof numbers);
    lp_bytes_append(&file, &identity, sizeof identity);
    lp_bytes_append(&file, counts, n_items * sizeof *counts);
    uint64_t sum = add_bytes(SUM_START, file.data, file.failed ? 0 : file.len);
    lp_bytes_append(&file, &sum, sizeof sum);
    lp_status status = file.failed ? lp_err_memory(err, n_items * sizeof *counts, "a profile")
                                   : place(path, &file, err);
    lp_bytes_release(&file);
    return status;
}
