lp_folder(serve
  SOURCES serve/http.c serve/auth.c serve/turn.c serve/openai.c serve/choice.c serve/completion.c
          serve/completion_params.c serve/logprobs.c serve/sse.c serve/json_out.c serve/api_error.c
  LINK lp_engine lp_base PkgConfig::MICROHTTPD PkgConfig::JANSSON)
