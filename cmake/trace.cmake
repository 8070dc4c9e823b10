lp_folder(trace SOURCES trace/trace.c LINK lp_base Threads::Threads)
