lp_fuzz(imatrix files)
