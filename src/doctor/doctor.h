// limpid doctor: says why a model talks garbage.
//
// It looks in the order in which a person would exclude causes, and every stage may rely on those
// before it: is the file whole and every name bound; are the weights sane; do the kernels decode
// and multiply them as the definitions say; does the text become the right tokens; does every
// operation of every layer do what its definition says; do the forms of attention agree; does a
// prompt in chunks, behind a cached prefix or beside others give what it gives whole; does the
// indexer find the keys that matter; is what comes out the speech of a healthy model
// (docs/doctor.md).
#ifndef LP_DOCTOR_DOCTOR_H
#define LP_DOCTOR_DOCTOR_H

#include "dist/sharding.h"
#include "doctor/report.h"
#include "limpid.h"

struct lp_doctor_options {
    const char *path;      // any part of a split set
    const char *backend;   // whose kernels are examined: "cpu"
    const char *cpu_level; // "auto"
    int n_threads;         // 0 = all CPUs of the process
    bool quick;            // samples of layers and rows, short prompts: seconds on any size
    const char *against;   // dump of another engine, or NULL
    int n_stages;          // examine the first so many of enum lp_stage; 0 = all
    // The ranks that would run the model together, of which this is rank 0, or NULL. Each is examined
    // on its own, and all of them together.
    limpid_ranks *ranks;
    int rank_threads; // of each of the others; 0 = its share of its host's cores
    int32_t pipeline; // stages that they form; 0 = 1
    enum lp_shard_experts shard_experts;
    double rank_limit_s; // that one waits for another in a step; 0: LP_COMM_LIMIT_S
    // Progress: a stage begins, which may take that long (0: a moment), the whole examination first
    // as LP_N_STAGES; a check has ended.
    void (*on_stage)(void *user, enum lp_stage stage, double expected_s);
    void (*on_check)(void *user, const struct lp_check *check);
    void *user;
};

// Examines. What is wrong with the model or the engine is in the report, not an error. Errors: the
// examination itself cannot go on: MEMORY; IO (no such file); INVALID (a setting). *out: free with
// lp_report_free.
lp_status lp_doctor_run(struct lp_report **out, const struct lp_doctor_options *options,
                        struct lp_err *err);

#endif
