// A folder is described by the plan that it is opened by, with one empty place for all its tensors.
#include "engine/model_file.h"

#include <dirent.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/file.h"
#include "hf/hf.h"

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

static lp_status describe(struct lp_gguf **out, struct lp_hf_plan *plan, struct lp_err *err) {
    static const uint8_t nowhere[1] = {0};
    lp_status status = LP_OK;
    for (uint64_t i = 0; i < plan->n_tensors && !status; i++) {
        const struct lp_hf_tensor *t = &plan->tensors[i];
        status =
            lp_gguf_writer_add(plan->writer, lp_str_from(t->name),
                               t->keep_f32 ? LP_TYPE_F32 : t->source_type, t->n_dims, t->ne, err);
    }
    if (!status) status = lp_gguf_writer_finish(plan->writer, err);
    if (status) return status;
    size_t n = (size_t)plan->n_tensors + 1;
    struct lp_gguf_place *places = lp_alloc(n, sizeof *places);
    if (!places) return lp_err_memory(err, n * sizeof *places, "the folder's tensors");
    for (size_t i = 0; i < n; i++) places[i].data = nowhere;
    status =
        lp_gguf_assemble(out, plan->writer, places, lp_safetensors_file_bytes(plan->folder.weights),
                         plan->folder.path, err);
    lp_free(places);
    return status;
}

lp_status lp_model_file_describe(struct lp_model_file *out, const char *path, struct lp_err *err) {
    const struct lp_hf_plan_options options = {.fused = true};
    if (!lp_hf_is_folder(path)) return lp_model_file_open(out, path, 1, err);
    *out = (struct lp_model_file){.plan = lp_alloc(1, sizeof *out->plan)};
    if (!out->plan) return lp_err_memory(err, sizeof *out->plan, "a model folder");
    lp_status status = lp_hf_plan_make(out->plan, path, &options, err);
    if (!status) status = describe(&out->own, out->plan, err);
    if (status)
        lp_model_file_close(out);
    else
        out->gguf = out->own;
    return status;
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
