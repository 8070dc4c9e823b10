lp_folder(kv SOURCES kv/pages.c LINK lp_backend lp_trace lp_base)
