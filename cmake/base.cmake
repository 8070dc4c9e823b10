lp_folder(base
  SOURCES base/status.c base/log.c base/alloc.c base/bytes.c base/clean.c base/map.c base/file.c
          base/workers.c base/clock.c base/rng.c base/progress.c base/system_memory.c
  LINK Threads::Threads m)
