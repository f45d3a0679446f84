"""The file of an exported program: a zip archive of JSON and of the bytes of tensors, with checksums.

    format.json     {"format": "pyframe.export", "version": 1, "torch": ..., "sha256": {member: checksum}}
    program.json    the graph, the signature, the conditions, and where the tensors are in their storages
    storages/0 ...  the bytes of each storage

Loading a file runs no code of it: operators and classes are looked up by name, see `targets` and `signature.data`.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import torch
from torch import nn

from inductor.eager.transforms import GradAndValue, Vmapped

from ..errors import UserError
from ..signature.data import (
    decode,
    decode_condition,
    decode_parameters,
    decode_spec,
    decode_structure,
    encode,
    encode_condition,
    encode_parameters,
    encode_spec,
    encode_structure,
)
from .exported import Exported, attach
from .graphs import decode_graph, encode_graph

FORMAT, VERSION = "pyframe.export", 1


def save(exported: Exported, path: str | os.PathLike[str]) -> None:
    """See `Exported.save`. The file is complete or not there: it is written beside its place and renamed."""
    graph = encode_graph(exported.graph_module)
    tensors, members = _encode_tensors(exported.constants)
    program = {
        "name": exported.name,
        "graph": graph,
        "inputs": [encode_spec(each) for each in exported.inputs],
        "conditions": [encode_condition(each) for each in exported.conditions],
        "parameters": encode_parameters(exported.parameters),
        "result": encode_structure(exported.result),
        "mutated": exported.mutated,
        "kinds": exported.kinds,
        "tensors": tensors,
        "dropped": exported.dropped,
    }
    members["program.json"] = json.dumps(program).encode()
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    head = {"format": FORMAT, "version": VERSION, "torch": torch.__version__, "sha256": checksums}
    temporary = f"{os.fspath(path)}.{os.getpid()}.tmp"
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("format.json", json.dumps(head))
            for name, content in members.items():
                archive.writestr(name, content)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def load(path: str | os.PathLike[str], classes: Iterable[type] = ()) -> Exported:
    """See `Exported.load`."""
    members = _members(path)
    program = json.loads(members["program.json"])
    constants = _decode_tensors(program["tensors"], members)
    kinds = program["kinds"]
    known = {(cls.__module__, cls.__qualname__): cls for cls in classes}
    root = nn.Module()
    attach(root, constants, kinds)
    module = decode_graph(program["graph"], root)
    attach(module, constants, kinds)
    return Exported(
        name=program["name"], graph_module=module, inputs=[decode_spec(each) for each in program["inputs"]],
        conditions=[decode_condition(each) for each in program["conditions"]],
        parameters=decode_parameters(program["parameters"], known),
        result=decode_structure(program["result"], known), mutated=program["mutated"], constants=constants,
        kinds=kinds, dropped=program["dropped"],
    )  # fmt: skip


# What zipfile raises for files that are not as it writes them. Wrong numbers lead to seeks that fail, and flags to
# methods of compression and encryption that are not there.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, KeyError, EOFError, ValueError, OSError, NotImplementedError, RuntimeError,
    OverflowError,
)  # fmt: skip


def _read_members(file: BinaryIO, name: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The head of a file, and its members."""
    with zipfile.ZipFile(file) as archive:
        head = json.loads(archive.read("format.json"))
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise UserError(f"{name} is no exported program")
        if head["version"] != VERSION:
            raise UserError(
                f"{name} has version {head['version']} of the format, and this pyframe reads version {VERSION}; "
                "export the program again"
            )
        return head, {each: archive.read(each) for each in head["sha256"]}


def _members(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """The members of a file, whose checksums are right."""
    name = os.fspath(path)
    with open(path, "rb") as file:  # whose OSError is the caller's; what follows fails because of the content
        try:
            head, members = _read_members(file, name)
        except _DAMAGED as error:
            raise UserError(f"{name} is damaged, or no exported program: {error}") from error
    for each, content in members.items():
        if hashlib.sha256(content).hexdigest() != head["sha256"][each]:
            raise UserError(f"{name} is damaged: the checksum of {each} is wrong")
    return members


# ---- tensors


def _encode_tensors(constants: Mapping[str, torch.Tensor]) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """Where each tensor is in its storage, and the bytes of the storages. Tensors that share memory, or are one object,
    do so after loading."""
    tensors: list[dict[str, Any]] = []
    members: dict[str, bytes] = {}
    storages: dict[int, str] = {}
    first: dict[int, str] = {}
    for name, tensor in constants.items():
        if isinstance(tensor, Vmapped | GradAndValue):
            continue  # a part of the graph
        if id(tensor) in first:
            tensors.append({"name": name, "same": first[id(tensor)]})
            continue
        first[id(tensor)] = name
        plain = type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout is torch.strided
        if not plain or tensor.is_quantized or tensor.device.type == "meta":
            raise UserError(f"export: {name} is a {type(tensor).__name__} that cannot be saved ({tensor.layout})")
        storage = tensor.untyped_storage()
        member = storages.get(storage._cdata)
        if member is None:
            member = storages[storage._cdata] = f"storages/{len(storages)}"
            members[member] = _bytes_of(storage)
        tensors.append({
            "name": name, "storage": member, "dtype": encode(tensor.dtype), "device": str(tensor.device),
            "size": list(tensor.size()), "stride": list(tensor.stride()), "offset": tensor.storage_offset(),
            "requires_grad": tensor.requires_grad, "parameter": isinstance(tensor, nn.Parameter),
            "conj": tensor.is_conj(), "neg": tensor.is_neg(),
        })  # fmt: skip
    return tensors, members


def _bytes_of(storage: torch.UntypedStorage) -> bytes:
    if not storage.nbytes():
        return b""
    cpu = torch.empty(0, dtype=torch.uint8).set_(storage.cpu())  # type: ignore[call-overload, unused-ignore]
    return bytes(cpu.numpy().tobytes())


def _decode_tensors(data: Any, members: Mapping[str, bytes]) -> dict[str, torch.Tensor]:
    storages: dict[tuple[str, str], torch.UntypedStorage] = {}
    found: dict[str, torch.Tensor] = {}
    for each in data:
        if "same" in each:
            found[each["name"]] = found[each["same"]]
            continue
        key = each["storage"], each["device"]
        if key not in storages:
            content = members[each["storage"]]
            plain = torch.empty(0, dtype=torch.uint8)  # torch.frombuffer refuses an empty buffer
            plain = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else plain
            storages[key] = plain.to(each["device"]).untyped_storage()
        tensor = torch.empty(0, dtype=decode(each["dtype"]), device=each["device"])
        tensor.set_(storages[key], each["offset"], each["size"], each["stride"])  # type: ignore[call-overload, unused-ignore]
        tensor = tensor.conj() if each["conj"] else tensor
        tensor = torch._neg_view(tensor) if each["neg"] else tensor
        if each["parameter"]:
            tensor = nn.Parameter(tensor, each["requires_grad"])
        else:
            tensor.requires_grad_(each["requires_grad"])
        found[each["name"]] = tensor
    return found
