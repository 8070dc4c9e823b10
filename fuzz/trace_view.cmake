lp_fuzz(trace_view trace)
