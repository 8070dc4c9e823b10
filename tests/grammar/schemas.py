#!/usr/bin/env python3
"""Random schemas: every text that their grammars accept is valid for Python's jsonschema.

    schemas.py SAMPLE_SCHEMA [N_SCHEMAS] [N_TEXTS] [SEED]

Draws schemas of all supported keywords, lets SAMPLE_SCHEMA write texts by random walks over what the
grammar allows, and validates each. Schemas that are refused are counted: few may be.
"""
import datetime
import json
import random
import subprocess
import sys
import warnings

try:
    import jsonschema
except ImportError:
    print("SKIPPED: Python's jsonschema is missing (Debian: python3-jsonschema)")
    sys.exit(77)

PATTERNS = (r"^[a-z]{2,5}$", r"^\d{3}-\d{4}$", r"ab", r"^x", r"y$", r"^(foo|bar)+$", r"^[^\"\\<]*$", r"^\S+$", r"^\w+@\w+$",
            r"^a|b$", r"^[A-Z][a-z]*$", r"^.{2,4}$", r"^\D\W$", r"^[\s\d]{0,3}$", r"^\u00e9[\x20-\x7e]?$", r"^(?:a?b+c*){1,2}$")
FORMATS = ("date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "uri", "hostname", "duration")
NAMES = ("a", "b", "ab", "abc", "na me", "\u00e9t\u00e9", "q\"uote", "back\\slash", "sl/ash", "til~de", "", "\U0001F600", "tab\t")
VALUES = (0, 1, -7, 2.5, 1e20, "a", "", "\u20ac \"x\" \\ \n", True, False, None, [], {}, [1, [2]], {"a": {"b": None}}, 12345678901)


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.n_defs = 0

    def some(self, p):
        return self.r.random() < p

    def bounds(self, schema, low, high, most, p=0.4):
        a = self.r.randint(0, most)
        if self.some(p):
            schema[low] = a
        if self.some(p):
            schema[high] = a + self.r.randint(0, most)

    def number(self, kind):
        schema = {"type": kind}
        size = self.r.choice((3, 100, 10**6, 10**12))
        draw = (lambda: self.r.randint(-size, size)) if kind == "integer" or self.some(0.5) else (
            lambda: round(self.r.uniform(-size, size), self.r.randint(0, 6)))
        a, b = sorted((draw(), draw()))
        if self.some(0.5):
            schema[self.r.choice(("minimum", "exclusiveMinimum"))] = a
        if self.some(0.5):
            schema[self.r.choice(("maximum", "exclusiveMaximum"))] = b + (2 if kind == "integer" else 1)
        if self.some(0.15):
            schema["multipleOf"] = self.r.choice((1, 2, 3, 5, 7, 10, 25, 60, 100))
            if "minimum" in schema or "exclusiveMinimum" in schema:
                schema.pop("maximum", None), schema.pop("exclusiveMaximum", None)
            if size > 10**6:
                schema.pop("minimum", None), schema.pop("exclusiveMinimum", None)
        return schema

    def string(self):
        schema = {"type": "string"}
        kind = self.r.random()
        if kind < 0.3:
            schema["pattern"] = self.r.choice(PATTERNS)
        elif kind < 0.5:
            schema["format"] = self.r.choice(FORMATS)
        elif kind < 0.8:
            self.bounds(schema, "minLength", "maxLength", 4)
        elif kind < 0.85:
            schema.update(pattern="^[a-c]+x$", minLength=self.r.randint(0, 4), maxLength=self.r.randint(4, 9))
        return schema

    def array(self, depth):
        schema = {"type": "array"}
        if self.some(0.4):
            schema["prefixItems"] = [self.schema(depth + 1) for _ in range(self.r.randint(1, 3))]
        if self.some(0.7):
            schema["items"] = self.r.choice((self.schema(depth + 1), self.schema(depth + 1), False, True))
        self.bounds(schema, "minItems", "maxItems", 3, 0.3)
        if schema.get("items") is False:
            schema.pop("minItems", None)
        return schema

    def object(self, depth):
        schema = {"type": "object"}
        names = self.r.sample(NAMES, self.r.randint(0, 5))
        if self.some(0.9):
            schema["properties"] = {name: self.schema(depth + 1) for name in names}
        if self.some(0.6):
            schema["required"] = self.r.sample(names, self.r.randint(0, len(names)))
            if self.some(0.1):
                schema["required"].append("undeclared")
        if self.some(0.6):
            schema["additionalProperties"] = self.r.choice((False, False, True, self.schema(depth + 1)))
            if schema["additionalProperties"] is False and "undeclared" in schema.get("required", ()):
                schema["required"].remove("undeclared")
        if self.some(0.15) and schema.get("properties"):
            schema["minProperties"] = self.r.randint(0, len(names))
        if self.some(0.15):
            schema["maxProperties"] = self.r.randint(len(names), len(names) + 2)
        return schema

    def tagged(self, depth, i):
        branch = self.object(depth + 1)
        branch.setdefault("properties", {})["kind"] = {"const": f"k{i}"}
        branch["required"] = branch.get("required", []) + ["kind"]
        branch.pop("maxProperties", None)
        return branch

    def combined(self, depth):
        kind = self.r.randrange(7)
        if kind == 0:
            return {"anyOf": [self.schema(depth + 1) for _ in range(self.r.randint(1, 3))]}
        if kind == 1:
            return {"oneOf": [self.tagged(depth, i) for i in range(self.r.randint(1, 3))]}
        if kind == 2:
            return {"oneOf": [{"type": "null"}, self.number("integer"), self.string()]}
        if kind == 3:
            return {"allOf": [self.object(depth + 1), self.object(depth + 1)]}
        if kind == 4:
            return {"allOf": [self.number("integer"), {"type": ["number", "null"], "minimum": -3}, {"type": ["integer", "string"]}]}
        if kind == 5:
            return {**self.object(depth + 1), "anyOf": [{"required": ["a"]}, {"properties": {"b": {"type": "integer"}}}]}
        return {"allOf": [{"anyOf": [self.array(depth + 1), {"type": "boolean"}]}, {"type": ["array", "boolean"], "maxItems": 4}]}

    def listed(self):
        if self.some(0.5):
            return {"const": self.r.choice(VALUES)}
        schema = {"enum": self.r.sample(VALUES, self.r.randint(1, 5))}
        if self.some(0.3):
            schema["type"] = ["number", "string", "null", "object", "boolean", "array"]
        return schema

    def schema(self, depth=0):
        kinds = ["string", "integer", "number", "boolean", "null", "listed", "types", "any"]
        if depth < 4:
            kinds += ["object"] * 4 + ["array"] * 2 + ["combined"] * 2
        if self.n_defs:
            kinds += ["ref"]
        kind = self.r.choice(kinds)
        if kind in ("integer", "number"):
            schema = self.number(kind)
        elif kind in ("object", "array", "combined"):
            schema = getattr(self, kind)(depth)
        elif kind in ("string", "listed"):
            schema = getattr(self, kind)()
        elif kind == "types":
            schema = {"type": self.r.sample(["null", "boolean", "integer", "number", "string"], 2)}
        elif kind == "any":
            schema = self.r.choice(({}, True, {"minLength": 2}, {"minimum": 3}))
        elif kind == "ref":
            schema = {"$ref": f"#/$defs/d{self.r.randrange(self.n_defs)}"}
            if self.some(0.2):
                schema = {**schema, "description": "what it is"}
        else:
            schema = {"type": kind}
        if isinstance(schema, dict) and self.some(0.1):
            schema = {"title": "t", "default": 1, **schema}
        return schema

    def whole(self):
        self.n_defs = self.r.randint(0, 3)
        top = self.object(0) if self.some(0.6) else self.schema(0)
        if not isinstance(top, dict):
            top = {}
        # Definitions may use each other, also in circles, where an object stands between.
        if self.n_defs:
            top = {**top, "$defs": {f"d{i}": self.object(1) for i in range(self.n_defs)}}
        return top


def format_checker():
    """jsonschema's own checks, but "time", which is draft 3's there, and "date-time" by Python's reader."""
    checker = jsonschema.FormatChecker([f for f in jsonschema.FormatChecker.checkers if f not in ("time", "date-time", "color")])
    if sys.version_info >= (3, 11):
        checker.checks("time", ValueError)(lambda text: not isinstance(text, str) or bool(datetime.time.fromisoformat(text) or True))
        checker.checks("date-time", ValueError)(lambda text: not isinstance(text, str) or bool(datetime.datetime.fromisoformat(text)))
    return checker


def main():
    program = sys.argv[1]
    n_schemas, n_texts, seed = (int(a) for a in (sys.argv[2:] + ["500", "5", "1"][len(sys.argv) - 2:]))
    maker = Maker(seed)
    schemas = [maker.whole() for _ in range(n_schemas)]
    lines = "".join(json.dumps(s, ensure_ascii=maker.some(0.5)) + "\n" for s in schemas)
    done = subprocess.run([program, "json_schema", str(n_texts), str(seed)], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in done.stdout.decode().strip("\n").split("\n")]
    assert len(answers) == len(schemas), f"{len(answers)} answers to {len(schemas)} schemas"
    checker = format_checker()
    refused, texts, endless, faults = {}, 0, 0, 0
    for schema, answer in zip(schemas, answers):
        if isinstance(answer, dict):
            refused.setdefault(answer["status"], []).append((answer["error"], schema))
            faults += answer["status"] == "STUCK"
            continue
        validator = jsonschema.Draft202012Validator(schema, format_checker=checker)
        for text in answer:
            if text is None:
                endless += 1
                continue
            texts += 1
            try:
                validator.validate(json.loads(text))
            except (jsonschema.ValidationError, ValueError) as error:
                faults += 1
                print(f"NOT VALID: {text}\n  of {json.dumps(schema)}\n  {str(error).splitlines()[0]}")
    for status, cases in sorted(refused.items()):
        print(f"{len(cases)} schemas: {status}")
        for error, schema in cases[:400 if status == "STUCK" or "-v" in sys.argv else 4]:
            print(f"  {error}\n    {json.dumps(schema)[:300]}")
    n_refused = sum(map(len, refused.values()))
    print(f"{n_schemas - n_refused} schemas of {n_schemas}, {texts} texts valid, {endless} without an end, {faults} faults")
    sys.exit(faults > 0 or n_refused > n_schemas // 5 or endless > texts // 10)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
