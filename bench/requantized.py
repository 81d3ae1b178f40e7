"""Writes a GGUF model's 4-bit matrices as another type, so that servers can be compared on types nobody publishes.

    requantized.py MODEL.gguf q4_0|q8_0|bf16 OUT.gguf

Needs PyPI's gguf. The values are those of MODEL: quality is that of MODEL at best, speed and memory are the new type's.
"""
import sys

import gguf
from gguf.quants import dequantize, quantize


def main():
    source, wanted, target = sys.argv[1:]
    new_type = gguf.GGMLQuantizationType[wanted.upper()]
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        value_type = field.types[0]
        writer.add_key_value(name, field.contents(), value_type,
                             field.types[-1] if value_type == gguf.GGUFValueType.ARRAY else None)
    writer.add_file_type(int(gguf.LlamaFileType[("MOSTLY_" + wanted).upper()]))
    for tensor in reader.tensors:
        data, kind = tensor.data, tensor.tensor_type
        if kind == gguf.GGMLQuantizationType.Q4_1:
            data, kind = quantize(dequantize(data, kind), new_type), new_type
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
