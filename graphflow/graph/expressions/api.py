"""Expressions of documents: CEL behind three methods (spec 2.1 rule 7, E16).

`compile_expression` reads an expression against the roots that its place has and gives an
`Expression` with `refs`, `type`, `evaluate(scope)` and `explain(error)`; `compile_template` does the
same for a `with` that holds `${…}`. The parts: `cel_syntax` finds the paths and forms,
`cel_paths` reads by reference, `cel_backend` is the library, `roots` knows what may be named.
"""

from graphflow.graph.expressions.compiler import Expression, compile_expression
from graphflow.graph.expressions.environment import Roots
from graphflow.graph.expressions.templates import Template, compile_template

__all__ = ["Expression", "Roots", "Template", "compile_expression", "compile_template"]
