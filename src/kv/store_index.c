#include "kv/store_index.h"

#include "base/alloc.h"
#include "kv/store_file.h"

#define NONE UINT32_MAX
#define FIRST_ENTRIES 64       // a power of two; the table has twice as many slots
#define MAX_ENTRIES (1u << 30) // files in one directory

// Slots: linear probing from the id, which is a hash already. Removal moves later entries of the
// run back, so that there are no tombstones.
static uint32_t slot_of(const struct lp_store_index *index, struct lp_page_key id) {
    uint32_t mask = index->n_slots - 1, slot = (uint32_t)id.lo & mask;
    while (index->slots[slot] != NONE &&
           !lp_page_key_equal(index->entries[index->slots[slot]].id, id))
        slot = (slot + 1) & mask;
    return slot;
}

static bool grow(struct lp_store_index *index) {
    uint32_t n = index->n_entries ? index->n_entries * 2 : FIRST_ENTRIES;
    if (n > MAX_ENTRIES) return false;
    uint32_t *slots = lp_alloc(2 * (size_t)n, sizeof *slots);
    if (!slots) return false;
    struct lp_store_entry *entries = lp_realloc(index->entries, n, sizeof *entries);
    if (!entries) {
        lp_free(slots);
        return false;
    }
    lp_free(index->slots);
    if (index->n_entries == 0) index->oldest = index->newest = index->free_entry = NONE;
    for (uint32_t e = n; e-- > index->n_entries;) { // the lowest number is handed out first
        entries[e].newer = index->free_entry;
        index->free_entry = e;
    }
    // All old entries are in use, for only then does it grow.
    uint32_t n_old = index->n_entries;
    index->entries = entries;
    index->n_entries = n;
    index->slots = slots;
    index->n_slots = 2 * n;
    for (uint32_t s = 0; s < index->n_slots; s++) slots[s] = NONE;
    for (uint32_t e = 0; e < n_old; e++) slots[slot_of(index, entries[e].id)] = e;
    return true;
}

static void unlink_entry(struct lp_store_index *index, struct lp_store_entry *entry) {
    if (entry->state == LP_STORE_ENTRY_QUEUED) return;
    if (entry->older != NONE)
        index->entries[entry->older].newer = entry->newer;
    else
        index->oldest = entry->newer;
    if (entry->newer != NONE)
        index->entries[entry->newer].older = entry->older;
    else
        index->newest = entry->older;
    index->bytes -= entry->bytes;
    if (entry->state == LP_STORE_ENTRY_OURS) {
        index->ours_bytes -= entry->bytes;
        index->n_ours--;
    }
    entry->state = LP_STORE_ENTRY_QUEUED;
}

static void link_newest(struct lp_store_index *index, struct lp_store_entry *entry,
                        enum lp_store_entry_state state) {
    uint32_t number = (uint32_t)(entry - index->entries);
    entry->state = state;
    entry->older = index->newest;
    entry->newer = NONE;
    if (index->newest != NONE)
        index->entries[index->newest].newer = number;
    else
        index->oldest = number;
    index->newest = number;
    index->bytes += entry->bytes;
    if (state == LP_STORE_ENTRY_OURS) {
        index->ours_bytes += entry->bytes;
        index->n_ours++;
    }
}

struct lp_store_entry *lp_store_index_find(const struct lp_store_index *index,
                                           struct lp_page_key id) {
    if (index->n_entries == 0) return NULL;
    uint32_t number = index->slots[slot_of(index, id)];
    return number == NONE ? NULL : &index->entries[number];
}

static struct lp_store_entry *find_or_add(struct lp_store_index *index, struct lp_page_key id) {
    struct lp_store_entry *entry = lp_store_index_find(index, id);
    if (entry) return entry;
    if (index->n_used == index->n_entries && !grow(index)) return NULL;
    uint32_t number = index->free_entry;
    entry = &index->entries[number];
    index->free_entry = entry->newer;
    index->n_used++;
    *entry = (struct lp_store_entry){.id = id, .state = LP_STORE_ENTRY_QUEUED};
    uint32_t slot = slot_of(index, id);
    index->slots[slot] = number;
    return entry;
}

bool lp_store_index_queue(struct lp_store_index *index, struct lp_page_key id) {
    struct lp_store_entry *entry = find_or_add(index, id);
    if (!entry) return false;
    unlink_entry(index, entry);
    return true;
}

bool lp_store_index_store(struct lp_store_index *index, struct lp_page_key id, uint64_t bytes,
                          int64_t used_ns, enum lp_store_entry_state state) {
    struct lp_store_entry *entry = find_or_add(index, id);
    if (!entry) return false;
    unlink_entry(index, entry);
    entry->bytes = bytes;
    entry->used_ns = used_ns;
    entry->look = index->look;
    link_newest(index, entry, state);
    return true;
}

void lp_store_index_remove(struct lp_store_index *index, struct lp_page_key id) {
    struct lp_store_entry *entry = lp_store_index_find(index, id);
    if (!entry) return;
    uint32_t mask = index->n_slots - 1, hole = slot_of(index, id);
    for (uint32_t slot = (hole + 1) & mask; index->slots[slot] != NONE; slot = (slot + 1) & mask) {
        uint32_t home = (uint32_t)index->entries[index->slots[slot]].id.lo & mask;
        if (((slot - home) & mask) < ((slot - hole) & mask)) continue; // begins behind the hole
        index->slots[hole] = index->slots[slot];
        hole = slot;
    }
    index->slots[hole] = NONE;
    unlink_entry(index, entry);
    entry->newer = index->free_entry;
    index->free_entry = (uint32_t)(entry - index->entries);
    index->n_used--;
}

const struct lp_store_entry *lp_store_index_oldest(const struct lp_store_index *index) {
    return index->n_entries == 0 || index->oldest == NONE ? NULL : &index->entries[index->oldest];
}

void lp_store_index_forget_unseen(struct lp_store_index *index) {
    if (index->n_entries == 0) return;
    for (uint32_t number = index->oldest, next; number != NONE; number = next) {
        const struct lp_store_entry *entry = &index->entries[number];
        next = entry->newer;
        if (entry->look != index->look) lp_store_index_remove(index, entry->id);
    }
}

void lp_store_index_release(struct lp_store_index *index) {
    lp_free(index->entries);
    lp_free(index->slots);
    *index = (struct lp_store_index){.n_entries = 0};
}
