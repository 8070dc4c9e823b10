// What the requests of a server share, and whether it can serve.
#ifndef LP_SERVE_SERVICE_H
#define LP_SERVE_SERVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "limpid.h"
#include "serve/request_id.h"
#include "serve/stall.h"
#include "serve/turns.h"
#include "text/reply.h"

struct lp_last_prompt { // of the last request, if they are kept
    pthread_mutex_t lock;
    char request_id[LP_REQUEST_ID_BYTES];
    int32_t *ids; // [n_ids]; NULL: none
    size_t n_ids;
};

// Bodies become JSON trees of up to 40 times their size: so many bytes of bodies at a time.
struct lp_tree_room {
    pthread_mutex_t lock;
    pthread_cond_t freed;
    size_t n_free;
};
void lp_tree_room_init(struct lp_tree_room *room, size_t n_bytes);
void lp_tree_room_release(struct lp_tree_room *room);
void lp_tree_room_take(struct lp_tree_room *room, size_t n_bytes); // at most all there is; waits
void lp_tree_room_give(struct lp_tree_room *room, size_t n_bytes);

struct lp_sampling_defaults { // where a request names none
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;
};

struct lp_service {
    limpid_model *model;
    limpid_engine *engine;
    const char *model_id;
    const char *aliases;       // further names, separated by commas; "*": any. Or ""
    int64_t created;           // Unix time
    const char *chat_template; // its source, or ""
    size_t longest_token;      // bytes; 0 = not known
    enum lp_reply_syntax syntax;
    struct lp_turns *turns;
    atomic_uint_fast64_t n_repairs; // slips in tool calls and reasoning that were mended
    int64_t timeout_ms, keepalive_ms;
    double stall_s;
    struct lp_sampling_defaults sampling;
    bool keep_last_prompt;
    bool debug_probes;   // POST /debug/probe works,
    atomic_flag probing; // for one at a time
    struct lp_last_prompt last_prompt;
    struct lp_tree_room trees;
    atomic_bool draining; // no new generations
    atomic_bool stopping; // those that run end now
    atomic_int n_answers; // generations that are admitted and not freed
    atomic_bool stalled;  // as last seen; for one log line each way
    struct lp_stall_dump stall;
};

enum lp_health { LP_HEALTH_OK, LP_HEALTH_DRAINING, LP_HEALTH_STALLED, LP_HEALTH_FAILED };

// Reads the engine's counters, never waits for its step. *age_s (may be NULL): since a step ended,
// while there is work.
enum lp_health lp_service_health(struct lp_service *service, double *age_s);

#endif
