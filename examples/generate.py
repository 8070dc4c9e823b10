#!/usr/bin/env python3
"""Text behind one or more prompts, from Python. The engine's own thread runs all of them together.

    LIMPID_LIBRARY=PREFIX/lib/liblimpid.so python3 generate.py MODEL.gguf "The capital of France is" "1, 2, 3,"
"""
import sys

from limpid import Engine, Error, Model, Request


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: generate.py MODEL.gguf TEXT...")
    with Model(sys.argv[1]) as model, Engine(model) as engine:
        engine.start()
        requests = [Request(engine, model.tokenize(text), max_tokens=16, temperature=0) for text in sys.argv[2:]]
        for prompt, request in zip(sys.argv[2:], requests):
            with request:
                print(prompt, "->", end="", flush=True)
                for event in request:
                    print(event.text, end="", flush=True)
                    if event.last:
                        print(f" [{event.finish_reason}]")


if __name__ == "__main__":
    try:
        main()
    except Error as e:
        sys.exit(f"generate.py: error: {e}")
