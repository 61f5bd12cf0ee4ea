"""llama.cpp's side of engine_bench.py, as a program like engine_sides.py: `engine_llama_cpp.py FOLDER THREADS`.

FOLDER/checkpoint, a Qwen3, is written as GGUF in float32 (its words are their ids in digits, so that the text of an answer tells them), and answered greedily,
one request at a time, by llama.cpp's own server within this process; the cache of keys and values is in float32, too.
"""

import json
import pathlib
import re
import sys
import time

BLOCK = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
REST = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


def gguf_name(name):
    """A checkpoint's name of a tensor, as llama.cpp calls it."""
    block = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.weight", name)
    return f"blk.{block[1]}.{BLOCK[block[2]]}.weight" if block else REST[name]


def write_gguf(checkpoint, path):
    import gguf
    from safetensors.torch import load_file

    config = json.loads((checkpoint / "config.json").read_text())
    writer = gguf.GGUFWriter(str(path), "qwen3")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"\u0120{i}".encode() for i in range(config["vocab_size"])])
    writer.add_token_types([gguf.TokenType.NORMAL] * config["vocab_size"])
    writer.add_token_merges(["0 0"])
    writer.add_eos_token_id(0)  # never chosen below; here as good as any
    for file in sorted(checkpoint.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            writer.add_tensor(gguf_name(name), tensor.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def open_server(model, threads, longest):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_ctx, params.n_parallel = longest, 1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED  # with it, other tokens in the end
    params.verbosity = 0
    return xllamacpp.Server(params)


def answer(server, request):
    told = server.handle_completions({"prompt": request["tokens"], "n_predict": request["max_new_tokens"], "temperature": 0, "samplers": ["top_k"],
                                      "top_k": 1, "ignore_eos": True, "cache_prompt": False})  # fmt: skip
    return [int(word) for word in told["choices"][0]["text"].split()]


def serve(folder, threads):
    scene = json.loads((folder / "scene.json").read_text())
    write_gguf(folder / "checkpoint", folder / "model.gguf")
    longest = max(len(request["tokens"]) + request["max_new_tokens"] for request in scene["requests"])
    server = open_server(folder / "model.gguf", threads, longest)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        requests = scene["requests"][: json.loads(line).get("count")]
        start = time.perf_counter()
        answers = [answer(server, request) for request in requests]
        print(json.dumps({"answers": answers, "seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    serve(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
