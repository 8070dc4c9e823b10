lp_fuzz(dump doctor)
