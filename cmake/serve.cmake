lp_folder(serve
  SOURCES serve/http.c serve/http_request.c serve/http_send.c serve/auth.c serve/request_id.c
          serve/access_log.c serve/metrics.c serve/service.c serve/stall.c serve/engine_view.c serve/page.c
          serve/debug_trace.c serve/debug_probe.c
          serve/fields.c serve/structured.c serve/json_scan.c serve/json_out.c serve/api_error.c
          serve/completion.c serve/completion_params.c serve/generation.c serve/answer.c serve/sse.c
          serve/openai.c serve/completions.c serve/choice.c serve/logprobs.c serve/text_api.c
          serve/chat_request.c serve/chat_prompt.c serve/chat_turns.c serve/chat_constraint.c
          serve/turns.c serve/chat_answer.c serve/chat_logprobs.c
          serve/openai_chat.c serve/openai_chat_request.c
          serve/anthropic.c serve/anthropic_request.c serve/anthropic_messages.c
          serve/anthropic_stream.c
          serve/responses.c serve/responses_request.c serve/responses_input.c serve/responses_items.c
          serve/responses_stream.c
  LINK lp_engine lp_text lp_trace lp_base PkgConfig::MICROHTTPD PkgConfig::JANSSON)
# The web page lies in the program as it is (page.c).
set_source_files_properties(src/serve/page.c PROPERTIES
  COMPILE_DEFINITIONS LP_PAGE_PATH="${CMAKE_CURRENT_SOURCE_DIR}/src/serve/page.html"
  OBJECT_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/serve/page.html)
