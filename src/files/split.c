#include "files/split.h"

#include <limits.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "files/job_text.h"
#include "files/new_file.h"
#include "files/split_keys.h"

struct job {
    const struct lp_split_options *options;
    struct lp_gguf_source *source;
    struct lp_str odd_padding; // for LP_SPLIT_PADDING; empty: no key
    struct lp_split_plan plan;
    const char **inputs;
    uint64_t source_hash;
    struct lp_copy_report *report;
};

// One part while it is checked or written.
struct part {
    struct lp_gguf_writer *writer;
    struct lp_gguf_slice slice;
    struct lp_bytes path, job;
    struct lp_new_file_options file;
};

// ---- one part ----

static void set_keys(const struct job *j, struct lp_gguf_writer *w, uint32_t no, uint32_t count) {
    const struct lp_gguf *gguf = j->source->gguf;
    const char *const alignment = "general.alignment";
    const struct lp_gguf_kv *kv = lp_gguf_find(gguf, alignment);
    if (no > 0 && kv && lp_gguf_alignment(gguf, 0) != 32) lp_gguf_writer_copy(w, kv);
    lp_gguf_writer_u16(w, LP_SPLIT_NO, (uint16_t)no);
    lp_gguf_writer_u16(w, LP_SPLIT_COUNT, (uint16_t)count);
    lp_gguf_writer_i32(w, LP_SPLIT_TENSORS, (int32_t)lp_gguf_n_tensors(gguf));
    if (no == 0 && j->odd_padding.len)
        lp_gguf_writer_array(w, LP_SPLIT_PADDING, LP_GGUF_U8, j->odd_padding.data,
                             j->odd_padding.len);
}

static lp_status make_writer(const struct job *j, struct lp_gguf_writer **out, uint32_t no,
                             uint32_t count, const struct lp_split_part *what, struct lp_err *err) {
    const struct lp_gguf *gguf = j->source->gguf;
    struct lp_gguf_writer *w =
        no ? lp_gguf_writer_new(lp_gguf_version(gguf)) : lp_split_keys_writer(gguf);
    lp_status status = w ? LP_OK : lp_err_memory(err, 0, "a header");
    if (!status) set_keys(j, w, no, count);
    for (uint64_t i = 0; !status && i < what->n_tensors; i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(gguf, what->first + i);
        status = lp_gguf_writer_add(w, t->name, t->type, t->n_dims, t->ne, err);
    }
    if (!status) status = lp_gguf_writer_finish(w, err);
    *out = w;
    return status;
}

static void part_release(struct part *p) {
    lp_gguf_writer_free(p->writer);
    lp_bytes_release(&p->path);
    lp_bytes_release(&p->job);
}

static lp_status part_make(struct part *p, const struct job *j, uint32_t no, struct lp_err *err) {
    const struct lp_split_part *what = &j->plan.parts[no];
    *p = (struct part){0};
    lp_status status = make_writer(j, &p->writer, no, j->plan.n_parts, what, err);
    if (status) return status;
    p->slice = (struct lp_gguf_slice){.header = lp_gguf_writer_header(p->writer),
                                      .alignment = lp_gguf_alignment(j->source->gguf, 0),
                                      .first = what->first,
                                      .n_tensors = what->n_tensors};
    uint64_t n_bytes = lp_gguf_slice_bytes(j->source, &p->slice);
    lp_bytes_printf(&p->path, "%s-%05u-of-%05u.gguf", j->options->prefix, no + 1, j->plan.n_parts);
    if (p->path.failed ||
        !lp_job_text(&p->job, "limpid split", j->source_hash, p->slice.header, n_bytes))
        return lp_err_memory(err, 0, "the name of a part");
    p->file = (struct lp_new_file_options){.path = p->path.data,
                                           .n_bytes = n_bytes,
                                           .job = p->job.data,
                                           .inputs = j->inputs,
                                           .n_inputs = lp_gguf_n_shards(j->source->gguf),
                                           .overwrite = j->options->overwrite,
                                           .keep_state = true};
    return LP_OK;
}

// ---- all parts ----

// Of a header without tensors.
static lp_status head_bytes(const struct job *j, uint32_t no, uint64_t *n_bytes,
                            struct lp_err *err) {
    const struct lp_split_part nothing = {0};
    struct lp_gguf_writer *w;
    lp_status status = make_writer(j, &w, no, 1, &nothing, err);
    *n_bytes = status ? 0 : lp_gguf_writer_header(w).len;
    lp_gguf_writer_free(w);
    return status;
}

