// Chat templates: the input is a template, parsed and rendered with a small fixed conversation
// under tight limits. Whatever it says, it must end in a status, within its limits.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "text/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static json_t *variables(void) {
    return json_loads(
        "{\"messages\": [{\"role\": \"system\", \"content\": \"s\\u00e9 </think>\"},"
        "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"u\"}]},"
        "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"c\", \"type\": "
        "\"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, null], "
        "\"b\": "
        "\"x\"}}}]}, {\"role\": \"tool\", \"content\": \"{}\"}],"
        "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": "
        "{}}}],"
        "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\","
        "\"n\": 3, \"x\": 0.5, \"s\": \"a,B \\u4e16\", \"l\": [3, \"1\", 2], \"d\": {\"k\": [1]}}",
        0, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static json_t *vars;
    if (!vars && !(vars = variables())) abort();
    const struct lp_jinja_limits limits = {
        .max_steps = 20000, .max_output_bytes = 1 << 16, .max_memory_bytes = 4 << 20};
    struct lp_jinja *jinja;
    struct lp_err err = {0};
    struct lp_str source = {(const char *)data, size};
    lp_status status = lp_jinja_parse(&jinja, source, &err);
    if ((status == LP_OK) != (jinja != NULL) || (status && !err.text[0])) abort();
    if (status) return 0;
    struct lp_bytes out = {0};
    status = lp_jinja_render(jinja, vars, &limits, &out, &err);
    if (out.len > limits.max_output_bytes || (status && out.len)) abort();
    lp_bytes_release(&out);
    lp_jinja_free(jinja);
    return 0;
}
