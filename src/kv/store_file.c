#include "kv/store_file.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/checked.h"

#define VERSION 1

static const char magic[8] = {'L', 'P', 'K', 'V', 'P', 'A', 'G', 'E'};

struct head { // of every file; the tokens follow
    char magic[8];
    uint32_t version, page_tokens;
    uint64_t page_bytes;
    struct lp_page_key fingerprint, key;
    // the id is the hash of all above
    struct lp_page_key parent;
};
enum { ID_BYTES = offsetof(struct head, parent) };
_Static_assert(ID_BYTES == 56 && sizeof(struct head) == 72, "the format has no padding");

static struct lp_page_key hash_128(const void *bytes, size_t n) {
    XXH128_hash_t hash = XXH3_128bits(bytes, n);
    return (struct lp_page_key){hash.low64, hash.high64};
}

bool lp_page_key_equal(struct lp_page_key a, struct lp_page_key b) {
    return a.lo == b.lo && a.hi == b.hi;
}

struct lp_page_key lp_page_key_make(struct lp_page_key parent, const int32_t *tokens,
                                    size_t n_tokens) {
    const struct {
        struct lp_page_key parent, tokens;
        uint64_t n_tokens;
    } all = {parent, hash_128(tokens, n_tokens * sizeof *tokens), n_tokens};
    return hash_128(&all, sizeof all);
}

static struct head head_of(const struct lp_store_format *format, struct lp_page_key key) {
    struct head head = {.version = VERSION,
                        .page_tokens = format->page_tokens,
                        .page_bytes = format->page_bytes,
                        .fingerprint = format->fingerprint,
                        .key = key};
    memcpy(head.magic, magic, sizeof magic);
    return head;
}

struct lp_page_key lp_store_file_id(const struct lp_store_format *format, struct lp_page_key key) {
    struct head head = head_of(format, key);
    return hash_128(&head, ID_BYTES);
}

void lp_store_file_name(struct lp_page_key id, char out[LP_STORE_FILE_NAME_BYTES]) {
    snprintf(out, LP_STORE_FILE_NAME_BYTES, "%016llx%016llx.page", (unsigned long long)id.hi,
             (unsigned long long)id.lo);
}

static bool parse_hex(const char *text, uint64_t *out) {
    *out = 0;
    for (int i = 0; i < 16; i++) {
        char c = text[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
        *out = *out << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
}

bool lp_store_file_parse_name(const char *name, struct lp_page_key *id, const char **rest) {
    if (strnlen(name, 32) < 32 || !parse_hex(name, &id->hi) || !parse_hex(name + 16, &id->lo))
        return false;
    *rest = name + 32;
    return true;
}

static size_t token_bytes(const struct lp_store_format *format) {
    return sizeof(int32_t) * format->page_tokens;
}

size_t lp_store_file_header_bytes(const struct lp_store_format *format) {
    return sizeof(struct head) + token_bytes(format) + sizeof(uint64_t);
}

bool lp_store_file_bytes(const struct lp_store_format *format, size_t *out) {
    return lp_add_size(format->page_bytes, lp_store_file_header_bytes(format), out) &&
           lp_add_size(*out, sizeof(uint64_t), out);
}

static uint64_t stored_header_sum(const struct lp_store_format *format, const uint8_t *header) {
    uint64_t sum;
    memcpy(&sum, header + sizeof(struct head) + token_bytes(format), sizeof sum);
    return sum;
}

static uint64_t header_sum(const struct lp_store_format *format, const uint8_t *header) {
    return XXH3_64bits(header, sizeof(struct head) + token_bytes(format));
}

void lp_store_file_encode_header(const struct lp_store_format *format,
                                 const struct lp_store_page *page, uint8_t *out) {
    struct head head = head_of(format, page->key);
    head.parent = page->parent;
    memcpy(out, &head, sizeof head);
    memcpy(out + sizeof head, page->tokens, token_bytes(format));
    uint64_t sum = header_sum(format, out);
    memcpy(out + sizeof head + token_bytes(format), &sum, sizeof sum);
}

uint64_t lp_store_file_payload_sum(const struct lp_store_format *format, const uint8_t *header,
                                   const void *payload) {
    return XXH3_64bits_withSeed(payload, format->page_bytes, stored_header_sum(format, header));
}

enum lp_store_file_state lp_store_file_recognise(const struct lp_store_format *format,
                                                 struct lp_page_key id, const uint8_t *head_bytes,
                                                 size_t n_head, uint64_t file_bytes) {
    struct head head = {.page_tokens = 0};
    size_t expected_bytes;
    memcpy(&head, head_bytes, n_head < sizeof head ? n_head : sizeof head);
    if (n_head < offsetof(struct head, page_tokens) || memcmp(head.magic, magic, sizeof magic) != 0)
        return LP_STORE_FILE_DAMAGED;
    if (head.version != VERSION) return LP_STORE_FILE_OTHERS;
    if (n_head < sizeof head || !lp_page_key_equal(id, hash_128(&head, ID_BYTES)))
        return LP_STORE_FILE_DAMAGED;
    struct head ours = head_of(format, head.key);
    if (memcmp(&head, &ours, ID_BYTES) != 0) return LP_STORE_FILE_OTHERS;
    if (n_head < lp_store_file_header_bytes(format) ||
        !lp_store_file_bytes(format, &expected_bytes) || file_bytes != expected_bytes ||
        stored_header_sum(format, head_bytes) != header_sum(format, head_bytes))
        return LP_STORE_FILE_DAMAGED;
    return LP_STORE_FILE_OURS;
}

enum lp_store_file_state lp_store_file_check(const struct lp_store_format *format,
                                             const struct lp_store_page *page,
                                             const uint8_t *header, const void *payload,
                                             uint64_t payload_sum) {
    struct head ours = head_of(format, page->key);
    if (memcmp(header, &ours, ID_BYTES) != 0 ||
        stored_header_sum(format, header) != header_sum(format, header) ||
        payload_sum != lp_store_file_payload_sum(format, header, payload))
        return LP_STORE_FILE_DAMAGED;
    ours.parent = page->parent;
    if (memcmp(header, &ours, sizeof ours) != 0 ||
        memcmp(header + sizeof ours, page->tokens, token_bytes(format)) != 0)
        return LP_STORE_FILE_OTHERS;
    return LP_STORE_FILE_OURS;
}
