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


def write_lfm2(path):
    """One layer of a short convolution and one of attention, which release 5 reads lazily."""
    import gguf

    writer = gguf.GGUFWriter(str(path), "lfm2")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(32)
    writer.add_head_count(4)
    writer.add_head_count_kv([0, 2])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    writer.add_shortconv_l_cache(3)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{number}".encode() for number in range(64)])
    feed = {f"ffn_{name}": (32, 32) for name in ("gate", "up", "down")}
    both = {"attn_norm": (32,), "ffn_norm": (32,), **feed}
    turned = {"shortconv.conv": (32, 3), "shortconv.in_proj": (96, 32)}
    turned |= {"shortconv.out_proj": (32, 32)}
    looking = dict.fromkeys(("attn_q", "attn_output"), (32, 32))
    looking |= dict.fromkeys(("attn_k", "attn_v"), (16, 32))
    looking |= dict.fromkeys(("attn_q_norm", "attn_k_norm"), (8,))
    shapes = {"token_embd": (64, 32), "token_embd_norm": (32,)}
    for layer, parts in enumerate((both | turned, both | looking)):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in parts.items()}
    blocks = gguf.GGMLQuantizationType.Q8_0
    for name, shape in shapes.items():
        values = torch.randn(shape).numpy()
        if name.endswith("ffn_up"):
            values = gguf.quants.quantize(values, blocks)
            writer.add_tensor(f"{name}.weight", values, raw_dtype=blocks)
        else:
            writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
