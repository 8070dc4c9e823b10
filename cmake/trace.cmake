include(cmake/trace_view.cmake)
lp_folder(trace
  SOURCES trace/trace.c trace/trace_ring.c trace/trace_json.c trace/trace_read.c
          trace/trace_file.c trace/crash.c trace/step_clock.c
          ${LP_TRACE_VIEW_SOURCES}
  LINK lp_base Threads::Threads PkgConfig::JANSSON)
