// The access log: one JSON line for each HTTP request, behind its answer.
//
//     {"time":"2026-01-31T09:05:02.125Z","request_id":"req-…","client":"127.0.0.1","method":"POST",
//      "path":"/v1/completions","status":200,"duration_ms":81.2,"stream":true,"prompt_tokens":12,
//      "cached_tokens":0,"completion_tokens":13,"finish":"stop","ttft_ms":9.5}
//
// What a request did not come to is null. Any thread may write; lines are whole.
#ifndef LP_SERVE_ACCESS_LOG_H
#define LP_SERVE_ACCESS_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"
#include "serve/request_id.h"

// One request, filled while it is served.
struct lp_access {
    char id[LP_REQUEST_ID_BYTES];
    char client[64], method[16], path[256];    // cut if longer
    int status;                                // 0: the client left before there was one
    uint64_t began_ns, first_token_ns, end_ns; // lp_clock_ns; first_token_ns 0: none came
    bool generates;                            // it was admitted; the fields below are set
    bool stream;
    int64_t prompt_tokens, cached_tokens, completion_tokens;
    const char *finish; // "stop", "length" (of the last choice), "error", "cancelled", or NULL
};

struct lp_access_log;

// Appends to a file ("-": standard error). IO names it.
lp_status lp_access_log_open(struct lp_access_log **out, const char *path, struct lp_err *err);
void lp_access_log_write(struct lp_access_log *log,
                         const struct lp_access *access); // NULL: nothing
void lp_access_log_close(struct lp_access_log *log);

// The line, with its '\n'. unix_ms: when the request began. False without memory.
bool lp_access_log_line(struct lp_bytes *out, const struct lp_access *access, int64_t unix_ms);

#endif
