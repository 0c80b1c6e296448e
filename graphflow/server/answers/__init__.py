"""What every route answers, as types: the OpenAPI page is made of them, and a test holds the answers to it (spec 3).

They describe; nothing is built from them, so an answer costs no validation. A field with a default of None is left out
when there is nothing to say; one that may be null has no default. Each area is a file, with the routes that answer so.
"""