static lp_status make_plan(struct job *j, struct lp_err *err) {
    uint64_t first, later = 0;
    lp_status status = head_bytes(j, 0, &first, err);
    if (!status) status = head_bytes(j, 1, &later, err);
    if (status) return status;
    return lp_split_plan_make(&j->plan, j->source->gguf, &j->options->limits, first, later, err);
}

static lp_status check_room(const struct job *j, const char *path, struct lp_err *err) {
    char what[PATH_MAX];
    snprintf(what, sizeof what, "%s-*.gguf, all %u parts together", j->options->prefix,
             j->plan.n_parts);
    return lp_new_file_room(path, what, j->report->n_bytes - j->report->n_before, err);
}

// Whether each part can be written; what they take together, and what is there of it.
static lp_status check_parts(struct job *j, struct lp_err *err) {
    struct lp_copy_report *r = j->report;
    lp_status status = LP_OK;
    for (uint32_t no = 0; !status && no < j->plan.n_parts; no++) {
        struct part p;
        uint64_t done = 0;
        status = part_make(&p, j, no, err);
        if (!status) status = lp_new_file_check(&p.file, &done, err);
        r->n_bytes += p.file.n_bytes;
        r->n_before += done;
        if (!status && no + 1 == j->plan.n_parts) status = check_room(j, p.file.path, err);
        part_release(&p);
    }
    return status;
}

static lp_status write_part(struct job *j, uint32_t no, struct lp_progress *bar, uint64_t *base,
                            struct lp_err *err) {
    struct part p;
    struct lp_new_file *f = NULL;
    uint64_t done;
    lp_status status = part_make(&p, j, no, err);
    if (!status) status = lp_new_file_open(&f, &p.file, &done, err);
    if (!status) status = lp_gguf_slice_write(j->source, &p.slice, f, done, bar, *base, err);
    if (!status) status = lp_new_file_finish(f, err);
    lp_new_file_close(f);
    *base += p.file.n_bytes;
    part_release(&p);
    return status;
}

static lp_status write_parts(struct job *j, struct lp_err *err) {
    struct lp_progress bar;
    uint64_t base = 0;
    lp_status status = LP_OK;
    lp_progress_init(&bar, "splitting", j->report->n_bytes);
    lp_progress_resume(&bar, j->report->n_before);
    for (uint32_t no = 0; !status && no < j->plan.n_parts; no++)
        status = write_part(j, no, &bar, &base, err);
    lp_progress_finish(&bar);
    return status;
}

static void forget_states(const struct job *j) {
    for (uint32_t no = j->plan.n_parts; no-- > 0;) {
        struct lp_bytes path = {0};
        lp_bytes_printf(&path, "%s-%05u-of-%05u.gguf", j->options->prefix, no + 1, j->plan.n_parts);
        if (!path.failed) lp_new_file_forget(path.data);
        lp_bytes_release(&path);
    }
}

static lp_status split_source(struct job *j, struct lp_err *err) {
    const struct lp_gguf *gguf = j->source->gguf;
    struct lp_merged_header whole;
    lp_status status = lp_merged_header_make(&whole, j->source, err);
    if (!status && whole.odd_padding)
        j->odd_padding = whole.padding;
    else
        lp_merged_header_release(&whole);
    j->inputs = lp_gguf_source_paths(gguf);
    if (!status && !j->inputs) status = lp_err_memory(err, 0, "the names of the parts");
    if (!status) status = lp_job_source_hash(gguf, &j->source_hash, err);
    if (!status) status = make_plan(j, err);
    if (!status) status = check_parts(j, err);
    if (!status) status = write_parts(j, err);
    if (!status) forget_states(j);
    j->report->n_tensors = lp_gguf_n_tensors(gguf);
    j->report->n_parts = j->plan.n_parts;
    lp_split_plan_release(&j->plan);
    lp_free(j->inputs);
    lp_merged_header_release(&whole);
    return status;
}

lp_status lp_split(const struct lp_split_options *options, struct lp_copy_report *report,
                   struct lp_err *err) {
    struct lp_gguf *gguf;
    struct lp_gguf_source source = {0};
    uint64_t start = lp_clock_ns();
    *report = (struct lp_copy_report){0};
    lp_status status = lp_gguf_open(&gguf, options->input, err);
    if (status) return status;
    status = lp_gguf_source_open(&source, gguf, err);
    if (!status) status = lp_split_keys_compare(gguf, err);
    struct job j = {.options = options, .source = &source, .report = report};
    if (!status) status = split_source(&j, err);
    lp_gguf_source_close(&source);
    lp_gguf_close(gguf);
    report->seconds = (double)(lp_clock_ns() - start) * 1e-9;
    return status;
}
