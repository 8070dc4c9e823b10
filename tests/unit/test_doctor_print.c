#include "lp_test.h"

#include "cli/doctor_print.h"
#include "report_fake.h"

struct sheet {
    struct lp_doctor_view view;
    char *text;
    size_t n;
};

static void open_sheet(struct sheet *s, int width, bool fancy) {
    *s = (struct sheet){0};
    s->view = (struct lp_doctor_view){
        .to = open_memstream(&s->text, &s->n), .width = width, .fancy = fancy};
}

static void print_all(struct sheet *s, struct lp_report *r) {
    assert_int_equal(lp_report_close(r, NULL), LP_OK);
    for (size_t i = 0; i < r->n_checks; i++) lp_doctor_print_check(&s->view, &r->checks[i]);
    lp_doctor_print_end(&s->view, r);
    fclose(s->view.to);
    assert_false(s->view.failed);
    lp_report_free(r);
}

static void a_check_is_a_line(void **state) {
    (void)state;
    struct sheet s;
    struct lp_check c = {.stage = LP_STAGE_KERNELS,
                         .name = "kernel of Q8_0",
                         .figure = "3.1e-07",
                         .bound = "at most 1e-05",
                         .text = "not said where all is well",
                         .seconds = 1.25};
    open_sheet(&s, 0, false);
    lp_doctor_print_check(&s.view, &c);
    fclose(s.view.to);
    char name[40], figure[20], unit[4];
    double seconds;
    assert_int_equal(sscanf(s.text, "ok kernels %14c %19s (at most 1e-05) %lf %3s", name, figure,
                            &seconds, unit),
                     4);
    assert_memory_equal(name, "kernel of Q8_0", 14);
    assert_string_equal(figure, "3.1e-07");
    assert_true(seconds > 1.1 && seconds < 1.4);
    assert_int_equal(strcspn(s.text, "\n") + 1, s.n);
    free(s.text);
}

static void a_stage_says_its_time(void **state) {
    (void)state;
    struct sheet s;
    open_sheet(&s, 0, false);
    lp_doctor_print_stage(&s.view, LP_N_STAGES, 200);
    lp_doctor_print_stage(&s.view, LP_STAGE_WEIGHTS, 40.2);
    lp_doctor_print_stage(&s.view, LP_STAGE_CACHE, 0.2);
    lp_doctor_print_stage(&s.view, LP_STAGE_LAYERS, 7200);
    lp_doctor_print_stage(&s.view, LP_STAGE_FILE, 0);
    fclose(s.view.to);
    assert_string_equal(s.text, "the whole examination: about 3 min\nweights: about 40 s\n"
                                "cache: about a second\nlayers: about 2.0 h\nfile\n");
    free(s.text);
}

static const char *last_line(const struct sheet *s) {
    const char *at = s->text + s->n - 1;
    assert_int_equal(*at, '\n');
    while (at > s->text && at[-1] != '\n') at--;
    return at;
}

static void the_verdict_is_last_and_faults_say_what_to_do(void **state) {
    (void)state;
    struct sheet s;
    open_sheet(&s, 0, false);
    print_all(&s, fake_ill());
    assert_memory_equal(last_line(&s), "verdict: fault found. ", 22);
    const char *fault = strstr(s.text, "1. layer 3, blk.3.attn_k_b.weight\n");
    assert_non_null(fault);
    assert_non_null(strstr(fault, "found by weights, k_b and v_b against kv_b\n"));
    assert_non_null(strstr(fault, "measured 0.41 (at most 1e-03)\n"));
    assert_non_null(strstr(fault, "Convert the file again"));
    assert_non_null(strstr(fault, "2. layer 31, mla_absorbed\n"));
    assert_null(strstr(fault, "3. "));
    assert_non_null(strstr(fault, "1 more check failed, as it must with these faults: obvious "
                                  "continuations (output)\n"));
    free(s.text);
    open_sheet(&s, 0, false);
    print_all(&s, fake_healthy());
    assert_memory_equal(last_line(&s), "verdict: healthy. ", 18);
    free(s.text);
}

// A line's columns: characters without the colours.
static int width_of(const char *line, size_t n) {
    int columns = 0;
    for (size_t i = 0; i < n; i++) {
        if (line[i] == '\033') {
            while (line[i] != 'm') i++;
            continue;
        }
        columns += ((unsigned char)line[i] & 0xc0) != 0x80;
    }
    return columns;
}

static void no_line_is_wider_than_the_terminal(void **state) {
    (void)state;
    struct lp_report *(*const makers[])(void) = {fake_healthy, fake_ill, fake_hostile};
    for (int width = 20; width <= 100; width += 4)
        for (size_t m = 0; m < 6; m++) {
            struct sheet s;
            open_sheet(&s, width, m < 3);
            print_all(&s, makers[m % 3]());
            for (const char *at = s.text; *at;) {
                size_t n = strcspn(at, "\n");
                if (width_of(at, n) > width) fail_msg("%d: %.*s", width, (int)n, at);
                at += n + 1;
            }
            free(s.text);
        }
}

static void only_a_terminal_gets_colours_and_ticks(void **state) {
    (void)state;
    struct sheet s;
    open_sheet(&s, 0, false);
    print_all(&s, fake_hostile());
    for (size_t i = 0; i < s.n; i++)
        assert_true((unsigned char)s.text[i] >= 0x20 || s.text[i] == '\n');
    free(s.text);
    open_sheet(&s, 80, true);
    print_all(&s, fake_ill());
    assert_non_null(strstr(s.text, "\xe2\x9c\x93"));
    assert_non_null(strstr(s.text, "\033[31m"));
    free(s.text);
}

static void a_pipe_is_no_terminal(void **state) {
    (void)state;
    struct lp_doctor_view view;
    FILE *to = tmpfile();
    lp_doctor_view_init(&view, to);
    assert_int_equal(view.width, 0);
    assert_false(view.fancy);
    fclose(to);
}

static void without_memory_it_says_so(void **state) {
    (void)state;
    struct lp_report *r = fake_ill();
    assert_int_equal(lp_report_close(r, NULL), LP_OK);
    bool ok = false;
    for (size_t n = 1; !ok; n++) {
        struct sheet s;
        assert_true(n < 300);
        open_sheet(&s, 60, true);
        lp_alloc_fail_after(n);
        lp_doctor_print_check(&s.view, &r->checks[1]);
        lp_doctor_print_end(&s.view, r);
        lp_alloc_fail_after(0);
        ok = !s.view.failed;
        fclose(s.view.to);
        free(s.text);
    }
    lp_report_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_check_is_a_line),
        cmocka_unit_test(a_stage_says_its_time),
        cmocka_unit_test(the_verdict_is_last_and_faults_say_what_to_do),
        cmocka_unit_test(no_line_is_wider_than_the_terminal),
        cmocka_unit_test(only_a_terminal_gets_colours_and_ticks),
        cmocka_unit_test(a_pipe_is_no_terminal),
        cmocka_unit_test(without_memory_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
