// Writes the made-up reports of report_fake.h as pages, for report.py to look at:
//
//     write_reports FOLDER
#include <stdio.h>

#include "../unit/report_fake.h"

static int write_page(struct lp_report *report, const char *folder, const char *name) {
    struct lp_bytes page = {0};
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.html", folder, name);
    bool ok = report && lp_report_close(report, NULL) == LP_OK && lp_report_html(report, &page);
    FILE *to = ok ? fopen(path, "wb") : NULL;
    ok = to && fwrite(page.data, 1, page.len, to) == page.len;
    if (to) ok = fclose(to) == 0 && ok;
    if (!ok) fprintf(stderr, "cannot write %s\n", path);
    lp_bytes_release(&page);
    lp_report_free(report);
    return ok ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    return write_page(fake_healthy(), argv[1], "healthy") + write_page(fake_ill(), argv[1], "ill") +
           write_page(fake_hostile(), argv[1], "hostile");
}
