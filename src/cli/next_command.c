#include "cli/next_command.h"

#include "cli/shell_quote.h"

void lp_next_command_add(struct lp_bytes *text, const struct lp_model_wish *wish,
                         const char *path) {
    lp_bytes_printf(text, "\n    limpid %s", wish->command->name);
    if (!wish->argv) {
        lp_bytes_puts(text, " ");
        lp_shell_quote_path(text, path);
    }
    for (int i = 1; wish->argv && i < wish->argc; i++) {
        lp_bytes_puts(text, " ");
        if (wish->argv[i] == wish->given)
            lp_shell_quote_path(text, path);
        else
            lp_shell_quote(text, wish->argv[i]);
    }
}

void lp_next_command_add_open(struct lp_bytes *text, const struct lp_model_wish *wish) {
    lp_next_command_add(text, wish, wish->kind == LP_MODEL_FOLDER ? "FOLDER" : "FILE.gguf");
}
