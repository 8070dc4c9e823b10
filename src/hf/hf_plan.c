// The plan: what the config asks for (model/binding_table.c, by the hyperparameters as the engine
// will read them) against what the checkpoint holds.
#include <stdio.h>

#include "base/alloc.h"
#include "hf/hf_plan_parts.h"
#include "hf/hf_tokenizer.h"

static lp_status out_of_memory(struct lp_err *err) {
    return lp_err_memory(err, 0, "the plan of a checkpoint");
}

// ---- metadata

static void leave_mtp_out(struct lp_gguf_writer *w, struct lp_hf_model *model) {
    char key[96];
    snprintf(key, sizeof key, "%s.block_count", model->arch);
    lp_gguf_writer_u32(w, key, (uint32_t)model->n_layers);
    snprintf(key, sizeof key, "%s.nextn_predict_layers", model->arch);
    if (lp_gguf_writer_has(w, key)) lp_gguf_writer_u32(w, key, 0);
    model->n_nextn = 0;
}

// The keys of the config alone, as hyperparameters: what is absurd is found before a tensor is
// looked for, by the rules that the engine has.
static lp_status read_hparams(struct lp_hparams *h, const struct lp_hf_plan *plan,
                              const struct lp_hf_plan_options *options, struct lp_err *err) {
    struct lp_hf_model model = {0};
    struct lp_gguf *gguf = NULL;
    char key[96];
    struct lp_gguf_writer *w = lp_gguf_writer_new(3);
    if (!w) return out_of_memory(err);
    lp_status status = lp_hf_config(&model, w, &plan->folder, err);
    if (!status) {
        if (options->without_mtp) leave_mtp_out(w, &model);
        snprintf(key, sizeof key, "%s.vocab_size", model.arch);
        lp_gguf_writer_u32(w, key, (uint32_t)model.n_vocab);
        status = lp_gguf_writer_finish(w, err);
    }
    if (!status) status = lp_gguf_assemble(&gguf, w, NULL, 0, plan->folder.name, err);
    if (!status) {
        status = lp_hparams_read(h, gguf, err);
        if (status) status = lp_err_context(err, "the config.json of %s", plan->folder.name);
        h->arch = lp_arch_find(lp_str_from(model.arch));
    }
    for (int32_t l = 0; !status && l < h->n_layers && model.top_k > 0; l++)
        h->index_role[l] = !model.full || model.full[l] ? LP_INDEXER_FULL : LP_INDEXER_SHARED;
    lp_gguf_close(gguf);
    lp_gguf_writer_free(w);
    lp_hf_model_release(&model);
    return status;
}

static lp_status make_metadata(struct lp_hf_plan *plan, const struct lp_hf_plan_options *options,
                               struct lp_err *err) {
    if (!(plan->writer = lp_gguf_writer_new(3))) return out_of_memory(err);
    lp_status status = lp_hf_config(&plan->model, plan->writer, &plan->folder, err);
    if (status) return status;
    if (options->without_mtp) leave_mtp_out(plan->writer, &plan->model);
    return lp_hf_tokenizer(plan->writer, &plan->folder, &plan->model, err);
}

// ---- tensors

// The embedding first, then the blocks, the output last, as converters' files have it.
static bool is_last(const struct lp_expected *e) {
    return e->slot == LP_SLOT_OUTPUT_NORM || e->slot == LP_SLOT_OUTPUT;
}

static lp_status plan_tensors(struct lp_hf_planner *p) {
    struct lp_expected *list = NULL;
    size_t n = 0;
    lp_status status = lp_binding_possible(&list, &n, p->h, p->err);
    for (int last = 0; last < 2; last++)
        for (size_t i = 0; i < n && !status && p->n_missing < LP_HF_MOST_MISSING; i++)
            if (is_last(&list[i]) == last) status = lp_hf_plan_tensor(p, &list[i]);
    lp_free(list);
    if (!status && p->n_missing)
        status = lp_err_set(
            p->err, LP_STATUS_FORMAT,
            "%s%llu array%s of the checkpoint %s missing (%s%s); config.json asks for %s, so the "
            "folder may be incomplete",
            p->n_missing < LP_HF_MOST_MISSING ? "" : "at least ", (unsigned long long)p->n_missing,
            p->n_missing > 1 ? "s" : "", p->n_missing > 1 ? "are" : "is",
            p->missing.data ? p->missing.data : "", p->missing.failed ? ", ..." : "",
            p->n_missing > 1 ? "them" : "it");
    return status;
}

static lp_status account_for_rest(struct lp_hf_planner *p) {
    struct lp_hf_plan *plan = p->plan;
    struct lp_hf_rest rest = {.n_layers = p->h->n_layers,
                              .n_blocks = p->h->n_blocks,
                              .without_mtp = p->options->without_mtp,
                              .tied = plan->model.tied,
                              .full = plan->model.full};
    return lp_hf_arrays_rest(p->arrays, &rest, &plan->ignored, &plan->n_ignored, p->err);
}

static lp_status make_tensors(struct lp_hf_plan *plan, const struct lp_hf_plan_options *options,
                              struct lp_err *err) {
    struct lp_hf_arrays arrays = {0};
    struct lp_hparams *h = lp_alloc(1, sizeof *h);
    struct lp_hf_planner p = {.plan = plan,
                              .options = options,
                              .h = h,
                              .arrays = &arrays,
                              .missing = {.max_bytes = 600},
                              .err = err};
    lp_status status = h ? read_hparams(h, plan, options, err) : out_of_memory(err);
    if (!status) status = lp_hf_arrays_init(&arrays, &plan->folder, err);
    if (!status) status = plan_tensors(&p);
    if (!status) status = account_for_rest(&p);
    lp_bytes_release(&p.missing);
    lp_hf_arrays_release(&arrays);
    lp_free(h);
    return status;
}

lp_status lp_hf_plan_make(struct lp_hf_plan *out, const char *path,
                          const struct lp_hf_plan_options *options, struct lp_err *err) {
    *out = (struct lp_hf_plan){.for_file = options->for_file};
    lp_status status = lp_hf_folder_open(&out->folder, path, err);
    if (!status) status = make_metadata(out, options, err);
    if (!status) status = make_tensors(out, options, err);
    return status;
}

void lp_hf_plan_release(struct lp_hf_plan *plan) {
    for (uint64_t i = 0; i < plan->n_tensors; i++) {
        lp_free(plan->tensors[i].parts);
        lp_free(plan->tensors[i].types);
    }
    lp_free(plan->tensors);
    lp_free(plan->ignored);
    lp_gguf_writer_free(plan->writer);
    lp_hf_model_release(&plan->model);
    lp_hf_folder_release(&plan->folder);
    *plan = (struct lp_hf_plan){0};
}
