"""Exports plans as Chakra execution traces and decodes them with protobuf: nodes, dependencies, messages that find each other.

decode.py PROGRAM FOLDER
"""
import json
import pathlib
import subprocess
import sys

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError:
    print('python3-protobuf is not installed')
    sys.exit(77)

PROGRAM, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
F = descriptor_pb2.FieldDescriptorProto


def message_types():
    """The messages of et_def.proto that are used here, by their names and numbers there."""
    file = descriptor_pb2.FileDescriptorProto(name='et.proto', package='ChakraProtoMsg', syntax='proto3')

    def add(name, fields):
        message = file.message_type.add(name=name)
        for number, field, kind, label in fields:
            one = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                one.type, one.type_name = F.TYPE_MESSAGE, '.ChakraProtoMsg.' + kind
            else:
                one.type = kind

    one, many = F.LABEL_OPTIONAL, F.LABEL_REPEATED
    add('AttributeProto', [(1, 'name', F.TYPE_STRING, one), (7, 'int32_val', F.TYPE_INT32, one), (9, 'int64_val', F.TYPE_INT64, one),
                           (13, 'uint64_val', F.TYPE_UINT64, one), (27, 'bool_val', F.TYPE_BOOL, one), (29, 'string_val', F.TYPE_STRING, one)])
    add('GlobalMetadata', [(1, 'version', F.TYPE_STRING, one), (2, 'attr', 'AttributeProto', many)])
    add('Node', [(1, 'id', F.TYPE_UINT64, one), (2, 'name', F.TYPE_STRING, one), (3, 'type', F.TYPE_INT32, one),
                 (4, 'ctrl_deps', F.TYPE_UINT64, many), (5, 'data_deps', F.TYPE_UINT64, many), (6, 'start_time_micros', F.TYPE_UINT64, one),
                 (7, 'duration_micros', F.TYPE_UINT64, one), (10, 'attr', 'AttributeProto', many)])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)

    def get(name):
        descriptor = pool.FindMessageTypeByName('ChakraProtoMsg.' + name)
        return message_factory.GetMessageClass(descriptor) if hasattr(message_factory, 'GetMessageClass') else \
            message_factory.MessageFactory(pool).GetPrototype(descriptor)
    return get('GlobalMetadata'), get('Node')


METADATA, NODE = message_types()


def messages_of(data):
    at = 0
    while at < len(data):
        length, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                break
        assert at + length <= len(data), 'a message is cut off'
        yield data[at:at + length]
        at += length


def read(file):
    """The nodes of one device, each with its attributes as a dictionary."""
    messages = list(messages_of(file.read_bytes()))
    metadata = METADATA.FromString(messages[0])
    assert metadata.version, metadata
    nodes = []
    for message in messages[1:]:
        node = NODE.FromString(message)
        assert not node.UnknownFields() if hasattr(node, 'UnknownFields') and callable(node.UnknownFields) else True
        kinds = {'comm_type': 'int64_val', 'comm_size': 'int64_val', 'num_ops': 'int64_val', 'tensor_size': 'uint64_val', 'comm_src': 'int32_val',
                 'comm_dst': 'int32_val', 'comm_tag': 'int32_val', 'pg_name': 'string_val', 'is_cpu_op': 'bool_val'}
        nodes.append((node, {attr.name: getattr(attr, kinds[attr.name]) for attr in node.attr}))
    return nodes


def check(devices, arguments, expects):
    name = str(FOLDER / 'plan')
    for old in FOLDER.glob('plan.*'):
        old.unlink()
    run = subprocess.run([PROGRAM, 'plan', *arguments, '--export', 'chakra', name], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    files = sorted(FOLDER.glob('plan.*.et'), key=lambda file: int(file.name.split('.')[1]))
    assert len(files) == devices, files
    groups = json.loads((FOLDER / 'plan.groups.json').read_text())
    sends, receives, meetings, kinds = {}, {}, {}, set()
    tasks = 0
    for device, file in enumerate(files):
        nodes = read(file)
        tasks += len(nodes)
        for number, (node, attributes) in enumerate(nodes):
            assert node.id == number, 'nodes are numbered in order'
            assert all(dependency < node.id for dependency in node.data_deps), 'a node depends on an earlier one'
            assert number == 0 or node.data_deps or node.type != COMPUTE or number < 3, node
            kinds.add(node.type)
            if node.type == COMPUTE:
                assert attributes['tensor_size'] >= 0 and attributes['num_ops'] >= 0
            elif node.type in (SEND, RECEIVE):
                ends = (attributes['comm_src'], attributes['comm_dst'], attributes['comm_tag'])
                assert ends[0 if node.type == SEND else 1] == device, ends
                where = sends if node.type == SEND else receives
                assert ends not in where
                where[ends] = attributes['comm_size']
            elif node.type == COLLECTIVE:
                assert device in groups[attributes['pg_name']], attributes
                assert attributes['comm_size'] > 0
                meetings.setdefault((attributes['pg_name'], device), []).append((attributes['comm_type'], attributes['comm_size']))
            else:
                raise AssertionError(node)
        assert any(node.type == COMPUTE and attributes['num_ops'] > 0 for node, attributes in nodes)
        if '--cluster' in arguments:
            assert any(node.duration_micros > 0 for node, _ in nodes)
    assert sends == receives, 'every message is sent and received, with the same size'
    for group, members in groups.items():
        orders = [meetings[(group, device)] for device in members]
        assert all(order == orders[0] for order in orders), 'all members take part in the same collectives in the same order'
    assert kinds == expects, (kinds, expects)
    text = subprocess.run([PROGRAM, 'plan', *arguments, '--text'], capture_output=True, text=True).stdout
    assert tasks == sum(line.startswith('task') or line.lstrip().startswith('t') and line.lstrip()[1:2].isdigit() for line in text.splitlines()), tasks


FOLDER.mkdir(parents=True, exist_ok=True)
model = ['--model', 'mlp:dim=16,depth=4', '--batch', '8']
cluster = ['--cluster', 'pcie-4', '--devices', '4']
check(4, [*model, *cluster, '--strategy', 'ddp'], {COMPUTE, COLLECTIVE})
check(4, [*model, *cluster, '--strategy', '1f1b', '--optimizer', 'adam'], {COMPUTE, SEND, RECEIVE})
check(4, [*model, *cluster, '--dp', '2', '--pp', '2', '--zero', '3'], {COMPUTE, SEND, RECEIVE, COLLECTIVE})
check(2, [*model, '--devices', 'cpu:2', '--strategy', 'tensor'], {COMPUTE, COLLECTIVE})
refused = subprocess.run([PROGRAM, 'plan', *model, '--export', 'gltf', str(FOLDER / 'plan')], capture_output=True, text=True)
assert refused.returncode == 2 and 'chakra' in refused.stderr, refused.stderr
print('decoded')
