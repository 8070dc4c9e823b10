// Any bytes as a file of the page store. The first byte says which checksums are put right before
// (so that more than checksums is tried), the rest is the file. What is accepted must be, byte for
// byte, what the encoder makes of the same page; the rest is refused without a look behind its end.
#include <stdlib.h>
#include <string.h>

#include "kv/store_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TOKENS = 4, PAYLOAD = 16, HEADER = 72 + 4 * TOKENS + 8, FILE_BYTES = HEADER + PAYLOAD + 8 };
enum { MEND_HEADER = 1, MEND_PAYLOAD = 2 };

static const struct lp_store_format format = {{1, 2}, PAYLOAD, TOKENS};

static void require(bool holds) {
    if (!holds) abort();
}

static struct lp_page_key key_at(const uint8_t *file, size_t offset) {
    struct lp_page_key key;
    memcpy(&key, file + offset, sizeof key);
    return key;
}

static enum lp_store_file_state recognise(const uint8_t *file, size_t size, struct lp_page_key id) {
    return lp_store_file_recognise(&format, id, file, size < HEADER ? size : HEADER, size);
}

// The header is made again for the page that the file describes; a payload's sum fits any header.
static void mend(uint8_t *file, int what) {
    int32_t tokens[TOKENS];
    memcpy(tokens, file + 72, sizeof tokens);
    const struct lp_store_page page = {key_at(file, 40), key_at(file, 56), tokens};
    if (what & MEND_HEADER) lp_store_file_encode_header(&format, &page, file);
    uint64_t sum = lp_store_file_payload_sum(&format, file, file + HEADER);
    if (what & MEND_PAYLOAD) memcpy(file + HEADER + PAYLOAD, &sum, sizeof sum);
}

static void check_whole(const uint8_t *file) {
    int32_t tokens[TOKENS];
    uint64_t sum;
    uint8_t header[HEADER];
    memcpy(tokens, file + 72, sizeof tokens);
    memcpy(&sum, file + HEADER + PAYLOAD, sizeof sum);
    struct lp_store_page page = {key_at(file, 40), key_at(file, 56), tokens};
    enum lp_store_file_state state = lp_store_file_check(&format, &page, file, file + HEADER, sum);
    require(state != LP_STORE_FILE_OTHERS); // the page is the file's own
    if (state == LP_STORE_FILE_DAMAGED) return;
    lp_store_file_encode_header(&format, &page, header);
    require(memcmp(header, file, HEADER) == 0);
    require(sum == lp_store_file_payload_sum(&format, file, file + HEADER));
    require(recognise(file, FILE_BYTES, lp_store_file_id(&format, page.key)) == LP_STORE_FILE_OURS);
    tokens[TOKENS - 1] ^= 1;
    require(lp_store_file_check(&format, &page, file, file + HEADER, sum) == LP_STORE_FILE_OTHERS);
    page.key.lo ^= 1;
    require(lp_store_file_check(&format, &page, file, file + HEADER, sum) == LP_STORE_FILE_DAMAGED);
}

static void check_any_length(const uint8_t *file, size_t size) {
    struct lp_page_key id = {0, 0};
    if (size >= 56) { // the id that the file would have under its own format
        struct lp_store_format own;
        own.fingerprint = key_at(file, 24);
        memcpy(&own.page_tokens, file + 12, sizeof own.page_tokens);
        memcpy(&own.page_bytes, file + 16, sizeof own.page_bytes);
        id = lp_store_file_id(&own, key_at(file, 40));
    }
    if (recognise(file, size, id) == LP_STORE_FILE_OURS) require(size == FILE_BYTES);
    id.lo ^= 1;
    require(recognise(file, size, id) != LP_STORE_FILE_OURS);
}

static void check_name(const uint8_t *bytes, size_t size) {
    char text[64], again[LP_STORE_FILE_NAME_BYTES];
    const char *rest;
    struct lp_page_key id;
    if (size >= sizeof text) size = sizeof text - 1;
    memcpy(text, bytes, size);
    text[size] = 0;
    if (!lp_store_file_parse_name(text, &id, &rest) || strcmp(rest, ".page") != 0) return;
    lp_store_file_name(id, again);
    require(strcmp(text, again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    int what = *data++;
    size--;
    check_name(data, size);
    uint8_t *file = malloc(size ? size : 1); // its end is the end of a block
    require(file != NULL);
    memcpy(file, data, size);
    if (size == FILE_BYTES) {
        mend(file, what);
        check_whole(file);
    }
    check_any_length(file, size);
    free(file);
    return 0;
}
