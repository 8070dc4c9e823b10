# What makes a trace readable; the rest of the folder is in trace.cmake.
set(LP_TRACE_VIEW_SOURCES trace/view.c trace/view_lines.c trace/view_index.c trace/view_steps.c
                          trace/view_story.c trace/view_summary.c trace/view_chrome.c
                          trace/view_process.c trace/view_rank.c trace/view_clock.c
                          trace/view_ranks.c
                          trace/view_words.c)
