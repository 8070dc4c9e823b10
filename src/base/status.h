// Status codes and error text. Every fallible function returns an lp_status and, given an lp_err,
// fills it with one sentence that names the thing, the value and the remedy. Callers on the way up
// may put context in front with lp_err_context. Nobody but the program exits.
#ifndef LP_BASE_STATUS_H
#define LP_BASE_STATUS_H

#include <stddef.h>

// The one list: name, short text. limpid.h's codes are these numbers.
#define LP_STATUS_LIST(X)                                                                          \
    X(OK, "success")                                                                               \
    X(INVALID, "invalid argument or setting")                                                      \
    X(FORMAT, "damaged or unsupported file")                                                       \
    X(IO, "input/output error")                                                                    \
    X(MEMORY, "out of memory")                                                                     \
    X(UNSUPPORTED, "not supported")                                                                \
    X(LIMIT, "over a limit")                                                                       \
    X(NUMERIC, "non-finite numbers")                                                               \
    X(CANCELLED, "cancelled")                                                                      \
    X(TIMEOUT, "over a time limit")                                                                \
    X(BUSY, "too busy")

typedef enum lp_status {
#define LP_STATUS_ENUM(name, text) LP_STATUS_##name,
    LP_STATUS_LIST(LP_STATUS_ENUM)
#undef LP_STATUS_ENUM
} lp_status;

#define LP_OK LP_STATUS_OK
#define LP_ERR_TEXT_BYTES 1024

struct lp_err {
    lp_status status;
    char text[LP_ERR_TEXT_BYTES]; // always terminated; cut with "..." when too long
};

// Sets status and text; err may be NULL. Returns status, so that "return lp_err_set(...)" works.
// Bytes below 0x20 and 0x7f that come from a file are printed as '?', so a hostile name cannot
// reach the terminal.
lp_status lp_err_set(struct lp_err *err, lp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Puts "format: " in front of the text that is there. Returns err's status (MEMORY if err is NULL).
lp_status lp_err_context(struct lp_err *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Out of memory, with the number of bytes (0: not known) and what they were for.
lp_status lp_err_memory(struct lp_err *err, size_t bytes, const char *what);

const char *lp_status_name(lp_status status);

#endif
