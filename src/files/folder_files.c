#include "files/folder_files.h"

#include <dirent.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/grow.h"

static bool is_output(const char *name) {
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".gguf") == 0;
}

lp_status lp_folder_files_list(struct lp_folder_files *out, const char *folder,
                               struct lp_err *err) {
    DIR *dir = opendir(folder);
    struct dirent *entry;
    struct lp_bytes path = {0};
    bool ok = true;
    *out = (struct lp_folder_files){0};
    while (dir && ok && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.' || is_output(entry->d_name)) continue;
        lp_bytes_clear(&path);
        ok = lp_bytes_printf(&path, "%s/%s", folder, entry->d_name) &&
             LP_GROW(out->paths, out->capacity, out->n + 1) &&
             (out->paths[out->n] = lp_strdup(path.data)) != NULL;
        out->n += ok;
    }
    if (dir) closedir(dir);
    lp_bytes_release(&path);
    return ok ? LP_OK : lp_err_memory(err, 0, "the names of a folder");
}

void lp_folder_files_release(struct lp_folder_files *files) {
    for (size_t i = 0; i < files->n; i++) lp_free(files->paths[i]);
    lp_free(files->paths);
    *files = (struct lp_folder_files){0};
}
