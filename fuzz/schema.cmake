lp_fuzz(schema grammar)
