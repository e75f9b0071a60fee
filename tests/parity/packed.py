# SPDX-License-Identifier: MIT
"""Checkpoints quantised by GPTQ, AWQ, compressed-tensors, bitsandbytes or ModelOpt (codes and scales), and FP8."""

import copy
import json
import os

import torch
import transformers as tr
from safetensors.torch import load_file, save_file

import families
from quantised import edit_config, replace_linears

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # order of the outputs in a word


def words(codes, bits, dim, order=None):
    """Packs codes along `dim` into words of 32 bits, the first in the lowest bits."""
    per = 32 // bits
    codes = codes.long().movedim(dim, -1).unflatten(-1, (-1, per))
    if order:
        codes = codes[..., order]
    word = (codes << (torch.arange(per) * bits)).sum(-1)
    return torch.where(word >= 2**31, word - 2**32, word).int().movedim(-1, dim).contiguous()


def random_codes(rows, cols, bits, group, g, symmetric=False, index=None, lowest=0):
    """Codes (rows, cols), zero points (rows, groups), scales that float16 represents exactly, and the weights they mean."""
    half = 2 ** (bits - 1)
    codes = torch.randint(lowest, 2 * half, (rows, cols), generator=g)
    zeros = torch.full((rows, cols // group), half)
    if not symmetric:
        zeros = zeros + torch.randint(-half // 2, half // 2, zeros.shape, generator=g)
    scales = ((0.5 + torch.rand(rows, cols // group, generator=g)) / half / cols**0.5).bfloat16().half()
    index = torch.arange(cols) // group if index is None else index
    return codes, zeros, scales, scales.float()[:, index] * (codes - zeros[:, index])


def gptq(name, shape, g, tensors, bits, group, act_order, symmetric=False, lowest=0, stored_less=1):
    rows, cols = shape
    group = group or cols
    index = torch.arange(cols) // group
    if act_order:
        index = index[torch.randperm(cols, generator=g)]
    codes, zeros, scales, weight = random_codes(rows, cols, bits, group, g, symmetric, index, lowest)
    tensors[name + ".qweight"] = words(codes.T, bits, 0)
    tensors[name + ".qzeros"] = words(zeros.T - stored_less, bits, 1)
    tensors[name + ".scales"] = scales.T.contiguous()
    tensors[name + ".g_idx"] = index.int()
    return weight


def awq(name, shape, g, tensors, group):
    codes, zeros, scales, weight = random_codes(*shape, 4, group, g)
    tensors[name + ".qweight"] = words(codes.T, 4, 1, AWQ_ORDER)
    tensors[name + ".qzeros"] = words(zeros.T, 4, 1, AWQ_ORDER)
    tensors[name + ".scales"] = scales.T.contiguous()
    return weight


def pack_quantized(name, shape, g, tensors, bits, group, symmetric):
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
    group = group or shape[1]
    codes, zeros, scales, weight = random_codes(*shape, bits, group, g, symmetric)
    half = 2 ** (bits - 1)
    tensors[name + ".weight_packed"] = pack_to_int32((codes - half).to(torch.int8), bits)
    tensors[name + ".weight_scale"] = scales.bfloat16()
    tensors[name + ".weight_shape"] = torch.tensor(shape)
    if not symmetric:
        tensors[name + ".weight_zero_point"] = pack_to_int32((zeros - half).to(torch.int8), bits, 0).contiguous()
    return weight


def int_quantized(name, shape, g, tensors):
    codes, _, scales, weight = random_codes(*shape, 8, shape[1], g, True)
    tensors[name + ".weight"] = (codes - 128).to(torch.int8)
    tensors[name + ".weight_scale"] = scales.bfloat16()
    return weight


def package_arguments(num_bits=8, scale_dtype=None, **args):
    from compressed_tensors.quantization import QuantizationArgs
    return QuantizationArgs(num_bits=num_bits, scale_dtype=scale_dtype, zp_dtype=scale_dtype, **args)


def package_quantized(name, shape, g, tensors, form, **args):
    """Codes that the package compressed-tensors chooses, packs and unpacks; -128 is one of them."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
    args = package_arguments(**args)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    weight = torch.randn(shape, generator=g) * 1.3 / shape[1]**0.5
    groups = weight.unflatten(1, (-1, args.group_size or shape[1]))
    if args.strategy == "tensor":
        groups = weight.reshape(1, -1)
    if args.strategy == "block":
        rows, cols = args.block_structure
        groups = weight.unflatten(0, (-1, rows)).unflatten(2, (-1, cols)).movedim(1, 2).flatten(2)
    state = dict(weight=weight)
    if args.strategy == "tensor_group":
        state["weight_global_scale"] = generate_gparam(weight.min(), weight.max())
    scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), args, state.get("weight_global_scale"))
    scale = scale.bfloat16()  # holds those of FP8 too
    state = BaseCompressor.get_value_from_registry(form).compress(
        dict(state, weight_scale=scale.float(), weight_zero_point=zero), scheme)
    whole = package_whole(state, form, scheme)
    if state["weight_scale"].dtype == torch.float32:
        state["weight_scale"] = scale
    for key, value in state.items():
        tensors[f"{name}.{key}"] = value
    return whole


def package_whole(state, form, scheme):
    """In float32: the package gives weights the type of their scales, and bfloat16 to those of FP4."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.compressors.mx_utils import decompress_mx_scale
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    scale = state["weight_scale"]
    scale = decompress_mx_scale(scale).float() if scale.dtype == torch.uint8 else scale.float()
    if "fp4" in form:
        rows, half = state["weight_packed"].shape
        codes = unpack_fp4_from_uint8(state["weight_packed"], rows, 2 * half, torch.float32)
    elif form == "mxfp8-quantized":
        codes = state["weight"].float()
    else:
        return BaseCompressor.get_value_from_registry(form).decompress(state, scheme)["weight"].float()
    return dequantize(codes, scale, args=scheme.weights, global_scale=state.get("weight_global_scale"))


def package_config(form, targets=("Linear",), **args):
    """The configuration that llm-compressor writes into config.json."""
    from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme
    scheme = QuantizationScheme(targets=list(targets), weights=package_arguments(**args), format=form)
    says = QuantizationConfig(config_groups=dict(group_0=scheme), format=form, ignore=["lm_head"],
                              quantization_status="compressed")
    return dict(json.loads(json.dumps(says.model_dump())), quant_method="compressed-tensors")


def package(form, **args):
    return make(package_quantized, lambda: package_config(form, **args), form=form, **args)


def package_mixed(**forms):
    """A format for the matrices whose names contain each key."""
    def config():
        groups = {f"group_{i}": package_config(targets=[f"re:.*{part}.*"], **args)["config_groups"]["group_0"]
                  for i, (part, args) in enumerate(forms.items())}
        return dict(quant_method="compressed-tensors", format="mixed-precision", ignore=["lm_head"],
                    config_groups=groups)

    def quantise(name, shape, g, tensors):
        args = next(args for part, args in forms.items() if part in name)
        return package_quantized(name, shape, g, tensors, **args)

    return make(quantise, config)


def modelopt_nvfp4(name, shape, g, tensors):
    """A matrix that NVIDIA's Model Optimizer packs and unpacks."""
    from modelopt.torch.quantization.qtensor import NVFP4QTensor
    weight = torch.randn(shape, generator=g) * 1.3 / shape[1]**0.5
    packed, scale, scale_2 = NVFP4QTensor.quantize(weight, 16)
    tensors[name + ".weight"] = packed._quantized_data
    tensors[name + ".weight_scale"] = scale
    tensors[name + ".weight_scale_2"] = scale_2
    tensors[name + ".input_scale"] = torch.tensor(0.02)
    return packed.dequantize(torch.float32, scale=scale, double_scale=scale_2, block_sizes={-1: 16})


def make_modelopt(algorithm, quantise, file="hf_quant_config.json", **options):
    """The configuration in a file of its own, or converted for config.json."""
    says = dict(producer=dict(name="modelopt", version="0.47.0"), quantization=dict(
        quant_algo=algorithm, kv_cache_quant_algo=None, exclude_modules=["lm_head"]))

    def config():
        from modelopt.torch.export.convert_hf_config import convert_hf_quant_config_format
        return convert_hf_quant_config_format(says) if file == "config.json" else "drop"

    inner = make(quantise, config, **options)

    def make_folder(case, folder):
        reference = inner(case, folder)
        if file != "config.json":
            json.dump(says, open(os.path.join(folder, file), "w"), indent=2)
        return reference

    return make_folder


def make_fp8_transformers(**says):
    """A model that transformers quantises and saves, with the experts of a layer in one tensor."""
    def make_folder(case, folder):
        from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize, replace_with_fp8_linear
        from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer
        config = getattr(tr, case.family + "Config")(**{**families.SIZES, **case.config})
        model = families.randomise(getattr(tr, case.family + "ForCausalLM")(config), case.seed)
        quantizer = FineGrainedFP8HfQuantizer(tr.FineGrainedFP8Config(**says), pre_quantized=True)
        small = replace_with_fp8_linear(copy.deepcopy(model), ["lm_head"], quantizer.quantization_config, True)
        model.save_pretrained(folder)
        state = {}
        for name, weight in model.state_dict().items():
            state[name] = weight.bfloat16()
            if name + "_scale_inv" in small.state_dict():
                state.update(Fp8Quantize(quantizer).convert({name: weight}))
                with torch.no_grad():
                    weight.copy_(Fp8Dequantize(quantizer)._dequantize_one(
                        state[name], state[name + "_scale_inv"], torch.float32))
        save_file(state, os.path.join(folder, "model.safetensors"))
        edit_config(folder, quantization_config=quantizer.quantization_config.to_dict())
        return families.forward(model)

    return make_folder


def fp8(name, shape, g, tensors, block, scales="weight_scale_inv", axes=2, inputs=None):
    """Writes E4M3 codes with a scale per `block` of weights (0: the whole side); returns the weights they mean."""
    rows, cols = (side or whole for side, whole in zip(block, shape))

    def spread(scale):
        return scale.repeat_interleave(rows, 0)[:shape[0]].repeat_interleave(cols, 1)[:, :shape[1]]

    weight = torch.randn(shape, generator=g) * 1.3 / shape[1]**0.5
    padded = torch.nn.functional.pad(weight.abs(), (0, -shape[1] % cols, 0, -shape[0] % rows))
    scale = padded.unflatten(0, (-1, rows)).unflatten(2, (-1, cols)).amax((1, 3)) / 448
    codes = (weight / spread(scale)).to(torch.float8_e4m3fn)
    tensors[name + ".weight"] = codes
    tensors[f"{name}.{scales}"] = scale.reshape(scale.shape[:axes]).contiguous()
    if inputs:
        tensors[f"{name}.{inputs}"] = torch.tensor(0.02)
    return codes.float() * spread(scale)


def bitsandbytes(name, shape, g, tensors, quant_type, nested):
    """Writes what the four-bit modules of bitsandbytes save; returns the weights that they multiply with."""
    from bitsandbytes.functional import quantize_4bit
    weight = torch.randn(shape, generator=g) * 1.3 / shape[1]**0.5
    codes, state = quantize_4bit(weight, quant_type=quant_type, blocksize=64, compress_statistics=nested)
    tensors[name + ".weight"] = codes
    for key, value in state.as_dict(packed=True).items():
        tensors[f"{name}.weight.{key}"] = value
    return dequantised(codes, state)


def llm_int8(name, shape, g, tensors):
    """Writes what a Linear8bitLt of bitsandbytes saves; returns the weights it means."""
    from bitsandbytes.functional import int8_vectorwise_dequant, int8_vectorwise_quant
    weight = torch.randn(shape, generator=g) * 1.3 / shape[1]**0.5
    codes, largest, _ = int8_vectorwise_quant(weight.half())
    tensors[name + ".weight"], tensors[name + ".SCB"] = codes, largest
    tensors[name + ".weight_format"] = torch.tensor(0, dtype=torch.uint8)
    return int8_vectorwise_dequant(codes, largest)


def make_bitsandbytes(whole_weight, **load):
    """A checkpoint that transformers loaded with this quantisation and saved."""
    def make_folder(case, folder):
        config = getattr(tr, case.family + "Config")(**{**families.SIZES, **case.config})
        model = families.randomise(getattr(tr, case.family + "ForCausalLM")(config), case.seed)
        model.save_pretrained(folder)
        small = type(model).from_pretrained(folder, quantization_config=tr.BitsAndBytesConfig(**load), device_map="cpu")
        small.save_pretrained(folder)

        def whole(name, _module):
            module = small.get_submodule(name)
            linear = torch.nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
            linear.load_state_dict(dict(weight=whole_weight(module), **(
                {} if module.bias is None else dict(bias=module.bias))))
            return linear

        replace_linears(model, whole)
        return families.forward(model)

    return make_folder


def whole_4bit(module):
    return dequantised(module.weight.data, module.weight.quant_state)


def whole_8bit(module):
    from transformers.integrations.bitsandbytes import dequantize_bnb_weight
    return dequantize_bnb_weight(module.weight, module.state).float()


def dequantised(codes, state):
    """Dequantises the matrix as one row: if rows are not multiples of a block, bitsandbytes 0.50 on a CPU uses wrong scales."""
    from bitsandbytes.functional import dequantize_4bit
    shape, state.shape = state.shape, torch.Size([1, state.shape.numel()])
    return dequantize_4bit(codes, state).reshape(shape)


def compressed_fp8(strategy):
    weights = dict(num_bits=8, type="float", symmetric=True, strategy=strategy, dynamic=False)
    return dict(quant_method="compressed-tensors", format="float-quantized", ignore=["lm_head"],
                config_groups=dict(group_0=dict(targets=["Linear"], weights=weights)))


def compressed(form, bits, group=None, symmetric=True, activations=None):
    weights = dict(num_bits=bits, type="int", symmetric=symmetric, strategy="group" if group else "channel",
                   group_size=group, dynamic=False)
    return dict(quant_method="compressed-tensors", format=form, ignore=["lm_head"], quantization_status="compressed",
                config_groups=dict(group_0=dict(targets=["Linear"], weights=weights, input_activations=activations)))


def make(quantise, quantization_config, **options):
    """A checkpoint of the family in which `quantise` writes the layers' matrices as codes. The configuration may be a
    function, which is called when the checkpoint is written."""
    def make_folder(case, folder):
        config = getattr(tr, case.family + "Config")(**{**families.SIZES, "intermediate_size": 40, **case.config})
        model = families.randomise(getattr(tr, case.family + "ForCausalLM")(config), case.seed)
        model.save_pretrained(folder)
        path = os.path.join(folder, "model.safetensors")
        g = torch.Generator().manual_seed(case.seed)
        tensors = {k: v.bfloat16() for k, v in load_file(path).items()}

        def pack(name, shape):
            tensors.pop(name + ".weight")
            return quantise(name, tuple(shape), g, tensors, **options)

        def linear(name, module):
            with torch.no_grad():
                module.weight.copy_(pack(name, module.weight.shape))
            return module

        replace_linears(model, linear)
        pack_experts(model, pack)
        save_file(tensors, path)
        edit_config(folder, quantization_config=(
            quantization_config() if callable(quantization_config) else quantization_config))
        return families.forward(model)

    return make_folder


def pack_experts(model, pack):
    """Packs experts, which are one tensor per layer in the model and separate tensors in the files."""
    block, gate, up, down = ("block_sparse_moe", "w1", "w3", "w2") if model.config.model_type == "minimax_m2" else (
        "mlp", "gate_proj", "up_proj", "down_proj")
    for i, layer in enumerate(model.model.layers):
        experts = getattr(layer.mlp, "experts", None)
        if experts is None:
            continue
        with torch.no_grad():
            for e in range(len(experts.down_proj)):
                name = f"model.layers.{i}.{block}.experts.{e}."
                half = experts.gate_up_proj.shape[1] // 2
                shape = (half, experts.gate_up_proj.shape[2])
                experts.gate_up_proj[e, :half] = pack(name + gate, shape)
                experts.gate_up_proj[e, half:] = pack(name + up, shape)
                experts.down_proj[e] = pack(name + down, experts.down_proj.shape[1:])
