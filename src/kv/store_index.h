// What a store knows of its directory: a hash table from a file's id to its entry, and a list of
// the files in order of use. Not locked: the store does that.
//
// An entry is QUEUED (a page on its way to the disk; in no list, counts nothing) or a file (OURS or
// OTHERS; in the list, counted).
#ifndef LP_KV_STORE_INDEX_H
#define LP_KV_STORE_INDEX_H

#include "kv/store.h"

enum lp_store_entry_state { LP_STORE_ENTRY_QUEUED, LP_STORE_ENTRY_OURS, LP_STORE_ENTRY_OTHERS };

struct lp_store_entry {
    struct lp_page_key id;
    uint64_t bytes;
    int64_t used_ns;       // modification time as last known
    uint64_t look;         // the last look at the directory that saw it (lp_store_index.look)
    uint32_t older, newer; // neighbours in the list
    enum lp_store_entry_state state;
};

struct lp_store_index { // zero-initialise
    struct lp_store_entry *entries;
    uint32_t *slots; // open addressing: the number of an entry, or UINT32_MAX
    uint32_t n_slots, n_entries, n_used, free_entry;
    uint32_t oldest, newest;
    uint64_t bytes, ours_bytes, n_ours; // of the files
    uint64_t look;                      // the store counts its looks here
};

// The entry, or NULL. Valid until the next call that adds.
struct lp_store_entry *lp_store_index_find(const struct lp_store_index *index,
                                           struct lp_page_key id);
// Makes the entry QUEUED, whatever it was. False when out of memory.
bool lp_store_index_queue(struct lp_store_index *index, struct lp_page_key id);
// Makes the entry a file (state OURS or OTHERS), the most recently used. False when out of memory;
// a known id needs none.
bool lp_store_index_store(struct lp_store_index *index, struct lp_page_key id, uint64_t bytes,
                          int64_t used_ns, enum lp_store_entry_state state);
void lp_store_index_remove(struct lp_store_index *index, struct lp_page_key id); // may be unknown
// The least recently used file, or NULL.
const struct lp_store_entry *lp_store_index_oldest(const struct lp_store_index *index);
// Removes the files that the present look has not seen.
void lp_store_index_forget_unseen(struct lp_store_index *index);
void lp_store_index_release(struct lp_store_index *index);

#endif
