// The page is well-formed, whatever stands in the report, and nothing of a text becomes markup. The
// reader below knows as much of XML as the page may use.
#include "lp_test.h"

#include "report_fake.h"

#define MAX_DEPTH 32

struct reader {
    const char *at;
    char open[MAX_DEPTH][16]; // names of the elements around
    int depth;
    size_t n_scripts;
};

static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};

static void read_entity(struct reader *r) {
    for (size_t i = 0; i < sizeof entities / sizeof entities[0]; i++) {
        size_t n = strlen(entities[i]);
        if (strncmp(r->at, entities[i], n) != 0) continue;
        r->at += n;
        return;
    }
    fail_msg("no entity: %.40s", r->at);
}

static void read_name(struct reader *r, char out[16]) {
    size_t n = strspn(r->at, "abcdefghijklmnopqrstuvwxyzB0123456789-");
    assert_in_range(n, 1, 15);
    memcpy(out, r->at, n);
    out[n] = 0;
    r->at += n;
}

static void read_attributes(struct reader *r) {
    char name[16];
    while (*r->at == ' ') {
        r->at++;
        read_name(r, name);
        assert_true(strncmp(name, "on", 2) != 0);
        assert_true(strncmp(name, "style", 5) != 0);
        assert_true(r->at[0] == '=' && r->at[1] == '"');
        r->at += 2;
        while (*r->at != '"') {
            assert_true(*r->at && *r->at != '<');
            if (*r->at == '&')
                read_entity(r);
            else
                r->at++;
        }
        r->at++;
    }
}

static void read_tag(struct reader *r) {
    char name[16];
    bool closes = r->at[1] == '/';
    r->at += 1 + closes;
    read_name(r, name);
    r->n_scripts += strcmp(name, "script") == 0;
    if (closes) {
        assert_true(r->depth > 0);
        assert_string_equal(name, r->open[--r->depth]);
    } else {
        read_attributes(r);
        if (*r->at == '/')
            r->at++;
        else {
            assert_true(r->depth < MAX_DEPTH);
            memcpy(r->open[r->depth++], name, sizeof name);
        }
    }
    assert_int_equal(*r->at++, '>');
}

static void check_well_formed(const struct lp_bytes *page) {
    static const char doctype[] = "<!DOCTYPE html>\n";
    struct reader r = {.at = page->data};
    assert_memory_equal(page->data, doctype, sizeof doctype - 1);
    assert_int_equal(strlen(page->data), page->len);
    r.at += sizeof doctype - 1;
    while (*r.at) {
        if (*r.at == '<')
            read_tag(&r);
        else if (*r.at == '&')
            read_entity(&r);
        else {
            assert_true((unsigned char)*r.at >= 0x20 || *r.at == '\n');
            r.at++;
        }
    }
    assert_int_equal(r.depth, 0);
    assert_int_equal(r.n_scripts, 0);
}

static struct lp_bytes page_of(struct lp_report *r) {
    struct lp_bytes page = {0};
    assert_non_null(r);
    assert_int_equal(lp_report_close(r, NULL), LP_OK);
    assert_true(lp_report_html(r, &page));
    lp_report_free(r);
    return page;
}

static void pages_are_well_formed(void **state) {
    (void)state;
    struct lp_report *(*const makers[])(void) = {fake_healthy, fake_ill, fake_hostile};
    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++) {
        struct lp_bytes page = page_of(makers[i]());
        check_well_formed(&page);
        lp_bytes_release(&page);
    }
}

static void a_report_of_nothing_is_a_page(void **state) {
    (void)state;
    struct lp_bytes page = page_of(lp_report_new("", true));
    check_well_formed(&page);
    lp_bytes_release(&page);
}

static void the_order_is_verdict_faults_checks_plots(void **state) {
    (void)state;
    struct lp_bytes page = page_of(fake_ill());
    const char *verdict = strstr(page.data, "id=\"verdict\" class=\"bad\""),
               *faults = strstr(page.data, "<ol class=\"faults\">"),
               *follows = strstr(page.data, "<ul class=\"follows\">"),
               *checks = strstr(page.data, "<table>"),
               *plots = strstr(page.data, "<svg class=\"plot");
    assert_true(verdict && verdict < faults && faults < follows && follows < checks &&
                checks < plots);
    assert_non_null(strstr(page.data, "2 faults found"));
    assert_non_null(strstr(faults, "layer 3, <code>blk.3.attn_k_b.weight</code>"));
    assert_non_null(strstr(faults, "measured <bdi>0.41</bdi>, expected <bdi>at most 1e-03</bdi>"));
    assert_non_null(strstr(page.data, "quickly"));
    lp_bytes_release(&page);
    page = page_of(fake_healthy());
    assert_non_null(strstr(page.data, "id=\"verdict\" class=\"good\""));
    assert_null(strstr(page.data, "class=\"faults\""));
    assert_non_null(strstr(page.data, "in full"));
    lp_bytes_release(&page);
}

// Only the icon's name space is an address, and nothing is fetched from there.
static void nothing_comes_from_outside(void **state) {
    (void)state;
    struct lp_bytes page = page_of(fake_ill());
    for (const char *at = page.data; (at = strstr(at, "://")); at++)
        assert_memory_equal(at - 4, "http://www.w3.org/2000/svg", 26);
    assert_non_null(strstr(page.data, "default-src 'none'"));
    assert_null(strstr(page.data, "url("));
    lp_bytes_release(&page);
}

static void a_text_is_text(void **state) {
    (void)state;
    struct lp_bytes page = page_of(fake_hostile());
    assert_null(strstr(page.data, "<script"));
    assert_null(strstr(page.data, "<img"));
    assert_non_null(strstr(page.data,
                           "&lt;script&gt;window.hacked=1&lt;/script&gt;&lt;img src=x "
                           "onerror=&quot;window.hacked=1&quot;&gt;&#39;&quot;&amp;amp;"));
    lp_bytes_release(&page);
}

static void without_memory_it_says_so(void **state) {
    (void)state;
    struct lp_report *r = fake_hostile();
    bool ok = false;
    assert_int_equal(lp_report_close(r, NULL), LP_OK);
    for (size_t n = 1; !ok; n++) {
        struct lp_bytes page = {0};
        assert_true(n < 2000);
        lp_alloc_fail_after(n);
        ok = lp_report_html(r, &page);
        lp_alloc_fail_after(0);
        lp_bytes_release(&page);
    }
    lp_report_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_well_formed),
        cmocka_unit_test(a_report_of_nothing_is_a_page),
        cmocka_unit_test(the_order_is_verdict_faults_checks_plots),
        cmocka_unit_test(nothing_comes_from_outside),
        cmocka_unit_test(a_text_is_text),
        cmocka_unit_test(without_memory_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
