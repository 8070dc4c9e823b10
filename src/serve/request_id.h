// The id of an HTTP request: X-Request-Id of the answer and in the access log.
#ifndef LP_SERVE_REQUEST_ID_H
#define LP_SERVE_REQUEST_ID_H

#include <stdbool.h>

#define LP_REQUEST_ID_BYTES 129

// The client's own, if it has 1 to 128 visible ASCII characters; else (or for NULL) a new one.
void lp_request_id(char out[LP_REQUEST_ID_BYTES], const char *given);

#define LP_RANDOM_ID_HEX 24
// 24 random hexadecimal digits, terminated.
void lp_random_id(char out[LP_RANDOM_ID_HEX + 1]);

#endif
