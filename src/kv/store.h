// Prefixes on disk: full pages of the KV cache, kept across runs. One file a page; the format is in
// store_file.h, the reasons in docs/internals/kv-store.md.
//
//   D1. A file is believed only after its length, both checksums, the fingerprint, the key, its
//       parent and every token have been compared: what is damaged, cut or of another model is a
//       miss, never a wrong prefix.
//   D2. A key names the content: the hash of the parent's key and the page's tokens. So a file may
//       appear, vanish or be replaced by its like at any time (several processes, power cuts).
//   D3. All files together stay within max_bytes: the least recently used (by modification time,
//       which a hit renews) go first, those of other models and versions among them. What another
//       process writes is seen at the latest after max_bytes / 16 of one's own writing.
//
// One writer thread; put copies and returns. All but open and close may be called from any thread.
#ifndef LP_KV_STORE_H
#define LP_KV_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct lp_page_key {
    uint64_t lo, hi;
};
bool lp_page_key_equal(struct lp_page_key a, struct lp_page_key b);

// The key of a page: hash of its parent's key (zero for the first page of a text) and its tokens.
struct lp_page_key lp_page_key_make(struct lp_page_key parent, const int32_t *tokens,
                                    size_t n_tokens);

#define LP_STORE_MAX_PAGE_TOKENS 4096

struct lp_store_options {
    const char *dir;                // made if missing (one level), for its owner alone
    uint64_t max_bytes;             // of all files; at least one file
    struct lp_page_key fingerprint; // of the model, its KV type and the version of what they mean
    size_t page_bytes;              // payload
    int32_t page_tokens;            // 1 to LP_STORE_MAX_PAGE_TOKENS
    size_t queue_bytes;             // most that waits to be written, at least one file; 0 = 256 MiB
};

struct lp_store_stats {
    uint64_t pages, bytes; // now, of this fingerprint
    uint64_t reads;        // hits
    uint64_t writes;       // files written
    uint64_t damaged;      // files that were damaged, and removed
    uint64_t dropped;      // pages not taken: the queue was full, or no memory for a copy
    uint64_t failed;       // pages not written: no space, or another error
};

struct lp_store;

// Scans the directory and brings it within max_bytes. Errors: IO (cannot be made, read or written:
// names it), INVALID, MEMORY, LIMIT (no thread). Files that are damaged or of another model are no
// error: one warning says how many; temporary files of dead writers are removed.
lp_status lp_store_open(struct lp_store **out, const struct lp_store_options *options,
                        struct lp_err *err);
void lp_store_close(struct lp_store *store); // writes what is queued; NULL is allowed

// An index look-up, no disk access. A queued page is not there before it is written.
bool lp_store_has(struct lp_store *store, struct lp_page_key key);
// Reads and checks a page into payload [page_bytes]. False: a miss, payload is unspecified (a
// damaged file is removed, counted, and warned of once a minute at most). Looks at the disk even
// for a key that the index lacks: another process may have written it lately.
bool lp_store_get(struct lp_store *store, struct lp_page_key key, struct lp_page_key parent,
                  const int32_t *tokens, void *payload);
// Queues a page; nothing is done where it is stored or queued already. May drop it (counted, and
// warned of once a minute at most).
void lp_store_put(struct lp_store *store, struct lp_page_key key, struct lp_page_key parent,
                  const int32_t *tokens, const void *payload);
void lp_store_flush(struct lp_store *store); // returns when all that was put is written or failed
struct lp_store_stats lp_store_get_stats(struct lp_store *store);

#endif
