lp_folder(base
  SOURCES base/status.c base/log.c base/alloc.c base/bytes.c base/clean.c base/map.c base/file.c
          base/workers.c base/clock.c base/rng.c base/progress.c base/system_memory.c
          base/direct_read.c base/direct_ring.c base/direct_pool.c base/topology.c base/huge_pages.c
  LINK PkgConfig::LIBURING PkgConfig::HWLOC Threads::Threads m)
