// The part of rank 1 and up in rank 0's examination.
#include "doctor/ranks_exam.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/workers.h"

struct attendance {
    struct lp_ranks_request request;
    struct lp_doctor_options options;
    struct lp_exam *exam;
    struct lp_ranks_run run;
};

// What is wrong with a file that can be opened is rank 0's to say, which has the same one.
static lp_status open_here(struct attendance *a, struct lp_err *err) {
    struct lp_exam *exam = a->exam;
    lp_status status = lp_exam_open_devices(exam, err);
    if (!status) status = lp_check_file(exam, err);
    if (!status && !exam->bound)
        return lp_err_set(err, LP_STATUS_FORMAT, "%s",
                          exam->report->n_faults ? exam->report->faults[0].advice
                                                 : "the file cannot be opened");
    if (!status) status = lp_exam_open_labs(exam, err);
    if (!status && !exam->fast_lab)
        return lp_err_set(err, LP_STATUS_FORMAT, "%s",
                          exam->report->n_faults ? exam->report->faults[0].advice
                                                 : "the model cannot be run");
    return status;
}

static lp_status send_hashes(struct attendance *a, limpid_ranks *ranks, struct lp_err *err) {
    const size_t n = lp_gguf_n_tensors(a->exam->gguf);
    uint64_t *hashes = lp_alloc(n, sizeof *hashes);
    lp_status status = hashes ? LP_OK : lp_err_memory(err, n * sizeof *hashes, "hashes of tensors");
    if (hashes) lp_ranks_hash(a->exam, hashes);
    const uint64_t size = n;
    status = lp_ranks_agree(ranks, status, err);
    if (!status) lp_comm_collect(ranks->comm, &size, sizeof size, NULL);
    if (!status) status = lp_ranks_agree(ranks, LP_OK, err); // whether all have as many
    if (!status) lp_comm_collect(ranks->comm, hashes, n * sizeof *hashes, NULL);
    if (!status) status = lp_ranks_agree(ranks, LP_OK, err); // whether they are the same
    lp_free(hashes);
    return status;
}

static lp_status check_kernels(struct attendance *a, limpid_ranks *ranks, struct lp_err *err) {
    const struct lp_report *report = a->exam->report;
    struct lp_ranks_figures *x = &a->run.figures;
    const size_t n_checks = report->n_checks, n_faults = report->n_faults;
    lp_status status = lp_check_kernels(a->exam, err);
    for (size_t i = n_checks; i < report->n_checks; i++) {
        x->n_kernels += report->checks[i].outcome != LP_CHECK_SKIPPED;
        x->n_wrong_kernels += report->checks[i].outcome == LP_CHECK_FAULT;
    }
    if (report->n_faults > n_faults)
        snprintf(x->kernel, sizeof x->kernel, "%.*s", (int)sizeof x->kernel - 1,
                 report->faults[n_faults].advice);
    return lp_ranks_agree(ranks, status, err);
}

static void send_streams(const struct lp_ranks_run *run) {
    const struct lp_hparams *h = &run->model->h;
    const size_t n = (size_t)(lp_ranks_exam_tokens(h) * h->n_embd);
    for (int32_t l = 0; l <= h->n_layers; l++)
        lp_comm_collect(run->ranks->comm, run->streams + (size_t)l * n, n * sizeof(float), NULL);
}

static lp_status attend_alone(struct attendance *a, limpid_ranks *ranks, struct lp_err *err) {
    struct lp_ranks_run *run = &a->run;
    lp_status status = lp_ranks_agree(ranks, open_here(a, err), err);
    if (!status) status = send_hashes(a, ranks, err);
    if (!status) status = check_kernels(a, ranks, err);
    if (!status) lp_comm_collect(ranks->comm, &run->figures, sizeof run->figures, NULL);
    return status;
}

static lp_status attend_together(struct lp_ranks_run *run, limpid_ranks *ranks,
                                 struct lp_err *err) {
    lp_status status = lp_ranks_run_open(run, err);
    if (status) return status; // on all
    status = lp_ranks_run_operations(run, err);
    if (status == LP_STATUS_UNSUPPORTED) status = LP_OK; // of a GPU: not one by one
    status = lp_ranks_agree(ranks, status, err);
    if (status) return status;
    lp_comm_collect(ranks->comm, &run->figures, sizeof run->figures, NULL);
    status = lp_ranks_agree(ranks, lp_ranks_run_streams(run, err), err);
    if (!status) send_streams(run);
    return status;
}

void lp_ranks_attend(limpid_ranks *ranks, struct lp_order_reader *from) {
    struct attendance a = {0};
    struct lp_err err = {0};
    const bool same = from->n == sizeof a.request;
    lp_order_get(from, &a.request, sizeof a.request);
    if (!same) {
        lp_ranks_agree(ranks,
                       lp_err_set(&err, LP_STATUS_UNSUPPORTED,
                                  "this is another build of limpid than rank 0's; start the same "
                                  "on all hosts"),
                       &err);
        return;
    }
    const struct lp_ranks_request *q = &a.request;
    a.options = (struct lp_doctor_options){
        .path = q->path,
        .backend = q->backend[0] ? q->backend : NULL,
        .cpu_level = q->cpu_level[0] ? q->cpu_level : NULL,
        .n_threads = q->n_threads ? q->n_threads : lp_ranks_threads(ranks, lp_cpu_count()),
        .quick = q->quick != 0,
        .ranks = ranks,
        .pipeline = q->pipeline,
        .shard_experts = (enum lp_shard_experts)q->shard_experts,
        .rank_limit_s = q->limit_s};
    lp_comm_set_limit(ranks->comm, q->limit_s);
    lp_log_mute(true); // what the file is warned of is in rank 0's report
    a.exam = lp_alloc(1, sizeof *a.exam);
    struct lp_report *report = lp_report_new(q->path, a.options.quick);
    if (a.exam && report) {
        a.exam->options = &a.options;
        a.exam->report = report;
        a.run = (struct lp_ranks_run){.exam = a.exam, .ranks = ranks};
        if (!attend_alone(&a, ranks, &err)) attend_together(&a.run, ranks, &err);
        lp_ranks_run_release(&a.run);
        lp_exam_free(a.exam);
    } else {
        lp_ranks_agree(ranks, lp_err_memory(&err, sizeof *a.exam, "the examination"), &err);
        lp_free(a.exam);
    }
    lp_report_free(report);
    lp_log_mute(false);
}
