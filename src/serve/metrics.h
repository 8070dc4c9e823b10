// GET /metrics: counters of engine and server in Prometheus' text format, version 0.0.4.
// docs/api.md lists the names.
#ifndef LP_SERVE_METRICS_H
#define LP_SERVE_METRICS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "limpid.h"

#define LP_METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

// Answers by route and status. What no row names counts as the last row, so that clients cannot
// make up label values.
enum { LP_METRICS_MAX_ROUTES = 32, LP_METRICS_N_STATUSES = 19 };
struct lp_http_counts {
    pthread_mutex_t lock;
    const char *routes[LP_METRICS_MAX_ROUTES]; // label values; [n_routes], the last one "other"
    int n_routes;
    uint64_t count[LP_METRICS_MAX_ROUTES][LP_METRICS_N_STATUSES];
};

// route: an index of routes. Any thread.
void lp_http_counts_add(struct lp_http_counts *counts, int route, int status);

struct lp_metrics_now {
    int64_t n_connections, n_generating;
    int64_t n_open; // read before the counts: 1 if all others have been counted
    uint64_t n_repairs;
    bool healthy, draining;
    const char *model_id;
};

// What each of the ranks that run the model has done. False: out of memory.
bool lp_metrics_write_ranks(struct lp_bytes *out, const limpid_engine *engine);
// False: out of memory.
bool lp_metrics_write(struct lp_bytes *out, const limpid_engine_stats *stats,
                      struct lp_http_counts *counts, const struct lp_metrics_now *now);

#endif
