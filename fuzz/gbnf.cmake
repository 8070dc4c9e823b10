lp_fuzz(gbnf grammar)
