"""Every registered signature against the standard's own schema, at every opset: the names and
number of inputs, which of
them may be left out, and the attributes with their defaults."""

import inspect

import onnx
import onnx.defs
import pytest

from jaxshape._interpret import load_ops
from jaxshape._op import REQUIRED, registered, select

load_ops()
KIND = onnx.defs.OpSchema.FormalParameterOption
SCHEMAS = [
    pytest.param(s, id=f"{s.domain or 'ai.onnx'}-{s.name}-{s.since_version}")
    for s in sorted(
        onnx.defs.get_all_schemas_with_history(), key=lambda s: (s.domain, s.name, s.since_version)
    )
    if not s.deprecated and select(s.domain, s.name, s.since_version) is not None
]


def default_of(attribute: onnx.defs.OpSchema.Attribute) -> object:
    """An attribute's default as our signatures write it: None where there is none."""
    if attribute.required:
        return REQUIRED
    if not attribute.default_value.name:
        return None
    value = onnx.helper.get_attribute_value(attribute.default_value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return tuple(v.decode() if isinstance(v, bytes) else v for v in value)
    return value


@pytest.mark.parametrize("schema", SCHEMAS)
def test_signature(schema):
    op = select(schema.domain, schema.name, schema.since_version)
    assert op is not None
    variadic = bool(schema.inputs) and schema.inputs[-1].option is KIND.Variadic
    assert len(op.inputs) == len(schema.inputs)
    assert op.variadic == variadic
    assert op.required == sum(i.option is KIND.Single for i in schema.inputs)
    expected = {name: default_of(a) for name, a in schema.attributes.items()}
    assert op.attributes.keys() == expected.keys()
    for name, default in expected.items():
        if isinstance(default, float):
            assert op.attributes[name] == pytest.approx(default, rel=1e-6), name
        else:
            assert op.attributes[name] == default, name


def test_every_operator_of_the_default_domain_is_written():
    missing = {
        f"{s.name}-{s.since_version}"
        for s in onnx.defs.get_all_schemas_with_history()
        if s.domain == "" and not s.deprecated and select("", s.name, s.since_version) is None
    }
    assert not missing


def test_no_version_is_registered_twice():
    keys = [(op.domain, op.name, op.since) for op in registered()]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("op", [o for o in registered() if o.rule], ids=repr)
def test_a_shape_rule_takes_what_its_op_takes(op):
    """The same inputs may be absent, and the same attributes are known."""
    parameters = inspect.signature(op.rule).parameters.values()
    kinds = {p.kind for p in parameters}
    inputs = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    assert all(p.default is not p.empty for p in inputs[op.required :])
    assert len(inputs) >= len(op.inputs) or inspect.Parameter.VAR_POSITIONAL in kinds
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        assert op.attributes.keys() <= {p.name for p in parameters}
