// One file of the page store, as bytes: encode, recognise, check. No disk access.
//
//   offset      bytes
//        0          8  "LPKVPAGE"
//        8          4  format version
//       12          4  page_tokens
//       16          8  page_bytes
//       24         16  fingerprint
//       40         16  key
//       56         16  parent's key
//       72     4 * pt  tokens, int32 [page_tokens]
//   72+4pt          8  XXH3-64 of all before it
//   80+4pt page_bytes  payload
//      end          8  XXH3-64 of the payload, seeded with the header's checksum
//
// The seed ties the halves together: a header over the blocks of another page's file, each whole,
// is damage. Numbers are in the machine's byte order, because the payload is: a file from a machine
// of the other order reads as one of another version.
//
// The file's name is its id, 32 hex digits, and ".page". The id hashes the bytes [0, 56), so that
// models and settings that share a directory never want the same name.
#ifndef LP_KV_STORE_FILE_H
#define LP_KV_STORE_FILE_H

#include "kv/store.h"

#define LP_STORE_FILE_NAME_BYTES 40 // "<32 hex>.page", terminated
#define LP_STORE_FILE_MAX_HEADER (80 + 4 * LP_STORE_MAX_PAGE_TOKENS)

struct lp_store_format { // what all files of a store have in common
    struct lp_page_key fingerprint;
    uint64_t page_bytes;
    uint32_t page_tokens;
};

struct lp_store_page { // which page
    struct lp_page_key key, parent;
    const int32_t *tokens; // [page_tokens]
};

enum lp_store_file_state {
    LP_STORE_FILE_OURS,
    LP_STORE_FILE_OTHERS, // whole as far as can be known, but of another model, version or text
    LP_STORE_FILE_DAMAGED,
};

struct lp_page_key lp_store_file_id(const struct lp_store_format *format, struct lp_page_key key);
void lp_store_file_name(struct lp_page_key id, char out[LP_STORE_FILE_NAME_BYTES]);
// Reads the 32 (lower-case) hex digits that a name begins with; *rest is what follows them.
bool lp_store_file_parse_name(const char *name, struct lp_page_key *id, const char **rest);

size_t lp_store_file_header_bytes(const struct lp_store_format *format);
// The length of a file; false where it overflows.
bool lp_store_file_bytes(const struct lp_store_format *format, size_t *out);

void lp_store_file_encode_header(const struct lp_store_format *format,
                                 const struct lp_store_page *page, uint8_t *out);
uint64_t lp_store_file_payload_sum(const struct lp_store_format *format, const uint8_t *header,
                                   const void *payload);

// What a directory's file is, from its name, its length and its first n_head bytes (the header, or
// the whole file where that is shorter). OTHERS: of another version, model or page size.
enum lp_store_file_state lp_store_file_recognise(const struct lp_store_format *format,
                                                 struct lp_page_key id, const uint8_t *head,
                                                 size_t n_head, uint64_t file_bytes);
// Whether the parts of a file of the right length hold this page (D1). OTHERS: whole, but of
// another parent or other tokens.
enum lp_store_file_state lp_store_file_check(const struct lp_store_format *format,
                                             const struct lp_store_page *page,
                                             const uint8_t *header, const void *payload,
                                             uint64_t payload_sum);

#endif
