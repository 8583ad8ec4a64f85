"""Golden vectors for the fingerprint and the provider key, from nothing but Python's standard library.

Services in other languages compute these values in this way; `python3 make.py` prints the two files next to it.
The test runs it again and compares, so neither side can move alone.
"""

import hashlib
import json
import struct
import sys
import uuid

# Bodies as a client might send them: text, of strings, integers, booleans, null, arrays and objects.
BODIES = [
    '{"amount":1000,"currency":"EUR","payee":{"iban":"DE02120300000000202051"}}',
    ' { "payee" : { "iban" : "DE02120300000000202051" } ,\r\n\t"currency" : "EUR" , "amount" : 1000 } ',
    "{}",
    "[]",
    "null",
    "true",
    "-0",
    "0",
    "-12",
    "9007199254740992",
    "9007199254740993",
    "123456789012345678901",
    '""',
    '"\\u0000\\u0001\\b\\t\\n\\f\\r\\u001f\\"\\\\\\/\\u007f\\u0080\\u2028\\u2029"',
    '"\\u20ac\\ud83d\\ude00 \u20ac\U0001f600"',
    '{"\\u20ac":"Euro","\\r":"CR","\\ufb33":"Hebrew","1":"One","\\ud83d\\ude00":"Emoji","\\u0080":"C1","\\u00f6":"o"}',
    '{"\\uffff":1,"\\ud800\\udc00":2,"":3,"a":4,"aa":5,"A":6,"\\u00e9":7,"e\\u0301":8}',
    '{"b":[3,1,2,[],{},[[]],{"z":null,"a":false}],"a":{"b":{"c":{"d":[null,true]}}}}',
    '{"10":1,"9":2,"1":3,"-":4,"a/b":5,"m~n":6," ":7}',
    '{"note":"line one\\nline two\\u2028<script>&\'"}',
]

# The order (client_id, key, operation).
KEYS = [
    ("shop-1", "order-1", None),
    ("shop-1", "order-1", "POST /payments"),
    ("shop-1", "order-1", ""),
    ("a", "bc", None),
    ("ab", "c", None),
    ("shop:1", "order", None),
    ("shop", "1:order", None),
    ("магазин", "заказ-№1", "POST /платежи"),
    ("\U0001f6d2", "x" * 255, None),
]


def canonical(text):
    return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def provider_key(client_id, key, operation):
    digest = hashlib.sha256()
    for part in ("idemctl/provider-key/v1", client_id, key, operation):
        if part is not None:
            raw = part.encode()
            digest.update(struct.pack(">Q", len(raw)) + raw)
    raw = bytearray(digest.digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x80  # version 8
    raw[8] = raw[8] & 0x3F | 0x80  # variant
    return str(uuid.UUID(bytes=bytes(raw)))


def fingerprints():
    for body in BODIES:
        text = canonical(body)
        yield {"body": body, "canonical": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def provider_keys():
    for client_id, key, operation in KEYS:
        made = provider_key(client_id, key, operation)
        yield {"client_id": client_id, "key": key, "operation": operation, "provider_key": made}


def digests():
    """For the proptest: one body a line on stdin, its digest on stdout."""
    for line in sys.stdin:
        yield hashlib.sha256(canonical(line).encode()).hexdigest()


if sys.argv[1] == "digests":
    print("\n".join(digests()))
else:
    made = {"fingerprints": fingerprints, "provider_keys": provider_keys}[sys.argv[1]]
    print("\n".join(json.dumps(vector) for vector in made()))
