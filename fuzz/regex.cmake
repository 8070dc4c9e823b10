lp_fuzz(regex grammar)
