// The page store's directory: its system calls, each on one file. They hold no state and take no
// lock, so any thread may call them.
#ifndef LP_KV_STORE_DIR_H
#define LP_KV_STORE_DIR_H

#include "kv/store_file.h"

// Makes the directory if it is missing, and tries whether a file can be made in it. IO, naming it.
lp_status lp_store_dir_open(int *dir, const char *path, struct lp_err *err);
void lp_store_dir_close(int dir);

// The ids of all "<32 hex>.page" in it (from lp_alloc). Temporary files whose writers are dead are
// removed on the way.
lp_status lp_store_dir_list(int dir, struct lp_page_key **ids, size_t *n_ids, struct lp_err *err);

struct lp_store_found {
    struct lp_page_key id;
    uint64_t bytes;
    int64_t used_ns; // modification time
    enum lp_store_file_state state;
};
// Looks at a file's length and header. False: there is none. A file that cannot be opened is one of
// OTHERS; one that cannot be read is DAMAGED.
bool lp_store_dir_inspect(int dir, const struct lp_store_format *format, struct lp_page_key id,
                          struct lp_store_found *found);

enum lp_store_read {
    LP_STORE_READ_OK,      // checked; its modification time is renewed
    LP_STORE_READ_NONE,    // there is no such file
    LP_STORE_READ_OTHERS,  // another text's (only a hash collision does that), or may not be opened
    LP_STORE_READ_DAMAGED, // removed
};
// payload [page_bytes]: unspecified unless OK.
enum lp_store_read lp_store_dir_read(int dir, const struct lp_store_format *format,
                                     const struct lp_store_page *page, void *payload);

// Writes a file under a temporary name, flushes and renames it. 0 or an errno value, and then
// nothing is left behind.
int lp_store_dir_write(int dir, struct lp_page_key id, const void *bytes, size_t n_bytes);
// 0 (also where there is none) or an errno value.
int lp_store_dir_remove(int dir, struct lp_page_key id);

int64_t lp_store_dir_now_ns(void); // the clock of modification times

#endif
