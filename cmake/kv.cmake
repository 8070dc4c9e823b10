lp_folder(kv
  SOURCES kv/pages.c kv/kv_types.c kv/prefix.c kv/store.c kv/store_dir.c kv/store_file.c kv/store_index.c
  LINK lp_backend lp_trace lp_base PkgConfig::XXHASH)
