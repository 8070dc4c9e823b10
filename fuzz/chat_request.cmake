lp_fuzz(chat_request serve)
