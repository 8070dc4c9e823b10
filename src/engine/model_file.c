#include "engine/model_file.h"

#include <dirent.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/system_memory.h"
#include "gguf/gguf_prefetch.h"
#include "hf/hf.h"
#include "model/model.h"

lp_status lp_model_file_open(struct lp_model_file *out, const char *path, int n_threads,
                             struct lp_err *err) {
    *out = (struct lp_model_file){0};
    lp_status status = lp_hf_is_folder(path) ? lp_hf_open(&out->hf, path, n_threads, err)
                                             : lp_gguf_open(&out->own, path, err);
    if (status)
        *out = (struct lp_model_file){0};
    else
        out->gguf = out->hf ? lp_hf_gguf(out->hf) : out->own;
    return status;
}

lp_status lp_model_file_describe(struct lp_model_file *out, const char *path, struct lp_err *err) {
    const struct lp_hf_plan_options options = {.fused = true};
    if (!lp_hf_is_folder(path)) return lp_model_file_open(out, path, 1, err);
    *out = (struct lp_model_file){.plan = lp_alloc(1, sizeof *out->plan)};
    if (!out->plan) return lp_err_memory(err, sizeof *out->plan, "a model folder");
    lp_status status = lp_hf_plan_make(out->plan, path, &options, err);
    if (!status) status = lp_hf_describe(&out->own, out->plan, err);
    if (status)
        lp_model_file_close(out);
    else
        out->gguf = out->own;
    return status;
}

static struct lp_gguf_prefetch_options prefetch_options(bool huge_pages, uint64_t available) {
    return (struct lp_gguf_prefetch_options){.huge_pages = huge_pages,
                                             .available_bytes = available ? available : UINT64_MAX};
}

lp_status lp_model_file_read_ahead(struct lp_model_file *file, struct lp_model *model,
                                   bool huge_pages, uint64_t available, struct lp_err *err) {
    const struct lp_gguf_prefetch_options options = prefetch_options(huge_pages, available);
    if (!model->dev->backend->host_memory)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "prefetch is for ranks on CPUs: a GPU's weights are read once, as they "
                          "are copied to it; leave --prefetch out");
    return lp_model_read_ahead(model, file->own, &options, err);
}

lp_status lp_model_file_prefetch(struct lp_model_file *file, bool huge_pages, struct lp_err *err) {
    const struct lp_gguf_prefetch_options options =
        prefetch_options(huge_pages, lp_memory_available());
    if (!file->own || file->plan)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "a model folder cannot be read ahead; convert it to a GGUF file first "
                          "(limpid convert), or leave --prefetch out");
    return lp_gguf_prefetch(file->own, &options, err);
}

void lp_model_file_close(struct lp_model_file *file) {
    if (file->plan) lp_hf_plan_release(file->plan);
    lp_free(file->plan);
    lp_hf_close(file->hf);
    lp_gguf_close(file->own);
    *file = (struct lp_model_file){0};
}

bool lp_model_file_holds(const char *model, const char *path) {
    bool same = lp_file_is_same(model, path);
    DIR *folder = path ? opendir(model) : NULL;
    for (struct dirent *entry; folder && !same && (entry = readdir(folder));) {
        struct lp_bytes file = {0};
        if (lp_bytes_printf(&file, "%s/%s", model, entry->d_name))
            same = lp_file_is_same(file.data, path);
        lp_bytes_release(&file);
    }
    if (folder) closedir(folder);
    return same;
}
