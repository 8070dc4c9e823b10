#include "lp_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/dialogue.h"

static struct lp_err err;

static void answer(struct lp_dialogue *d, const char *content, const char *reasoning) {
    assert_int_equal(lp_dialogue_add_answer(d, lp_str_from(content), lp_str_from(reasoning), &err),
                     LP_OK);
}

static void expect(const struct lp_dialogue *d, const char *json) {
    json_t *want = json_loads(json, 0, NULL);
    assert_non_null(want);
    if (!json_equal(want, d->messages)) {
        char *got = json_dumps(d->messages, 0);
        fail_msg("%s instead of %s", got, json);
    }
    json_decref(want);
}

static struct lp_dialogue two_turns(void) {
    struct lp_dialogue d;
    assert_int_equal(lp_dialogue_init(&d, &err), LP_OK);
    assert_int_equal(lp_dialogue_set_system(&d, "S", &err), LP_OK);
    assert_int_equal(lp_dialogue_add_user(&d, "u1", &err), LP_OK);
    answer(&d, "a1", "r1");
    assert_int_equal(lp_dialogue_add_user(&d, "u2", &err), LP_OK);
    answer(&d, "a2\n", "");
    return d;
}

#define S "{\"role\":\"system\",\"content\":\"S\"}"
#define U1 "{\"role\":\"user\",\"content\":\"u1\"}"
#define A1 "{\"role\":\"assistant\",\"content\":\"a1\",\"reasoning_content\":\"r1\"}"
#define U2 "{\"role\":\"user\",\"content\":\"u2\"}"
#define A2 "{\"role\":\"assistant\",\"content\":\"a2\\n\"}"

static void turns(void **state) {
    (void)state;
    struct lp_dialogue d = two_turns();
    expect(&d, "[" S "," U1 "," A1 "," U2 "," A2 "]");
    assert_int_equal(lp_dialogue_n_turns(&d), 2);
    assert_true(lp_dialogue_is_answered(&d));
    assert_true(lp_dialogue_drop_answer(&d));
    assert_false(lp_dialogue_is_answered(&d));
    assert_false(lp_dialogue_drop_answer(&d));
    expect(&d, "[" S "," U1 "," A1 "," U2 "]");
    assert_true(lp_dialogue_drop_turn(&d));
    expect(&d, "[" S "," U1 "," A1 "]");
    assert_int_equal(lp_dialogue_set_system(&d, NULL, &err), LP_OK);
    expect(&d, "[" U1 "," A1 "]");
    assert_null(lp_dialogue_system(&d));
    assert_int_equal(lp_dialogue_set_system(&d, "S", &err), LP_OK);
    assert_string_equal(lp_dialogue_system(&d), "S");
    lp_dialogue_clear(&d);
    expect(&d, "[" S "]");
    assert_false(lp_dialogue_drop_turn(&d));
    assert_false(lp_dialogue_drop_answer(&d));
    lp_dialogue_release(&d);
}

static void bad_text_changes_nothing(void **state) {
    (void)state;
    struct lp_dialogue d = two_turns();
    assert_int_equal(lp_dialogue_add_user(&d, "\xff", &err), LP_STATUS_INVALID);
    assert_int_equal(lp_dialogue_set_system(&d, "\xc3", &err), LP_STATUS_INVALID);
    assert_int_equal(lp_dialogue_add_answer(&d, lp_str_from("a"), lp_str_from("\xff"), &err),
                     LP_STATUS_INVALID);
    expect(&d, "[" S "," U1 "," A1 "," U2 "," A2 "]");
    lp_dialogue_release(&d);
}

static void files(void **state) {
    (void)state;
    char folder[] = "/tmp/limpid-dialogue-XXXXXX", path[64], text[512] = "";
    struct stat st;
    struct lp_dialogue d = two_turns(), back = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/x.json", folder);
    assert_int_equal(lp_dialogue_save(&d, path, &err), LP_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(lp_dialogue_load(&back, path, &err), LP_OK);
    assert_true(json_equal(d.messages, back.messages));
    unlink(path);
    snprintf(path, sizeof path, "%s/x.md", folder);
    assert_int_equal(lp_dialogue_save(&d, path, &err), LP_OK);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    assert_string_equal(text, "## system\n\nS\n\n## user\n\nu1\n\n## assistant\n\n> r1\n\na1\n\n"
                              "## user\n\nu2\n\n## assistant\n\na2\n\n\n");
    assert_int_equal(lp_dialogue_load(&back, path, &err), LP_STATUS_FORMAT);
    assert_true(json_equal(d.messages, back.messages)); // as before
    unlink(path);
    snprintf(path, sizeof path, "%s/x.txt", folder);
    assert_int_equal(lp_dialogue_save(&d, path, &err), LP_STATUS_INVALID);
    snprintf(path, sizeof path, "%s/none/x.md", folder);
    assert_int_equal(lp_dialogue_save(&d, path, &err), LP_STATUS_IO);
    assert_int_equal(lp_dialogue_load(&back, path, &err), LP_STATUS_IO);
    assert_int_equal(rmdir(folder), 0); // nothing half written is left
    lp_dialogue_release(&d);
    lp_dialogue_release(&back);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(turns),
                                       cmocka_unit_test(bad_text_changes_nothing),
                                       cmocka_unit_test(files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
