# The committed answers of tests/data/chat/cases.json are still what Python's jinja2 gives.
add_test(NAME chat_cases_match_jinja2
         COMMAND Python3::Interpreter -B ${CMAKE_SOURCE_DIR}/tools/make_chat_cases.py --check)
set_tests_properties(chat_cases_match_jinja2 PROPERTIES SKIP_RETURN_CODE 77)
