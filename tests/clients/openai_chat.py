"""What the clients of OpenAI's chat API share: asking, and holding answers against the package's own types."""
import functools

import openai
import pydantic

NO_THINKING = {"reasoning_effort": "none"}


def tool(name, description, **properties):
    """A tool whose parameters are all required; a parameter: its type, or its schema."""
    schemas = {k: {"type": v} if isinstance(v, str) else v for k, v in properties.items()}
    return {"type": "function", "function": {
        "name": name, "description": description,
        "parameters": {"type": "object", "properties": schemas, "required": list(properties)}}}


WEATHER = tool("get_weather", "Get the weather of a city", city="string")
CALCULATOR = tool("calculator", "Evaluate an expression", expression="string")
TIME = tool("get_time", "Get the local time of a city", city="string")
COUNT_DEVICE = tool("count_device", "Count a device", device_id="integer")
BOTH = "What is the weather in Oslo and in Paris?"


def client_of(server, kind=openai.OpenAI, api_key="x", **options):
    return kind(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=api_key, max_retries=0, **options)


def fields_of(server, text, fields):
    """What create, parse and stream are called with; text: the user's, or all messages."""
    messages = [{"role": "user", "content": text}] if isinstance(text, str) else text
    return {"model": server.model, "messages": messages, "temperature": 0, **NO_THINKING, **fields}


@functools.cache
def kept_client(server):
    return client_of(server)


def ask(server, text, **fields):
    """By one client that keeps its connections, as programs have it."""
    return kept_client(server).chat.completions.create(**fields_of(server, text, fields))


def text_of(completion):
    return completion.choices[0].message.content


def reasoning_of(message):
    """Under both of its names; None where there is none."""
    reasoning = getattr(message, "reasoning_content", None)
    assert reasoning == getattr(message, "reasoning", None), message
    return reasoning


def validate(value):
    """The package takes what it gets; this holds it against the package's own types."""
    pydantic.TypeAdapter(type(value)).validate_python(value.model_dump(by_alias=True, exclude_unset=True))


def raises(kind, function, *args, **fields):
    try:
        function(*args, **fields)
    except kind as error:
        assert type(error) is kind, error
        return error
    raise AssertionError(f"no {kind.__name__}")


def join(chunks):
    """The messages that chunks add up to, by choice; every chunk is one of its type."""
    choices, usage = {}, None
    for chunk in chunks:
        validate(chunk)
        usage = chunk.usage or usage
        for choice in chunk.choices:
            assert choice.index not in choices or choices[choice.index]["finish_reason"] is None, "behind the end"
            to = choices.setdefault(choice.index, {"role": None, "content": "", "reasoning": "", "calls": [],
                                                   "logprobs": [], "n_pieces": 0, "finish_reason": None})
            delta = choice.delta
            to["role"] = to["role"] or delta.role
            to["content"] += delta.content or ""
            to["reasoning"] += reasoning_of(delta) or ""
            to["n_pieces"] += bool(delta.content)
            for piece in delta.tool_calls or []:
                join_call(to["calls"], piece)
            to["logprobs"] += choice.logprobs.content if choice.logprobs else []
            to["finish_reason"] = choice.finish_reason
    return [choices[i] for i in sorted(choices)], usage


def join_call(calls, piece):
    if piece.index == len(calls):
        assert piece.id and piece.type == "function" and piece.function.name, piece
        calls.append({"id": piece.id, "name": piece.function.name, "arguments": ""})
    else:
        assert piece.id is None and piece.function.name is None, piece
    calls[piece.index]["arguments"] += piece.function.arguments or ""
