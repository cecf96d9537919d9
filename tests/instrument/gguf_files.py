"""Small GGUF files as llama.cpp would write them."""

import torch


def write_llama(path):
    """A Llama of two layers, one tensor in blocks, and one that no parameter is for."""
    import gguf

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("toy")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(32)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(64)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{number}".encode() for number in range(64)])
    writer.add_token_scores([0.0] * 64)
    writer.add_token_types([1] * 64)
    shapes = {"token_embd": (64, 32), "output_norm": (32,), "output": (64, 32), "stranger": (3,)}
    square = ("attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    parts = dict.fromkeys(square, (32, 32)) | dict.fromkeys(("attn_k", "attn_v"), (16, 32))
    parts |= dict.fromkeys(("attn_norm", "ffn_norm"), (32,))
    for layer in range(2):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in parts.items()}
    blocks = gguf.GGMLQuantizationType.Q8_0
    for name, shape in shapes.items():
        values = torch.randn(shape).numpy()
        if name == "blk.1.ffn_up":
            writer.add_tensor(
                f"{name}.weight", gguf.quants.quantize(values, blocks), raw_dtype=blocks
            )
        else:
            writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
