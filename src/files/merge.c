#include "files/merge.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "files/job_text.h"
#include "files/new_file.h"
#include "files/split_keys.h"

static lp_status check_is_set(const struct lp_gguf *gguf, struct lp_err *err) {
    if (lp_gguf_n_shards(gguf) > 1 || lp_split_keys_any(gguf)) return LP_OK;
    return lp_err_set(err, LP_STATUS_INVALID,
                      "%s is no part of a split set (it has no split.count): there is nothing to "
                      "merge, it can be used as it is",
                      lp_gguf_shard_path(gguf, 0));
}

static lp_status make_job(struct lp_bytes *job, const struct lp_gguf *gguf, struct lp_str header,
                          uint64_t n_bytes, struct lp_err *err) {
    uint64_t hash;
    lp_status status = lp_job_source_hash(gguf, &hash, err);
    if (status) return status;
    return lp_job_text(job, "limpid merge", hash, header, n_bytes) ? LP_OK
                                                                   : lp_err_memory(err, 0, "a job");
}

static lp_status write_file(struct lp_gguf_source *s, const struct lp_gguf_slice *slice,
                            const struct lp_new_file_options *options,
                            struct lp_copy_report *report, struct lp_err *err) {
    struct lp_new_file *f;
    struct lp_progress bar;
    lp_status status = lp_new_file_open(&f, options, &report->n_before, err);
    if (status) return status;
    lp_progress_init(&bar, "merging", options->n_bytes);
    lp_progress_resume(&bar, report->n_before);
    status = lp_gguf_slice_write(s, slice, f, report->n_before, &bar, 0, err);
    lp_progress_finish(&bar);
    if (!status) status = lp_new_file_finish(f, err);
    lp_new_file_close(f);
    return status;
}

static lp_status merge_source(struct lp_gguf_source *s, const struct lp_merge_options *o,
                              struct lp_copy_report *report, struct lp_err *err) {
    const struct lp_gguf *gguf = s->gguf;
    struct lp_merged_header head = {0};
    struct lp_bytes job = {0};
    const char **inputs = NULL;
    lp_status status = lp_merged_header_make(&head, s, err);
    struct lp_gguf_slice slice = {.header = head.header,
                                  .padding = head.padding,
                                  .alignment = lp_gguf_alignment(gguf, 0),
                                  .n_tensors = lp_gguf_n_tensors(gguf)};
    if (status) goto out;
    uint64_t n_bytes = lp_gguf_slice_bytes(s, &slice);
    status = make_job(&job, gguf, head.header, n_bytes, err);
    if (status) goto out;
    inputs = lp_gguf_source_paths(gguf);
    if (!inputs) {
        status = lp_err_memory(err, 0, "the names of the parts");
        goto out;
    }
    const struct lp_new_file_options file = {.path = o->output,
                                             .n_bytes = n_bytes,
                                             .job = job.data,
                                             .inputs = inputs,
                                             .n_inputs = lp_gguf_n_shards(gguf),
                                             .overwrite = o->overwrite};
    *report = (struct lp_copy_report){
        .n_tensors = slice.n_tensors, .n_bytes = n_bytes, .n_parts = lp_gguf_n_shards(gguf)};
    status = write_file(s, &slice, &file, report, err);
out:
    lp_free(inputs);
    lp_bytes_release(&job);
    lp_merged_header_release(&head);
    return status;
}

lp_status lp_merge(const struct lp_merge_options *options, struct lp_copy_report *report,
                   struct lp_err *err) {
    struct lp_gguf *gguf;
    struct lp_gguf_source source = {0};
    uint64_t start = lp_clock_ns();
    lp_status status = lp_gguf_open(&gguf, options->input, err);
    if (status) return status;
    status = check_is_set(gguf, err);
    if (!status) status = lp_gguf_source_open(&source, gguf, err);
    if (!status) status = lp_split_keys_compare(gguf, err);
    if (!status) status = merge_source(&source, options, report, err);
    lp_gguf_source_close(&source);
    lp_gguf_close(gguf);
    report->seconds = (double)(lp_clock_ns() - start) * 1e-9;
    return status;
}
