// The files of a model folder that a tool reads and must not write over.
#ifndef LP_FILES_FOLDER_FILES_H
#define LP_FILES_FOLDER_FILES_H

#include <stddef.h>

#include "base/status.h"

struct lp_folder_files {
    char **paths; // [n]
    size_t n, capacity;
};

// All in the folder itself but hidden ones and *.gguf, which is what tools write there. A folder
// that cannot be read has none. Errors: MEMORY. Release in any case.
lp_status lp_folder_files_list(struct lp_folder_files *out, const char *folder, struct lp_err *err);
void lp_folder_files_release(struct lp_folder_files *files);

#endif
