lp_folder(serve
  SOURCES serve/http.c serve/http_request.c serve/http_send.c serve/auth.c serve/request_id.c
          serve/access_log.c serve/metrics.c serve/service.c serve/openai.c serve/choice.c
          serve/generation.c serve/completion.c serve/completion_params.c serve/json_scan.c
          serve/logprobs.c serve/sse.c serve/json_out.c serve/api_error.c
  LINK lp_engine lp_base PkgConfig::MICROHTTPD PkgConfig::JANSSON)
