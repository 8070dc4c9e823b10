lp_fuzz(request serve)
